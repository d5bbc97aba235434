"""The choice of a member of the family by held-out rows: the grid, the splits, the search, and the noise alone.

The family has two paths along which the shared covariance only changes its size, so that one set of frames and one sweep over the
pairs serve all sizes and all numbers of directions: multiples of LCA's covariance, and multiples of the identity (the noise of Manifold
Parzen).  Manifold Parzen tries every combination of its grid, on the second path alone.  Local LCA

1. tries both paths for two sizes of the vicinity and every third multiple, with kernels at the rows, and the better path with the other centre;
2. then, around the best of these, sizes of the vicinity, multiples and numbers of directions nearby, and all directions;
3. then sums of the best members of the two paths;
4. returns to LCA unless the best member is ahead of it by more than a standard error.

LCA (its own covariance, no directions) and the grid of Manifold Parzen are among the members that it compares.

Everything that determines a kernel is computed without the held-out rows.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp
from sklearn.exceptions import ConvergenceWarning

from vicinal._callers import callers_line
from vicinal._checks import check_integer, check_positive
from vicinal._engine import Engine
from vicinal._local.kernels import CENTERS, NOISE, LocalKernels, Member, Shared, Table, nearest_neighbors
from vicinal._rows import check_spread
from vicinal._search import Selection, paired_gain, search_results, top_of_parabola

_NEARBY = 2  # positions on a path around the best
_SUMS = (0.25, 0.5, 1.0)  # multiples of the sum of the best members of both paths
_FEW = 2  # sizes of the vicinity in the first round
# The log-density of a row that is infinitely far from all kernels: differences and squares of such numbers are finite.
_FARTHEST = -1e100


# -- held-out rows -----------------------------------------------------------------------------------------------------


class Split(NamedTuple):
    """The kernels that the training rows of a split make, and the rows that it holds out.

    kernels : LocalKernels of each class; of all training rows without classes
    log_priors : (c,), the logarithms of the frequencies of the classes
    test : (m, D)
    codes : (m,), the classes of these rows
    weight : (m,), or None for equal weights
    criterion : as in `Selection`
    """

    kernels: list[LocalKernels]
    log_priors: np.ndarray
    test: np.ndarray
    codes: np.ndarray
    weight: np.ndarray | None
    criterion: str

    def terms(self, table: Table) -> np.ndarray:
        """Return the term of each held-out row, greater is better, shape (depths, factors, rows)."""
        if self.criterion == "log_likelihood":
            return self.kernels[0].log_densities(self.test, table)
        joint = np.stack([one.log_densities(self.test, table) for one in self.kernels])
        joint += self.log_priors[:, None, None, None]
        if self.criterion == "error":
            return -(np.argmax(joint, axis=0) != self.codes).astype(float)
        joint_of_class = np.take_along_axis(joint, self.codes[None, None, None, :], axis=0)[0]
        # If every density is 0 (a distance in units of the noise overflows), nothing is known about the class.
        return joint_of_class - np.maximum(logsumexp(joint, axis=0), np.finfo(float).min)

    def score(self, terms: np.ndarray) -> np.ndarray:
        """Return the weighted mean of terms over the held-out rows."""
        return np.average(terms, axis=-1, weights=self.weight)

    @property
    def n_rows(self) -> int:
        """The number of training rows; of the smallest class, if there are classes."""
        return min(len(one.rows) for one in self.kernels)


def make_splits(
    positions: Sequence[tuple[np.ndarray, np.ndarray]],
    X: np.ndarray,
    weight: np.ndarray | None,
    kernels_of: Callable[[np.ndarray], LocalKernels],
    criterion: str = "log_likelihood",
    classes: np.ndarray | None = None,
    codes: np.ndarray | None = None,
) -> list[Split]:
    """Return the splits at some positions of training rows and held-out rows.

    Parameters
    ----------
    positions : sequence of (training rows, held-out rows)
    X : array of shape (n, D)
    weight : array of shape (n,), optional
    kernels_of : callable
        Returns the kernels of the rows at some positions.
    criterion : str
    classes, codes : arrays, optional
        The labels of the classes, and the class of each row.
    """
    codes = np.zeros(len(X), dtype=int) if codes is None else codes
    n_classes, splits = int(codes.max()) + 1, []
    for s, (train, test) in enumerate(positions):
        if len(train) == 0 or len(test) == 0:
            raise ValueError(
                f"cv must give training and test rows of positive weight, got {len(train)} and {len(test)} in split {s}."
            )
        counts = np.bincount(codes[train], minlength=n_classes)
        if counts.min() == 0:
            missing = np.asarray(classes).tolist()[np.argmin(counts)]
            raise ValueError(f"class {missing!r} has no training rows in split {s}. Use stratified folds.")
        mass = np.bincount(codes[train], None if weight is None else weight[train], minlength=n_classes)
        kernels = [kernels_of(train[codes[train] == c]) for c in range(n_classes)]
        its_weight = None if weight is None else weight[test]
        splits.append(Split(kernels, np.log(mass / mass.sum()), X[test], codes[test], its_weight, criterion))
    return splits


# -- the search --------------------------------------------------------------------------------------------------------


class Grid(NamedTuple):
    """The search space: sizes of the vicinity, numbers of directions, centres, and paths of shared covariances."""

    neighbors: Sequence[int]
    depths: Sequence[int]
    centers: Sequence[str]
    paths: Sequence[tuple[Shared, Sequence[float]]]
    sums: bool  # whether sums of the best members of two paths are tried


class SearchResult(NamedTuple):
    """The best member, its mean score, and the scores (splits,) of every member that was tried."""

    member: Member
    score: float
    scores: dict[Member, np.ndarray]

    def table(self, names: Sequence[str] = Member._fields) -> dict[str, Any]:
        """Return the members that were tried, as ``cv_results_`` of GridSearchCV, by the parameters with these names."""
        params = [{name: getattr(member, name) for name in names} for member in self.scores]
        return search_results(params, np.array(list(self.scores.values())).T)


class LocalSearch:
    """A search over the family; see the module docstring.

    Parameters
    ----------
    splits : sequence of Split
    grid : Grid
    """

    def __init__(self, splits: Sequence[Split], grid: Grid) -> None:
        self._splits, self._grid = splits, grid
        self._scores: dict[Member, np.ndarray] = {}  # of each split
        # Of each held-out row, for LCA and for members that were the best so far.
        self._terms: dict[Member, np.ndarray] = {}

    def every_member(self) -> SearchResult:
        """Return the best of all combinations; of equally good ones, the one with the fewest directions, neighbours, and noise."""
        for shape, factors in self._grid.paths:
            for k in reversed(
                self._grid.neighbors
            ):  # the neighbours of a wide vicinity contain those of all narrower ones
                self._try(shape, factors, k, self._grid.centers[0])
        order = sorted(self._scores, key=lambda member: (member.n_components, member.n_neighbors, member.noise))
        self._scores = {member: self._scores[member] for member in order}
        return self._result(self._best(self._scores))

    def around_the_best(self) -> SearchResult:
        """Return the best member that was found around the best of a coarse grid, or LCA."""
        grid = self._grid
        for shape, factors in grid.paths:
            self._try_few(shape, factors, grid.centers[0])
        shape, factors, _ = self._place_of(self._best(self._scores))
        for center in grid.centers[1:]:
            self._try_few(shape, factors, center)
        best = self._best(self._scores)
        shape, factors, at = self._place_of(best)
        nearby = factors[max(at - _NEARBY, 0) : at + _NEARBY + 1]
        size = grid.neighbors.index(best.n_neighbors)
        for k in reversed(grid.neighbors[max(size - 1, 0) : size + 2]):
            self._try(shape, nearby, k, best.center, self._depths_near(best))
        if grid.sums:
            self._try_sums()
        return self._result(self._simple_unless_behind(self._best(self._scores)))

    def _try_few(self, shape: Shared, factors: Sequence[float], center: str) -> None:
        """Score every third multiple of a shape, for sizes that are spread over all of them."""
        sizes = self._grid.neighbors
        if len(sizes) > _FEW:
            sizes = [sizes[1], sizes[-2]] if len(sizes) > 3 else [sizes[0], sizes[-1]]
        for k in reversed(sizes):
            self._try(shape, factors[::3] if len(factors) > 4 else factors, k, center)

    def _depths_near(self, member: Member) -> Sequence[int]:
        """Return the number of directions of a member, the next ones, and all, which vicinities of another size may need."""
        depths = self._grid.depths
        at = depths.index(member.n_components)
        return sorted({*depths[max(at - 1, 0) : at + 2], depths[-1]})

    def _try(
        self,
        shape: Shared,
        factors: Sequence[float],
        k: int,
        center: str,
        depths: Sequence[int] | None = None,
    ) -> None:
        """Score numbers of directions (by default all) and multiples of a shape on all splits, unless all are known."""
        depths = self._grid.depths if depths is None else depths
        depths = [depth for depth in depths if depth <= k and (depth or center == "row")]
        if not depths:
            return
        table = Table(shape, factors, k, depths, center)
        members = table.members()
        if all(member in self._scores for row in members for member in row):
            return
        terms = [split.terms(table) for split in self._splits]
        scores = np.stack([split.score(part) for split, part in zip(self._splits, terms, strict=True)])
        places = {member: (i, j) for i, row in enumerate(members) for j, member in enumerate(row)}
        for member, (i, j) in places.items():
            self._scores.setdefault(member, scores[:, i, j])
        best = self._best(self._scores)
        for member, (i, j) in places.items():
            if member == best or _is_lca(member):
                self._terms[member] = np.maximum(np.concatenate([part[i, j] for part in terms]), _FARTHEST)

    def _best(self, scores: dict[Member, np.ndarray]) -> Member:
        return max(scores, key=lambda member: (scores[member].mean(), -member.n_neighbors))

    def _place_of(self, member: Member) -> tuple[Shared, Sequence[float], int]:
        """Return the path that a member of the first round lies on, and its place there."""
        places = (
            (shape, factors, at)
            for shape, factors in self._grid.paths
            for at, factor in enumerate(factors)
            if shape.times(factor) == member.shape
        )
        return next(places)

    def _best_of_path(self, name: str) -> Member | None:
        """Return the best member with directions whose shared covariance has the part of this name alone."""
        pure = {m: s for m, s in self._scores.items() if getattr(m, name) == m.shared + m.noise and m.n_components > 0}
        return self._best(pure) if pure else None

    def _try_sums(self) -> None:
        """Try sums of the best multiple of LCA's covariance and the best noise, for the best vicinity."""
        best = self._best(self._scores)
        multiple, noise = self._best_of_path("shared"), self._best_of_path("noise")
        if multiple is not None and noise is not None:
            both = Shared(multiple.shared, noise.noise)
            self._try(both, _SUMS, best.n_neighbors, best.center, self._depths_near(best))

    def _simple_unless_behind(self, best: Member) -> Member:
        """Return LCA unless the best member is ahead of it by more than a paired standard error over all held-out rows.

        With few rows, the best of a hundred members is ahead by chance.
        """
        plain = next((member for member in self._scores if _is_lca(member)), None)
        if plain is None or plain == best:
            return best
        weights = (
            None
            if self._splits[0].weight is None
            else np.concatenate([np.asarray(split.weight) for split in self._splits])
        )
        gain, error = paired_gain(self._terms[best], self._terms[plain], weights)
        return plain if gain <= error else best

    def _result(self, best: Member) -> SearchResult:
        return SearchResult(best, float(self._scores[best].mean()), self._scores)


