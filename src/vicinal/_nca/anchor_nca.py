r"""NCA by anchors: each anchor distinguishes its own positive from other rows (the linear form of InfoNCE).

.. math:: f(A) = \frac{1}{\sum_i w_i} \sum_i w_i \log \frac{\exp s_{ib_i}}{\sum_{c \in C_i} \exp s_{ic}}

over anchors i with positives b_i, where C_i holds the candidates of the batch except the other positives of i and i itself.
Eq. 8 of the NCA paper (`PairNCA`) has one denominator over all pairs of rows instead, so that a pair competes with all
pairs. Here it competes only with the pairs of its own anchor.

The map is kept only if held-out pairs show, by two standard errors, that it searches better than the raw rows.
"""

from __future__ import annotations

import warnings
from typing import Any, ClassVar, Self

import numpy as np
from numpy.random import RandomState
from numpy.typing import ArrayLike
from scipy.linalg import eigh
from sklearn.base import BaseEstimator

from vicinal._callers import callers_line
from vicinal._checks import (
    check_callback,
    check_choice,
    check_integer,
    check_positive,
    check_random_state,
    check_verbose,
)
from vicinal._engine import Engine, as_engine
from vicinal._fit_loops import Callback, FitPath, Reason, warn_if_not_converged
from vicinal._metric import LinearMetricMixin, rank_tolerance, whitening
from vicinal._nca.anchor_climb import AnchorRows, HeldOutPairs, climb, divided
from vicinal._nca.anchor_objective import SIMILARITIES
from vicinal._nca.anchor_pairs import AnchorPairs, read_anchor_pairs
from vicinal._nca.options import Adam
from vicinal._nca.starts import check_init, check_size
from vicinal._records import Record, RecordParametersMixin, as_record
from vicinal._rows import check_magnitude, check_not_tiny, validate_data
from vicinal._scatter import chunklet_scatter
from vicinal._supervision import power_of_two, read_chunklets
from vicinal._words import count

