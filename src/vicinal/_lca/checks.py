"""Data on which LCA has no answer: found before the engine runs, explained, with the remedy."""

import warnings

import numpy as np

_MERGE = "merge twins into weights: X, w = np.unique(X, axis=0, return_counts=True), then fit(X, sample_weight=w)"

# Fewer twins than this share of the rows pull the kernel's width so little that a warning would be noise.
_FEW_TWINS = 0.05


def check_answerable(X, weight, covariance, rank=None, *, names=None, reg_name="reg"):
    """Refuse data whose penalised likelihood has no maximum when the penalty is zero; warn of many twins.

    Parameters
    ----------
    X : array of shape (n, d)
    weight : array of shape (n,) or None
    covariance, rank
        The structure of the kernel's covariance, as given to LCA.
    names : array of shape (d,), optional
        Column names for the messages.
    reg_name : str
        The parameter that is the remedy.
    """
    if weight is not None:
        X = X[weight > 0]
    n, d = X.shape
    remedy = f"Pass {reg_name} > 0 (a variance, in squared units of the data)"
    spans = np.ptp(X, axis=0)
    if not spans.any():
        raise ValueError(f"all {n} rows are equal: there is no scale to learn. {remedy}, or check the data.")
    constant = np.flatnonzero(spans <= 4 * np.finfo(X.dtype).eps * np.abs(X).max(axis=0))
    if covariance in ("full", "diag") and len(constant):
        shown = ", ".join(str(k if names is None else names[k]) for k in constant[:5])
        more = ", ..." if len(constant) > 5 else ""
        raise ValueError(
            f"{len(constant)} of {d} columns are constant ({shown}{more}): the kernel's variance along "
            "them shrinks to "
            f"zero. Drop them, for example with sklearn.feature_selection.VarianceThreshold. {remedy} to "
            "keep them."
        )
    if covariance == "full" and n <= d:
        raise ValueError(
            f"a full covariance of {d} features needs more than {d} rows, got {n}: the likelihood is "
            f"unbounded. {remedy}, "
            "use covariance='diag' or 'low_rank', or reduce the dimension with sklearn.decomposition.PCA."
        )
    if covariance in ("full", "low_rank"):
        _check_rank(X, d if covariance == "full" else rank + 1, covariance, remedy)
    _check_twins(X, remedy)


def check_two_rows(weight):
    """Refuse weights that leave nobody when the only row that counts is left out."""
    if weight is not None and np.count_nonzero(weight) < 2:
        raise ValueError(
            "sample_weight must be positive for at least 2 rows, got 1: nobody is left when that row is left out."
        )
    return weight


def _check_rank(X, needed, covariance, remedy):
    centred = X - X.mean(axis=0, dtype=np.float64)
    # Full covariances do not depend on the units of the columns, so neither does the check.
    scale = centred.std(axis=0) if covariance == "full" else np.full(X.shape[1], centred.std())
    correlations = (centred / scale).T @ (centred / scale) / len(X)
    values = np.linalg.eigvalsh(correlations)
    # Rounding of the data themselves: eps relative, squared because these are variances, with room for n
    # and d.
    floor = values[-1] * max(X.shape) * np.finfo(X.dtype).eps ** 2 * 100
    floor = max(floor, values[-1] * X.shape[1] * np.finfo(np.float64).eps)
    rank = int((values > floor).sum())
    if rank < needed:
        raise ValueError(
            f"the rows span only {rank} dimensions of {X.shape[1]} and covariance={covariance!r} needs "
            f"{needed}: columns "
            f"depend linearly on each other, and the likelihood is unbounded. {remedy}, drop the "
            "dependent columns, or "
            f"keep {rank} components of sklearn.decomposition.PCA."
        )


def _check_twins(X, remedy):
    n = len(X)
    twins = count_twins(X)
    if twins == n:
        raise ValueError(
            f"every one of the {n} rows has an exact twin: the leave-one-out likelihood is unbounded, "
            "because each row is "
            f"explained by its twin with a kernel of width zero. {remedy}, or {_MERGE}."
        )
    if twins > _FEW_TWINS * n:
        warnings.warn(
            f"{twins} of {n} rows have an exact twin, which leave-one-out sees at distance zero: the "
            "learned kernel is "
            f"too narrow. {remedy}, or {_MERGE}.",
            UserWarning,
            stacklevel=4,
        )


def count_twins(X):
    """The number of rows that are exactly equal to another row, in O(n log n)."""
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


def collapse_message(X, weight, covariance):
    """What to say when the covariance becomes singular during the fit."""
    counted = X if weight is None else X[weight > 0]
    n, d = counted.shape
    twins = count_twins(counted)
    clue = ""
    if twins:
        clue = f" {twins} of the {n} rows have an exact twin: {_MERGE}."
    elif covariance == "full" and n < 2 * d:
        clue = f" With fewer than two rows a feature ({n} < 2 x {d}) a full covariance has no maximum."
    else:
        clue = (
            " Some combinations of columns take the same value in many rows (rounded, integer or "
            "dependent columns), so "
            "that rows differ from their neighbours in a subspace only."
        )
    return (
        "the kernel's covariance collapses: its variance in some direction goes to zero and the "
        "leave-one-out "
        f"likelihood to infinity.{clue} Pass a larger reg (a variance, in squared units of the data), "
        "drop such columns, "
        "or use a covariance with fewer parameters."
    )
