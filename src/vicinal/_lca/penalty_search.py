r"""The search of ``reg="auto"``: penalties are compared by the likelihood of held-out rows.

Each family of `penalty.py` is a path of factors :math:`\nu`. Some of the folds locate the best factor of each family
approximately, in steps of 10; then all folds compare the factors nearby, in steps of the root of 10. A fit starts from the
result of the nearest factor that was fitted to the same rows, so that most fits need only a few passes.

Then the covariance is drawn towards :math:`\nu \operatorname{diag}(C)` (see `Shrinkage`), where :math:`\nu` is that of the single
kernel of this shape which scores best. Weights of this target are tried on all folds, from 1 on, where it is not far behind the
penalties that are added. The penalty with the largest likelihood of held-out rows is selected.

LCA-Gauss has two penalties, which are chosen jointly. The local penalty is one of those that LCA's own search finds best (one per family that is
added, and one that draws towards a target, where that is its choice), or zero, or so large that every direction is Gaussian. The Gaussian's
penalty :math:`R_G` is zero, or leads from the sample covariance to its shrunk estimate (Ledoit and Wolf): :math:`C_G + R_G` is that
estimate. Pairs of them are fitted to the folds of LCA's search, and the pair with the largest likelihood of held-out rows is selected.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np

from vicinal._callers import callers_line
from vicinal._checks import shown_columns
from vicinal._engine import Engine, one_blas_thread_beside_pairs
from vicinal._fit_loops import FitPath, Recorder, accelerated_fixed_point, fixed_point
from vicinal._kernel_penalty import Penalty
from vicinal._lca.gauss_steps import GaussPoint, GaussRows, all_local, em_step, relaxed_em, search_directions
from vicinal._lca.penalty import FAMILIES, NO_PENALTY, SMALLEST, Form, family_matrix, shrinkage, shrunk_covariance
from vicinal._lca.steps import CollapseError, Point, Steps, Structure, inverse_root, nearest_structured
from vicinal._leave_one_out import LeaveOneOut, leave_one_out, mean_of_rows, scatter_of_rows
from vicinal._mixtures import LOG_2PI
from vicinal._rows import constant_columns
from vicinal._search import fixed_folds

# The family of the target. (The shrunk covariance as a target scored 0.5 to 2.7 nats per row higher on sonar in a trial, but it
# makes the search more expensive.)
TARGET = "diagonal"
# Independent of random_state, so that a fit depends only on the data and on the public parameters.
_FOLDS = 5
# A search needs no more rows than these: the chosen factor is close to the one that all rows would give.
_MOST_ROWS = 2000
_STEP = 10.0**0.5
_SCOUTED_STEPS = 2  # steps at a time
_SCOUTED_ROWS = (
    100  # the minimum number of held-out rows that locate the best factor of a family: those of one fold or more
)
# A family whose best factor is this many nats per row behind that of another on those folds is compared at that factor only. A
# family that is so far behind after the comparison of three factors, or a target with the first weight, is not followed further.
_FAR_BEHIND = 0.5
_LARGEST = 1e4
_GAIN = 1e-3  # nats per row
# Weights of the target: their range, and the first one. A larger weight leaves hardly more than the target.
_WEIGHTS, _FIRST_WEIGHT = (0.01, 100.0), 1.0
# A covariance is drawn towards the target only if this gains so many nats per row over every penalty that is added. Smaller
# gains are noise of the folds, and on grids of integers, narrower kernels would lose them.
_GAIN_OF_TARGET = 0.1


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


class PenaltyChoice(NamedTuple):
    """The penalty that a search chose, and the table of all that it tried."""

    form: Form
    table: dict[str, np.ndarray]
    at_edge: bool

    def best_added(self, family: str) -> float | None:
        """Return the best factor of a family that is added, or None if none of them has a finite score."""
        is_candidate = (self.table["family"] == family) & (self.table["weight"] == 0)
        scores = self.table["mean_test_score"][is_candidate]
        return float(self.table["factor"][is_candidate][scores.argmax()]) if np.isfinite(scores).any() else None


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


def search(folds: Sequence["LCAFold"], added: Sequence[str], target: str | None = None) -> PenaltyChoice:
    """Choose the penalty of largest held-out likelihood.

    Parameters
    ----------
    folds : sequence of LCAFold
    added : sequence of str
        The families that are added.
    target : str, optional
        The family that the covariance is drawn towards.
    """
    n_scouts = 1 + int(np.searchsorted(np.cumsum([fold.n_held_out for fold in folds]), _SCOUTED_ROWS))
    walks = [_Walk(folds, Path(family)) for family in added]
    scouted = [_scout(walk, n_scouts) for walk in walks]
    leader = max(scout.mean for scout in scouted)
    tried: list[list[_Tried]] = []
    for walk, scout in zip(walks, scouted, strict=True):
        places = [scout.place] if scout.mean < leader - _FAR_BEHIND else [scout.place + k for k in (1, 0, -1)]
        tried.append([walk.at(place) for place in places if walk.path.reaches(place)])
    leader = max(t.mean for places_of_path in tried for t in places_of_path)
    for walk, places_of_path in zip(walks, tried, strict=True):
        if max(t.mean for t in places_of_path) >= leader - _FAR_BEHIND:
            places_of_path.extend(_beyond(walk, places_of_path))
    if target is not None:
        tried.append(_towards(folds, target, max(t.mean for places_of_path in tried for t in places_of_path)))
    return _choice([t for places_of_path in tried for t in sorted(places_of_path, key=lambda t: -t.place)])


def _choice(tried: Sequence[_Tried]) -> PenaltyChoice:
    """Return the choice among all places that were tried."""
    best = _chosen(tried)
    places_of_path = sorted((t.place, t.mean) for t in tried if t.path == best.path)
    wider = [score for place, score in places_of_path if place > best.place]
    is_last = best.path.factor is None and not best.path.reaches(best.place - 1)
    at_edge = is_last and bool(wider) and best.mean - wider[0] > 0.05
    return PenaltyChoice(best.path.form(_interpolated(places_of_path, best.place)), _table(tried), at_edge)


def _towards(folds: Sequence["LCAFold"], target: str, leader: float) -> list[_Tried]:
    """Return weights of the target with their scores: the first, and those nearby if it is not far behind the leader."""
    walk = _Walk(folds, Path(target, _best_width(folds, target)))
    first = walk.at(0)
    if first.mean < leader - _FAR_BEHIND:
        return [first]
    return [first, *_steps(walk, first, 1), *_steps(walk, first, -1)]


def _chosen(tried: Sequence[_Tried]) -> _Tried:
    """Return the best penalty; one that draws towards a target must be clearly better than those that are added."""
    drawn = max((t for t in tried if t.path.factor is not None), key=lambda t: t.mean, default=None)
    added = max((t for t in tried if t.path.factor is None), key=lambda t: t.mean)
    return drawn if drawn is not None and drawn.mean > added.mean + _GAIN_OF_TARGET else added


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


def _best_width(folds: Sequence["LCAFold"], family: str) -> float:
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
    for step in (-_SCOUTED_STEPS, _SCOUTED_STEPS):
        while walk.path.reaches(best.place + step):
            candidate = walk.at(best.place + step, n_folds)
            if candidate.mean <= best.mean + _GAIN:
                break
            best = candidate
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

    def __init__(self, folds: Sequence["LCAFold"], path: Path) -> None:
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
    all_rows = np.sort(np.concatenate(parts)) if parts else np.array([], dtype=int)
    folds = []
    for part in parts:
        rest = np.setdiff1d(all_rows, part, assume_unique=True)
        constant = constant_columns(X[rest])
        is_needed = np.any(X[part][:, constant] != X[rest[0], constant], axis=1)
        train, test = np.sort(np.concatenate([rest, part[is_needed]])), part[~is_needed]
        if len(test) == 0 or constant_columns(X[train]).any():
            continue
        weights = (None, None) if weight is None else (weight[train], weight[test])
        folds.append((X[train], weights[0], X[test], weights[1]))
    return folds


def choose_penalty(folds: Sequence["LCAFold"], structure: Structure) -> PenaltyChoice | None:
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


# -- the two penalties of LCA-Gauss --------------------------------------------------------------------

# A penalty of the size of the shrunk covariance itself makes every direction Gaussian.
_ALL_GAUSSIAN = Form("shrunk", 1.0)
# With a smaller weight of the diagonal in the shrunk covariance, no density changes by a hundredth of a nat per row.
_LEAST_TRIED_SHRINKAGE = 0.01


class LocalRule(NamedTuple):
    """A local penalty as a function of the training rows, with its entry in the table of a search."""

    name: str
    factor: float
    weight: float
    penalty: Callable[[np.ndarray, np.ndarray | None], Penalty]


class GaussianRule(NamedTuple):
    """A penalty of the Gaussian as a function of the training rows, with its entry in the table of a search."""

    name: str
    matrix: Callable[[np.ndarray, np.ndarray | None], np.ndarray]


class Penalties(NamedTuple):
    """A pair of penalties: that of the local covariance, and R_G of the Gaussian."""

    reg: LocalRule
    reg_gauss: GaussianRule

    def local(self, X: np.ndarray, weight: np.ndarray | None) -> Penalty:
        """Return the local penalty for some training rows."""
        return self.reg.penalty(X, weight)

    def gaussian(self, X: np.ndarray, weight: np.ndarray | None) -> np.ndarray:
        """Return R_G for some training rows."""
        return self.reg_gauss.matrix(X, weight)


def given_local(reg: Penalty) -> LocalRule:
    """Return a local penalty that the user passed."""
    return LocalRule("given", 1.0, reg.weight or 0.0, lambda X, weight: reg)


def given_gaussian(reg_gauss: np.ndarray) -> GaussianRule:
    """Return a penalty of the Gaussian that the user passed."""
    return GaussianRule("given", lambda X, weight: reg_gauss)


def local_rule(form: Form) -> LocalRule:
    """Return a penalty of one of the families of LCA's search."""
    return LocalRule(form.family, form.factor, form.weight or 0.0, form.of_rows)


