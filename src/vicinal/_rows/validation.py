"""Validation of the rows that users pass: every message states what was expected, what was passed, and the remedy."""

from __future__ import annotations

import mmap
import numbers
from collections.abc import Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from sklearn.utils import validation
from sklearn.utils.validation import _check_sample_weight

from vicinal._checks import shown_columns
from vicinal._row_sources import ArrayRows, all_rows, as_source, in_file
from vicinal._tensors import as_host, remember

try:
    import resource
except ImportError:  # Windows has no such limits
    resource = None  # type: ignore[assignment]

_BLAS_BYTES = 64 * 2**20  # the working memory that the OpenBLAS of NumPy and that of SciPy allocate for a thread


@cache
def allocate_blas_memory() -> None:
    """Raise a MemoryError if a limit on the address space (``ulimit -v``) leaves no room for the working memory of BLAS.

    Without room, NumPy's OpenBLAS would end the process at its first use, and SciPy's (0.3.30) would try again forever.
    """
    if resource is None or resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY:
        return
    try:
        mmap.mmap(-1, _BLAS_BYTES).close()
    except OSError:
        raise MemoryError(
            f"linear algebra needs {_BLAS_BYTES // 2**20} MB of address space for the working memory of BLAS, and the limit of "
            "this process leaves less. Raise the limit (ulimit -v)."
        ) from None
    np.linalg.cholesky(np.eye(2))
    scipy.linalg.cholesky(np.eye(2))


def check_array(array: Any, **options: Any) -> NDArray[Any]:
    """Call scikit-learn's ``check_array``, with a declared return type; every error names the argument."""
    name = options.get("input_name", "the array")
    try:
        with np.errstate(invalid="ignore"):  # the sum of infinities of both signs would warn before the error
            return validation.check_array(array, **options)
    except (TypeError, OverflowError) as error:
        raise TypeError(f"{name} must be an array of numbers, got {type(array).__name__} ({error}).") from None
    except ValueError as error:
        if name in str(error):
            raise
        if "could not convert string" in str(error):
            raise ValueError(f"{name} must hold numbers, got text ({error}).") from None
        raise ValueError(f"{name} must be an array of numbers: {error}") from None


def validate_data(estimator: Any, X: Any, **options: Any) -> NDArray[Any]:
    """Call scikit-learn's ``validate_data`` for rows without a target, with errors that name the columns and a remedy.

    A source of rows is read into memory; a memory map is not copied. A tensor on a GPU is copied to the host. The masked entries of a
    masked array are missing values.
    """
    allocate_blas_memory()
    if np.ma.is_masked(X):
        X = np.ma.filled(X.astype(np.float64), np.nan)
    X, columns = _rows_and_names(as_host(X))
    check_is_table(X)
    times = [name for name, kind in zip(X.columns, X.dtypes, strict=True) if kind.kind in "mM"] if is_frame(X) else []
    if times or (isinstance(X, np.ndarray) and X.dtype.kind in "mM"):
        raise ValueError(_no_numbers(X, "dates or times", are_levels=False))
    try:
        reset = options.pop("reset", True)
        if columns is None:
            with np.errstate(invalid="ignore"):  # as in `check_array`
                rows = validation.validate_data(estimator, X, reset=reset, **options)
        else:
            with np.errstate(invalid="ignore"):
                rows = validation.check_array(X, estimator=estimator, input_name="X", **options)
            validation._check_n_features(estimator, rows, reset=reset)
            check_names(estimator, columns, reset=reset)
        if reset:
            forget_fit(estimator)
        return rows
    except TypeError as error:
        if "float() argument" not in str(error):
            raise
        raise TypeError(
            f"X must hold numbers, got an entry of type {str(error).rpartition(' ')[2]} ({error})."
        ) from None
    except ValueError as error:
        message = _culprits(str(error), X, type(estimator).__name__)
        if message is None:
            raise
        raise ValueError(message) from None


