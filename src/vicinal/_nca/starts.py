"""Initial matrices: scikit-learn's named ones, and one that does not depend on the units of the data.

The objectives of NCA are not concave, and they are flat where the softmax is saturated: if every row has only
one effective neighbour (X times 1000, for example), the gradient vanishes and the initial matrix is returned as
the result. `auto_start` therefore chooses the units of the columns, the directions and the scale of the matrix from the data.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial.distance import cdist
from sklearn.decomposition import PCA

from vicinal._checks import check_choice
from vicinal._metric import contrast_shrinkage, range_basis, rank_tolerance, shrunk, whitening
from vicinal._rows import check_array
from vicinal._scatter import chunklet_scatter
from vicinal._supervision import ChunkletRows

if TYPE_CHECKING:
    from vicinal._nca.nca import NCA
    from vicinal._nca.pair_nca import PairNCA


INITS = ("auto", "pca", "lda", "identity", "random")
STRUCTURES = ("full", "diag")

_OCTAVES = 60
_DISTANCES_OF = 128  # rows whose distances give the first scale of a search
SCALES_TRIED = 10  # the usual number of passes of a search
# With fewer rows per column, a start that uses the classes is left out, because it would fit the labels by chance.
_ROWS_PER_COLUMN = 5


class Start(NamedTuple):
    """A start and its units: the optimiser works on ``components / units``, whose entries have no unit."""

    components: np.ndarray  # (d, D), or (D,) for a diagonal
    units: np.ndarray | float  # (D,), or one number for all columns


# -- a start that the user chose -----------------------------------------------------------------------------


def check_init(init: Any, names: tuple[str, ...]) -> None:
    """Raise an error if an initial matrix is neither one of some names nor an array."""
    if isinstance(init, str):
        check_choice(init, "init", names)
        return
    choices = f"init must be an array of numbers or one of {', '.join(map(repr, names))}"
    if init is None:
        raise ValueError(f"{choices}, got None.")
    try:
        np.asarray(init, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise TypeError(f"{choices}, got {type(init).__name__}.") from error


def check_size(n_components: int | None, n_features: int, diagonal: bool = False) -> int:
    """Return the number of rows of A."""
    if n_components is None:
        return n_features
    if n_components > n_features:
        raise ValueError(
            f"n_components={n_components} is larger than the number of features, {n_features}. Lower it, or "
            "leave it None for a square matrix."
        )
    if diagonal and n_components != n_features:
        raise ValueError(
            f"structure='diag' learns one weight for each of the {n_features} features, got "
            f"n_components={n_components}. Leave n_components None."
        )
    return n_components


def image_width(estimator: NCA | PairNCA, n_features: int) -> int:
    """Return the number of rows of A, as far as the parameters determine it."""
    if estimator.n_components is not None:
        return estimator.n_components
    init: Any = getattr(estimator.init, "first", estimator.init)
    return n_features if isinstance(init, str) or estimator.structure == "diag" else len(np.atleast_2d(init))


def user_start(
    init: ArrayLike,
    X: np.ndarray,
    classes: np.ndarray | None,
    n_components: int | None,
    diagonal: bool,
    random_state: np.random.RandomState,
) -> Start:
    """Return the start for a name other than "auto", or for an array."""
    n_features = X.shape[1]
    if not isinstance(init, str):
        start = given_start(init, n_features, diagonal)
        if n_components is not None and n_components != len(start.components):
            raise ValueError(
                f"n_components={n_components} does not match init, which has {len(start.components)} rows. "
                "Leave n_components None."
            )
        return start
    n_components = check_size(n_components, n_features, diagonal)
    components: np.ndarray
    if not diagonal:
        components = named_start(init, X, classes, n_components, random_state).astype(np.float64)
    elif init == "identity":
        components = np.ones(n_features)
    elif init == "random":
        components = np.asarray(random_state.standard_normal(n_features))
    else:
        raise ValueError(f"init={init!r} is not diagonal. With structure='diag' use 'auto', 'identity' or 'random'.")
    return Start(components, given_units(components))


def given_start(given: ArrayLike, n_features: int, diagonal: bool = False, name: str = "init") -> Start:
    """Return the start for an array; a diagonal one may be given as a vector."""
    A = check_array(given, dtype=np.float64, ensure_2d=False, ensure_min_samples=0, input_name=name)
    if A.ndim == 1 and diagonal:
        A = np.diag(A)
    if A.ndim != 2 or A.shape[1] != n_features:
        raise ValueError(f"{name} must have as many columns as X has features, {n_features}, got shape {A.shape}.")
    if not A.any():
        raise ValueError(f"{name} must not be all zero, because the gradient of the objective is zero there.")
    if A.shape[0] > A.shape[1]:
        raise ValueError(f"{name} must not have more rows than columns, got shape {A.shape}.")
    if diagonal:
        if A.shape[0] != n_features or np.any(A[~np.eye(n_features, dtype=bool)] != 0):
            raise ValueError(f"structure='diag' needs a square diagonal {name} (or its diagonal as a vector).")
        A = np.diag(A).copy()
    return Start(A, given_units(A))


def named_start(
    init: str, X: np.ndarray, classes: np.ndarray | None, n_components: int, random_state: np.random.RandomState
) -> np.ndarray:
    """Return the start of scikit-learn's NeighborhoodComponentsAnalysis for the same arguments, to the last bit."""
    n_features = X.shape[1]
    if init == "identity":
        return np.eye(n_components, n_features)
    if init == "random":
        return random_state.standard_normal(size=(n_components, n_features))
    if init == "pca":
        if n_components > min(X.shape):
            raise ValueError(
                f"init='pca' finds at most min(n_samples, n_features)={min(X.shape)} components, got "
                f"n_components={n_components}. Lower n_components or use init='auto'."
            )
        return PCA(n_components=n_components, random_state=random_state).fit(X).components_
    if classes is None:
        raise ValueError(
            "init='lda' needs classes (the match 'class'), got soft targets. Use init='auto' or init='pca'."
        )
    return _lda(X, classes, n_components)