def local_rules(choice: PenaltyChoice | None, answerable: bool) -> list[LocalRule]:
    """Return the local penalties worth trying after LCA's own search: the best of each family, none, and all Gaussian.

    LCA needs a penalty along every direction; if only a few are local, these may need none.
    """
    if choice is None:
        return [local_rule(_ALL_GAUSSIAN)]
    best_factors = {family: choice.best_added(family) for family in FAMILIES}
    forms = {family: Form(family, factor) for family, factor in best_factors.items() if factor is not None}
    forms["drawn" if choice.form.weight else choice.form.family] = choice.form
    rules = [local_rule(form) for form in forms.values()]
    none = [LocalRule("none", 0.0, 0.0, NO_PENALTY.of_rows)] if answerable else []
    return [*rules, *none, local_rule(_ALL_GAUSSIAN)]


def gaussian_rules(X: np.ndarray, weight: np.ndarray | None, answerable: bool) -> list[GaussianRule]:
    """Return the penalties of the Gaussian: none (if the rows span all directions), and the one that leads to the shrunk covariance.

    If the estimate hardly shrinks, both are the same Gaussian, and only the former is tried.
    """
    none, shrunk = GAUSSIAN_RULES["none"], GAUSSIAN_RULES["shrunk"]
    if not answerable:
        return [shrunk]
    return [none] if shrinkage(X, weight) < _LEAST_TRIED_SHRINKAGE else [none, shrunk]


