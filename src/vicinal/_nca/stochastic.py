"""NCA by stochastic gradients (sec. 2 of the paper): sample the rows i, keep all neighbours j, or the nearest ones.

    "the sums [...] over the data points and over the neighbours of each point can be truncated (one because we can do
    stochastic gradient rather than exact gradient and the other because p_ij drops off quickly)"

A *round* is a number of steps, at most one visit of every row.  After each round the objective is evaluated exactly on
a fixed sample of rows against all rows; the best matrix by that measure is the answer.  Two rounds in
a row that gain no more than tol return to the best matrix and halve the step; when the step has become a sixteenth of
the first, the climb has converged.
"""

import numpy as np
from sklearn.neighbors import NearestNeighbors

from vicinal._engine import pair_reductions
from vicinal._fit_loops import FitPath, progress
from vicinal._nca.climb import Climb, matrix_callback
from vicinal._nca.objectives import (
    Evaluation,
    back_to_components,
    log_or_none,
    neighbor_objective,
    scaled_images,
    with_penalty,
)

_STEPS_IN_ROUND = 64
_EVALUATION_ROWS = 2048
# Heuristics, the best of a few settings on digits, letter and satimage: within 0.01 of L-BFGS, or above it.
_FIRST_STEP = 0.1  # of the size of the start
_HALVINGS = 4
_PATIENCE = 2
_MOMENTUM, _MEMORY = 0.5, 0.9


