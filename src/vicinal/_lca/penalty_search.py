r"""The search of ``reg="auto"``: penalties are compared by the likelihood of held-out rows.

Each family of `penalty.py` is a path of factors :math:`\nu`. Some of the folds locate the best factor of each family, in steps of
10. Then the covariance is drawn towards :math:`\nu \operatorname{diag}(C)` (see `Shrinkage`), where
:math:`\nu` is that of the single kernel of this shape which scores best; the folds locate the best weight of this target, where it
is not far behind the penalties that are added. All folds compare the best of each path, and the neighbours of the best of all, at distances of the root of 10. The
penalty with the largest likelihood of held-out rows is selected. A fit starts from the result of the nearest factor that was
fitted to the same rows, of the same family or of another one, so that most fits need only a few passes.

LCA-Gauss has two penalties, which are chosen jointly. The local penalty is one of those that LCA's own search finds best (one per family that is
added, and one that draws towards a target, where that is its choice), or zero, or so large that every direction is Gaussian. The Gaussian's
penalty :math:`R_G` is zero, or leads from the sample covariance to its shrunk estimate (Ledoit and Wolf): :math:`C_G + R_G` is that
estimate. Pairs of them are fitted to the folds of LCA's search, and the pair with the largest likelihood of held-out rows is selected.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np

from vicinal._engine import Engine, one_blas_thread_beside_pairs
from vicinal._fit_loops import FitPath, Recorder, accelerated_fixed_point
from vicinal._lca.gauss_steps import GaussPoint, GaussRows, run_em, search_directions, start_of
from vicinal._lca.penalty import (
    FAMILIES,
    NO_PENALTY,
    SMALLEST,
    Form,
    family_matrix,
    rounding_variances,
    shrinkage,
    shrunk_covariance,
)
from vicinal._lca.steps import CollapseError, Penalty, Point, Steps, Structure, inverse_root, nearest_structured
from vicinal._leave_one_out import leave_one_out, log_norm, mean_of_rows, scatter_of_rows
from vicinal._mixtures import LOG_2PI, Background
from vicinal._rows import constant_columns
from vicinal._search import held_out_splits, score_table, top_of_parabola

# The family of the target. (The shrunk covariance as a target scored 0.5 to 2.7 nats per row higher on sonar in a trial, but it
# makes the search more expensive.)
TARGET = "diagonal"
# Independent of random_state, so that a fit depends only on the data and on the public parameters.
_FOLDS = 5
# A search needs no more rows than these: the chosen factor is close to the one that all rows would give.
_MOST_ROWS = 2000
# Folds hold out rows until there are so many, which determine the place of the optimum to a step; fewer locate it on each path.
_HELD_OUT_ROWS, _SCOUTED_ROWS, _SCOUTED_PER_COLUMN = 300, 70, 2  # the tails of scores grow with the number of columns
_FIRST_PLACE, _STRIDE = -2, 2  # where scouts begin, and in which steps they go: a factor of 0.1, and 10
# What is so many nats per row behind on these folds is not followed: a family or a target, and a shrunk covariance if the sample's is so
# far ahead of its diagonal. Steps of 10 that end so far below the best one are halved.
_FAR_BEHIND = 0.5
_LARGEST = 1e4
_GAIN = 1e-3  # nats per row
_WEIGHTS = (0.01, 100.0)  # of the target; a larger weight leaves hardly more than the target
# A covariance is drawn towards the target only if this gains so many nats per row over every penalty that is added. Smaller
# gains are noise of the folds, and on grids of integers, narrower kernels would lose them.
_GAIN_OF_TARGET = 0.1


class Tried(NamedTuple):
    """A place of a path, with the scores of its penalty on the folds."""

    place: int
    scores: np.ndarray

    @property
    def mean(self) -> float:
        """The mean over the folds."""
        return float(self.scores.mean())


Fits = dict[tuple[str, int], np.ndarray]  # the metrics of fits to one fold, by family and place


class PenaltyPath:
    """Penalties along increasing factors, or, towards a target that is given by its factor, along weights; no fit is made twice.

    A place of the path is its distance from a factor (or weight) of 1, in steps of the root of 10.

    Parameters
    ----------
    folds : sequence of LCAFold
    family : str
    factor : float, optional
        Of the target.
    fits : sequence of dict, optional
        The metrics that were fitted to each fold, which paths share so that a fit of one may start from a fit of another. None for
        penalties that are themselves the covariance of a kernel.
    """

    def __init__(
        self,
        folds: Sequence[LCAFold],
        family: str,
        factor: float | None = None,
        fits: Sequence[Fits] | None = None,
    ) -> None:
        self.family, self.factor, self._folds = family, factor, folds
        self._fits: Sequence[Fits | None] = [None] * len(folds) if fits is None else fits
        ends = (SMALLEST[family], _LARGEST) if factor is None else _WEIGHTS
        first, last = np.round(2.0 * np.log10(ends)).astype(int)
        self.places = range(first, last + 1)
        self._scores: list[dict[int, float]] = [{} for _ in folds]

    def form(self, place: float) -> Form:
        """Return the penalty at a place of the path."""
        value = 10.0 ** (0.5 * place)
        return Form(self.family, value) if self.factor is None else Form(self.family, self.factor, value)

    def at(self, place: int, n_folds: int | None = None) -> Tried:
        """Return the held-out score at a place, of each fold or of the first few; -inf where there is no fit."""
        known = list(zip(self._folds, self._scores, self._fits, strict=True))[:n_folds]
        for fold, scores, fits in known:
            if place in scores:
                continue
            try:
                reg = fold.penalty(self.form(place))
                if fits is None:
                    metric = fold.kernel(reg.matrix)
                else:  # from the nearest place, of this family if it has one; of two, from the wider kernel
                    nearest = min(
                        fits, key=lambda at: (at[0] != self.family, abs(at[1] - place), at[1] < place), default=None
                    )
                    metric = fits[self.family, place] = fold.fit(reg, None if nearest is None else fits[nearest])
                score = fold.score(metric)
                scores[place] = score if np.isfinite(score) else -np.inf
            except np.linalg.LinAlgError:
                scores[place] = -np.inf
        return Tried(place, np.array([scores[place] for _, scores, _ in known]))

    def top(self, place: int, n_folds: int) -> Tried:
        """Return the best place on some of the folds that is found from a place by strides, and by a parabola through them.

        Strides are halved where the next places are far behind, so that a parabola says little.
        """
        best, tried, stride = self.at(place, n_folds), {}, _STRIDE
        while stride:
            for step in (-stride, stride):
                while best.place + step in self.places:
                    candidate = tried[best.place + step] = self.at(best.place + step, n_folds)
                    if candidate.mean <= best.mean + _GAIN:
                        break
                    best = candidate
            sides = [tried[side].mean for side in (best.place - stride, best.place + stride) if side in tried]
            stride = stride // 2 if sides and min(sides) < best.mean - _FAR_BEHIND else 0
        return best._replace(place=round(top_of([*tried.values(), best])))

    def onwards(self, first: Tried, step: int, gain: float) -> list[Tried]:
        """Return the next places in one direction, up to one that does not gain."""
        tried = [first]
        while tried[-1].place + step in self.places:
            tried.append(self.at(tried[-1].place + step))
            if tried[-1].mean <= tried[-2].mean + gain:
                break
        return tried[1:]


def top_of(tried: Sequence[Tried]) -> float:
    """Return the place of the top of the parabola through the best place of a path and its neighbours."""
    means = {t.place: t.mean for t in sorted(tried, key=lambda t: t.place)}
    return top_of_parabola(np.array(list(means), dtype=float), np.array(list(means.values())))


class PenaltyChoice(NamedTuple):
    """The penalty that a search chose, and the table of all that it tried."""

    form: Form
    table: dict[str, np.ndarray]

    def best_added(self, family: str) -> float | None:
        """Return the best factor of a family that is added, or None if none of them has a finite score."""
        is_candidate = (self.table["family"] == family) & (self.table["weight"] == 0)
        scores = self.table["mean_test_score"][is_candidate]
        return float(self.table["factor"][is_candidate][scores.argmax()]) if np.isfinite(scores).any() else None


def search(folds: Sequence[LCAFold], added: Sequence[str], target: str | None = None) -> PenaltyChoice:
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
    fits: list[Fits] = [{} for _ in folds]
    paths = {family: PenaltyPath(folds, family, fits=fits) for family in added}
    scouted: dict[str, Tried] = {}
    for family, path in paths.items():
        means = [best.mean for best in scouted.values()]
        # A shrunk covariance lies between that of the sample and its diagonal. It is no better where the former is far better.
        if family != "shrunk" or not means or means[1] <= means[0] + _FAR_BEHIND:
            first = scouted["sample"].place if family == "shrunk" and means else _FIRST_PLACE
            scouted[family] = path.top(first, n_scouts)
    leader = max(best.mean for best in scouted.values())
    if target is not None:
        # A target is so different from what is added that its fits do not start there.
        path = paths["target"] = PenaltyPath(folds, target, _best_width(folds, target), [{} for _ in folds])
        if path.at(0, n_scouts).mean >= leader - _FAR_BEHIND:
            scouted["target"] = path.top(0, n_scouts)
    tried = {key: [paths[key].at(best.place)] for key, best in scouted.items() if best.mean >= leader - _FAR_BEHIND}
    chosen = _best_path({key: best.mean for key, (best,) in tried.items()})
    path, (best,) = paths[chosen], tried[chosen]
    tried[chosen] = [*reversed(path.onwards(best, 1, _GAIN)), best, *path.onwards(best, -1, _GAIN)]
    return _choice(
        path, tried[chosen], [(paths[key].form(t.place), t) for key, places in tried.items() for t in places]
    )


def _best_path(means: dict[str, float]) -> str:
    """Return the path of the best penalty; one that draws towards a target must be clearly better than those that are added."""
    added = max(means.keys() - {"target"}, key=lambda key: means[key])
    return "target" if means.get("target", -np.inf) > means[added] + _GAIN_OF_TARGET else added


def _choice(path: PenaltyPath, places: list[Tried], candidates: list[tuple[Form, Tried]]) -> PenaltyChoice:
    """Return the choice of the best of some places of a path, and the table of all candidates."""
    columns = {
        "family": [form.family for form, _ in candidates],
        "factor": [form.factor for form, _ in candidates],
        "weight": [form.weight or 0.0 for form, _ in candidates],  # 0 for a penalty that is added
    }
    table = score_table(columns, np.array([t.scores for _, t in candidates]))
    return PenaltyChoice(path.form(top_of(places)), table)


def _best_width(folds: Sequence[LCAFold], family: str) -> float:
    """Return the factor of the single kernel of this shape that scores best; this takes no fits."""
    path = PenaltyPath(folds, family)
    below = [path.at(0), *path.onwards(path.at(0), -1, 0.0)]
    best = max(below, key=lambda t: t.mean)
    return path.form(top_of([*below, *path.onwards(best, 1, 0.0)])).factor


class Fold(NamedTuple):
    """The training rows and the held-out rows of a fold, with their weights; None for equal ones."""

    train: np.ndarray
    weight: np.ndarray | None
    test: np.ndarray
    test_weight: np.ndarray | None


def split_folds(X: np.ndarray, weight: np.ndarray | None) -> list[Fold]:
    """Return the fixed folds; none if too few rows differ."""
    folds: list[Fold] = []
    for train, test in held_out_splits(X, None, _FOLDS, _MOST_ROWS):
        n_held_out = sum(len(fold.test) for fold in folds)
        if n_held_out < _HELD_OUT_ROWS and not constant_columns(X[train]).any():
            weights = (None, None) if weight is None else (weight[train], weight[test])
            folds.append(Fold(X[train], weights[0], X[test], weights[1]))
    return folds


# -- the fits to folds ---------------------------------------------------------------------------------

# Penalties are compared to hundredths of a nat, and fits start close to where they end.
_TOL = 5e-3
_MAX_PASSES, _GAUSS_PASSES = 30, 60
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
    X: np.ndarray, weight: np.ndarray | None, structure: Structure, engine: Engine | str | None, background: bool
) -> PenaltyChoice | None:
    """Return the choice for ``reg="auto"``, of a density with a background or without; None if too few rows differ to hold any out."""
    searches, key = _SEARCHES.get(), None
    if searches is not None:
        digests = [None if a is None else blake2b(np.ascontiguousarray(a)).digest() for a in (X, weight)]
        key = (X.shape, X.dtype, *digests, structure, repr(engine), background)
        if key in searches:
            return searches[key]
    folds, choice = [LCAFold(fold, structure, engine, background=background) for fold in split_folds(X, weight)], None
    if folds:
        # The other structures depend only on the diagonal of R, or on its trace: a single variance has nothing to be drawn towards.
        families = FAMILIES if structure.covariance in ("full", "low_rank") else FAMILIES[:1]
        choice = search(folds, families, None if structure.covariance == "spherical" else TARGET)
    if searches is not None:
        searches[key] = choice
    return choice


class LCAFold:
    """LCA's fits to the training rows of a fold, with the few digits that a choice needs, and the scores of its held-out rows.

    Parameters
    ----------
    fold : Fold
    structure : Structure
    engine : None, str or Engine
    passes : int
        The approximate number of passes of all fits, from which the engine chooses a backend.
    background : bool
        Whether held-out rows are scored by a density with a background. Without one, a few rows far from all others decide.
    """

    def __init__(
        self,
        fold: Fold,
        structure: Structure,
        engine: Engine | str | None,
        passes: int = _PASSES,
        background: bool = False,
    ) -> None:
        self._fold, self._structure = fold, structure
        self._problem = leave_one_out(fold.train, fold.weight, engine, passes=passes)
        log_weights = np.zeros(len(fold.train)) if fold.weight is None else np.log(fold.weight)
        self._background = Background.of_moments(fold.train, log_weights) if background else None
        self._covariance = scatter_of_rows(fold.train, fold.weight)
        self._matrix = cache(lambda family: family_matrix(family, fold.train, fold.weight))
        self._rounding = rounding_variances(fold.train)
        self.n_held_out, self.n_features = fold.test.shape

    def penalty(self, form: Form) -> Penalty:
        """Return a penalty, made from the training rows."""
        return form.with_matrix(self._matrix(form.family), self._rounding)

    def fit(self, reg: Penalty, start: np.ndarray | None, tol: float = _TOL) -> np.ndarray:
        """Return the metric that a fit with a penalty ends at, from a metric or (None) from that of the rows' covariance."""
        reference = self.kernel(reg.start(self._covariance))
        at = Point(reference if start is None else start, self._problem)
        steps = Steps(reg, self._structure, at.metric, reference)
        with one_blas_thread_beside_pairs(*self._problem.rows.shape):
            path = accelerated_fixed_point(
                steps.displacement, steps.move, at, Recorder(), max_iter=_MAX_PASSES, tol=tol
            )
        return path.parameters.metric

    def kernel(self, covariance: np.ndarray) -> np.ndarray:
        """Return the metric of the covariance of the structure that is nearest to this one."""
        covariance = nearest_structured(covariance, *self._structure)
        if not (np.diag(covariance) > 0).all():  # one row has all the weight
            raise CollapseError
        return inverse_root(covariance)

    def score(self, metric: np.ndarray) -> float:
        """Return the mean log-density of the held-out rows."""
        with one_blas_thread_beside_pairs(*self._problem.rows.shape):
            sums = self._problem.pairs.at(metric).log_sums(self._fold.test) - np.log(self._problem.weight.sum())
        scores, weight = sums + log_norm(metric), self._fold.test_weight
        if self._background is not None:
            inverse = np.linalg.inv(metric)
            broad = self._background.log_densities(self._fold.test, inverse @ inverse.T)
            scores = self._background.chosen(scores, broad, weight).beside(scores, broad)
        return float(np.average(scores, weights=weight))