def _towards_shrunk(X: np.ndarray, weight: np.ndarray | None) -> np.ndarray:
    """Return the difference between the shrunk estimate and the sample covariance, exactly symmetric."""
    difference = shrunk_covariance(X, weight) - scatter_of_rows(X, weight)
    return 0.5 * (difference + difference.T)


def _none(X: np.ndarray, weight: np.ndarray | None) -> np.ndarray:
    return np.zeros(2 * X.shape[1:])


GAUSSIAN_RULES = {"none": GaussianRule("none", _none), "shrunk": GaussianRule("shrunk", _towards_shrunk)}


def choose_both(
    folds: Sequence["LCAGaussFold"], regs: Sequence[LocalRule], gaussians: Sequence[GaussianRule]
) -> tuple[Penalties, dict[str, np.ndarray]]:
    """Return the pair of largest mean held-out score, and the table of the pairs that were tried.

    All local penalties are tried with the first Gaussian, and the best two of them with the others.
    """
    pairs = [Penalties(reg, gaussians[0]) for reg in regs]
    tried = [[_score(fold, pair) for fold in folds] for pair in pairs]
    best = np.argsort(-np.mean(tried, axis=1), kind="stable")[:2]
    further = [Penalties(regs[k], gaussian) for gaussian in gaussians[1:] for k in best]
    pairs += further
    scores = np.array(tried + [[_score(fold, pair) for fold in folds] for pair in further])
    means = scores.mean(axis=1)
    finite = np.isfinite(scores).all(axis=1)
    deviations = np.full(len(pairs), np.inf)
    deviations[finite] = scores[finite].std(axis=1)
    table = {
        "family": np.array([pair.reg.name for pair in pairs]),
        "factor": np.array([pair.reg.factor for pair in pairs]),
        "weight": np.array([pair.reg.weight for pair in pairs]),
        "gaussian": np.array([pair.reg_gauss.name for pair in pairs]),
        "mean_test_score": means,
        "std_test_score": deviations,
    }
    return pairs[int(np.argmax(means))], table