def _is_lca(member: Member) -> bool:
    return member.shape == Shared(1.0, 0.0) and member.n_components == 0


# -- the grid ----------------------------------------------------------------------------------------------------------

NEIGHBORS = (5, 10, 20, 40)  # the sizes of vicinities of "auto"
_WIDE = (80, 160)  # further ones of Local LCA
_PLENTY = 10  # training rows per row of a vicinity, for vicinities of more than 80 rows
_MOST_DIRECTIONS = 32
N_NOISES = 16  # the number of noises of "auto"
_ROWS_FOR_SCALE = 2000  # rows whose median distance to their nearest neighbour gives the smallest of them
# Multiples of LCA's covariance, a factor of 10^(1/4) apart; 1 is at a place that the first round of a search tries.
_MULTIPLES = tuple(10.0 ** (e / 4.0) for e in range(-12, 3))
SMALLEST_MULTIPLE = _MULTIPLES[0]


def powers_of_two(most: int) -> list[int]:
    """Return 0 and the powers of two up to 32 or `most`: numbers of directions of "auto"."""
    return [0, *(2**e for e in range(6) if 2**e <= most)]


def values_of(parameter: Any, values: Any) -> list[Any] | None:
    """Return the values of a parameter: its own, those of the grid, or None for "auto"."""
    if not isinstance(parameter, str):
        return [parameter]
    return None if isinstance(values, str) else np.ravel(values).tolist()


