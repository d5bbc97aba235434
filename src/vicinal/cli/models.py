"""Creating, saving and loading the models of the command line.

A model is a scikit-learn Pipeline of a TableEncoder, a StandardScaler (not with ``--no-scale``) and a vicinal estimator.
Models that were made in Python may have other steps, or none.
"""

import ast
import dataclasses
from argparse import Namespace
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from vicinal._compare.learned import learned_step
from vicinal._detect.steps import Steps, flat_steps
from vicinal._words import one_line, shown
from vicinal.cli.columns import Picked, pick_features
from vicinal.cli.console import Console
from vicinal.cli.errors import DATA, FIT, MODEL, USAGE, Failure
from vicinal.cli.outputs import output_failure
from vicinal.cli.tables import Block, all_columns, blocks, read_table, split_names, table_options
from vicinal.cli.workers import each_part

if TYPE_CHECKING:
    import pandas as pd
    from sklearn.base import BaseEstimator

    from vicinal._engine import Engine


_SLOW_TO_RANK = 50_000  # training rows
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

    from vicinal._engine import rows_on_cluster

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
    """A fitted model.

    pipeline : the saved estimator, without steps that do nothing
    whole : the same without its encoder, with `transform` or `score_samples` of the features
    estimator : the metric or density
    encoder : the TableEncoder at the beginning, or None
    names, n_features : of the features
    log_scale : the logarithm of the volume to which a unit volume of the features is mapped; NaN if it is not known
    detector : the DensityOutlierDetector of the density, if the file holds the scores of its training rows
    """

    pipeline: Any
    whole: Any
    estimator: Any
    encoder: Any
    names: Any
    n_features: int
    log_scale: float
    detector: Any = None

    @property
    def kind(self) -> str:
        """The class of the estimator."""
        return type(self.estimator).__name__

    @property
    def steps(self) -> list[Any]:
        """All estimators but the encoder."""
        return flat_steps(self.whole)

    def note_order(self, console: Console) -> None:
        """Print that columns are matched by their order, if the model has no names for them."""
        if self.encoder is None and self.names is None:
            console.say("the model has no column names, so the numeric columns are used in their order.")

    @classmethod
    def of_pipeline(cls, pipeline: Any) -> Self:
        """Return the parts of a fitted pipeline, or of an estimator alone."""
        from vicinal._tables import TableEncoder

        encoder, whole, steps = None, pipeline, flat_steps(pipeline)
        if isinstance(steps[0], TableEncoder):
            encoder, whole = steps[0], pipeline[1:]
        names = getattr(whole, "feature_names_in_", None) if encoder is None else encoder.get_feature_names_out()
        log_scale = Steps(pipeline).log_volume()
        return cls(pipeline, whole, learned_step(pipeline), encoder, names, whole.n_features_in_, log_scale)


def save_model(model: "BaseEstimator", path: str, *, ranked: bool = False) -> None:
    """Write a model file completely or not at all; with `ranked`, of the density of a detector, with the scores of its training rows."""
    from vicinal._model_files.model_file import write_model

    try:
        write_model(model, path, ranked=ranked)
    except OSError as error:
        raise output_failure(path, error) from error


def load_model(path: str, engine: "Engine | None") -> Model:
    """Load a model file, and set its engine."""
    from sklearn.pipeline import Pipeline

    from vicinal._model_files.model_file import read_model
    from vicinal._tables import TableEncoder

    try:
        pipeline, detector = read_model(path)
    except FileNotFoundError as error:
        raise Failure(MODEL, f"cannot load {path}: there is no such file.") from error
    except (ValueError, OSError) as error:
        raise Failure(MODEL, one_line(error)) from error
    steps = flat_steps(pipeline)
    if all(isinstance(step, TableEncoder) for step in steps):
        raise Failure(
            MODEL,
            f"{path} holds {'only a TableEncoder, which prepares tables' if steps else 'no estimator'}. Save a pipeline that "
            "ends with a metric or a density.",
        )
    if isinstance(pipeline, Pipeline):
        pipeline = Pipeline([(f"step {i}", step) for i, step in enumerate(steps)])
    estimator = learned_step(pipeline)
    if not hasattr(pipeline, "n_features_in_"):
        raise Failure(MODEL, f"{path} holds a {type(estimator).__name__} that was not fitted. Fit it before saving.")
    set_engine(estimator, engine)
    return Model.of_pipeline(pipeline)._replace(detector=detector)


def open_model(arguments: Namespace, console: Console) -> "tuple[Model, pd.DataFrame, Picked]":
    """Return the model, the table and the model's columns of it."""
    model = load_model(arguments.model, make_engine(arguments))
    missing = how_to_treat_gaps(arguments, model)
    table = read_table(arguments.data, table_options(arguments), console)
    model.note_order(console)
    return model, table, pick_features(table, model, console, missing)


def blocks_for(model: "Model", arguments: Namespace, console: Console) -> Iterator[Block]:
    """Yield the blocks of the table, with the columns that the model reads and those of ``--keep``."""

    def choose(columns: list[str]) -> list[str] | None:
        needed = {*model.encoder.used_columns, *split_names(arguments.keep, columns)}
        if not needed <= set(columns):
            return None  # the message about a missing column lists all of them
        return [column for column in columns if column in needed or column in model.encoder.constants_]

    choice = all_columns if model.encoder is None else choose
    return blocks(arguments.data, table_options(arguments), console, choice)


def how_to_treat_gaps(arguments: Namespace, model: Model, *, marginalise: bool = False) -> str:
    """Return what is done about missing values: "refuse", "drop", or "keep" if the model can use such rows."""
    from vicinal import DensityImputer

    imputes = any(isinstance(step, DensityImputer) for step in model.steps)
    if arguments.missing == "impute" and not imputes:
        raise Failure(USAGE, "--missing impute: the model has no imputer. Learn it with --missing impute.")
    known_values = marginalise and (hasattr(model.estimator, "marginal") or hasattr(model.estimator, "p_values"))
    if arguments.missing in ("refuse", "impute") and (imputes or known_values):
        return "keep"
    if arguments.missing != "marginalise":
        return arguments.missing
    if not known_values:
        raise Failure(
            USAGE,
            f"--missing marginalise is for the scores of densities; {model.kind} cannot use the known values of a row"
            f"{' here' if marginalise else ' to map it'}. Pass --missing drop.",
        )
    return "keep"


def say_if_slow_to_rank(density: Any, console: Console) -> None:
    """Print that score ranks the training rows of a density, if there are so many that it takes long."""
    n = len(getattr(getattr(density, "mixture_", None), "centres", ()))
    if n > _SLOW_TO_RANK:
        console.say(
            f"score first ranks the {n:,} training rows, each without itself; learn with --max-rows {_SLOW_TO_RANK} to make it faster."
        )


def check_method(model: Model, name: str, otherwise: str) -> None:
    """Raise an error that states what the model is, if it has no such method."""
    if not hasattr(model.whole, name):
        raise Failure(MODEL, f"the model is a {model.kind}: {otherwise}. It has no {name}.")


def images_of_rows(model: Model, features: "pd.DataFrame", console: Console) -> np.ndarray:
    """Return the images of rows under the metric, part by part."""
    from sklearn.exceptions import NotFittedError

    rows = features if getattr(model.whole, "feature_names_in_", None) is not None else features.to_numpy()
    try:
        return np.concatenate(each_part(model.whole.transform, rows, console, "transforming rows"))
    except NotFittedError as error:
        raise Failure(MODEL, one_line(error)) from error
    except (ValueError, TypeError) as error:
        raise Failure(DATA, one_line(error)) from error