def check_is_table(X: Any, name: str = "X") -> None:
    """Raise an error for objects that are no table of rows, and for tables whose rows or names are not regular."""
    kind = type(X).__name__
    is_table = hasattr(X, "__array__") or hasattr(X, "shape") or isinstance(X, (Sequence, numbers.Number))
    if not is_table:
        remedy = {"dict": f" Pass pandas.DataFrame({name}).", "generator": f" Pass list({name})."}.get(kind, "")
        raise TypeError(
            f"{name} must be a table of numbers, such as an array, a data frame or a list of rows, got {kind}.{remedy}"
        )
    if isinstance(X, (list, tuple)):
        lengths = {len(row) for row in X if isinstance(row, (list, tuple, np.ndarray)) and np.ndim(row)}
        if len(lengths) > 1:
            raise ValueError(
                f"the rows of {name} must have the same number of values, got rows of {min(lengths)} to {max(lengths)} values. "
                "Fill missing values with NaN."
            )
    if hasattr(X, "columns"):
        names = [str(column) for column in X.columns]
        repeated = sorted({column for column in names if names.count(column) > 1})
        if repeated:
            raise ValueError(
                f"the columns of {name} must have different names, got {', '.join(repeated[:5])} more than once. Rename them."
            )


def forget_fit(estimator: Any) -> None:
    """Delete the attributes of an earlier fit, except those that scikit-learn's validation has just set."""
    if getattr(estimator, "warm_start", False):
        return
    for name in [name for name in vars(estimator) if name.endswith("_")]:
        if name not in ("n_features_in_", "feature_names_in_"):
            delattr(estimator, name)
    forget_gaps(estimator)


def forget_gaps(estimator: Any) -> None:
    """Delete what a fit to rows with missing values stores beside the fitted attributes."""
    for name in ("_left_out_scores", "_incomplete_rows"):
        estimator.__dict__.pop(name, None)


def _rows_and_names(X: Any) -> tuple[Any, list[str] | None]:
    """Return a source as an array and the names of its columns; anything else unchanged."""
    if isinstance(X, np.ndarray):
        return X, None
    source = X if isinstance(X, ArrayRows) else as_source(X)
    return (X, None) if source is None else (all_rows(source), source.columns)


def check_names(estimator: Any, columns: list[str] | None, *, reset: bool) -> None:
    """Store the names of the columns of a fit, or raise an error if the names of other rows differ."""
    if reset:
        estimator.__dict__.pop("feature_names_in_", None)
        if columns is not None:
            estimator.feature_names_in_ = np.asarray(columns, dtype=object)
        return
    fitted = getattr(estimator, "feature_names_in_", None)
    if columns is not None and fitted is not None and list(fitted) != list(columns):
        raise ValueError(
            f"the columns of X are {shown_columns(np.ones(len(columns)), columns)}, but {type(estimator).__name__} was fitted "
            f"on {shown_columns(np.ones(len(fitted)), fitted)}, in this order. Pass the same columns."
        )


class ColumnRanges(NamedTuple):
    """The smallest and the largest value of each column of a source, in its dtype."""

    least: np.ndarray
    most: np.ndarray


def check_source(estimator: Any, source: Any, *, min_rows: int = 1) -> ColumnRanges:
    """Validate the rows that a source holds, as `check_rows` does for a fit, block by block; return their ranges."""
    allocate_blas_memory()
    n, d = source.shape
    if n < min_rows:
        raise ValueError(
            f"Found array with {n} sample(s) (shape={source.shape}) while a minimum of {min_rows} is required."
        )
    estimator.n_features_in_ = d
    check_names(estimator, source.columns, reset=True)
    forget_fit(estimator)
    least, most = np.full(d, np.inf, source.dtype), np.full(d, -np.inf, source.dtype)
    look = partial(_block_ranges, source.columns, type(estimator).__name__)
    for low, high, fault in map(look, source.blocks()):
        if fault is not None:
            raise ValueError(fault)
        np.minimum(least, low, out=least)
        np.maximum(most, high, out=most)
    check_magnitude(np.stack([least, most]))
    remember(estimator, least, None)
    return ColumnRanges(least, most)


