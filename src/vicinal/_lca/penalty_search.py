r"""The search of ``reg="auto"``: penalties are compared by the likelihood of held-out rows.

Each family of `penalty.py` is a path of factors :math:`\nu`. Some of the folds locate the best factor of each family
approximately, in steps of 10; then all folds compare the factors nearby, in steps of the root of 10. Each fit starts from the
result of the previous one and needs only a few passes.

Then the covariance is drawn towards :math:`\nu \operatorname{diag}(C)` (see `Shrinkage`), where :math:`\nu` is that of the single
kernel of this shape which scores best. Weights of this target are tried on all folds, from 1 on, where it is not far behind the
penalties that are added. The penalty with the largest likelihood of held-out rows is selected.
"""

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from vicinal._callers import callers_line
from vicinal._checks import constant_columns, shown_columns
from vicinal._density.selection import fixed_folds
from vicinal._lca.penalty import FAMILIES, SMALLEST, Form
from vicinal._lca.steps import CollapseError, Structure

# The family of the target. (The shrunk covariance as a target scored 0.5 to 2.7 nats per row higher on sonar in a trial, but it
# makes the search more expensive.)
TARGET = "diagonal"
# Independent of random_state, so that a fit depends only on the data and on the public parameters.
_FOLDS = 5
# A search needs no more rows than these: the chosen factor is close to the one that all rows would give.
_MOST_ROWS = 2000
_STEP = 10.0**0.5
_COARSE_STEP = 10.0
_SCOUTED_ROWS = (
    100  # the minimum number of held-out rows that locate the best factor of a family: those of one fold or more
)
# A family whose best factor is this many nats per row behind that of another on those folds is compared at that factor only. A
# target that is so far behind with the first weight is not followed further.
_HOPELESS = 0.5
_LARGEST = 1e4
_GAIN = 1e-3  # nats per row
# Weights of the target: their range, and the first one. A larger weight leaves hardly more than the target.
_WEIGHTS, _FIRST_WEIGHT = (0.01, 100.0), 1.0
# A covariance is drawn towards the target only if this gains so many nats per row over every penalty that is added. Smaller
# gains are noise of the folds, and on grids of integers, narrower kernels would lose them.
_CLEARLY = 0.1


class Fold(Protocol):
    """One split of the rows: fits to its training rows, and scores of its held-out rows."""

    @property
    def n_held_out(self) -> int:
        """The number of held-out rows."""
        ...

    def fit(self, form: Form, start: Any) -> tuple[Any, float]:
        """Fit with a penalty, from a start (None: the usual one); return its result and the held-out score."""
        ...

    def score_of_kernel(self, family: str, factor: float) -> float:
        """Return the held-out score of the kernel whose covariance is a multiple of the matrix of a family."""
        ...


class Path(NamedTuple):
    """A path of penalties: of factors or, towards a target that is given by its factor, of weights."""

    family: str
    factor: float | None = None

    def form(self, place: float) -> Form:
        """Return the penalty at a place of the path."""
        return Form(self.family, place) if self.factor is None else Form(self.family, self.factor, place)

    @property
    def ends(self) -> tuple[float, float]:
        """The smallest and the largest place."""
        return (SMALLEST[self.family], _LARGEST) if self.factor is None else _WEIGHTS

    @property
    def first(self) -> float:
        """The place that is tried first."""
        return 1.0 if self.factor is None else _FIRST_WEIGHT

    def reaches(self, place: float) -> bool:
        """Return whether a place is on the path."""
        return 0.99 * self.ends[0] <= place <= 1.01 * self.ends[1]


class Choice(NamedTuple):
    """The penalty that a search chose, and the table of all that it tried."""

    form: Form
    table: dict[str, np.ndarray]
    at_edge: bool

    def best_added(self, family: str) -> float | None:
        """Return the best factor of a family that is added, or None if none of them has a finite score."""
        mine = (self.table["family"] == family) & (self.table["weight"] == 0)
        scores = self.table["mean_test_score"][mine]
        return float(self.table["factor"][mine][scores.argmax()]) if np.isfinite(scores).any() else None


class _Tried(NamedTuple):
    """A place of a path with its scores per fold."""

    path: Path
    place: float
    scores: np.ndarray

    @property
    def mean(self) -> float:
        return float(self.scores.mean())


