r"""An adapter of the queries alone: the rows of the corpus stay as they are stored.

With unit rows, :math:`M = A^T A` and m the mean of the corpus, the learned distance of a query and a row is

.. math:: |A(q - c)|^2 = |A(q - m)|^2 - 2 (q - m)^T M (c - m) + |A(c - m)|^2.

The first term is the same for all rows. Without the last one, the rows are ranked by :math:`c^T M (q - m)`, which is the search of the
image :math:`M (q - m)` among rows as they are.

A two-sided search by cosine ranks the rows by :math:`q^T M c / |A c|`. The *fitted* map replaces this by its regression on c over the rows of
the corpus, which is again a product with an affine image of the query. With C the covariance of the corpus and
:math:`H = E[(c - m) c^T / |A c|]`, the regression is :math:`C^{-1} H M q`. It is shrunk towards the first map, because a corpus of few rows
does not determine it.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.covariance import ledoit_wolf
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import Normalizer, normalize
from sklearn.utils.validation import check_is_fitted

from vicinal._nca.anchor_climb import AnchorRows, HeldOutPairs, climb, divided
from vicinal._nca.anchor_nca import AnchorNCA
from vicinal._nca.anchor_pairs import read_anchor_pairs
from vicinal._nca.options import Adam
from vicinal._rows import check_rows

_MOST_ROWS = 20_000  # of the corpus, for its mean
_HELD_OUT = 0.2  # the share of the pairs that stops the training of a free map


class QueryMap(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    r"""Map queries to where the rows of an unchanged corpus are searched: :math:`q \mapsto M (q - m)`.

    Queries are scaled to unit length before and after the map, as the rows of the corpus are when they are compared by cosine.
    `search` and `evaluate` apply the map to the queries alone. The order of the rows is that of the two-sided metric if
    :math:`|A (c - m)|` is the same for all rows c of the corpus. ``variation_`` measures how far it is from that.

    With ``fitted=True`` the image of a query is the vector whose products with the rows of the corpus are nearest, in least squares, to the
    cosines of the two-sided search. This is often better for a large corpus, and can be worse for one with fewer rows than columns;
    `adapt` tries both.

    Parameters
    ----------
    metric : estimator
        A fitted metric (RCA, AnchorNCA, ...) with ``components_`` A, or a pipeline of one and Normalizers.
    fitted : bool, default=False
        Whether the map is fitted to the cosines of the two-sided search.

    Attributes
    ----------
    matrix_ : ndarray of shape (n_features, n_features)
        The matrix M, or that of a map that was trained further.
    offset_ : ndarray of shape (n_features,)
        What is added: ``-matrix_ @ mean``, unless the map is fitted or was trained further.
    variation_ : float
        The coefficient of variation of :math:`|A (c - m)|` over the rows of the corpus, or of :math:`|A c|` if the map is fitted: 0 if the
        order is that of the metric.
    n_features_in_ : int
        The number of columns.
    feature_names_in_ : ndarray of str
        The names of the columns, if they have names.

    See Also
    --------
    adapt : With ``side="query"`` it learns, chooses and measures such a map.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal import RCA, retrieval
    >>> rng = np.random.default_rng(0)
    >>> things = rng.normal(size=(300, 4))
    >>> corpus, queries = (
    ...     np.hstack([things + 0.1 * rng.normal(size=(300, 4)), rng.normal(size=(300, 4))]) + 1.0 for _ in range(2)
    ... )
    >>> metric = RCA().fit(np.vstack([corpus, queries]), np.tile(np.arange(300), 2))
    >>> queries_only = retrieval.QueryMap(metric).fit(corpus)
    >>> own = np.column_stack([np.arange(300)] * 2)
    >>> for model in (None, queries_only, metric):
    ...     print(round(retrieval.evaluate(queries, corpus, own, model=model).mean["recall@10"], 2))
    0.32
    0.48
    0.95
    """

    def __init__(self, metric: Any, fitted: bool = False) -> None:
        self.metric = metric
        self.fitted = fitted

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Compute the map from rows of the corpus.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
            The corpus, or a sample of it. At most 20,000 rows are used.
        y : ignored
            For scikit-learn's pipelines.

        Returns
        -------
        self
        """
        A = _components_of(self.metric)
        random = np.random.default_rng(0)
        if isinstance(X, np.memmap):  # only the sample is read
            X = np.asarray(X[np.sort(random.permutation(len(X))[:_MOST_ROWS])])
        rows = check_rows(self, X, reset=True)
        if rows.shape[1] != A.shape[1]:
            raise ValueError(f"X must have the {A.shape[1]} columns of the metric, got {rows.shape[1]}.")
        drawn = np.sort(random.permutation(len(rows))[:_MOST_ROWS])
        sample = normalize(rows[drawn].astype(np.float64))
        mean = sample.mean(axis=0)
        self.matrix_ = A.T @ A
        self.offset_ = -self.matrix_ @ mean
        lengths = np.linalg.norm((sample if self.fitted else sample - mean) @ A.T, axis=1)
        self.variation_ = float(lengths.std() / lengths.mean()) if lengths.any() else 0.0
        if self.fitted and lengths.any():
            self._fit_to_cosines(sample, mean, lengths)
        return self

    def _fit_to_cosines(self, sample: np.ndarray, mean: np.ndarray, lengths: np.ndarray) -> None:
        """Add to M (q - m) the regression of what it leaves of q^T M c / |A c|, with a covariance that is shrunk."""
        usual = 1.0 / lengths.mean()
        self.matrix_, self.offset_ = usual * self.matrix_, usual * self.offset_
        centred = sample - mean
        unit_cosines = (
            sample / np.maximum(lengths, np.finfo(float).tiny)[:, None]
        )  # c / |A c|; a row of zeros stays one
        covariance, shrinkage = ledoit_wolf(centred, assume_centered=True)
        of_cosines = centred.T @ unit_cosines @ (self.matrix_ / usual) / len(sample)  # H M
        of_images = centred.T @ centred / len(sample)
        left = np.column_stack([of_cosines - of_images @ self.matrix_, -of_images @ self.offset_])
        correction = (1.0 - shrinkage) * np.linalg.solve(covariance, left)
        self.matrix_, self.offset_ = self.matrix_ + correction[:, :-1], self.offset_ + correction[:, -1]

    @property
    def _n_features_out(self) -> int:
        return len(self.matrix_)

    def transform(self, X: ArrayLike) -> np.ndarray:
        """Return the images of queries, of unit length.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
            Queries; the rows of the corpus are not transformed.

        Returns
        -------
        ndarray of shape (n, n_features)
        """
        check_is_fitted(self, "matrix_")
        rows = normalize(check_rows(self, X, reset=False))
        return normalize(rows @ self.matrix_.T.astype(rows.dtype) + self.offset_.astype(rows.dtype))


