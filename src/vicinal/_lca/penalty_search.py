r"""The search of ``reg="auto"``: penalties are compared by the likelihood of held-out rows.

Each family of `penalty.py` is a path of factors :math:`\nu`. Some of the folds locate the best factor of each family
approximately, in steps of 10; then all folds compare the factors nearby, in steps of the root of 10. A fit starts from the
result of the nearest factor that was fitted to the same rows, so that most fits need only a few passes.

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
_COARSELY = 2  # steps at a time
_SCOUTED_ROWS = (
    100  # the minimum number of held-out rows that locate the best factor of a family: those of one fold or more
)
# A family whose best factor is this many nats per row behind that of another on those folds is compared at that factor only. A
# family that is so far behind after the comparison of three factors, or a target with the first weight, is not followed further.
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
    """A path of penalties: of factors or, towards a target that is given by its factor, of weights.

    A place of the path is its distance from the first penalty that is tried, in steps.
    """

    family: str
    factor: float | None = None

    def form(self, place: float) -> Form:
        """Return the penalty at a place of the path."""
        value = self._value(place)
        return Form(self.family, value) if self.factor is None else Form(self.family, self.factor, value)

    @property
    def ends(self) -> tuple[float, float]:
        """The smallest and the largest factor or weight."""
        return (SMALLEST[self.family], _LARGEST) if self.factor is None else _WEIGHTS

    def reaches(self, place: int) -> bool:
        """Return whether a place is on the path."""
        return 0.99 * self.ends[0] <= self._value(place) <= 1.01 * self.ends[1]

    def _value(self, place: float) -> float:
        return (1.0 if self.factor is None else _FIRST_WEIGHT) * _STEP**place


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
    place: int
    scores: np.ndarray

    @property
    def mean(self) -> float:
        return float(self.scores.mean())

    @property
    def form(self) -> Form:
        return self.path.form(self.place)


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
    walks = [_Walk(folds, Path(family)) for family in added]
    scouted = [_scout(walk, n_scouts) for walk in walks]
    leader = max(found.mean for found in scouted)
    tried: list[list[_Tried]] = []
    for walk, found in zip(walks, scouted, strict=True):
        places = [found.place] if found.mean < leader - _HOPELESS else [found.place + k for k in (1, 0, -1)]
        tried.append([walk.at(place) for place in places if walk.path.reaches(place)])
    leader = max(t.mean for some in tried for t in some)
    for walk, some in zip(walks, tried, strict=True):
        if max(t.mean for t in some) >= leader - _HOPELESS:
            some.extend(_beyond(walk, some))
    if target is not None:
        tried.append(_towards(folds, target, max(t.mean for some in tried for t in some)))
    return _choice([t for some in tried for t in sorted(some, key=lambda t: -t.place)])


def _choice(tried: Sequence[_Tried]) -> Choice:
    """Return the choice among all places that were tried."""
    best = _chosen(tried)
    mine = sorted((t.place, t.mean) for t in tried if t.path == best.path)
    wider = [score for place, score in mine if place > best.place]
    is_last = best.path.factor is None and not best.path.reaches(best.place - 1)
    at_edge = is_last and bool(wider) and best.mean - wider[0] > 0.05
    return Choice(best.path.form(_interpolated(mine, best.place)), _table(tried), at_edge)


def _towards(folds: Sequence[Fold], target: str, leader: float) -> list[_Tried]:
    """Return weights of the target with their scores: the first, and those nearby if it is not far behind the leader."""
    walk = _Walk(folds, Path(target, _best_width(folds, target)))
    first = walk.at(0)
    if first.mean < leader - _HOPELESS:
        return [first]
    return [first, *_steps(walk, first, 1), *_steps(walk, first, -1)]


def _chosen(tried: Sequence[_Tried]) -> _Tried:
    """Return the best penalty; one that draws towards a target must be clearly better than those that are added."""
    drawn = max((t for t in tried if t.path.factor is not None), key=lambda t: t.mean, default=None)
    added = max((t for t in tried if t.path.factor is None), key=lambda t: t.mean)
    return drawn if drawn is not None and drawn.mean > added.mean + _CLEARLY else added


def _table(tried: Sequence[_Tried]) -> dict[str, np.ndarray]:
    """Return the table of a search; the weight of a penalty that is added is 0."""
    forms = [t.form for t in tried]
    return {
        "family": np.array([form.family for form in forms]),
        "factor": np.array([form.factor for form in forms]),
        "weight": np.array([form.weight or 0.0 for form in forms]),
        "mean_test_score": np.array([t.mean for t in tried]),
        "std_test_score": np.array([t.scores.std() if np.isfinite(t.scores).all() else np.inf for t in tried]),
    }


def _best_width(folds: Sequence[Fold], family: str) -> float:
    """Return the factor of the single kernel of this shape that scores best; this takes no fits."""
    path, tried = Path(family), dict[int, float]()

    def at(place: int) -> float:
        if place not in tried:
            score = float(np.mean([fold.score_of_kernel(*path.form(place)[:2]) for fold in folds]))
            tried[place] = score if np.isfinite(score) else -np.inf
        return tried[place]

    best = 0
    for step in (-1, 1):
        while path.reaches(best + step) and at(best + step) > at(best):
            best += step
    return path.form(_interpolated(list(tried.items()), best)).factor


def _scout(walk: "_Walk", n_folds: int) -> _Tried:
    """Return the approximate best place of a path on some of the folds, by large steps down (up if the first is the best)."""
    best = first = walk.at(0, n_folds)
    for step in (-_COARSELY, _COARSELY):
        while walk.path.reaches(best.place + step):
            found = walk.at(best.place + step, n_folds)
            if found.mean <= best.mean + _GAIN:
                break
            best = found
        if best is not first:
            break
    return best


def _beyond(walk: "_Walk", tried: Sequence[_Tried]) -> list[_Tried]:
    """Return further places below or above some in decreasing order, as long as the last one in that direction is the best."""
    if len(tried) == 1:  # one place is judged by itself
        return []
    below = _steps(walk, tried[-1], -1) if tried[-1].mean > tried[-2].mean + _GAIN else []
    above = _steps(walk, tried[0], 1) if tried[0].mean > tried[1].mean + _GAIN else []
    return [*below, *above]


def _steps(walk: "_Walk", first: _Tried, step: int) -> list[_Tried]:
    """Return the next places in one direction up to one that does not gain."""
    tried = [first]
    while walk.path.reaches(tried[-1].place + step):
        tried.append(walk.at(tried[-1].place + step))
        if tried[-1].mean <= tried[-2].mean + _GAIN:
            break
    return tried[1:]


class _Walk:
    """Fits along one path to all folds; no fit is done twice."""

    def __init__(self, folds: Sequence[Fold], path: Path) -> None:
        self.path, self._folds = path, folds
        self._scores: list[dict[int, float]] = [{} for _ in folds]
        self._results: list[dict[int, Any]] = [{} for _ in folds]

    def at(self, place: int, n_folds: int | None = None) -> _Tried:
        """Return the held-out score at a place, of each fold or of the first few; -inf where there is no fit."""
        return _Tried(self.path, place, np.array([self._score(f, place) for f in range(len(self._folds))[:n_folds]]))

    def _score(self, fold: int, place: int) -> float:
        scores, results = self._scores[fold], self._results[fold]
        if place not in scores:
            # A fit starts from that of the nearest place, the one with the wider kernel if there are two.
            nearest = min(results, key=lambda other: (abs(other - place), other < place), default=None)
            start = None if nearest is None else results[nearest]
            try:
                results[place], held_out = self._folds[fold].fit(self.path.form(place), start)
                scores[place] = held_out if np.isfinite(held_out) else -np.inf
            except (CollapseError, np.linalg.LinAlgError):
                scores[place] = -np.inf
        return scores[place]


def _interpolated(tried: list[tuple[int, float]], best: int) -> float:
    """Return the top of the parabola through the best place of a path and its neighbours."""
    tried = sorted(tried)
    at = [place for place, _ in tried].index(best)
    if at in (0, len(tried) - 1):
        return best
    x = np.array([place - best for place, _ in tried[at - 1 : at + 2]], dtype=np.float64)
    y = np.array([score for _, score in tried[at - 1 : at + 2]])
    if not np.isfinite(y).all():
        return best
    a, b, _ = np.polyfit(x, y - y[1], 2)
    return best + float(np.clip(-b / (2 * a), x[0], x[2])) if a < 0 else best


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