# -- the two penalties of LCA-Gauss --------------------------------------------------------------------

# A penalty of the size of the shrunk covariance itself makes every direction Gaussian.
_ALL_GAUSSIAN = Form("shrunk", 1.0)
# With a smaller weight of the diagonal in the shrunk covariance, no density changes by a hundredth of a nat per row.
_LEAST_TRIED_SHRINKAGE = 0.01


class Penalties(NamedTuple):
    """A pair of penalties: that of the local covariance, and R_G of the Gaussian; each given, or as a function of the rows."""

    reg: Penalty | Form
    reg_gauss: np.ndarray | str

    def local(self, X: np.ndarray, weight: np.ndarray | None) -> Penalty:
        """Return the local penalty for some training rows."""
        return self.reg.of_rows(X, weight) if isinstance(self.reg, Form) else self.reg

    def gaussian(self, X: np.ndarray, weight: np.ndarray | None) -> np.ndarray:
        """Return R_G for some training rows: "none", or for "shrunk" what leads from their covariance to its shrunk estimate."""
        if not isinstance(self.reg_gauss, str):
            return self.reg_gauss
        if self.reg_gauss == "none":
            return np.zeros(2 * X.shape[1:])
        difference = shrunk_covariance(X, weight) - scatter_of_rows(X, weight)
        return 0.5 * (difference + difference.T)

    def row(self) -> dict[str, Any]:
        """Return the entry in the table of a search."""
        reg, gaussian = self.reg, self.reg_gauss if isinstance(self.reg_gauss, str) else "given"
        if not isinstance(reg, Form):
            return {"family": "given", "factor": 1.0, "weight": reg.weight or 0.0, "gaussian": gaussian}
        family = reg.family if reg.factor else "none"
        return {"family": family, "factor": reg.factor, "weight": reg.weight or 0.0, "gaussian": gaussian}


