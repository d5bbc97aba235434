"""Initial matrices: scikit-learn's named ones, and one that does not depend on the units of the data.

The objectives of NCA are not concave, and they are flat where the softmax is saturated: if every row has only
one effective neighbour (X times 1000, for example), the gradient vanishes and the initial matrix is returned as
the result. `auto_start` therefore chooses the units of the columns and the scale of the matrix from the data.

If several kinds of directions are possible, each is tried for a few iterations and evaluated on held-out rows (`best_start`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import eigh
from sklearn.covariance import ledoit_wolf
from sklearn.decomposition import PCA

from vicinal._checks import check_array, check_choice
from vicinal._engine import prepare
from vicinal._metric import signs_of
from vicinal._nca.objectives import Evaluation, with_penalty
from vicinal._nca.rows import QUERIES, Rows, Sample
from vicinal._nca.solvers import climb_briefly

if TYPE_CHECKING:
    from vicinal._nca.nca import NCA
    from vicinal._nca.pair_nca import PairNCA


INITS = ("auto", "pca", "lda", "identity", "random")
STRUCTURES = ("full", "diag")

_OCTAVES = 60
SCALES_TRIED = 20  # the usual number of passes of a search
# With fewer rows per column, starts that use the classes are left out, because they would fit the labels by chance.
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


def auto_units(X: np.ndarray, spread: np.ndarray, score: Callable[[np.ndarray], float]) -> np.ndarray | None:
    """Return units of the columns in which X has no units; None if all rows are equal.

    Plain distances of raw columns and of standardised columns are compared, each at its best scale; the ones with the
    higher score give the units. Pixels therefore stay unscaled. A table of kilograms and years, where few columns hold most
    of the variance, is always standardised.

    Parameters
    ----------
    X, spread, score
        As in `auto_start`.
    """
    moving = spread > 0
    if not moving.any():
        return None
    plain = np.where(moving, 1.0 / np.sqrt((spread**2).mean()), 0.0)
    standard = np.where(moving, 1.0 / np.where(moving, spread, 1.0), 0.0)
    candidates = (plain, standard) if _variance_is_shared(spread[moving]) else (standard,)
    return max((best_scale(score, candidate, X) for candidate in candidates), key=lambda found: found[0])[1]


def auto_start(
    X: np.ndarray,
    spread: np.ndarray,
    score: Callable[[np.ndarray], float],
    units: np.ndarray | None,
    *,
    kind: str,
    n_components: int,
    classes: np.ndarray | None = None,
    diagonal: bool = False,
    random_state: np.random.RandomState | None = None,
) -> Start:
    """Return a start that does not depend on the units of X, except for the scale.

    1. Directions, in the units of `auto_units`: `kind` is "lda", "rca", "whitening", "pca", "identity" or "random".
    2. Scale: the one with the highest score.

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
    units : array of shape (D,) or None
        The result of `auto_units`.
    """
    n_features = X.shape[1]
    if units is None:  # all rows are equal, so all matrices are equally good
        return Start(np.ones(n_features) if diagonal else np.eye(n_components, n_features), 1.0)
    # Constant columns get the unit 1, so that nothing is divided by zero.
    nonzero = np.where(spread > 0, units, units.max())
    if diagonal:
        if kind == "random":
            assert random_state is not None
            units = best_scale(score, units * random_state.uniform(0.2, 1.8, n_features), X)[1]
        return Start(units, nonzero)
    if kind == "identity" and n_components == n_features:
        directions = np.eye(n_features)
    elif kind == "random":
        assert random_state is not None
        directions = random_state.standard_normal((n_components, n_features)) / np.sqrt(n_features)
    else:
        directions = _directions(X * units.astype(X.dtype), kind, n_components, classes, random_state)
    components = best_scale(score, directions * units, X)[1]
    size = float(np.linalg.norm(components / nonzero)) / np.sqrt(n_components)
    return Start(components, nonzero * size)


def _variance_is_shared(spread: np.ndarray) -> bool:
    """Return whether the columns seem to have the same unit, that is, no few of them dominate the variance.

    The criterion is the participation ratio of the variances, 0 for one column and 1 for equal variances. Images,
    spectra and scores have 0.33 or more; tables in mixed units have 0.26 or less.
    """
    variance = (spread / spread.max()) ** 2
    if len(variance) == 1:
        return True
    return (variance.sum() ** 2 / (variance**2).sum() - 1.0) / (len(variance) - 1.0) >= 0.3


def auto_kind(n_components: int, n_features: int, n_rows: int, n_classes: int | None) -> str:
    """Return which directions to start with, by the shape of the problem.

    This is scikit-learn's rule with one departure: with few rows per column, LDA separates any labelling
    almost perfectly, and the fit would end where it starts. Principal components are used instead.
    """
    # Departure 3 (NCA): The start is chosen from the data.
    enough = n_rows >= _ROWS_PER_COLUMN * n_features and n_rows > n_features + (n_classes or 0)
    if n_classes is not None and n_components <= min(n_features, n_classes - 1) and enough:
        return "lda"
    return "pca" if n_components < min(n_features, n_rows) else "identity"


def auto_kinds(n_components: int, n_features: int, n_rows: int, n_classes: int | None) -> list[str]:
    """Return all directions that are worth a trial of a few iterations, by the shape of the problem.

    If the objective has many maxima, the start decides which one is found: on wine, vehicle and image segmentation, the
    within-class whitening of RCA leads to far lower errors than the directions of `auto_kind`; on iris the latter are better.
    """
    kinds = [auto_kind(n_components, n_features, n_rows, n_classes), "whitening"]
    if n_classes is not None and n_rows >= _ROWS_PER_COLUMN * n_features:
        kinds.append("rca")
    return kinds


def _directions(
    X: np.ndarray, kind: str, n_components: int, classes: np.ndarray | None, random_state: np.random.RandomState | None
) -> np.ndarray:
    if (
        kind == "lda" and classes is not None and n_components < len(np.unique(classes))
    ):  # a sample can lack the rows of a class
        directions = _lda(X, classes, n_components)
        if (
            directions.shape[0] == n_components
            and np.isfinite(directions).all()
            and np.all(np.any(directions != 0, axis=1))
        ):
            return directions
    if kind == "lda":  # the classes span fewer directions than requested
        kind = "pca"
    if kind in ("rca", "whitening"):
        directions = _whitened(X, classes if kind == "rca" else None)
        if len(directions) >= n_components:
            return directions[:n_components]
        kind = "pca"
    if kind == "pca" and n_components <= min(X.shape):
        return PCA(n_components=n_components, random_state=random_state).fit(X).components_
    return np.eye(n_components, X.shape[1])


def _whitened(X: np.ndarray, classes: np.ndarray | None) -> np.ndarray:
    """Return rows that whiten the shrunk covariance of X, or within classes.

    The rows with the largest total variance relative to it come first.
    """
    X = X.astype(np.float64)
    centred = X - X.mean(axis=0)
    total = centred.T @ centred / len(X)
    if classes is not None:
        codes = np.unique(classes, return_inverse=True)[1]
        sums = np.zeros((codes.max() + 1, X.shape[1]))
        np.add.at(sums, codes, X)
        centred = X - (sums / np.bincount(codes)[:, None])[codes]
    within = ledoit_wolf(centred, assume_centered=True)[0]
    moving = np.diag(total) > 0
    if not moving.all() or not np.all(np.linalg.eigvalsh(within) > 0):
        return np.empty((0, X.shape[1]))
    if classes is None:
        values, vectors = eigh(within)
        vectors = vectors / np.sqrt(values)
    else:
        vectors = eigh(total, within)[1]
    return np.ascontiguousarray((vectors * signs_of(vectors))[:, ::-1].T)


def best_scale(score: Callable[[np.ndarray], float], A: np.ndarray, X: np.ndarray) -> tuple[float, np.ndarray]:
    """Return ``(score, A * scale)`` at the scale with the highest score: octaves first, then three
    rounds of halves between the best one and its neighbours.

    The octaves range from the scale at which the farthest tenth of the pairs just begins to lose weight to the
    scale at which even nearest neighbours have none, and are extended as long as the last one is the best.
    """
    sample = X[:: max(len(X) // QUERIES, 1)]
    # The distances of each row to all others, nearest first.
    squares = prepare("reference", sample, leave_one_out=True).at(A).nearest(len(sample) - 1).scores
    squares[squares <= 1e-24 * squares.max(initial=0.0)] = np.inf  # duplicates do not count as neighbours here
    apart = squares[np.isfinite(squares)]
    if apart.size == 0:
        return score(A), A
    nearest = squares.min(axis=1)
    low = 0.5 * np.log2(0.5 / np.quantile(apart, 0.9))
    high = 0.5 * np.log2(50.0 / np.median(nearest[np.isfinite(nearest)]))
    known: dict[float, float] = {}

    def at(octave: float) -> float:
        if octave not in known:
            known[octave] = score(A * 2.0**octave)
        return known[octave]

    grid = [low + k for k in range(min(max(int(np.ceil(high - low)), 2), _OCTAVES) + 1)]
    while len(grid) < _OCTAVES and max(grid, key=at) == grid[-1]:
        grid.append(grid[-1] + 1.0)
    centre = max(grid, key=at)
    left, right = centre - 1.0, centre + 1.0
    for _ in range(3):
        for probe in (0.5 * (left + centre), 0.5 * (centre + right)):
            at(probe)
        best = max((o for o in known if left <= o <= right), key=known.__getitem__)
        width = 0.25 * (right - left)
        left, right, centre = best - width, best + width, best
    return known[centre], A * 2.0**centre


# -- the choice between starts, on held-out rows -------------------------------------------------------

TRIAL_ITERATIONS = 5
# Each row of the sample is held out once. More folds cost more and chose no better.
_FOLDS = 3
# With fewer rows, scores of held-out rows are too noisy, and the first kind is used.
_FEWEST_ROWS = 60


def best_start(
    rows: Rows,
    kinds: list[str],
    *,
    objective: str,
    penalty: float | np.ndarray,
    solver: str,
    n_components: int,
    diagonal: bool,
    random_state: np.random.RandomState,
) -> Start:
    """Return the start of the kind that is best on held-out rows, after a few iterations on the others.

    The objective of the training rows cannot decide: with many columns, it reaches its maximum from every start (on wine,
    within 5e-4 after five iterations), and only held-out rows show a difference.
    """
    sample = Sample(rows)
    units = auto_units(rows.X, rows.spread, sample.likelihood)

    def start_for(kind: str, X: np.ndarray, judge: Sample, classes: np.ndarray | None) -> Start:
        return auto_start(
            X,
            rows.spread,
            judge.likelihood,
            units,
            kind=kind,
            n_components=n_components,
            classes=classes,
            diagonal=diagonal,
            random_state=random_state,
        )

    def held_out_value(kind: str) -> float:
        """Return the sum of the objective over the rows of the sample, each under a matrix that was learned without it."""
        total = 0.0
        for held_out, others in folds:
            start = start_for(kind, others.X, others, others.classes)

            def evaluate(A: np.ndarray, others: Sample = others) -> Evaluation:
                return with_penalty(others.objective(A, objective), A, penalty)

            A = climb_briefly(evaluate, start, TRIAL_ITERATIONS, solver)
            total += len(held_out) * sample.value(A, objective, held_out)
        return total

    on_trial = len(kinds) > 1 and units is not None and len(sample.X) >= _FEWEST_ROWS
    folds = sample.folds(_FOLDS) if on_trial else []
    chosen = kinds[int(np.argmax([held_out_value(kind) for kind in kinds]))] if folds else kinds[0]
    classes = rows.targets.values if rows.targets.n_classes else None
    return start_for(chosen, rows.X, sample, classes)