def _score(fold: "LCAGaussFold", pair: Penalties) -> float:
    try:
        score = fold.score(pair)
    except (CollapseError, np.linalg.LinAlgError):
        return -np.inf
    return score if np.isfinite(score) else -np.inf


# -- the fits to folds ---------------------------------------------------------------------------------

# Penalties are compared to hundredths of a nat, and fits start close to where they end.
_TOL = 5e-3
_MAX_PASSES = 30
# The approximate number of passes of the fits of one fold, from which the engine chooses a backend.
_PASSES = 50
# Results of searches, by their inputs; None if results are not shared.
_SEARCHES: ContextVar[dict[Any, PenaltyChoice | None] | None] = ContextVar("penalty searches", default=None)


@contextmanager
def shared_searches() -> Iterator[None]:
    """Search only once for the same rows, structure and engine within this block.

    LCA and LCA-Gauss begin with the same search, which need not be repeated if both are fitted to the same rows. A block
    within another one uses the results of the outer one.
    """
    searches = _SEARCHES.get()
    token = _SEARCHES.set({} if searches is None else searches)
    try:
        yield
    finally:
        _SEARCHES.reset(token)


def search_penalty(
    X: np.ndarray, weight: np.ndarray | None, structure: Structure, engine: Engine | str | None
) -> PenaltyChoice | None:
    """Return the choice for ``reg="auto"``; None if too few rows differ to hold any out."""
    searches = _SEARCHES.get()
    if searches is None:
        return _search(X, weight, structure, engine)
    digests = [None if a is None else blake2b(np.ascontiguousarray(a)).digest() for a in (X, weight)]
    key = (X.shape, X.dtype, *digests, structure, repr(engine))
    if key not in searches:
        searches[key] = _search(X, weight, structure, engine)
    return searches[key]


def _search(
    X: np.ndarray, weight: np.ndarray | None, structure: Structure, engine: Engine | str | None
) -> PenaltyChoice | None:
    folds = [LCAFold(*parts, structure=structure, engine=engine) for parts in split_folds(X, weight)]
    return choose_penalty(folds, structure)


class LCAFold:
    """LCA's fits to the training rows of one fold, and the scores of its held-out rows.

    Parameters
    ----------
    train : array of shape (n, d)
    train_weight : array of shape (n,), optional
    test : array of shape (m, d)
    test_weight : array of shape (m,), optional
    structure : Structure
    engine : None, str or Engine
    """

    def __init__(
        self,
        train: np.ndarray,
        train_weight: np.ndarray | None,
        test: np.ndarray,
        test_weight: np.ndarray | None,
        *,
        structure: Structure,
        engine: Engine | str | None,
    ) -> None:
        self._test, self._test_weight, self._structure = test, test_weight, structure
        self._problem = leave_one_out(train, train_weight, engine, passes=_PASSES)
        self._covariance = scatter_of_rows(train, train_weight)
        self._matrix = cache(lambda family: family_matrix(family, train, train_weight))

    @property
    def n_held_out(self) -> int:
        """The number of held-out rows."""
        return len(self._test)

    def fit(self, form: Form, start: np.ndarray | None) -> tuple[np.ndarray, float]:
        """Fit with a penalty from a metric (None: the usual one); return the metric and the held-out score."""
        with one_blas_thread_beside_pairs(*self._problem.rows.shape):
            reg = form.with_matrix(self._matrix(form.family))
            metric = rough_metric(self._problem, reg, self._covariance, self._structure, start)
            return metric, self._score(metric)

    def score_of_kernel(self, family: str, factor: float) -> float:
        """Return the held-out score of the kernel whose covariance is a multiple of the matrix of a family."""
        covariance = nearest_structured(factor * self._matrix(family), *self._structure)
        if not (np.diag(covariance) > 0).all():  # one row has all the weight
            return -np.inf
        with one_blas_thread_beside_pairs(*self._problem.rows.shape):
            return self._score(inverse_root(covariance))

    def _score(self, metric: np.ndarray) -> float:
        sums = self._problem.pairs.at(metric).log_sums(self._test) - np.log(self._problem.weight.sum())
        log_norm = np.linalg.slogdet(metric)[1] - 0.5 * len(metric) * LOG_2PI
        return float(np.average(sums, weights=self._test_weight) + log_norm)