def local_penalties(choice: PenaltyChoice | None, answerable: bool) -> list[Form]:
    """Return the local penalties worth trying after LCA's own search: the best of each family, none, and all Gaussian.

    LCA needs a penalty along every direction; if only a few are local, these may need none.
    """
    if choice is None:
        return [_ALL_GAUSSIAN]
    best_factors = {family: choice.best_added(family) for family in FAMILIES}
    forms = {family: Form(family, factor) for family, factor in best_factors.items() if factor is not None}
    forms["drawn" if choice.form.weight else choice.form.family] = choice.form
    return [*forms.values(), *([NO_PENALTY] if answerable else []), _ALL_GAUSSIAN]


def gaussian_penalties(X: np.ndarray, weight: np.ndarray | None, answerable: bool) -> list[str]:
    """Return the penalties of the Gaussian: none (if the rows span all directions), and the one that leads to the shrunk covariance.

    If the estimate hardly shrinks, both are the same Gaussian, and only the former is tried.
    """
    if not answerable:
        return ["shrunk"]
    return ["none"] if shrinkage(X, weight) < _LEAST_TRIED_SHRINKAGE else ["none", "shrunk"]


def choose_both(
    folds: Sequence[Fold],
    regs: Sequence[Penalty | Form],
    gaussians: Sequence[np.ndarray | str],
    reduce: bool,
    n_local: int | None,
    engine: Engine | str | None,
) -> tuple[Penalties, dict[str, np.ndarray]]:
    """Return the pair of largest mean held-out score, and the table of the pairs that were tried.

    All local penalties are tried with the first Gaussian, and the best two of them with the others.
    """
    pairs = [Penalties(reg, gaussians[0]) for reg in regs]
    scores = [[_gauss_score(fold, pair, reduce, n_local, engine) for fold in folds] for pair in pairs]
    best = np.argsort(-np.mean(scores, axis=1), kind="stable")[:2]
    further = [Penalties(regs[k], gaussian) for gaussian in gaussians[1:] for k in best]
    scores += [[_gauss_score(fold, pair, reduce, n_local, engine) for fold in folds] for pair in further]
    pairs, rows = pairs + further, [pair.row() for pair in pairs + further]
    table = score_table({name: [row[name] for row in rows] for name in rows[0]}, np.array(scores))
    return pairs[int(np.argmax(table["mean_test_score"]))], table