def sizes_to_try(
    estimator: Any, selection: Selection, n_features: int, smallest: int, *, wide: bool
) -> tuple[list[int], list[int]]:
    """Return the sizes of vicinities and the numbers of directions to try, in increasing order.

    Parameters
    ----------
    estimator : ManifoldParzen or LocalLCA
    selection : Selection
    n_features : int
    smallest : int
        The number of rows of the smallest training part (or class).
    wide : bool
        Whether "auto" has wide vicinities and all directions.
    """
    neighbors = values_of(estimator.n_neighbors, selection.n_neighbors)
    if neighbors is None:
        neighbors = [k for k in NEIGHBORS + _WIDE * wide if k < (smallest if k <= 80 else smallest / _PLENTY)]
        neighbors = neighbors or [max(smallest - 1, 1)]
    neighbors = sorted({check_integer(k, "n_neighbors") for k in neighbors})
    depths = values_of(estimator.n_components, selection.n_components)
    if depths is None:
        most = min(n_features, max(neighbors), _MOST_DIRECTIONS)
        depths = powers_of_two(most) + [most] * wide
    depths = sorted({check_integer(d, "n_components", least=0) for d in depths})
    check_sizes(max(depths), None, n_features, smallest)
    if max(neighbors) >= smallest and max(depths) > 0:
        raise ValueError(
            f"n_neighbors={max(neighbors)} needs at least {max(neighbors) + 1} training rows in every split and class, got {smallest} "
            "in the smallest. Lower n_neighbors or use fewer folds."
        )
    if min(depths) > max(neighbors):
        raise ValueError(
            f"n_components={min(depths)} needs at least as many neighbours, got n_neighbors={max(neighbors)}. Raise "
            "n_neighbors or lower n_components."
        )
    return neighbors, depths