def _block_ranges(
    columns: list[str] | None, estimator: str, block: np.ndarray
) -> tuple[np.ndarray, np.ndarray, str | None]:
    """Return the smallest and the largest value of each column of a block, and a message if values are not finite."""
    low, high = block.min(axis=0), block.max(axis=0)
    if np.isfinite(low).all() and np.isfinite(high).all():
        return low, high, None
    culprit = "NaN" if np.isnan(low).any() else "infinity or a value too large for dtype('float64')"
    return low, high, _culprits(f"Input X contains {culprit}.", ArrayRows(block, columns), estimator)


def own_rows(rows: NDArray[Any], given: Any) -> NDArray[Any]:
    """Return validated rows for a fitted estimator to keep, copied if they may be the user's own array.

    `given` is the argument that was validated.  A memory map is not copied.
    """
    if isinstance(given, np.ndarray):
        fresh = not np.may_share_memory(rows, given)
    else:  # other tables may share their own memory
        fresh = isinstance(given, (list, tuple)) or (hasattr(given, "iloc") and bool(rows.flags.owndata))
    return rows if fresh or in_file(rows) else rows.copy()


def has_gaps(X: NDArray[Any]) -> bool:
    """Return whether a value is missing (NaN)."""
    return bool(np.isnan(X.min(initial=np.inf)))


def _culprits(message: str, X: Any, estimator: str) -> str | None:
    """Return scikit-learn's message about missing, infinite or non-numeric values, with the columns concerned.

    Return None for other messages.
    """
    names = None if getattr(X, "columns", None) is None else list(X.columns)
    X = X.kept() if isinstance(X, ArrayRows) else X
    if "could not convert string" in message or "Cannot cast str" in message:
        return _no_numbers(X, f"text ({message})")
    if "contains NaN" in message:
        where = _columns_where(np.isnan, X, names)
        return (
            f"Input X contains NaN{where}: {estimator} does not accept rows with missing values here. Fill them with "
            "vicinal.DensityImputer, or leave such rows out. (ParzenWindows, LCA and LCAGauss can be fitted to them, and every "
            "density of vicinal scores them by their known values.)"
        )
    if "contains infinity" in message:
        return f"{message.rstrip('.')}{_columns_where(np.isinf, X, names)}."
    return None


def is_frame(X: Any) -> bool:
    """Return whether rows are a DataFrame of pandas."""
    return hasattr(X, "columns") and hasattr(X, "dtypes") and hasattr(X, "iloc")


def without_numbers(X: Any) -> list[Any]:
    """Return the columns of a DataFrame that are neither numbers nor booleans: text, categories, dates."""
    return [name for name, kind in zip(X.columns, X.dtypes, strict=True) if getattr(kind, "kind", "O") not in "biuf"]


def truth_values(X: Any) -> list[Any]:
    """Return the columns of a DataFrame that are booleans."""
    return [name for name, kind in zip(X.columns, X.dtypes, strict=True) if getattr(kind, "kind", "O") == "b"]


def _no_numbers(X: Any, got: str, are_levels: bool = True) -> str:
    """Return the message about rows that are not numbers; levels are what densities of categories accept."""
    where = f" Columns without numbers: {', '.join(map(str, without_numbers(X)[:8]))}." if is_frame(X) else ""
    densities = " use vicinal.LCA or vicinal.ParzenWindows, whose densities include the categories of a DataFrame,"
    return (
        f"X must hold numbers, got {got}.{where} Drop such columns,{densities if are_levels else ''} or make numbers of them: "
        "make_pipeline(TableEncoder(categories='one_hot'), StandardScaler(), estimator). (DensityOutlierDetector and compare do this "
        "themselves.)"
    )


