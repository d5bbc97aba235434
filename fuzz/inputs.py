"""Inputs of all kinds to all estimators and methods give a correct result or a clear error.

A case draws an estimator, a table of rows (shape, dtype, layout, container, scale, gaps), labels and weights, fits the
estimator, and calls one method on other rows. A result must hold numbers (no NaN, and minus infinity only as a
log-probability); in a share of the cases it must agree with that of the reference engine. An error must be a ValueError or
TypeError with a message of this library or of scikit-learn's checks; a RuntimeWarning of NumPy is a failure.
"""

import inspect
import re
import warnings
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse
from sklearn.base import BaseEstimator, clone
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

import vicinal as v
from fuzz.harness import Bad, Case, Skip

CASES = 100_000
UNTIMED = 20  # the first cases import packages and compile kernels
# The methods that are called; the value is True if the result may contain minus infinity.
QUESTIONS = {
    "score_samples": True, "predict": False, "predict_proba": False, "predict_log_proba": True, "transform": False,
    "decision_function": True, "p_values": False, "effective_neighbors": False, "score": True,
    "get_mahalanobis_matrix": False, "sample": False, "mahalanobis": False, "pair_distance": False, "explain": False,
    "predict_joint_log_proba": True, "draw": False, "fit_predict": False, "fit_transform": False, "partial_fit": False,
    "marginal": True, "conditional": True, "held_out_score_samples": True, "local_distances": False,
    "local_metric": False, "local_map": False, "predict_std": False, "inverse_transform": False, "transform_training_rows": False,
}  # fmt: skip
# How a method is called if it takes more than new rows: a function of the estimator, the training rows, their labels and new rows.
_ASKED = {
    "sample": lambda fitted, X, y, new: fitted.sample(3),
    "get_mahalanobis_matrix": lambda fitted, X, y, new: fitted.get_mahalanobis_matrix(),
    "held_out_score_samples": lambda fitted, X, y, new: fitted.held_out_score_samples(),
    "pair_distance": lambda fitted, X, y, new: fitted.pair_distance([[0, _length(new) - 1], [0, 0]], new),
    "explain": lambda fitted, X, y, new: fitted.explain(new).shares,
    "draw": lambda fitted, X, y, new: fitted.draw(new, 2),
    "fit_predict": lambda fitted, X, y, new: fitted.fit_predict(X, y),
    "fit_transform": lambda fitted, X, y, new: fitted.fit_transform(X, y),
    "transform_training_rows": lambda fitted, X, y, new: fitted.transform_training_rows(X),
    # Not the components: where the rows spread equally along several directions, any rotation of these is as good.
    "partial_fit": lambda fitted, X, y, new: fitted.partial_fit(
        new, y if y is None else y[: _length(new)]
    ).get_mahalanobis_matrix(),
    "marginal": lambda fitted, X, y, new: fitted.marginal([0]).score_samples(np.zeros((2, 1))),
    "conditional": lambda fitted, X, y, new: fitted.conditional({0: 0.0}).score_samples(
        np.zeros((2, fitted.n_features_in_ - 1))
    ),
    "local_distances": lambda fitted, X, y, new: fitted.local_distances(np.zeros(fitted.n_features_in_), new),
    "local_map": lambda fitted, X, y, new: fitted.local_map(np.zeros(fitted.n_features_in_)),
    "score": lambda fitted, X, y, new: (
        fitted.score(new, y[: _length(new)]) if _wants_labels(fitted.score) else fitted.score(new)
    ),
}
ESTIMATORS = {
    "AnchorNCA": lambda: v.AnchorNCA(max_iter=2, random_state=0),
    "BinnedTargetMetric": lambda: v.companions.BinnedTargetMetric(v.RCA(), n_bins=3),
    "ConstrainedGaussianMixture": lambda: v.companions.ConstrainedGaussianMixture(2, max_iter=20),
    "ConstrainedKMeans": lambda: v.companions.ConstrainedKMeans(2, n_init=1),
    "DensityClassifier": lambda: v.DensityClassifier(v.ParzenWindows(1.0)),
    "DensityImputer": lambda: v.DensityImputer(v.ParzenWindows(1.0)),
    "DensityOutlierDetector": lambda: v.DensityOutlierDetector(v.ParzenWindows(1.0)),
    "Dequantizer": lambda: v.Dequantizer(),
    "LCA": lambda: v.LCA(max_iter=10),
    "LCA, no penalty": lambda: v.LCA(reg=0.0, max_iter=10),
    "LCA, diagonal": lambda: v.LCA("diag", reg=0.1, max_iter=10),
    "LCAGauss": lambda: v.LCAGauss(reg=0.1, reg_gauss=0.1, max_iter=10),
    "LocalLCA": lambda: v.LocalLCA(reg=0.1),
    "MMC": lambda: v.companions.MMC(max_iter=20),
    "ManifoldParzen": lambda: v.ManifoldParzen(n_neighbors=3, n_components=1),
    "NCA": lambda: v.NCA(max_iter=5, random_state=0),
    "NCA, lda": lambda: v.NCA(1, init="lda", max_iter=3, random_state=0),
    "OnlineRCA": lambda: v.OnlineRCA(),
    "PairNCA": lambda: v.PairNCA(max_iter=3, random_state=0),
    "ParzenMeanShift": lambda: v.ParzenMeanShift(v.ParzenWindows(1.0), max_iter=20),
    "ParzenWindows": lambda: v.ParzenWindows(),
    "ParzenWindows, scott": lambda: v.ParzenWindows("scott"),
    "ParzenWindows, wide": lambda: v.ParzenWindows(1e100),
    "RCA": lambda: v.RCA(),
    "RCA, cross-validated": lambda: v.RCA(shrinkage="cv"),
    "SoftNeighborsClassifier": lambda: v.SoftNeighborsClassifier(),
    "SoftNeighborsRegressor": lambda: v.SoftNeighborsRegressor(),
    "TableEncoder": lambda: v.TableEncoder(),
    "pipeline": lambda: make_pipeline(StandardScaler(), v.ParzenWindows()),
}
# Messages of other libraries about numbers that should not have been passed to them.
OBSCURE = re.compile(
    r"infs or NaNs|cannot convert float|Buffer dtype|out of bounds|broadcast|operands|SVD did not|not converge"
    r"|object is not|has no attribute|unsupported operand|unhashable|ufunc|not subscriptable|Singular matrix|leading minor"
    r"|have no points|ambiguous|could not be promoted|must be real number"
)
_NAMED = re.compile(
    r"\b(X|y|rows?|columns?|features?|samples?|sample_weight|weights?|classes|class|labels?|chunklets?|arrays?|data|matrices)\b"
)