def _lda(X: np.ndarray, classes: np.ndarray, n_components: int) -> np.ndarray:
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    most = min(X.shape[1], len(np.unique(classes)) - 1)
    if n_components > most:
        raise ValueError(
            f"init='lda' finds at most min(n_features, n_classes - 1)={most} components, got "
            f"n_components={n_components}. Lower n_components or use init='auto'."
        )
    try:
        directions = LinearDiscriminantAnalysis(n_components=n_components).fit(X, classes).scalings_.T
    except IndexError:  # the error of scikit-learn if no column varies within the classes
        directions = np.empty((0, X.shape[1]))
    if len(directions) < n_components:
        raise ValueError(
            f"init='lda' finds {len(directions)} directions in which these classes vary and differ (constant columns and "
            f"combinations of others have none), got n_components={n_components}. Lower n_components or use init='auto'."
        )
    return directions[:n_components]


def given_units(components: np.ndarray) -> float:
    """Return the units for the optimisation from a start that the user chose.

    SciPy's first step has length one. A start of ordinary size is optimised in its own units, as in
    scikit-learn. A start that is far from that size (because the data are in other units) is first scaled to
    the size of a rotation.
    """
    largest = float(np.abs(components).max(initial=0.0)) or 1.0  # its square may overflow
    size = largest * float(np.linalg.norm(components / largest)) / np.sqrt(len(components))
    return 1.0 if size == 0.0 or 0.1 <= size <= 100.0 else size


# -- a start without units -----------------------------------------------------------------------------------


def auto_start(
    X: np.ndarray,
    spread: np.ndarray,
    score: Callable[[np.ndarray], float],
    *,
    n_components: int,
    classes: np.ndarray | None = None,
    diagonal: bool = False,
    at_random: np.random.RandomState | None = None,
) -> Start:
    """Return a start that does not depend on the units of X, except for the scale.

    1. Units of the columns: raw or standardised ones.
    2. Directions: principal components (the identity if there are as many as columns), or those that whiten the classes.
    3. Scale: the best one for each of the directions. The start with the highest score is returned.

    The score is the leave-one-out likelihood (Eq. 6), even if the fit maximises Eq. 3. On eleven data sets, the
    scale that is best for Eq. 3 itself is so large that the fit ends in a poor local maximum (sonar, rank 2: 0.74
    against 0.95), and the scale that is best for the likelihood is never much worse than the best of five fixed
    perplexities.

    Parameters
    ----------
    X : array of shape (n, D), about its centre
    spread : array of shape (D,)
        `column_spread` of the data.
    score : callable
        ``score(A)``, to be maximised; A of shape (d, D) or (D,).
    n_components : int
    classes : int array of shape (n,) or None
        The classes of the rows, in sorted order.
    at_random : RandomState, optional
        If given, the directions are drawn at random.
    """
    n_features = X.shape[1]
    units = _units_of_columns(X, spread, score)
    if units is None:  # all rows are equal, so all matrices are equally good
        return Start(np.ones(n_features) if diagonal else np.eye(n_components, n_features), 1.0)
    # Constant columns get the unit 1, so that nothing is divided by zero.
    nonzero = np.where(spread > 0, units, units.max())
    if diagonal:
        weights = units if at_random is None else units * at_random.uniform(0.2, 1.8, n_features)
        scaled = best_scale(score, weights, X)[1]
        return Start(scaled, nonzero * (scaled.max() / weights.max()))
    if at_random is not None:
        directions = [at_random.standard_normal((n_components, n_features)) / np.sqrt(n_features) * units]
    else:
        directions = [_principal(X, units, n_components), _whitening_classes(X, spread, units, classes, n_components)]
    candidates = [best_scale(score, A, X) for A in directions if A is not None]
    A = max(candidates, key=lambda scaled: scaled[0])[1]
    return Start(A, nonzero * (float(np.linalg.norm(A / nonzero)) / np.sqrt(n_components)))