def local_grid(
    estimator: Any, selection: Selection, X: np.ndarray, weight: np.ndarray | None, smallest: int, engine: Engine
) -> Grid:
    """Return the grid of LocalLCA; a parameter that is a number is the only value of its axis."""
    neighbors, depths = sizes_to_try(estimator, selection, X.shape[1], smallest, wide=True)
    centers = CENTERS if estimator.center == "auto" else (estimator.center,)
    if max(depths) == 0:
        centers = CENTERS[:1]  # the only one without directions
    free_shared, free_noise = isinstance(estimator.shared, str), isinstance(estimator.noise, str)
    multiples: Sequence[float] = _MULTIPLES if free_shared else [float(estimator.shared)]
    noises = values_of(estimator.noise, selection.noise)
    if noises is None:
        noises = auto_noises(X, weight, engine)
        if not free_shared and estimator.shared > 0:
            noises = [0.0, *noises[::3]]
    noises = sorted({check_positive(noise, "noise", strict=False) for noise in noises})
    if free_shared and free_noise:
        paths = [(Shared(1.0, 0.0), multiples), (NOISE, [s for s in noises if s > 0])]
    elif free_shared and noises == [0.0]:
        paths = [(Shared(1.0, 0.0), multiples)]
    elif free_noise and multiples == [0.0]:
        paths = [(NOISE, noises)]
    else:  # one of the two is given, so that the shape of the sum changes with the other: a path of one member for each
        paths = [(Shared(a, s), [1.0]) for a in multiples for s in noises]
    return Grid(neighbors, depths, centers, paths, free_shared and free_noise)


def check_sizes(d: int, k: int | None, n_features: int, n_rows: int) -> None:
    """Check the number of directions and of neighbours (None if they are not counted) against each other and the data."""
    if d > n_features:
        raise ValueError(
            f"n_components={d} needs at least {d} features that vary, got {n_features}. Lower n_components."
        )
    if d == 0 or k is None:
        return
    if d > k:
        raise ValueError(
            f"n_components={d} needs at least {d} neighbours, got n_neighbors={k}. Raise n_neighbors or lower n_components."
        )
    if n_rows <= k:
        raise ValueError(
            f"n_neighbors={k} needs at least {k + 1} training rows, got {n_rows}. Lower n_neighbors or add data."
        )


# -- the noise ---------------------------------------------------------------------------------------------------------

_STEP = 1.5  # ratio of neighbouring candidates; the curve is smooth, and the best three are interpolated
_MOST = 64  # candidates in a pass


class NoiseChoice(NamedTuple):
    """The chosen noise, and the candidates with their mean held-out log-densities."""

    noise: float
    candidates: np.ndarray
    scores: np.ndarray