def _components_of(metric: Any) -> np.ndarray:
    """Return the matrix of a metric, or of a pipeline of one and Normalizers."""
    steps = [step for _, step in metric.steps] if isinstance(metric, Pipeline) else [metric]
    metrics = [step for step in steps if not isinstance(step, Normalizer)]
    if len(metrics) != 1 or not hasattr(metrics[0], "components_"):
        raise TypeError(
            "metric must be a fitted metric (RCA, AnchorNCA, ...), or a pipeline of one and Normalizers, got "
            f"{' and '.join(type(step).__name__ for step in metrics) or 'no metric'}."
        )
    return np.asarray(metrics[0].components_, dtype=np.float64)


def train_further(
    query_map: QueryMap,
    corpus: np.ndarray,
    queries: np.ndarray | None,
    pairs: np.ndarray | None,
    labels: Any,
    seed: int,
) -> QueryMap:
    """Return a map whose matrix and offset are trained by the loss of AnchorNCA with the corpus fixed, from those of another one.

    Parameters
    ----------
    corpus, queries : arrays of rows of unit length; queries is None if the queries are rows of the corpus
    pairs, labels : as in ``AnchorNCA.fit``; one of them is None
    """
    random = np.random.RandomState(seed)
    anchored = read_anchor_pairs(
        len(corpus), None if queries is None else len(queries), labels, pairs, None, None, None, random
    )
    asking = corpus if queries is None else queries
    rows = AnchorRows(corpus, np.column_stack([asking, np.ones(len(asking), asking.dtype)]), unread=False)
    settings, options = AnchorNCA(), Adam(early_stopping=True)
    parts = divided(anchored, _HELD_OUT, random)
    stopping = (
        None if parts.stopping is None else HeldOutPairs(rows, anchored, parts.stopping, settings, random, fixed=True)
    )
    start = np.column_stack([query_map.matrix_, query_map.offset_])
    path = climb(rows, anchored, parts.learning, stopping, start, settings, options, random, fixed=True)
    trained = QueryMap(query_map.metric)
    trained.__dict__.update(query_map.__dict__)
    matrix = path.parameters.astype(np.float64)
    trained.matrix_, trained.offset_ = matrix[:, :-1], matrix[:, -1]
    return trained
