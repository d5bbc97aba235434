"""Creating, saving and loading the models of the command line.

A model is a scikit-learn Pipeline of a TableEncoder, a StandardScaler (not with ``--no-scale``) and a vicinal estimator.
Models that were made in Python may have other steps, or none.
"""

import ast
import dataclasses
from argparse import Namespace
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from vicinal.cli.console import one_line, shown
from vicinal.cli.errors import FIT, MODEL, USAGE, Failure
from vicinal.cli.outputs import output_failure

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator

    from vicinal._engine import Engine


CLASSES = {
    "lca": "LCA",
    "lca-gauss": "LCAGauss",
    "local-lca": "LocalLCA",
    "rca": "RCA",
    "nca": "NCA",
    "parzen": "ParzenWindows",
    "manifold-parzen": "ManifoldParzen",
}


def make_estimator(method: str, assignments: Iterable[str], seed: int, *, class_name: str | None = None) -> Any:
    """Return an unfitted estimator of a method with the parameters of ``--set NAME=VALUE``."""
    import vicinal

    estimator = getattr(vicinal, class_name or CLASSES[method])()
    if "random_state" in estimator.get_params(deep=False):
        estimator.set_params(random_state=seed)
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals or not name:
            raise Failure(USAGE, f"--set expects NAME=VALUE, got {assignment!r}.")
        try:
            set_parameter(estimator, name, _literal(text))
        except (TypeError, ValueError) as error:
            raise Failure(USAGE, f"--set {assignment}: {one_line(error)}") from error
    return estimator


def set_parameter(estimator: Any, name: str, value: Any) -> None:
    """Set a parameter, or a field of the record that a parameter may hold (``solver__batch_size``)."""
    records = {key: kind for key, kind in getattr(estimator, "_record_types", {}).items() if key != "engine"}
    fields = [f"{key}__{field.name}" for key, kind in records.items() for field in dataclasses.fields(kind)]
    known = sorted({*estimator.get_params(deep=False)} - {"engine", "callback"} | {*fields})
    if name not in known:
        raise Failure(
            USAGE, f"--set {name}: {type(estimator).__name__} has no such parameter. It has {shown(known, most=40)}."
        )
    parameter = name.partition("__")[0]
    if name in fields and not isinstance(getattr(estimator, parameter), records[parameter]):
        # A string selects a record with its defaults, whose field is then set.
        estimator.set_params(**{parameter: records[parameter].named(getattr(estimator, parameter))})
    estimator.set_params(**{name: value})


def _literal(text: str) -> Any:
    """Return a number, list, True, None ... or else the text itself."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


def make_engine(arguments: Namespace) -> "Engine":
    """Return the Engine of ``--threads`` and ``--memory``."""
    from vicinal import Engine

    try:
        return Engine(threads=arguments.threads, memory=arguments.memory)
    except ValueError as error:
        raise Failure(USAGE, f"--memory: {error}") from error


def engine_for(engine: "Engine", n_rows: int) -> "Engine":
    """Return the engine for a whole fit: with many passes, compiled kernels are worthwhile for fewer rows.

    With ``--workers`` and ``--cluster``, the workers run these kernels.
    """
    from dataclasses import replace

    from vicinal._dask import rows_on_cluster

    return replace(engine, kind="dask" if rows_on_cluster() else "cpu") if n_rows > 1_000 else engine


def fit_failure(estimator: Any, error: Exception) -> Failure:
    """Return the failure for an error of `fit`, which names parameters as Python does."""
    advice = " (The command sets parameters with --set NAME=VALUE.)"
    return Failure(FIT, f"{type(estimator).__name__}: {one_line(error)}{advice}")


def set_engine(estimator: Any, engine: "Engine | None") -> None:
    """Set the engine of an estimator, which may already be fitted."""
    for owner in (estimator, getattr(estimator, "mixture_", None)):
        if owner is not None and "engine" in vars(owner):
            owner.engine = engine


class Model(NamedTuple):
    """A loaded model.

    pipeline : the saved estimator
    whole : the same without its encoder, with `transform` or `score_samples` of the features
    estimator : the metric or density
    encoder : the TableEncoder at the beginning, or None
    names, n_features : of the features
    log_scale : the logarithm of the volume to which a unit volume of the features is mapped; NaN if it is not known
    """

    pipeline: Any
    whole: Any
    estimator: Any
    encoder: Any
    names: Any
    n_features: int
    log_scale: float

    @property
    def kind(self) -> str:
        """The class of the estimator."""
        return type(self.estimator).__name__


def steps_of(model: Any) -> list[Any]:
    """Return the estimators of a loaded model."""
    from sklearn.pipeline import Pipeline

    return [step for _, step in model.steps] if isinstance(model, Pipeline) else [model]


def _flattened(model: Any) -> Any:
    """Return a pipeline in which pipelines are replaced by their steps, without steps that do nothing."""
    from sklearn.pipeline import Pipeline

    if not isinstance(model, Pipeline):
        return model
    found: list[tuple[str, Any]] = []
    for name, step in model.steps:
        if isinstance(step, Pipeline):
            found += [(f"{name}-{inner}", part) for inner, part in _flattened(step).steps]
        elif not (step is None or isinstance(step, str)):  # a text is "passthrough"
            found.append((name, step))
    return Pipeline(found)


def save_model(model: "BaseEstimator", path: str) -> None:
    """Write a model file completely or not at all."""
    from vicinal import io

    try:
        io.save(model, path)
    except OSError as error:
        raise output_failure(path, error) from error


def load_model(path: str, engine: "Engine | None") -> Model:
    """Load a model file, and set its engine."""
    from vicinal import io
    from vicinal._compare.folds import learned_step
    from vicinal._detect.steps import Steps
    from vicinal._tables import TableEncoder

    try:
        pipeline = whole = _flattened(io.load(path))
    except FileNotFoundError as error:
        raise Failure(MODEL, f"cannot load {path}: there is no such file.") from error
    except (ValueError, OSError) as error:
        raise Failure(MODEL, one_line(error)) from error
    steps = steps_of(whole)
    if all(isinstance(step, TableEncoder) for step in steps):
        raise Failure(
            MODEL,
            f"{path} holds {'only a TableEncoder, which prepares tables' if steps else 'no estimator'}. Save a pipeline that "
            "ends with a metric or a density.",
        )
    estimator = learned_step(whole)
    if not hasattr(whole, "n_features_in_"):
        raise Failure(MODEL, f"{path} holds a {type(estimator).__name__} that was not fitted. Fit it before saving.")
    set_engine(estimator, engine)
    encoder, log_scale = None, Steps(whole).log_volume()
    if isinstance(steps[0], TableEncoder):
        encoder, whole = steps[0], whole[1:]
    names = getattr(whole, "feature_names_in_", None) if encoder is None else encoder.get_feature_names_out()
    return Model(pipeline, whole, estimator, encoder, names, whole.n_features_in_, log_scale)
