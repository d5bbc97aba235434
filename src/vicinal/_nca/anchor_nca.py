r"""NCA by anchors: each anchor distinguishes its own positive from other rows (the linear form of InfoNCE).

.. math:: f(A) = \frac{1}{\sum_i w_i} \sum_i w_i \log \frac{\exp s_{ib_i}}{\sum_{c \in C_i} \exp s_{ic}}

over anchors i with positives b_i, where C_i holds the candidates of the batch except the other positives of i and i itself.
Eq. 8 of the NCA paper (`PairNCA`) has one denominator over all pairs of rows instead, so that a pair competes with all
pairs. Here it competes only with the pairs of its own anchor.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.random import RandomState
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

from vicinal._checks import check_callback, check_choice, check_integer, check_positive, check_random_state
from vicinal._engine import Engine, as_engine, prepare
from vicinal._fit_loops import Callback, FitPath, Reason, Recorder, warn_if_not_converged
from vicinal._metric import LinearMetricMixin, rank_tolerance, whitening
from vicinal._nca.anchor_pairs import AnchorPairs, Batch, read_anchor_pairs
from vicinal._nca.objectives import Evaluation
from vicinal._nca.options import Adam
from vicinal._nca.solvers import as_matrix
from vicinal._nca.starts import check_init, check_size
from vicinal._records import Record, RecordParametersMixin, as_record
from vicinal._rows import check_magnitude, check_not_tiny, validate_data
from vicinal._scatter import chunklet_scatter
from vicinal._supervision import power_of_two, read_chunklets

_LEAST_HELD_OUT = 5  # the minimum number of held-out pairs for early stopping
_MOST_HELD_OUT = 1000
_OTHERS = 4000  # rows among which held-out positives are ranked
_LEAST_STEPS = 10  # the minimum number of steps between two evaluations
_STEPS_IN_ROUND = 100  # the maximum number of steps between two evaluations of the held-out pairs
_MINED_FROM = 20_000  # rows among which hard negatives are searched
_GATHERED = 8192  # rows that are mapped at a time
_SPARE_OF_GROUP = (
    50  # additional nearest rows that are searched, because the first ones may all belong to the anchor's group
)
_START_ROWS = 50_000  # rows from which the initial matrix is computed
_RAW_SHARE = 0.1  # the share of the columns' own variances in the initial matrix
_MOMENTUM, _MEMORY = 0.9, 0.999


class AnchorNCA(RecordParametersMixin, LinearMetricMixin, BaseEstimator):
    r"""Learn a linear map under which each anchor finds its positive among other rows.

    The anchor a of a pair (a, b), often a query, should find the row b. The objective is

    .. math:: \frac{1}{\sum w_{ab}} \sum_{(a,b)} w_{ab} \log \frac{\exp s_{ab}}{\sum_{c} \exp s_{ac}}

    where c runs over the candidates of a batch: the positives of its other anchors, and hard negatives. Other positives of
    a are excluded. The similarity s is the cosine of the transformed rows divided by a temperature, which is InfoNCE with a
    linear map, or minus their squared distance divided by a temperature. :class:`PairNCA` maximises Eq. 8 of the NCA paper
    instead, which has one denominator for all pairs, so that all near rows repel each other.

    Parameters
    ----------
    n_components : int, optional
        The number of rows of the map. The default is the number of features.
    init : {"rca", "identity"} or array of shape (n_components, n_features), default="rca"
        The initial matrix. "rca" whitens the differences within pairs. Their covariance is shrunk by a tenth, in units of the
        columns, or towards the raw metric if that is better on held-out pairs.
    similarity : {"cosine", "distance"}, default="cosine"
        The similarity s of two transformed rows.
    temperature : float, default=0.05
        The divisor of the similarity. The smaller it is, the more weight the nearest wrong candidates have.
    solver : "adam" or Adam, default="adam"
        :class:`vicinal.Adam` sets the batch size, the learning rate (relative to the size of the initial matrix), and the
        pairs that are held out for early stopping. "adam" is ``Adam(early_stopping=True)``.
    hard_negatives : int, default=0
        The number of hard negatives per anchor: rows that are near the anchor but are not its positives. They are searched
        again in every epoch, among at most 20,000 rows, and added to the candidates.
    max_iter : int, default=30
        The maximum number of passes over the pairs. If a pass has fewer than ten batches, ten steps count as a pass.
    tol : float, default=1e-4
        The smallest gain of the held-out score that counts as progress.
    callback : callable, optional
        Called as ``callback(parameters, n_iter)`` after each round; it may raise StopIteration. Model files do not contain it.
    engine : None, str or Engine, default=None
        The backend of the search for hard negatives; see :class:`vicinal.Engine`.
    verbose : int, default=0
        Print a line per round to stderr.
    random_state : int, RandomState or None, default=None
        The seed of the initial matrix, of the held-out pairs and of the batches.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        The matrix of the map.
    objectives_ : ndarray
        The mean of :math:`1 / \log_2(1 + r)` over held-out pairs after each round (an epoch, or 100 steps of a longer
        epoch), where r is the rank of the positive among up to 4,000 other rows; pairs are weighted. Without held-out pairs,
        the objective of the batches. The last entry belongs to ``components_``, the best matrix.
    held_out_pairs_ : ndarray of shape (q,)
        The positions of the pairs that were held out, which are whole connected components of pairs.
    n_iter_ : int
        The number of rounds.
    converged_ : bool
        A ConvergenceWarning is issued when it is False.
    random_state_ : RandomState
        The random number generator of the fit.
    n_features_in_, feature_names_in_ : int, ndarray of str
        The number of columns of the training rows, and their names if they have names.

    See Also
    --------
    RCA : A closed form, which is the better choice for a few hundred pairs.
    PairNCA : Eq. 8 of the paper.

    Notes
    -----
    A step costs O(b d k + b^2 k) for batches of b pairs. X and the queries may be memory maps: the fit reads only rows in
    pairs, the rows for the initial matrix and the rows among which hard negatives are searched.

    Examples
    --------
    The rows of each pair agree in the first two columns and in no others:

    >>> import numpy as np
    >>> from vicinal import AnchorNCA
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(600, 5)) * [1, 1, 5, 5, 5]
    >>> X[300:, :2] = X[:300, :2] + 0.05 * rng.normal(size=(300, 2))
    >>> pairs = np.column_stack([np.arange(300), np.arange(300, 600)])
    >>> model = AnchorNCA(2, similarity="distance", temperature=1.0, random_state=0).fit(X, pairs=pairs)
    >>> size = abs(model.components_).max(axis=0)
    >>> bool(size[:2].min() > 5 * size[2:].max())
    True
    """

    _record_types: ClassVar[dict[str, type[Record]]] = {"solver": Adam, "engine": Engine}

    def __init__(
        self,
        n_components: int | None = None,
        *,
        init: str | ArrayLike = "rca",
        similarity: str = "cosine",
        temperature: float = 0.05,
        solver: str | Adam = "adam",
        hard_negatives: int = 0,
        max_iter: int = 30,
        tol: float = 1e-4,
        callback: Callback | None = None,
        engine: Engine | str | None = None,
        verbose: int | bool = 0,
        random_state: RandomState | int | None = None,
    ) -> None:
        self.n_components = n_components
        self.init = init
        self.similarity = similarity
        self.temperature = temperature
        self.solver = solver
        self.hard_negatives = hard_negatives
        self.max_iter = max_iter
        self.tol = tol
        self.callback = callback
        self.engine = engine
        self.verbose = verbose
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True  # y, or pairs or triplets instead of it
        return tags

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike | None = None,
        *,
        pairs: ArrayLike | None = None,
        triplets: ArrayLike | None = None,
        negatives: ArrayLike | None = None,
        queries: ArrayLike | None = None,
        pair_weight: ArrayLike | None = None,
    ) -> Self:
        """Learn the map.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
            The rows to be found. A memory map is not copied.
        y : array-like of shape (n,), optional
            Groups: rows of one group are positives of each other; -1, None and NaN mean no group.
        pairs : array-like of shape (p, 2), optional
            Positions (anchor, positive): both in X, where a pair counts in both directions; or, with `queries`, the first
            in `queries`.
        triplets : array-like of shape (t, 3), optional
            Positions (anchor, positive, negative).
        negatives : array-like of shape (q, 2), optional
            Positions (anchor, row) of rows that an anchor should not find.
        queries : array-like of shape (m, n_features), optional
            A separate table of anchors, with the same columns.
        pair_weight : array-like of shape (p,), optional
            The weights of pairs or triplets. They must not be negative, and at least one must be positive.

        Returns
        -------
        self
        """
        options = self._check_parameters()
        unread = any(isinstance(rows, np.memmap) for rows in (X, queries))
        X = self._read(X, reset=True)
        self.random_state_ = check_random_state(self.random_state)
        table = None if queries is None else self._read(queries, reset=False)
        random = np.random.RandomState(self.random_state_.randint(2**31 - 1))
        anchored = read_anchor_pairs(
            len(X), None if table is None else len(table), y, pairs, triplets, negatives, pair_weight, random
        )
        rows = AnchorRows(X, X if table is None else table, unread)
        self._check_named_rows(rows, anchored)
        starts = self._starts(rows, anchored, random)
        path = _climb(rows, anchored, starts, self, options, random)
        self.components_ = path.parameters.astype(np.float64)
        self.objectives_, self.n_iter_, self.converged_ = path.objectives, path.n_iter, path.converged
        self.held_out_pairs_ = path.more["held_out_pairs_"]
        warn_if_not_converged("AnchorNCA", path)
        return self

    def _check_parameters(self) -> Adam:
        if self.n_components is not None:
            check_integer(self.n_components, "n_components")
        check_choice(self.similarity, "similarity", SIMILARITIES)
        check_positive(self.temperature, "temperature")
        check_integer(self.hard_negatives, "hard_negatives", least=0)
        check_integer(self.max_iter, "max_iter")
        check_positive(self.tol, "tol", strict=False)
        check_callback(self.callback)
        check_init(self.init, ("rca", "identity"))
        as_engine(self.engine)
        options = as_record(self.solver, Adam, "solver", ("adam",))
        return options.set_params(early_stopping=True) if isinstance(self.solver, str) else options

    def _read(self, X: Any, *, reset: bool) -> np.ndarray:
        """Return a table of rows; only the rows of a memory map that are used are checked."""
        mapped = isinstance(X, np.memmap)
        rows = validate_data(
            self, X, reset=reset, dtype=[np.float64, np.float32], ensure_min_samples=2 if reset else 1,
            ensure_all_finite=not mapped,
        )  # fmt: skip
        if not mapped:
            check_magnitude(rows)
        return rows

    def _check_named_rows(self, rows: AnchorRows, anchored: AnchorPairs) -> None:
        """Raise an error if all rows in pairs are zero, or equal if their distances count.

        This usually requires reading only the first blocks of rows.
        """
        by_distance = self.similarity == "distance"
        origin = rows.X[anchored.pairs[0, 1]] if by_distance else np.zeros(rows.X.shape[1], rows.X.dtype)
        for table, column in ((rows.X, anchored.pairs[:, 1]), (rows.anchors, anchored.pairs[:, 0])):
            for start in range(0, len(column), _GATHERED):
                if (table[column[start : start + _GATHERED]] != origin).any():
                    return
        equal = "equal" if by_distance else "zero"
        raise ValueError(f"all rows in pairs are {equal}: there is no direction to learn from.")

    def _starts(self, rows: AnchorRows, anchored: AnchorPairs, random: RandomState) -> list[np.ndarray]:
        """Return initial matrices: those of RCA (which whiten the differences within pairs), the identity, or the user's."""
        d = rows.X.shape[1]
        k = check_size(self.n_components, d, False)
        if not isinstance(self.init, str):
            A = np.asarray(self.init, dtype=np.float64)
            if (
                A.ndim != 2
                or A.shape[1] != d
                or (self.n_components is not None and len(A) != k)
                or not np.isfinite(A).all()
            ):
                raise ValueError(f"init must be a finite matrix of shape ({k}, {d}), got shape {A.shape}.")
            return [A]
        if self.init == "identity":
            return [np.eye(k, d)]
        drawn = random.permutation(len(anchored.pairs))[: _START_ROWS // 2]
        named = ((rows.anchors, anchored.pairs[drawn, 0]), (rows.X, anchored.pairs[drawn, 1]))
        both = np.concatenate([rows.gather(*part) for part in named]).astype(np.float64)
        # Fourth powers of the rows must be finite in any unit.
        unit = power_of_two(both.ravel())
        check_not_tiny(both, "the rows in pairs")
        both /= unit
        sums = chunklet_scatter(both, read_chunklets(np.arange(2 * len(drawn)).reshape(2, -1).T, len(both))[0])
        within, total = sums.within / sums.n_points, sums.total / sums.n_rows
        # If pairs hold equal rows, or no column varies, there is nothing to whiten.
        spread = np.diag(total) + 1e-9 * np.trace(total) / d
        size = float(np.mean(np.diag(within) / spread)) if spread.all() else 0.0
        if size <= 0.0:
            return [np.eye(k, d)]
        reference = total + np.diag(spread - np.diag(total))
        # Shrunk in units of the columns, so that a column of large variance does not dominate; and towards the raw metric, which
        # suits embeddings, whose columns have no units.
        targets = (size * spread, np.full(d, np.trace(within) / d))
        whitenings = [
            whitening(
                (1.0 - _RAW_SHARE) * within + _RAW_SHARE * np.diag(target),
                reference,
                n_components=k,
                tolerance=rank_tolerance(d),
                resolution=0.0,
            )
            for target in targets
        ]
        return [whitened.components / unit for whitened in whitenings if whitened is not None] or [np.eye(k, d)]


def _climb(
    rows: AnchorRows,
    anchored: AnchorPairs,
    starts: list[np.ndarray],
    estimator: AnchorNCA,
    options: Adam,
    random: RandomState,
) -> FitPath:
    """Run Adam over batches of pairs from the best initial matrix, and keep the best matrix by the held-out pairs.

    A round without a gain returns to the best matrix and halves the step; `n_iter_no_change` successive rounds without a
    gain end the fit.
    """
    train, held_out = _held_out(anchored, options, random)
    watched = None if held_out is None else _HeldOutPairs(rows, anchored, held_out, estimator.similarity, random)
    A = (starts[0] if watched is None else max(starts, key=watched.score)).astype(rows.dtype)
    largest = float(np.abs(A).max())
    size = largest * float(np.sqrt(np.mean(np.square(A / largest))))
    step, idle, batch_size = options.learning_rate * size, 0, min(options.batch_size, len(train))
    settings: dict[str, Any] = {"similarity": estimator.similarity, "temperature": estimator.temperature}
    record = Recorder.of(estimator, lambda matrix: as_matrix(matrix.astype(np.float64)))
    if watched is not None:
        record.begin(A, watched.score(A))
    adam = _Moments(A)
    with record:
        for _ in range(estimator.max_iter):
            mined = _hard_negatives(rows, anchored, A, estimator, random) if estimator.hard_negatives else None
            values: list[float] = []
            # One pass over the pairs, or several if there are few pairs; long passes are evaluated in between.
            passes = max(-(-_LEAST_STEPS * batch_size // len(train)), 1)
            for left in range(passes - 1, -1, -1):
                for number, batch in enumerate(anchored.batches(train, batch_size, random, mined), 1):
                    evaluation = anchor_objective(
                        A, *rows.of(batch), batch.positives, batch.masked, weights=batch.weights, **settings
                    )
                    A = A + step * adam.direction(evaluation.gradient - options.weight_decay * A)
                    values.append(evaluation.value)
                    last = left == 0 and number * batch_size >= len(train)
                    if not last and (watched is None or number % _STEPS_IN_ROUND):
                        continue
                    value = float(np.mean(values)) if watched is None else watched.score(A)
                    before, values = record.objective, []
                    record.add(A, value)
                    record.iterated(A)
                    idle = 0 if value > before + estimator.tol else idle + 1
                    if idle and watched is not None:
                        A, step = record.kept.copy(), 0.5 * step
                        adam = _Moments(A)
                    if idle >= options.n_iter_no_change:
                        raise record.end(Reason.CONVERGED, f"{idle} rounds gained no more than tol={estimator.tol:g}")
        raise record.end(Reason.LIMIT, f"max_iter={estimator.max_iter} passes were used")
    return record.path()._replace(more={"held_out_pairs_": np.empty(0, np.int64) if held_out is None else held_out})


class _Moments:
    """Adam's running moments of the gradient."""

    def __init__(self, A: np.ndarray) -> None:
        self._first, self._root, self._age = np.zeros_like(A), np.zeros_like(A), 0

    def direction(self, gradient: np.ndarray) -> np.ndarray:
        """Return the step of unit size per entry, up the gradient."""
        self._age += 1
        self._first += (1.0 - _MOMENTUM) * (gradient - self._first)
        # The root of the second moment, because squares would overflow for rows of 1e100.
        self._root = np.hypot(np.sqrt(_MEMORY) * self._root, np.sqrt(1.0 - _MEMORY) * gradient)
        unbiased = self._root / np.sqrt(1.0 - _MEMORY**self._age)
        return self._first / (1.0 - _MOMENTUM**self._age) / (unbiased + 1e-12)


def _held_out(anchored: AnchorPairs, options: Adam, random: RandomState) -> tuple[np.ndarray, np.ndarray | None]:
    """Return pairs to learn from and pairs to evaluate on, or None if too few would be held out."""
    everything = np.arange(len(anchored.pairs))
    if not options.early_stopping:
        return everything, None
    train, held_out = anchored.split(options.validation_fraction, random)
    if len(held_out) < _LEAST_HELD_OUT or len(train) < _LEAST_HELD_OUT:
        return everything, None
    return train, held_out


class _HeldOutPairs:
    """The held-out pairs among other rows, gathered once."""

    def __init__(
        self, rows: AnchorRows, anchored: AnchorPairs, held_out: np.ndarray, similarity: str, random: RandomState
    ) -> None:
        some = random.permutation(held_out)[:_MOST_HELD_OUT]
        others = random.permutation(anchored.shape[1])[:_OTHERS]
        weights = None if anchored.weights is None else anchored.weights[some]
        left, right = anchored.pairs[some].T
        self._batch = anchored.batch(left, right, others, weights)
        self._anchors, self._candidates = rows.of(self._batch)
        self._similarity = similarity

    def score(self, A: np.ndarray) -> float:
        """Return how well the held-out anchors find their positives."""
        batch = self._batch
        return held_out_gain(
            A, self._anchors, self._candidates, batch.positives, batch.masked, self._similarity, batch.weights
        )


def _hard_negatives(
    rows: AnchorRows, anchored: AnchorPairs, A: np.ndarray, estimator: AnchorNCA, random: RandomState
) -> np.ndarray:
    """Return for each pair rows near its anchor that are not known to be positives, filled up with -1."""
    candidates = np.sort(random.permutation(anchored.shape[1])[:_MINED_FROM])
    asking, number = np.unique(anchored.pairs[:, 0], return_inverse=True)
    images, queries = (
        _images(rows, table, positions, A, estimator.similarity)
        for table, positions in ((rows.X, candidates), (rows.anchors, asking))
    )
    # Some of the nearest rows are positives; a group may have many.
    spare = _SPARE_OF_GROUP if anchored.codes is not None else 2
    count = min(2 * estimator.hard_negatives + spare, len(candidates))
    near = candidates[prepare(estimator.engine, images, n_queries=len(queries)).at().nearest(count, queries).indices]
    near[anchored.are_positives(asking, near)] = -1
    first = np.argsort(near < 0, axis=1, kind="stable")[:, : estimator.hard_negatives]
    taken = np.full((len(asking), estimator.hard_negatives), -1)
    taken[:, : first.shape[1]] = np.take_along_axis(near, first, axis=1)
    return taken[number]


def _images(rows: AnchorRows, table: np.ndarray, positions: np.ndarray, A: np.ndarray, similarity: str) -> np.ndarray:
    """Return the images of some rows, gathered in parts: the rows of a memory map may not fit into memory."""
    Z = np.concatenate(
        [
            rows.gather(table, positions[start : start + _GATHERED]) @ A.T
            for start in range(0, len(positions), _GATHERED)
        ]
    )
    return Z / np.maximum(np.linalg.norm(Z, axis=1, keepdims=True), 1e-30) if similarity == "cosine" else Z


# -- the objective -------------------------------------------------------------------------------------

SIMILARITIES = ("cosine", "distance")


def anchor_objective(
    A: np.ndarray,
    anchors: np.ndarray,
    candidates: np.ndarray,
    positives: np.ndarray,
    masked: np.ndarray,
    *,
    similarity: str,
    temperature: float,
    weights: np.ndarray | None = None,
) -> Evaluation:
    """Return the objective of a batch and its gradient by A.

    Parameters
    ----------
    A : array of shape (k, d)
    anchors : array of shape (m, d)
    candidates : array of shape (c, d)
    positives : int array of shape (m,)
        Which candidate is the positive of each anchor.
    masked : bool array of shape (m, c)
        Candidates that an anchor does not compete with; never its positive.
    similarity : {"cosine", "distance"}
        s is the cosine of the images divided by the temperature (the linear form of InfoNCE), or minus the squared distance of
        the images divided by the temperature.
    """
    queries, points = anchors @ A.T, candidates @ A.T
    m = len(anchors)
    share = np.full(m, 1.0 / m) if weights is None else weights / weights.sum()
    if similarity == "cosine":
        lengths = [np.maximum(np.linalg.norm(Z, axis=1, keepdims=True), 1e-30) for Z in (queries, points)]
        left, right = queries / lengths[0], points / lengths[1]
        scores = left @ right.T / temperature
    else:
        left, right = queries, points
        # Without the square of the query, which all of its candidates share.
        scores = (2.0 * (left @ right.T) - np.square(right).sum(axis=1)) / temperature
    scores[masked] = -np.inf
    scores -= scores.max(axis=1, keepdims=True)
    positive_scores = scores[np.arange(m), positives].copy()
    np.exp(scores, out=scores)
    sums = scores.sum(axis=1)
    value = float(share @ (positive_scores - np.log(sums)))
    # d value / d scores, of shape (m, c): the rows sum to zero.
    slope = scores
    slope *= (-share / sums).astype(slope.dtype, copy=False)[:, None]
    slope[np.arange(m), positives] += share.astype(slope.dtype, copy=False)
    slope /= temperature
    if similarity == "cosine":
        by_query, by_point = slope @ right, slope.T @ left
        by_query = (by_query - (by_query * left).sum(axis=1, keepdims=True) * left) / lengths[0]
        by_point = (by_point - (by_point * right).sum(axis=1, keepdims=True) * right) / lengths[1]
    else:
        by_query = 2.0 * (slope @ right)
        by_point = 2.0 * (slope.T @ left - slope.sum(axis=0)[:, None] * right)
    return Evaluation(value, by_query.T @ anchors + by_point.T @ candidates)


def held_out_gain(
    A: np.ndarray,
    anchors: np.ndarray,
    candidates: np.ndarray,
    positives: np.ndarray,
    masked: np.ndarray,
    similarity: str,
    weights: np.ndarray | None = None,
) -> float:
    """Return the weighted mean of ``1 / log2(1 + rank)`` of the positives among the candidates (nDCG of one relevant row)."""
    queries, points = anchors @ A.T, candidates @ A.T
    if similarity == "cosine":
        scores = queries @ (points / np.maximum(np.linalg.norm(points, axis=1, keepdims=True), 1e-30)).T
    else:
        scores = queries @ points.T - 0.5 * np.square(points).sum(axis=1)
    positive_scores = scores[np.arange(len(anchors)), positives].copy()
    scores[masked] = -np.inf
    scores[np.arange(len(anchors)), positives] = -np.inf
    ahead = (scores > positive_scores[:, None]).sum(axis=1) + 0.5 * (scores == positive_scores[:, None]).sum(axis=1)
    return float(np.average(1.0 / np.log2(2.0 + ahead), weights=weights))


# -- the rows, which may be in memory maps -------------------------------------------------------------


class AnchorRows:
    """The rows of X and those of the anchors, in one precision, gathered when they are needed.

    `unread` states that the rows are in memory maps and have not been validated yet.
    """

    def __init__(self, X: np.ndarray, anchors: np.ndarray, unread: bool = True) -> None:
        self.X, self.anchors, self.unread = X, anchors, unread
        self.dtype = np.result_type(X.dtype, anchors.dtype)

    def of(self, batch: Batch) -> tuple[np.ndarray, np.ndarray]:
        """Return the anchors and the candidates of a batch."""
        return self.gather(self.anchors, batch.anchors), self.gather(self.X, batch.candidates)

    def gather(self, table: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """Return some rows, or raise an error if they are not finite, or too large to be squared."""
        rows = np.asarray(table[positions], dtype=self.dtype)
        if self.unread:
            if not np.isfinite(rows).all():
                raise ValueError(
                    "X or queries contain NaN or infinity in rows of pairs. Drop such rows or fill in their values."
                )
            check_magnitude(rows, "X or queries")
        return rows