def search(folds: Sequence[Fold], added: Sequence[str], target: str | None = None) -> Choice:
    """Choose the penalty of largest held-out likelihood.

    Parameters
    ----------
    folds : sequence of Fold
    added : sequence of str
        The families that are added.
    target : str, optional
        The family that the covariance is drawn towards.
    """
    n_scouts = 1 + int(np.searchsorted(np.cumsum([fold.n_held_out for fold in folds]), _SCOUTED_ROWS))
    scouted = [_scout(folds[:n_scouts], Path(family)) for family in added]
    leader = max(found.mean for found in scouted)
    tried: list[_Tried] = []
    for found in scouted:
        path, place, hopeless = found.path, found.place, found.mean < leader - _HOPELESS
        tried.extend(_compare(folds, path, [place] if hopeless else [place * _STEP, place, place / _STEP]))
    if target is not None:
        tried.extend(_towards(folds, target, max(t.mean for t in tried)))
    best = _chosen(tried)
    mine = sorted((t.place, t.mean) for t in tried if t.path == best.path)
    wider = [score for place, score in mine if place > best.place]
    is_last = best.path.factor is None and best.place <= 1.01 * best.path.ends[0]
    at_edge = is_last and bool(wider) and best.mean - wider[0] > 0.05
    return Choice(best.path.form(_interpolated(mine, best.place)), _table(tried), at_edge)


def _towards(folds: Sequence[Fold], target: str, leader: float) -> list[_Tried]:
    """Return weights of the target with their scores: the first, and those nearby if it is not far behind the leader."""
    path = Path(target, _best_width(folds, target))
    walk = _Walk(folds, path)
    first = walk.at(_FIRST_WEIGHT)
    if first.mean < leader - _HOPELESS:
        return [first]
    downwards = _steps(walk.copy(), first, 1.0 / _STEP)
    return [*reversed(_steps(walk, first, _STEP)), first, *downwards]


def _chosen(tried: Sequence[_Tried]) -> _Tried:
    """Return the best penalty; one that draws towards a target must be clearly better than those that are added."""
    drawn = max((t for t in tried if t.path.factor is not None), key=lambda t: t.mean, default=None)
    added = max((t for t in tried if t.path.factor is None), key=lambda t: t.mean)
    return drawn if drawn is not None and drawn.mean > added.mean + _CLEARLY else added


def _table(tried: Sequence[_Tried]) -> dict[str, np.ndarray]:
    """Return the table of a search; the weight of a penalty that is added is 0."""
    forms = [t.path.form(t.place) for t in tried]
    return {
        "family": np.array([form.family for form in forms]),
        "factor": np.array([form.factor for form in forms]),
        "weight": np.array([form.weight or 0.0 for form in forms]),
        "mean_test_score": np.array([t.mean for t in tried]),
        "std_test_score": np.array([t.scores.std() if np.isfinite(t.scores).all() else np.inf for t in tried]),
    }


def _best_width(folds: Sequence[Fold], family: str) -> float:
    """Return the factor of the single kernel of this shape that scores best; this takes no fits."""
    tried: dict[int, float] = {}

    def at(power: int) -> float:
        if power not in tried:
            score = float(np.mean([fold.score_of_kernel(family, _STEP**power) for fold in folds]))
            tried[power] = score if np.isfinite(score) else -np.inf
        return tried[power]

    best, (smallest, largest) = 0, (SMALLEST[family], _LARGEST)
    for step in (-1, 1):
        while smallest <= _STEP ** (best + step) <= largest and at(best + step) > at(best):
            best += step
    return _interpolated([(_STEP**power, score) for power, score in tried.items()], _STEP**best)


def _scout(folds: Sequence[Fold], path: Path) -> _Tried:
    """Return the approximate best place of a path, by large steps down (up if the first is the best)."""
    best: _Tried | None = None
    for step in (1.0 / _COARSE_STEP, _COARSE_STEP):
        walk, place = _Walk(folds, path), path.first
        while path.reaches(place):
            found = walk.at(place)
            if best is not None and place != path.first and found.mean <= best.mean + _GAIN:
                break
            if best is None or found.mean > best.mean:
                best = found
            place *= step
        if best is not None and best.place != path.first:
            break
    assert best is not None  # the first place is always on the path
    return best


def _compare(folds: Sequence[Fold], path: Path, places: Sequence[float]) -> list[_Tried]:
    """Return places of a path in decreasing order, with their scores per fold; more follow while the last is the best.

    One place is judged by itself.
    """
    walk = _Walk(folds, path)
    tried = [walk.at(place) for place in places if path.reaches(place)]
    if len(tried) == 1:
        return tried
    if tried[-1].mean > tried[-2].mean + _GAIN:
        tried.extend(_steps(walk, tried[-1], 1.0 / _STEP))
    if tried[0].mean > tried[1].mean + _GAIN:
        tried[:0] = reversed(_steps(_Walk(folds, path), tried[0], _STEP))
    return tried


