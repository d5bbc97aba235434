r"""The search of ``reg="auto"``: penalties are compared by the likelihood of held-out rows.

Each family of `penalty.py` is a path of factors :math:`\nu`. Some of the folds locate the best factor of each family, in steps of
10. Then the covariance is drawn towards :math:`\nu \operatorname{diag}(C)` (see `Shrinkage`), where
:math:`\nu` is that of the single kernel of this shape which scores best; the folds locate the best weight of this target, where it
is not far behind the penalties that are added. All folds compare the best of each path, and the neighbours of the best of all, at distances of the root of 10. The
penalty with the largest likelihood of held-out rows is selected. A fit starts from the result of the nearest factor that was
fitted to the same rows, so that most fits need only a few passes.

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
from vicinal._search import Tried, Walk, held_out_splits, score_table, top_of

# The family of the target. (The shrunk covariance as a target scored 0.5 to 2.7 nats per row higher on sonar in a trial, but it
# makes the search more expensive.)
TARGET = "diagonal"
# Independent of random_state, so that a fit depends only on the data and on the public parameters.
_FOLDS = 5
# A search needs no more rows than these: the chosen factor is close to the one that all rows would give.
_MOST_ROWS = 2000
_STEP = 10.0**0.5
# Folds hold out rows until there are so many, which determine the place of the optimum to a step; fewer locate it on each path.
_HELD_OUT_ROWS, _SCOUTED_ROWS, _SCOUTED_PER_COLUMN = 300, 100, 4  # the tails of scores grow with the number of columns
_FIRST_PLACE, _STRIDE = -2, 2  # where scouts begin, and in which steps they go: a factor of 0.1, and 10
# What is so many nats per row behind on these folds is not followed: a family or a target, and a shrunk covariance if the sample's is so
# far ahead of its diagonal. Steps of 10 that end so far below the best one are halved.
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
    n_needed = max(_SCOUTED_ROWS, _SCOUTED_PER_COLUMN * folds[0].n_features)
    n_scouts = 1 + int(np.searchsorted(np.cumsum([fold.n_held_out for fold in folds]), n_needed))
    walks = {path: _walk(folds, path) for path in map(Path, added)}
    scouted: dict[Path, Tried] = {}
    for path, walk in walks.items():
        means = [best.mean for best in scouted.values()]
        # A shrunk covariance lies between that of the sample and its diagonal. It is no better where the former is far better.
        if path.family != "shrunk" or not means or means[1] <= means[0] + _FAR_BEHIND:
            place = scouted[Path("sample")].place if path.family == "shrunk" and means else _FIRST_PLACE
            scouted[path] = walk.top(place, n_scouts, _STRIDE, _GAIN, _FAR_BEHIND)
    leader = max(best.mean for best in scouted.values())
    if target is not None:
        path = Path(target, _best_width(folds, target))
        walk = walks[path] = _walk(folds, path)
        if walk.at(0, n_scouts).mean >= leader - _FAR_BEHIND:
            scouted[path] = walk.top(0, n_scouts, _STRIDE, _GAIN, _FAR_BEHIND)
    close = {path: best.place for path, best in scouted.items() if best.mean >= leader - _FAR_BEHIND}
    tried = {path: [walks[path].at(place)] for path, place in close.items()}
    path = _chosen({path: best.mean for path, (best,) in tried.items()})
    walk, (best,) = walks[path], tried[path]
    tried[path] = [*reversed(walk.onwards(best, 1, _GAIN)), best, *walk.onwards(best, -1, _GAIN)]
    return _choice(path, tried)


def _walk(folds: Sequence["LCAFold"], path: Path) -> Walk:
    """Return the fits along a path of penalties."""

    def fit(fold: int, place: int, start: np.ndarray | None) -> tuple[np.ndarray, float]:
        try:
            return folds[fold].fit(path.form(place), start)
        except CollapseError:
            raise np.linalg.LinAlgError from None

    return Walk(len(folds), fit, path.reaches)


def _choice(path: Path, tried: dict[Path, list[Tried]]) -> PenaltyChoice:
    """Return the choice of the best place of a path, among all places that were tried, in decreasing order on each path."""
    best = max(tried[path], key=lambda t: t.mean)
    wider = [t.mean for t in tried[path] if t.place > best.place]
    is_last = path.factor is None and not path.reaches(best.place - 1)
    at_edge = is_last and bool(wider) and best.mean - wider[-1] > 0.05
    forms = [path.form(t.place) for path, places in tried.items() for t in places]
    columns = {
        "family": [form.family for form in forms],
        "factor": [form.factor for form in forms],
        "weight": [form.weight or 0.0 for form in forms],  # 0 for a penalty that is added
    }
    table = score_table(columns, np.array([t.scores for places in tried.values() for t in places]))
    return PenaltyChoice(path.form(top_of(tried[path])), table, at_edge)


def _chosen(scores: dict[Path, float]) -> Path:
    """Return the path of the best penalty; one that draws towards a target must be clearly better than those that are added."""
    added = max((path for path in scores if path.factor is None), key=lambda path: scores[path])
    drawn = next((path for path in scores if path.factor is not None), None)
    return drawn if drawn is not None and scores[drawn] > scores[added] + _GAIN_OF_TARGET else added


def _best_width(folds: Sequence["LCAFold"], family: str) -> float:
    """Return the factor of the single kernel of this shape that scores best; this takes no fits."""
    path = Path(family)

    def score(fold: int, place: int, start: Any) -> tuple[None, float]:
        return None, folds[fold].score_of_kernel(*path.form(place)[:2])

    walk = Walk(len(folds), score, path.reaches)
    below = [walk.at(0), *walk.onwards(walk.at(0), -1, 0.0)]
    best = max(below, key=lambda t: t.mean)
    return path.form(top_of([*below, *walk.onwards(best, 1, 0.0)])).factor


def split_folds(X: np.ndarray, weight: np.ndarray | None) -> list[tuple[np.ndarray, Any, np.ndarray, Any]]:
    """Return the fixed folds as (training rows, their weights, held-out rows, their weights); weights are None for equal ones."""
    folds = []
    n_held_out = 0
    for train, test in held_out_splits(X, None, _FOLDS, _MOST_ROWS):
        if n_held_out < _HELD_OUT_ROWS and not constant_columns(X[train]).any():
            weights = (None, None) if weight is None else (weight[train], weight[test])
            folds.append((X[train], weights[0], X[test], weights[1]))
            n_held_out += len(test)
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
    columns = {
        "family": [pair.reg.name for pair in pairs],
        "factor": [pair.reg.factor for pair in pairs],
        "weight": [pair.reg.weight for pair in pairs],
        "gaussian": [pair.reg_gauss.name for pair in pairs],
    }
    return pairs[int(np.argmax(scores.mean(axis=1)))], score_table(columns, scores)


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
        self.n_held_out, self.n_features = test.shape
        self._problem = leave_one_out(train, train_weight, engine, passes=_PASSES)
        self._covariance = scatter_of_rows(train, train_weight)
        self._matrix = cache(lambda family: family_matrix(family, train, train_weight))

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