def check(case: Case) -> str:
    """Fit one estimator and call one method."""
    name = str(case.choice(list(ESTIMATORS)))
    case.what, estimator = name, ESTIMATORS[name]()
    n, d = int(case.choice([1, 2, 3, 5, 12, 30])), int(case.choice([1, 2, 3, 5]))
    X, plain = _table(case, n, d)
    y = _labels(case, n)
    options = {"sample_weight": _weights(case, n)} if case.chance(0.3) else {}
    if options and "sample_weight" not in inspect.signature(estimator.fit).parameters:
        options = {}
    asked = [method for method in QUESTIONS if callable(getattr(type(estimator), method, None))]
    question = "score_samples" if name == "pipeline" else str(case.choice(asked))
    new, _ = _table(case, int(case.choice([1, 2, 7])), d) if case.chance(0.7) else (X, False)
    case.text = f"{name}, {case.text}, then {question}"
    try:
        answer = _ask(estimator, X, y, options, question, new)
    except (ValueError, TypeError) as error:
        _check_words(error, estimator)
        return "a clear error"
    # The encoder passes infinite entries on to the estimator, which reports them. A row with a gap has no image, and a warning says so.
    maps_gaps = "a gap" in case.text and (name == "Dequantizer" or question in ("transform", "fit_transform"))
    passes_gaps = name == "TableEncoder" or maps_gaps
    if (
        question != "score" or _length(new) > 1
    ) and not passes_gaps:  # R² of one row is NaN by scikit-learn's definition
        _check_numbers(answer, question)
    if plain and not options and case.chance(0.3):
        _check_reference(ESTIMATORS[name](), X, y, question, new, answer)
        return "an answer, as by the reference"
    return "an answer"