def _steps(walk: "_Walk", first: _Tried, step: float) -> list[_Tried]:
    """Return the next places in one direction up to one that does not gain."""
    tried = [first]
    while walk.path.reaches(tried[-1].place * step):
        tried.append(walk.at(tried[-1].place * step))
        if tried[-1].mean <= tried[-2].mean + _GAIN:
            break
    return tried[1:]


class _Walk:
    """Fits along one path to all folds, each from the end of the one before."""

    def __init__(self, folds: Sequence[Fold], path: Path) -> None:
        self.path, self._folds, self._starts = path, folds, [None] * len(folds)

    def copy(self) -> "_Walk":
        """Return a walk from the same place."""
        found = _Walk(self._folds, self.path)
        found._starts = list(self._starts)
        return found

    def at(self, place: float) -> _Tried:
        """Return the held-out score of each fold at the next place; -inf where there is no fit."""
        scores = np.full(len(self._folds), -np.inf)
        for f, fold in enumerate(self._folds):
            try:
                self._starts[f], held_out = fold.fit(self.path.form(place), self._starts[f])
                scores[f] = held_out if np.isfinite(held_out) else -np.inf
            except (CollapseError, np.linalg.LinAlgError):
                self._starts[f] = None
        return _Tried(self.path, place, scores)


def _interpolated(tried: list[tuple[float, float]], factor: float) -> float:
    """Return the top of the parabola through the best place of a path and its neighbours, in logarithms."""
    tried = sorted(tried)
    at = [f for f, _ in tried].index(factor)
    if at in (0, len(tried) - 1):
        return factor
    x = np.log([f / factor for f, _ in tried[at - 1 : at + 2]])
    y = np.array([s for _, s in tried[at - 1 : at + 2]])
    if not np.isfinite(y).all():
        return factor
    a, b, _ = np.polyfit(x, y - y[1], 2)
    return factor * float(np.exp(np.clip(-b / (2 * a), x[0], x[2]))) if a < 0 else factor


def split_folds(X: np.ndarray, weight: np.ndarray | None) -> list[tuple[np.ndarray, Any, np.ndarray, Any]]:
    """Return the fixed folds as (training rows, their weights, held-out rows, their weights); weights are None for equal ones.

    Rows that alone make a column vary are never held out: without them the column would have no scale.
    """
    parts = fixed_folds(X, _FOLDS, _MOST_ROWS)
    everyone = np.sort(np.concatenate(parts)) if parts else np.array([], dtype=int)
    folds = []
    for part in parts:
        rest = np.setdiff1d(everyone, part, assume_unique=True)
        constant = constant_columns(X[rest])
        telling = np.any(X[part][:, constant] != X[rest[0], constant], axis=1)
        train, test = np.sort(np.concatenate([rest, part[telling]])), part[~telling]
        if len(test) == 0 or constant_columns(X[train]).any():
            continue
        weights = (None, None) if weight is None else (weight[train], weight[test])
        folds.append((X[train], weights[0], X[test], weights[1]))
    return folds


def choose_penalty(folds: Sequence[Fold], structure: Structure) -> Choice | None:
    """Return the choice for ``reg="auto"``; None without folds, where too few rows differ to hold any out."""
    if not folds:
        return None
    # The other structures depend only on the diagonal of R, or on its trace: a single variance has nothing to be drawn towards.
    families = FAMILIES if structure.covariance in ("full", "low_rank") else FAMILIES[:1]
    return search(folds, families, None if structure.covariance == "spherical" else TARGET)


def warn_at_edge(X: np.ndarray, names: np.ndarray | None, method: str) -> None:
    """Warn that held-out rows favour kernels of width zero, and name the columns that are the likely cause."""
    few = np.array([len(np.unique(column)) < 0.1 * len(X) for column in X.T])
    if not few.any():
        return
    warnings.warn(
        f"{method}: held-out rows score higher the narrower the kernel is, down to the smallest penalty of reg='auto'. "
        f"The table has columns of few distinct values ({shown_columns(few, names)}), on which a density can be made arbitrarily high. Do not compare such scores; "
        "leave such columns out, add noise of one step to them, or pass reg (a variance in squared units of the data).",
        UserWarning,
        stacklevel=callers_line(),
    )