def _gauss_score(fold: Fold, pair: Penalties, reduce: bool, n_local: int | None, engine: Engine | str | None) -> float:
    """Return the mean log-density of the held-out rows of a fold after a fit with two penalties; -inf if there is no fit."""
    try:
        split, problem = rough_split(fold, pair, reduce, n_local, engine)
    except np.linalg.LinAlgError:
        return -np.inf
    whitened, root = problem.whitened, problem.root
    rows = (fold.test - problem.mean) @ root.T
    log_det = np.linalg.slogdet(root)[1] - 0.5 * np.log(split.variances).sum()
    scores = log_det - 0.5 * len(root) * LOG_2PI - 0.5 * np.square(rows @ split.gaussian).sum(axis=1)
    if len(split.variances):
        scores += whitened.pairs.at(split.metric).log_sums(rows) - np.log(whitened.weight.sum())
    score = float(np.average(scores, weights=fold.test_weight))
    return score if np.isfinite(score) else -np.inf


def rough_split(
    fold: Fold, pair: Penalties, reduce: bool, n_local: int | None, engine: Engine | str | None
) -> GaussPoint:
    """Return LCA-Gauss's directions of the training rows of a fold, with the few digits that a choice needs.

    Parameters
    ----------
    fold : Fold
    pair : Penalties
    reduce : bool
        Whether to search for the number of local directions, as the fit with these penalties does.
    n_local : int or None
        Their number, if it is given.
    engine : None, str or Engine
    """
    X, weight = fold.train, fold.weight
    mean, reg = mean_of_rows(X, weight), pair.local(X, weight)
    root = inverse_root(scatter_of_rows(X, weight) + pair.gaussian(X, weight))
    rows = ((X - mean) @ root.T).astype(X.dtype, copy=False)
    problem = leave_one_out(rows, weight, engine, passes=_PASSES)

    def run(at: GaussPoint, tol: float, relaxed: bool = True) -> FitPath:
        return run_em(at, reg, Recorder(), max_iter=_GAUSS_PASSES, tol=tol, relaxed=relaxed)

    with one_blas_thread_beside_pairs(*rows.shape):
        # The fit starts as in Algorithm 1, because EM hardly ever makes a direction local again that is Gaussian under a larger R.
        path = run(start_of(GaussRows(problem, root, mean), reg, n_local), _TOL, relaxed=False)
        if reduce:
            path = search_directions(run, path, _TOL, problem.weight.sum(), rounds=1)
    return path.parameters