def _ask(estimator: BaseEstimator, X: Any, y: Any, options: dict, question: str, new: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.filterwarnings("error", category=RuntimeWarning, module="vicinal")
        estimator.fit(X, y, **options)
        if question in _ASKED:
            return _ASKED[question](estimator, X, y, new)
        return getattr(estimator, question)(new)


def _length(rows: Any) -> int:
    shape = np.shape(rows) if not hasattr(rows, "shape") else rows.shape
    return shape[0] if len(shape) else 1


def _wants_labels(method: Any) -> bool:
    needed = inspect.signature(method).parameters.get("y")
    return needed is not None and needed.default is inspect.Parameter.empty


def _check_words(error: Exception, estimator: BaseEstimator) -> None:
    text = str(error)
    known = [*estimator.get_params(), type(estimator).__name__, "Expected", "input", "Found", "must"]
    if isinstance(estimator, Pipeline):
        known.append("could not convert string to float")  # the message of scikit-learn's scaler
    if isinstance(error, np.linalg.LinAlgError) or OBSCURE.search(text):
        raise Bad(f"not a clear error: {type(error).__name__}: {text}") from error
    if not (_NAMED.search(text) or any(word in text for word in known)):
        raise Bad(f"the error names nothing: {type(error).__name__}: {text}") from error


def _check_numbers(answer: Any, question: str) -> None:
    values = answer[0] if isinstance(answer, tuple) else answer
    values = values.toarray() if scipy.sparse.issparse(values) else np.asarray(values)
    if values.dtype.kind not in "fc":
        return
    if np.isnan(values).any():
        raise Bad(f"{question} answers NaN")
    if np.isposinf(values).any() or (np.isneginf(values).any() and not QUESTIONS[question]):
        raise Bad(f"{question} answers an infinite number")


def _check_reference(estimator: BaseEstimator, X: Any, y: Any, question: str, new: Any, answer: Any) -> None:
    engines = {name: "reference" for name in estimator.get_params() if name.split("__")[-1] == "engine"}
    if not engines or question in ("sample", "draw"):  # random
        return
    expected = _ask(clone(estimator).set_params(**engines), X, y, {}, question, new)
    got, expected = np.asarray(answer), np.asarray(expected)
    if got.dtype.kind in "OSU":  # labels that are texts
        if not np.array_equal(got, expected):
            raise Bad(f"{question} differs from that of the reference engine")
        return
    got, expected = got.astype(float), expected.astype(float)
    with np.errstate(invalid="ignore"):
        slack = 1e-6 * (1.0 + np.abs(expected).max(initial=0.0))
        same = np.isclose(got, expected, rtol=1e-4, atol=slack) | (np.isnan(got) & np.isnan(expected))
    if not (same | (got == expected)).all():
        raise Bad(f"{question} differs from that of the reference engine by {np.nanmax(np.abs(got - expected)):.3g}")


# -- tables, labels and weights ----------------------------------------------------------------------------------------


def _table(case: Case, n: int, d: int) -> tuple[Any, bool]:
    """Return rows in some container, and whether they are ordinary numbers of ordinary size."""
    rng = case.rng
    kind = str(case.choice(["normal"] * 6 + ["equal", "constant", "twins", "collinear", "whole", "zeros", "heavy"]))
    X = rng.normal(size=(n, d))
    if kind == "equal":
        X = np.repeat(X[:1], n, axis=0)
    elif kind == "constant":
        X[:, 0] = 3.7
    elif kind == "twins":
        X = X[rng.integers(n, size=n)]
    elif kind == "collinear":
        X = X[:, :1] * rng.normal(size=d)
    elif kind == "whole":
        X = np.round(3 * X)
    elif kind == "zeros":
        X *= 0.0
    elif kind == "heavy":
        X = np.sinh(4.0 * X)
    scale = str(case.choice(["one"] * 5 + ["all", "column", "offset"]))
    with np.errstate(all="ignore"):
        if scale == "all":
            X = X * 10.0 ** rng.uniform(-320, 308)
        elif scale == "column":
            X = X * 10.0 ** (rng.uniform(-320, 308, size=d) * rng.integers(2, size=d))
        elif scale == "offset":
            X = X + 10.0 ** rng.uniform(0, 12)
    if case.chance(0.06):
        X[rng.integers(n), rng.integers(d)] = case.choice([np.nan, np.inf, -np.inf])
        case.text += " a gap in"
    container = str(case.choice(["array"] * 40 + _CONTAINERS))
    case.text += f" {n} x {d} {kind} rows, scale {scale}, as {container};"
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = _contained(X, container)
    return made, kind in ("normal", "whole") and scale == "one" and container in ("array", "fortran", "frame", "list")


_CONTAINERS = [
    "float32", "float16", "int64", "bool", "object", "text", "complex", "fortran", "strided", "reversed", "read-only",
    "list", "frame", "nullable", "mixed frame", "polars", "sparse", "masked", "one axis", "three axes", "no rows",
    "no columns", "memmap", "big-endian", "None", "scalar", "tensor", "longdouble", "matrix of lists",
]  # fmt: skip


def _contained(X: np.ndarray, container: str) -> Any:
    n, d = X.shape
    if container == "polars":
        try:
            import polars
        except ImportError:
            raise Skip("polars is not installed") from None
        return polars.DataFrame({f"c{i}": X[:, i] for i in range(d)})
    if container == "tensor":
        import torch

        return torch.from_numpy(X)
    read_only = X.copy()
    read_only.flags.writeable = False
    whole = np.where(np.isfinite(X), np.clip(X, -1e15, 1e15), 0)
    makers = {
        "array": lambda: X, "float32": lambda: X.astype(np.float32), "float16": lambda: X.astype(np.float16),
        "int64": lambda: whole.astype(np.int64), "bool": lambda: X > 0, "object": lambda: X.astype(object),
        "text": lambda: X.astype(str), "complex": lambda: X + 1j, "fortran": lambda: np.asfortranarray(X),
        "strided": lambda: np.repeat(np.repeat(X, 2, axis=0), 3, axis=1)[::2, ::3], "reversed": lambda: X[::-1, ::-1],
        "read-only": lambda: read_only, "list": lambda: X.tolist(), "frame": lambda: pd.DataFrame(X).add_prefix("c"),
        "nullable": lambda: pd.DataFrame(X).add_prefix("c").convert_dtypes(),
        "mixed frame": lambda: pd.DataFrame(X).add_prefix("c").assign(text="a"), "sparse": lambda: scipy.sparse.csr_array(X),
        "masked": lambda: np.ma.masked_invalid(X), "one axis": lambda: X[:, 0], "three axes": lambda: X[None],
        "no rows": lambda: X[:0], "no columns": lambda: X[:, :0], "memmap": lambda: X.view(np.memmap),
        "big-endian": lambda: X.astype(">f8"), "None": lambda: None, "scalar": lambda: 3.0,
        "longdouble": lambda: X.astype(np.longdouble), "matrix of lists": lambda: [[[1.0]] * d] * n,
    }  # fmt: skip
    return makers[container]()


def _labels(case: Case, n: int) -> Any:
    codes = case.rng.integers(2 if n < 12 else 3, size=n)
    kind = str(case.choice(["codes"] * 30 + _LABELS))
    case.text += f" labels {kind};"
    missing = np.where(np.arange(n) == 0, None, codes)
    makers = {
        "codes": lambda: codes, "texts": lambda: np.array(["a", "b", "c"])[codes], "numbers": lambda: case.rng.normal(size=n),
        "none": lambda: None, "one class": lambda: np.zeros(n, dtype=int), "all different": lambda: np.arange(n),
        "list": lambda: codes.tolist(), "series": lambda: pd.Series(codes, index=np.arange(n)[::-1]),
        "missing": lambda: np.where(np.arange(n) == 0, np.nan, codes), "Int64": lambda: pd.array(missing, dtype="Int64"),
        "categories": lambda: pd.Categorical(missing), "objects": lambda: missing, "bool": lambda: codes > 0,
        "short": lambda: codes[:-1], "two columns": lambda: np.column_stack([codes, codes]), "text": lambda: "target",
        "infinite": lambda: np.where(np.arange(n) == 0, np.inf, 1.0), "mixed": lambda: [*["a"] * (n // 2), *range(n - n // 2)],
        "huge": lambda: codes * 1e300, "chunklets": lambda: np.where(codes == 0, -1, np.arange(n) // 2), "dates": lambda: np.arange(n).astype("M8[D]"),
        "large integers": lambda: codes.astype(np.uint64) + np.uint64(2**63),
    }  # fmt: skip
    return makers[kind]()


_LABELS = [
    "texts", "numbers", "none", "one class", "all different", "list", "series", "missing", "Int64", "categories", "objects",
    "bool", "short", "two columns", "text", "infinite", "mixed", "huge", "chunklets", "dates", "large integers",
]  # fmt: skip


def _weights(case: Case, n: int) -> Any:
    rng = case.rng
    kind = str(
        case.choice(
            ["ordinary", "ones", "zeros", "some zero", "negative", "nan", "wide", "tiny", "huge", "short", "text"]
        )
    )
    case.text += f" weights {kind};"
    makers = {
        "ordinary": lambda: rng.uniform(0.1, 2.0, size=n), "ones": lambda: np.ones(n), "zeros": lambda: np.zeros(n),
        "some zero": lambda: (rng.random(n) < 0.5) * 1.0, "negative": lambda: rng.normal(size=n),
        "nan": lambda: np.where(np.arange(n) == 0, np.nan, 1.0), "wide": lambda: 10.0 ** rng.uniform(-300, 300, size=n),
        "tiny": lambda: np.full(n, 1e-320), "huge": lambda: np.full(n, 1e308), "short": lambda: np.ones(n + 1),
        "text": lambda: ["a"] * n,
    }  # fmt: skip
    return makers[kind]()