_GATHERED = 8192  # rows that are read at a time
_START_ROWS = 50_000  # rows from which the initial matrix is computed
_RAW_SHARE = 0.1  # the share of the columns' own variances in an initial matrix
_RAW_SHARES = (0.1, 0.5, 0.9)  # the shares of the raw metric in others
_HELD_OUT_COMPONENTS = 80  # connected components of pairs that solver="adam" holds out, within the shares
_HELD_OUT_SHARES = (0.1, 0.3)
_TOP = 10  # the raw rows are kept unless nDCG at this rank is better


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
        columns, or more and towards the raw metric if that is better on held-out pairs.
    similarity : {"cosine", "distance"}, default="cosine"
        The similarity s of two transformed rows.
    temperature : float, default=0.05
        The divisor of the similarity. The smaller it is, the more weight the nearest wrong candidates have.
    solver : "adam" or Adam, default="adam"
        :class:`vicinal.Adam` sets the batch size, the learning rate (relative to the size of the initial matrix), and the
        pairs that are held out to stop early and to choose. "adam" is ``Adam(early_stopping=True)``, with 10 % of the pairs held out,
        and up to 30 % if there are few. Without early stopping nothing is held out, and the map is not compared with the raw rows.
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
    chosen_ : {"anchors", "init", "raw"}
        What `components_` is: the learned map, the initial matrix, or the raw rows (the identity, or the leading principal
        directions if there are fewer components). The raw rows are kept, with a warning, unless held-out pairs gain two standard
        errors of nDCG@10.
    held_out_gain_ : ndarray of shape (2,) or None
        The gain of the learned map over the raw rows in nDCG@10, on the half of the held-out pairs that did not stop the fit, and
        its standard error over connected components of pairs. None if nothing was held out.
    objectives_ : ndarray
        The mean of :math:`1 / \log_2(1 + r)` over half of the held-out pairs after each round (an epoch, or 100 steps of a longer
        epoch), where r is the rank of the positive among up to 2,000 other rows; pairs are weighted. Without held-out pairs,
        the objective of the batches. The last entry belongs to ``components_``.
    held_out_pairs_ : ndarray of shape (q,)
        The positions of the pairs that were held out, which are whole connected components of pairs. Labels of fewer than 20
        groups are divided by rows.
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
        self._learn(rows, anchored, options, random)
        return self

    def _learn(self, rows: AnchorRows, anchored: AnchorPairs, options: Adam, random: RandomState) -> None:
        """Climb from the best initial matrix, and keep the result only if the held-out pairs gain by it."""
        share = options.validation_fraction if options.early_stopping else None
        if isinstance(self.solver, str):
            share = float(np.clip(_HELD_OUT_COMPONENTS / (anchored.components.max() + 1), *_HELD_OUT_SHARES))
        parts = divided(anchored, share, random)
        starts, raw = self._starts(rows, anchored.pairs[parts.learning], random)
        self.held_out_gain_, self.held_out_pairs_ = None, np.empty(0, np.int64)
        if parts.stopping is not None and parts.choosing is not None:
            stopping = HeldOutPairs(rows, anchored, parts.stopping, self, random)
            choosing = HeldOutPairs(rows, anchored, parts.choosing, self, random, top=_TOP)
            start = max([*starts, raw], key=stopping.score)
            path = climb(rows, anchored, parts.learning, stopping, start, self, options, random)
            maps = {"anchors": path.parameters.astype(np.float64), "init": start, "raw": raw}
            self.chosen_ = choosing.best_of(maps)
            self.components_ = maps[self.chosen_]
            self.objectives_ = np.append(path.objectives, stopping.score(self.components_))
            self.held_out_gain_ = np.array(choosing.gain(maps["anchors"]))
            self.held_out_pairs_ = np.sort(np.concatenate([parts.stopping, parts.choosing]))
        elif share is None:
            path = climb(rows, anchored, parts.learning, None, starts[0], self, options, random)
            self.chosen_, self.components_, self.objectives_ = (
                "anchors",
                path.parameters.astype(np.float64),
                path.objectives,
            )
        else:
            self.chosen_, self.components_ = "raw", raw
            path = FitPath(raw, np.empty(0), 0, Reason.CONVERGED, Reason.CONVERGED.value)
            self.objectives_ = path.objectives
        self.n_iter_, self.converged_ = path.n_iter, path.converged
        if self.chosen_ != "raw":
            warn_if_not_converged("AnchorNCA", path)
            return
        warnings.warn(
            f"AnchorNCA keeps the raw rows: {self._why_raw(anchored)}", UserWarning, stacklevel=callers_line()
        )

    def _why_raw(self, anchored: AnchorPairs) -> str:
        """Return why the raw rows are kept, and a remedy."""
        remedy = "Pass more pairs, or try RCA(shrinkage='cv'), which needs fewer."
        if self.held_out_gain_ is None:
            n = int(anchored.components.max()) + 1
            return f"{count(n, 'connected component')} of pairs {'is' if n == 1 else 'are'} not enough to hold some out. {remedy}"
        mean, error = self.held_out_gain_
        return (
            f"on held-out pairs the learned map changes nDCG@10 by {mean:+.3f}, "
            f"with a standard error of {error:.3f}, and a gain of two standard errors is needed. {remedy}"
        )

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        parameters = super().__repr__(N_CHAR_MAX)
        return f"{parameters} (keeps the raw rows)" if getattr(self, "chosen_", None) == "raw" else parameters

    def _check_parameters(self) -> Adam:
        if self.n_components is not None:
            check_integer(self.n_components, "n_components")
        check_choice(self.similarity, "similarity", SIMILARITIES)
        check_positive(self.temperature, "temperature")
        check_integer(self.hard_negatives, "hard_negatives", least=0)
        check_integer(self.max_iter, "max_iter")
        check_positive(self.tol, "tol", strict=False)
        check_callback(self.callback)
        check_verbose(self.verbose)
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

    def _sample_of(self, rows: AnchorRows, random: RandomState) -> np.ndarray:
        """Return some of all rows, in a unit in which their squares are finite."""
        drawn = np.sort(random.permutation(len(rows.X))[:_GATHERED])
        sample = rows.gather(rows.X, drawn).astype(np.float64)
        return sample / power_of_two(sample.ravel())

    def _starts(self, rows: AnchorRows, pairs: np.ndarray, random: RandomState) -> tuple[list[np.ndarray], np.ndarray]:
        """Return initial matrices from the pairs for learning, and the one of the raw rows.

        The former are those of RCA (which whiten the differences within pairs), the identity, or the user's.
        """
        d = rows.X.shape[1]
        if isinstance(self.init, str):
            k = check_size(self.n_components, d, False)
        else:
            A = np.asarray(self.init, dtype=np.float64)
            k = self.n_components or (len(A) if A.ndim else 1)
            if A.shape != (k, d) or not np.isfinite(A).all():
                raise ValueError(f"init must be a finite matrix of shape ({k}, {d}), got shape {A.shape}.")
        drawn = random.permutation(len(pairs))[: _START_ROWS // 2]
        named = ((rows.anchors, pairs[drawn, 0]), (rows.X, pairs[drawn, 1]))
        both = np.concatenate([rows.gather(*part) for part in named]).astype(np.float64)
        # Fourth powers of the rows must be finite in any unit.
        unit = power_of_two(both.ravel())
        check_not_tiny(both, "the rows in pairs")
        both /= unit
        raw = np.eye(d) if k == d else _principal_directions(self._sample_of(rows, random), k, self.similarity)
        if not isinstance(self.init, str):
            return [A], raw
        if self.init == "identity":
            return [np.eye(k, d)], raw
        whitened = _whitenings(both, k)
        return [A / unit for A in whitened] or [np.eye(k, d)], raw


def _principal_directions(X: np.ndarray, k: int, similarity: str) -> np.ndarray:
    """Return the k directions that keep most of the squared lengths of the rows, or of their differences."""
    X = X - X.mean(axis=0) if similarity == "distance" else X
    d = X.shape[1]
    return eigh(X.T @ X, subset_by_index=[d - k, d - 1])[1][:, ::-1].T


def _whitenings(both: np.ndarray, k: int) -> list[np.ndarray]:
    """Return matrices that whiten the differences within pairs, whose covariance is mixed with several others.

    `both` holds the first rows of all pairs, and then the second ones.
    """
    n, d = len(both) // 2, both.shape[1]
    sums = chunklet_scatter(both, read_chunklets(np.arange(2 * n).reshape(2, -1).T, len(both))[0])
    within, total = sums.within / sums.n_points, sums.total / sums.n_rows
    # If pairs hold equal rows, or no column varies, there is nothing to whiten.
    spread = np.diag(total) + 1e-9 * np.trace(total) / d
    size = float(np.mean(np.diag(within) / spread)) if spread.all() else 0.0
    if size <= 0.0:
        return []
    reference = total + np.diag(spread - np.diag(total))
    # Shrunk in units of the columns, so that a column of large variance does not dominate; and towards the raw metric, which
    # suits embeddings, whose columns have no units.
    raw = np.full(d, np.trace(within) / d)
    whitenings = [
        whitening(
            (1.0 - share) * within + share * np.diag(target),
            reference,
            n_components=k,
            tolerance=rank_tolerance(d),
            resolution=0.0,
        )
        for target, share in ((size * spread, _RAW_SHARE), *((raw, share) for share in _RAW_SHARES))
    ]
    return [whitened.components for whitened in whitenings if whitened is not None]