def rough_metric(
    problem: LeaveOneOut, reg: Penalty, covariance: np.ndarray, structure: Structure, start: np.ndarray | None
) -> np.ndarray:
    """Return LCA's metric of some rows, with the few digits that a choice by folds needs.

    Parameters
    ----------
    problem : LeaveOneOut
    reg : Penalty
    covariance : array of shape (d, d)
        The covariance of the rows.
    structure : Structure
    start : array of shape (d, d), optional
        The metric to start from; the default is that of the rows' covariance.
    """
    covariance = nearest_structured(reg.start(covariance), *structure)
    if not (np.diag(covariance) > 0).all():  # one row has all the weight
        raise CollapseError
    reference = inverse_root(covariance)
    start = reference if start is None else start
    steps = Steps(reg, structure, start, reference)
    limits: dict[str, Any] = {"max_iter": _MAX_PASSES, "tol": _TOL}
    path = accelerated_fixed_point(steps.displacement, steps.move, Point(start, problem), Recorder(), **limits)
    return path.parameters.metric


class LCAGaussFold:
    """LCA-Gauss's fits to the training rows of one fold, and the scores of its held-out rows.

    Parameters
    ----------
    train, train_weight, test, test_weight
        As in `LCAFold`.
    reduce : bool
        Whether to search for the number of local directions, as the fit with these penalties does.
    engine : None, str or Engine
    """

    def __init__(
        self,
        train: np.ndarray,
        train_weight: np.ndarray | None,
        test: np.ndarray,
        test_weight: np.ndarray | None,
        *,
        reduce: bool,
        engine: Engine | str | None,
    ) -> None:
        self._train, self._test, self._weights = train, test, (train_weight, test_weight)
        self._reduce, self._engine = reduce, engine

    def score(self, penalty: Penalties) -> float:
        """Return the mean log-density of the held-out rows after a fit with two penalties to the training rows."""
        weight, test_weight = self._weights
        split, problem = rough_split(self._train, weight, penalty, self._reduce, self._engine)
        whitened, root = problem.whitened, problem.root
        rows = (self._test - problem.mean) @ root.T
        log_norm = np.linalg.slogdet(root)[1] - 0.5 * np.log(split.variances).sum() - 0.5 * len(root) * LOG_2PI
        scores = log_norm - 0.5 * np.square(rows @ split.gaussian).sum(axis=1)
        if len(split.variances):
            scores += whitened.pairs.at(split.metric).log_sums(rows) - np.log(whitened.weight.sum())
        return float(np.average(scores, weights=test_weight))


def rough_split(
    train: np.ndarray, weight: np.ndarray | None, penalty: Penalties, reduce: bool, engine: Engine | str | None
) -> GaussPoint:
    """Return LCA-Gauss's directions of some rows, with the few digits that a choice by folds needs.

    Parameters
    ----------
    train : array of shape (n, d)
    weight : array of shape (n,), optional
    penalty : Penalties
    reduce : bool
        Whether to search for the number of local directions.
    engine : None, str or Engine
    """
    mean, gaussian = mean_of_rows(train, weight), scatter_of_rows(train, weight) + penalty.gaussian(train, weight)
    reg, root = penalty.local(train, weight), inverse_root(gaussian)
    rows = ((train - mean) @ root.T).astype(train.dtype, copy=False)
    problem = leave_one_out(rows, weight, engine, passes=_PASSES)

    def run(at: GaussPoint, tol: float) -> FitPath:
        return relaxed_em(at, reg, Recorder(), max_iter=2 * _MAX_PASSES, tol=tol)

    with one_blas_thread_beside_pairs(*rows.shape):
        # The fit starts as in Algorithm 1, because EM hardly ever makes a direction local again that is Gaussian under a larger R.
        start = GaussPoint(all_local(len(root)), GaussRows(problem, root, mean))
        limits: dict[str, Any] = {"max_iter": 2 * _MAX_PASSES, "tol": _TOL}
        path = fixed_point(lambda at: em_step(at, reg), start, Recorder(), **limits)
        if reduce:
            path = search_directions(run, path, _TOL, problem.weight.sum(), rounds=1)
    return path.parameters