def climb_by_batches(rows, start, estimator, *, reg):
    """Climb from a `Start` by batches of rows; return a `Climb` with ``evaluation_rows_`` and ``dropped_mass_``.

    The step is Adam's with one second moment for the whole matrix, ``step * m / sqrt(v)``: it has no unit, and it
    treats all directions alike (a second moment for each entry would blow up the noise of columns that hardly move,
    such as the pixels at the edge of a digit).
    """
    n, d = len(rows.X), len(start.components)
    batch = min(estimator.batch_size or default_batch(rows.X.shape[1]), n)
    random = np.random.RandomState(estimator.random_state_.randint(2**31 - 1))
    seen = np.sort(random.permutation(n)[:_EVALUATION_ROWS])
    whole = _AllNeighbors(rows, estimator, d, len(seen))
    kept = _KeptNeighbors(rows, estimator) if estimator.neighbors is not None else None
    source: _AllNeighbors | _KeptNeighbors = kept or whole
    report, callback = progress(type(estimator).__name__, estimator.verbose), matrix_callback(estimator.callback)

    def evaluate(A):
        return with_penalty(whole.evaluate(A, seen), A, reg).value

    B = start.components / start.units
    step = first_step = _FIRST_STEP * float(np.linalg.norm(B))
    best, best_value = B, evaluate(B * start.units)
    objectives: list[float] = []
    converged, reason = False, f"max_iter={estimator.max_iter} rounds were used"
    momentum, size, age, idle = np.zeros_like(B), 0.0, 0, 0
    batches = _batches(n, batch, random)
    try:
        for rounds in range(1, estimator.max_iter + 1):
            steps = [next(batches) for _ in range(min(_STEPS_IN_ROUND, -(-n // batch)))]
            if kept is not None:
                kept.find(B * start.units, np.unique(np.concatenate(steps)))
            for chosen in steps:
                A = B * start.units
                gradient = with_penalty(source.evaluate(A, chosen), A, reg).gradient * start.units
                age += 1
                momentum = _MOMENTUM * momentum + (1 - _MOMENTUM) * gradient
                size = _MEMORY * size + (1 - _MEMORY) * float((gradient**2).sum())
                if size > 0:
                    unbiased = momentum / (1 - _MOMENTUM**age)
                    B = B + step * unbiased / np.sqrt(size / (1 - _MEMORY**age))
            value = evaluate(B * start.units)
            objectives.append(value)
            gained = value - best_value
            if value > best_value:
                best, best_value = B, value
            if report is not None:
                report(rounds, value)
            if callback is not None:
                callback(B * start.units, rounds)
            idle = 0 if gained > estimator.tol else idle + 1
            if idle == _PATIENCE:
                idle = 0
                B, momentum, step = best, np.zeros_like(B), 0.5 * step
                if step < first_step / 2**_HALVINGS:
                    converged, reason = True, f"rounds gain no more than tol={estimator.tol:g}"
                    break
    except StopIteration:
        reason = "the callback stopped it"
    except KeyboardInterrupt:
        if not objectives:
            raise
        reason = "it was interrupted"
    if not objectives or objectives[-1] != best_value:
        objectives.append(best_value)
    A = best * start.units
    path = FitPath(A, np.array(objectives), rounds, converged, reason)
    dropped = 0.0 if kept is None else kept.dropped_mass(A, seen, whole)
    return Climb(path, {"evaluation_rows_": rows.positions[seen], "dropped_mass_": dropped})


def default_batch(n_features):
    """Rows in a batch: enough that pair work outweighs the two products with X that each step costs."""
    return int(np.clip(n_features, 256, 2048))


def _batches(n, size, random):
    """Rows in random order, without repetition inside a pass over them; a last short batch is left out."""
    while True:
        order = random.permutation(n)
        for start in range(0, n - size + 1, size):
            yield np.sort(order[start : start + size])


class _AllNeighbors:
    """Sampled rows i against all rows j."""

    def __init__(self, rows, estimator, n_components, n_queries):
        self._rows, self._objective = rows, estimator.objective
        self._match = rows.targets.match()
        n = len(rows.X)
        self._pairs = pair_reductions(estimator.engine, n_queries * estimator.max_iter, n, n_components)

    def evaluate(self, A, chosen):
        rows = self._rows
        return neighbor_objective(
            A, rows.X, self._match, self._pairs, objective=self._objective, weight=rows.weight, rows=chosen
        )

    def log_sums(self, A, chosen):
        Z = scaled_images(A, self._rows.X)
        return self._pairs.log_sums(Z[chosen], Z, log_weights=log_or_none(self._rows.weight), left_out=chosen)


class _KeptNeighbors:
    """Sampled rows i against their nearest rows j, and against the nearest row that agrees with them.

    The neighbours are those of the metric at the beginning of a round. A row that has no class mate among them keeps
    its nearest one: without it the row could not be pulled to its class at all.
    """

    def __init__(self, rows, estimator):
        self._rows, self._objective = rows, estimator.objective
        self._count = min(estimator.neighbors, len(rows.X) - 1)
        self._log_weights = np.zeros(len(rows.X)) if rows.weight is None else np.log(rows.weight)

    def find(self, A, needed):
        """Find the neighbours of the rows that the next round will visit."""
        Z = scaled_images(A, self._rows.X)
        found = _nearest_others(Z, Z[needed], needed, self._count)
        targets = self._rows.targets
        if targets.kind == "class":
            found = self._with_mates(Z, needed, found, targets.values)
        self._needed, self._found = needed, found

    def _with_mates(self, Z, needed, found, codes):
        lacking = np.flatnonzero((codes[found] != codes[needed, None]).all(axis=1))
        nearest_mate = found[:, -1:].copy()
        repeats = np.ones(len(needed), dtype=bool)  # a column that only repeats one is masked
        for code in np.unique(codes[needed[lacking]]):
            members = np.flatnonzero(codes == code)
            if len(members) < 2:
                continue
            of_class = lacking[codes[needed[lacking]] == code]
            place = np.searchsorted(members, needed[of_class])
            nearest_mate[of_class, 0] = members[_nearest_others(Z[members], Z[needed[of_class]], place, 1)[:, 0]]
            repeats[of_class] = False
        self._masked = repeats
        return np.hstack([found, nearest_mate])

    def _scores(self, A, chosen):
        """Scores of the chosen rows and their kept neighbours, with what is needed to go back."""
        place = np.searchsorted(self._needed, chosen)
        neighbors = self._found[place]
        touched, where = np.unique(np.concatenate([chosen, neighbors.ravel()]), return_inverse=True)
        Z = scaled_images(A, self._rows.X[touched]).astype(np.float64)
        own, others = where[: len(chosen)], where[len(chosen) :].reshape(neighbors.shape)
        difference = Z[own][:, None, :] - Z[others]
        scores = self._log_weights[neighbors] - 0.5 * (difference**2).sum(-1)
        if self._rows.targets.kind == "class":
            scores[self._masked[place], -1] = -np.inf
        return scores, difference, neighbors, touched, own, others

    def evaluate(self, A, chosen):
        scores, difference, neighbors, touched, own, others = self._scores(A, chosen)
        rows = self._rows
        # Below the row's largest: beside scores of 1e16 a log-agreement would round to 0.
        below = scores - scores.max(axis=1, keepdims=True)
        p, log_total = _softmax(below)
        with np.errstate(divide="ignore"):
            matched, log_matched = _softmax(below + np.log(_agreement(rows.targets, chosen, neighbors)))
        log_a = log_matched - log_total
        weight = np.ones(len(chosen)) if rows.weight is None else rows.weight[chosen]
        total = weight.sum()
        a = np.exp(log_a)
        if self._objective == "accuracy":
            value, signed = weight @ a / total, a[:, None] * (p - matched)
        else:
            reached = np.isfinite(log_a)
            value, signed = weight[reached] @ log_a[reached] / total, np.where(reached[:, None], p - matched, 0.0)
        pulls = (weight[:, None] * signed)[:, :, None] * difference
        pull = np.zeros((len(touched), difference.shape[2]))
        np.add.at(pull, own, pulls.sum(axis=1))
        np.add.at(pull, others.ravel(), -pulls.reshape(-1, difference.shape[2]))
        return Evaluation(float(value), back_to_components(A, pull, rows.X[touched]) / total)

    def dropped_mass(self, A, seen, whole):
        """The mean probability of the neighbours that are not kept."""
        self.find(A, seen)
        kept = _softmax(self._scores(A, seen)[0])[1]
        return float(np.mean(np.clip(-np.expm1(kept - whole.log_sums(A, seen)), 0.0, 1.0)))


def _nearest_others(points, queries, own, count):
    """Positions of the nearest points of each query, its own position left out by index, not by distance."""
    index = NearestNeighbors(n_neighbors=count + 1).fit(points)
    found = index.kneighbors(queries, return_distance=False)
    # Among duplicates the own position may be missing: then the farthest goes instead.
    is_own = found == np.asarray(own)[:, None]
    is_own[~is_own.any(axis=1), -1] = True
    return found[~is_own].reshape(len(queries), count)


def _softmax(scores):
    """Row softmax and log-sum-exp; zeros and -inf for a row of -inf."""
    top = scores.max(axis=1, keepdims=True)
    shift = np.where(np.isfinite(top), top, 0.0)
    e = np.exp(scores - shift)
    total = e.sum(axis=1, keepdims=True)
    with np.errstate(divide="ignore"):
        return e / np.where(total > 0, total, 1.0), (shift + np.log(total))[:, 0]


def _agreement(targets, chosen, neighbors):
    """m_ij for rows and their kept neighbours."""
    values = targets.values
    if targets.kind == "class":
        return (values[neighbors] == values[chosen, None]).astype(np.float64)
    if targets.kind == "dot":
        return np.einsum("it,ijt->ij", values[chosen], values[neighbors])
    return np.exp(-0.5 * ((values[chosen][:, None, :] - values[neighbors]) ** 2).sum(-1))