def _units_of_columns(X: np.ndarray, spread: np.ndarray, score: Callable[[np.ndarray], float]) -> np.ndarray | None:
    """Return units of the columns in which X has no units; None if all rows are equal.

    Plain distances of raw columns and of standardised columns are compared, each at its best scale; the ones with the
    higher score give the units. Pixels therefore stay unscaled. A table of kilograms and years, where few columns hold most
    of the variance, is always standardised.
    """
    moving = spread > 0
    if not moving.any():
        return None
    plain = np.where(moving, 1.0 / np.sqrt((spread**2).mean()), 0.0)
    standard = np.where(moving, 1.0 / np.where(moving, spread, 1.0), 0.0)
    if not _variance_is_shared(spread[moving]) or np.ptp(spread[moving]) <= 1e-6 * spread.max():
        return standard
    return max((plain, standard), key=lambda units: best_scale(score, units, X)[0])


def _variance_is_shared(spread: np.ndarray) -> bool:
    """Return whether the columns seem to have the same unit, that is, no few of them dominate the variance.

    The criterion is the participation ratio of the variances, 0 for one column and 1 for equal variances. Images,
    spectra and scores have 0.33 or more; tables in mixed units have 0.26 or less.
    """
    variance = (spread / spread.max()) ** 2
    if len(variance) == 1:
        return True
    return (variance.sum() ** 2 / (variance**2).sum() - 1.0) / (len(variance) - 1.0) >= 0.3


def _principal(X: np.ndarray, units: np.ndarray, n_components: int) -> np.ndarray:
    """Return principal directions of the columns in these units, or the identity if that is as good."""
    if n_components == X.shape[1] or n_components > len(X):
        return np.eye(n_components, X.shape[1]) * units
    return PCA(n_components=n_components, random_state=0).fit(X * units.astype(X.dtype)).components_ * units


def _whitening_classes(
    X: np.ndarray, spread: np.ndarray, units: np.ndarray, classes: np.ndarray | None, n_components: int
) -> np.ndarray | None:
    """Return RCA's directions for the classes as chunklets, those with the largest ratio of total to inner variance first.

    With few rows per column they separate any labels, and the fit would end where it starts: the result is None then, as it is
    for targets other than classes and for rows that vary in fewer directions.
    """
    # Departure 3 (NCA): The start is chosen from the data.
    n, d = X.shape
    if classes is None or n < max(_ROWS_PER_COLUMN * d, d + 1 + classes.max()):
        return None
    sums = chunklet_scatter(X, ChunkletRows(np.arange(n), classes))
    inverse_units = np.divide(1.0, units, out=np.zeros(d), where=spread > 0)
    within = shrunk(sums.within / n, contrast_shrinkage(sums, inverse_units), inverse_units)
    basis = range_basis(sums.total / n, tolerance=rank_tolerance(d, sums.resolution))
    if basis is not None and basis.shape[1] < n_components:
        return None
    metric = whitening(
        within,
        sums.total / n,
        basis=basis,
        n_components=n_components,
        tolerance=rank_tolerance(d, sums.resolution),
        resolution=sums.resolution,
    )
    return None if metric is None else metric.components


def best_scale(
    score: Callable[[np.ndarray], float], A: np.ndarray, X: np.ndarray, steps: tuple[float, ...] = (1.0,)
) -> tuple[float, np.ndarray]:
    """Return ``(score, A * scale)`` at the scale with the highest score.

    The search goes up from the octave in which nearest neighbours are about as far apart as the kernel is wide, by steps of so many
    octaves, and ends at the top of the parabola through the best three. Smaller steps may follow.
    """
    octave, known = _first_octave(A, X[:: max(len(X) // _DISTANCES_OF, 1)]), {}
    if octave is None:
        return score(A), A

    def at(octave: float) -> float:
        if octave not in known:
            known[octave] = score(A * 2.0**octave)
        return known[octave]

    for step in steps:
        for _ in range(_OCTAVES):
            best = max((octave, octave - step, octave + step), key=at)
            if best == octave:
                break
            octave = best
        below, top, above = (at(octave + offset) for offset in (-step, 0.0, step))
        curvature = below - 2.0 * top + above
        if curvature < 0:
            at(octave + 0.5 * step * (below - above) / curvature)
        octave = max(known, key=known.__getitem__)
    return known[octave], A * 2.0**octave


def _first_octave(A: np.ndarray, X: np.ndarray) -> float | None:
    """Return the logarithm of the scale at which the median row has a squared distance of one to its nearest; None if no two rows differ."""
    Z = X @ A.T if A.ndim == 2 else X * A
    largest = float(np.abs(Z).max(initial=0.0))
    if not largest > 0:
        return None
    squares = cdist(Z / largest, Z / largest, "sqeuclidean")
    squares[squares <= 1e-24 * squares.max()] = np.inf  # duplicates do not count as neighbours here
    nearest = squares.min(axis=1)
    apart = nearest[np.isfinite(nearest)]
    return None if apart.size == 0 else float(-0.5 * np.log2(np.median(apart)) - np.log2(largest))