def choose_noise(evaluate: Callable[[np.ndarray], np.ndarray], X: np.ndarray, nearest: np.ndarray) -> NoiseChoice:
    """Choose the variance with the largest held-out likelihood on a geometric grid, with interpolation.

    Parameters
    ----------
    evaluate : callable
        ``evaluate(noises)`` returns the mean held-out log-density for each noise, all in one pass over the
        pairs.
    X : array of shape (n, D)
    nearest : array of shape (n,)
        Distance of each row to its nearest neighbour.
    """
    low, high = noise_range(X, nearest)
    candidates, scores = np.array([]), np.array([])
    # Smaller candidates are tried as long as the smallest is the best: with as many directions as features, the noise may
    # vanish.
    for _ in range(3):
        steps = int(np.clip(np.ceil(np.log(high / low) / np.log(_STEP)), 8, _MOST))
        new = np.geomspace(low, high, steps + 1)[: steps + (len(candidates) == 0)]
        candidates, scores = np.concatenate([new, candidates]), np.concatenate([evaluate(new), scores])
        best = int(np.argmax(scores))
        if best > 0 or scores[0] - scores[2] < 1e-3:
            break
        low, high = max(low * 1e-4, float(np.finfo(X.dtype).tiny)), low
    else:
        warnings.warn(
            f"noise='auto' did not converge: it chose {candidates[0]:.3g}, the smallest candidate, and "
            "a smaller one may score better. Check for constant or dependent columns and for rows that almost "
            "repeat others, or pass noise as a number.",
            ConvergenceWarning,
            stacklevel=callers_line(),
        )
    noise = float(np.exp(top_of_parabola(np.log(candidates), scores)))
    return NoiseChoice(noise, candidates, scores)


def noise_range(X: np.ndarray, nearest: np.ndarray) -> tuple[float, float]:
    """Return the noises to try, from far below the distance of nearest neighbours to the variance of the data."""
    largest = float(X.var(axis=0, dtype=np.float64).mean())
    positive = nearest[nearest > 0]
    if largest == 0 or len(positive) == 0:
        raise ValueError(
            f"noise='auto' found no scale: every one of the {len(X)} rows has an exact twin, and the "
            "likelihood of a row at the place of its twin grows without bound as the noise shrinks. Merge twins "
            "into weights: X, w = np.unique(X, axis=0, return_counts=True), then fit(X, sample_weight=w); "
            "or pass a number."
        )
    twins = int((nearest == 0).sum())
    if twins:
        warnings.warn(
            f"{twins} of {len(X)} rows have an exact twin. A held-out row is at distance zero from its twin, "
            "so noise='auto' chooses a noise that is too small. Merge twins into weights: "
            "X, w = np.unique(X, axis=0, return_counts=True), then fit(X, sample_weight=w).",
            UserWarning,
            stacklevel=callers_line(),
        )
    least = float(np.finfo(X.dtype).tiny)  # the inverse of anything smaller would overflow
    low = max(1e-3 * float(np.median(positive)) ** 2 / X.shape[1], least)
    return low, max(largest, 10.0 * low)


def check_noise(noise: float, dtype: np.dtype) -> float:
    """Return a variance whose inverse the precision of the data can hold."""
    noise, least = check_positive(noise, "noise"), float(np.finfo(dtype).tiny)
    if noise < least:
        raise ValueError(
            f"noise must be at least {least:.3g}, got {noise:.3g}, whose inverse overflows {dtype}. Rescale the data, or "
            "increase the noise."
        )
    return noise


def auto_noises(X: np.ndarray, weight: np.ndarray | None, engine: Engine) -> list[float]:
    """Return the noises of "auto": from far below the distance of nearest neighbours to the variance of the data."""
    check_spread(X)
    # Equal rows are never separated, so that a held-out row has no twin among the training rows.
    rows = np.unique(X if weight is None else X[weight > 0], axis=0)
    sample = None
    if len(rows) > _ROWS_FOR_SCALE:
        sample = np.sort(np.random.default_rng(0).choice(len(rows), _ROWS_FOR_SCALE, replace=False))
    nearest = nearest_neighbors(rows, 1, queries=sample, engine=engine)[:, 0]
    sampled = rows if sample is None else rows[sample]
    low, high = noise_range(rows, np.linalg.norm(sampled - rows[nearest], axis=1))
    return np.geomspace(low, high, N_NOISES).tolist()