def _columns_where(test: Any, X: Any, names: list[Any] | None) -> str:
    """Return " in the columns ...", as far as the table can be read."""
    try:
        chosen = test(np.asarray(X, dtype=np.float64)).any(axis=0)
    except (TypeError, ValueError):
        return ""
    return f" in the columns {shown_columns(chosen, names)}" if np.ndim(chosen) == 1 and chosen.any() else ""


class ValidRows(NamedTuple):
    """Rows that an estimator has validated, and hands on to the `fit` of another one, which need not look at them again."""

    values: np.ndarray
    names: Any = None  # of the columns

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of rows and of columns."""
        return self.values.shape

    def taken_by(self, estimator: Any) -> np.ndarray:
        """Return the rows for a fit of an estimator."""
        estimator.n_features_in_ = self.shape[1]
        check_names(estimator, None if self.names is None else list(self.names), reset=True)
        forget_fit(estimator)
        remember(estimator, self.values, None)
        return np.ascontiguousarray(self.values)


def check_rows(
    estimator: Any,
    X: Any,
    *,
    reset: bool,
    min_rows: int = 1,
    dtype: tuple[type, ...] = (np.float64, np.float32),
    gaps: bool = False,
    precision: Any = None,
) -> NDArray[Any]:
    """Validate a table of rows as scikit-learn does, but keep float32 and raise an error for values that are too large.

    With `gaps`, NaN marks a missing value; otherwise it raises an error with a remedy.  `precision` is the dtype of the
    rows with which these are compared, if it may be a narrower one.

    Squares and products of the entries must stay finite, so magnitudes beyond
    1e150 (1e18 in float32) raise an error here instead of giving ``inf`` later.  A tensor on a GPU is copied.
    """
    if isinstance(X, ValidRows) and (gaps or not has_gaps(X.values)) and len(X.values) >= min_rows:
        check_magnitude(X.values, precision=precision)
        return X.taken_by(estimator)
    X = X.values if isinstance(X, ValidRows) else X
    given = X
    finite = "allow-nan" if gaps else True
    X = validate_data(
        estimator,
        X,
        reset=reset,
        dtype=list(dtype),
        order="C",
        ensure_min_samples=min_rows,
        ensure_all_finite=finite,
    )
    check_magnitude(X, precision=precision)
    if reset:
        remember(estimator, X, given)
    return X


def check_device_rows(estimator: Any, X: Any) -> Any:
    """Validate a tensor of rows where it is, for a fitted estimator, as `check_rows` does; return it in float64 or float32."""
    name, expected = type(estimator).__name__, estimator.n_features_in_
    if X.ndim != 2 or len(X) == 0:
        raise ValueError(f"X must be a table of at least one row, got a tensor of shape {tuple(X.shape)}.")
    if X.shape[1] != expected:
        raise ValueError(f"X has {X.shape[1]} features, but {name} is expecting {expected} features as input.")
    if not X.is_floating_point():
        X = X.double()
    elif X.dtype.itemsize < 4:
        X = X.float()
    largest = float(X.abs().max())
    if not np.isfinite(largest):
        raise ValueError(
            f"X contains NaN or infinity, and {name} needs finite numbers. Drop such rows or fill in their values."
        )
    _check_largest(largest, str(X.dtype).removeprefix("torch."), "X")
    return X.detach()


def check_magnitude(X: np.ndarray, name: str = "X", *, precision: Any = None) -> None:
    """Raise an error for entries whose squares would overflow in their dtype, or in another `precision`."""
    # NaN, which marks a missing value, is ignored; a copy without it would be as large as the data.
    largest = max(-float(np.fmin.reduce(X, axis=None, initial=0.0)), float(np.fmax.reduce(X, axis=None, initial=0.0)))
    _check_largest(largest, str(np.dtype(X.dtype if precision is None else precision)), name)


def _check_largest(largest: float, dtype: str, name: str) -> None:
    limit = 1e150 if dtype == "float64" else 1e18
    if largest > limit:
        raise ValueError(
            f"{name} holds values of magnitude {largest:.3g}, whose squares overflow {dtype}; expected at most "
            f"{limit:g}. Rescale the columns, for example with sklearn.preprocessing.StandardScaler."
        )


def check_not_tiny(X: np.ndarray, name: str, *, least: float = 1e-150) -> None:
    """Raise an error for rows whose entries are all so small that their squares underflow in float64."""
    largest = float(np.abs(X).max(initial=0.0))
    if 0 < largest < least:
        raise ValueError(
            f"{name} contain values of magnitude at most {largest:.3g}, whose squares underflow float64; expected at least "
            f"{least:g}. Rescale the columns, for example with sklearn.preprocessing.StandardScaler."
        )


def check_spread(X: np.ndarray, name: str = "X") -> None:
    """Raise an error for rows that differ by so little that their variance would underflow to zero."""
    spread = float(np.ptp(X, axis=0).max(initial=0.0))
    least = 1e-150 if X.dtype == np.float64 else 1e-18
    if 0 < spread < least:
        raise ValueError(
            f"the spread of {name} is {spread:.3g}, whose square underflows {X.dtype}; expected at least {least:g}. "
            "Rescale the columns, for example with sklearn.preprocessing.StandardScaler."
        )


def check_columns_spread(X: np.ndarray, names: Any = None, *, least: float = 1e-150, some: bool = True) -> None:
    """Raise an error if the range of some columns (or, with ``some=False``, of all) is so small that variances underflow."""
    spans = np.ptp(X, axis=0)
    narrow = (spans > 0) & (spans < least)
    if narrow.any() if some else narrow.all():
        raise ValueError(
            f"{narrow.sum()} of {X.shape[1]} columns ({shown_columns(narrow, names)}) have a range of "
            f"at most {spans[narrow].max():.3g}, whose square underflows; expected at least {least:g}. Rescale them, for "
            "example with sklearn.preprocessing.StandardScaler."
        )


def check_weights(sample_weight: Any, X: Any) -> NDArray[Any] | None:
    """Return weights that are finite, non-negative and not all zero, as a vector with mean one; None stays None."""
    if sample_weight is None:
        return None
    try:
        weight = _check_sample_weight(as_host(sample_weight), X, dtype=np.float64)
    except ValueError as error:
        if "could not convert" not in str(error):
            raise
        raise ValueError(f"sample_weight must hold numbers, got text ({error}).") from None
    if weight.min() < 0:
        raise ValueError(
            f"sample_weight must not be negative, got {int((weight < 0).sum())} negative entries (smallest "
            f"{weight.min():.3g}). Drop those rows or give them weight 0."
        )
    if weight.max() <= 0:
        raise ValueError("sample_weight must not be all zero, because no row would count. Pass None for equal weights.")
    weight = weight / weight.max()  # sums of weights of 1e308 or 1e-320 stay representable
    return weight * (len(weight) / weight.sum())


def log_weights(weight: np.ndarray | None) -> np.ndarray | None:
    """Return the logarithms of weights, -inf for a weight of 0; None (equal weights) stays None."""
    with np.errstate(divide="ignore"):
        return None if weight is None else np.log(weight)


def constant_columns(X: np.ndarray) -> np.ndarray:
    """Return which columns are constant, except for rounding."""
    least, most = X.min(axis=0), X.max(axis=0)
    return most - least <= 4 * np.finfo(X.dtype).eps * np.maximum(-least, most)


def count_twins(X: np.ndarray) -> int:
    """Return the number of rows that are exactly equal to another row, in O(n log n)."""
    # A random combination of the columns separates different rows; sums in a fixed order are equal for
    # equal rows.
    rng = np.random.default_rng(0)
    key = np.zeros(len(X))
    for column in X.T:
        key += rng.standard_normal() * column
    _, inverse, counts = np.unique(key, return_inverse=True, return_counts=True)
    suspects = X[counts[inverse] > 1]
    if len(suspects) == 0:
        return 0
    _, inverse, counts = np.unique(suspects, axis=0, return_inverse=True, return_counts=True)
    return int((counts[inverse] > 1).sum())
