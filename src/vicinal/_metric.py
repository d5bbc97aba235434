"""A linear metric: from scatter (and reference) to ``components_``, and the methods of estimators that have them.

A fitted metric is a matrix ``A = components_`` with one row per learned direction.  The distance of two
rows is the Euclidean distance of their images,

    d(x, y) = |A x - A y| = sqrt((x - y)' M (x - y)),        M = A' A.
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import LinAlgError, eigh, eigvalsh, lapack
from scipy.spatial.distance import cdist
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags, get_tags
from sklearn.utils.validation import check_array, check_is_fitted

from vicinal._callers import callers_line
from vicinal._checks import shown_columns
from vicinal._notebook import NotebookMixin
from vicinal._row_sources import as_source, by_blocks
from vicinal._rows import check_device_rows, check_rows, has_gaps
from vicinal._rows.dask import answers_collections
from vicinal._scatter import ChunkletScatter
from vicinal._supervision import check_pairs
from vicinal._tensors import on_device


class LinearMetricMixin(NotebookMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin):
    """``transform``, distances and the Mahalanobis matrix of an estimator that fits ``components_``.

    Put it before ``BaseEstimator`` in the list of bases.
    """

    @property
    def _n_features_out(self) -> int:
        return self.components_.shape[0]

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    @answers_collections(lambda self: len(self.components_), needs_rows=False)
    def transform(self, X: ArrayLike) -> Any:
        """Map rows to a space in which the learned distance is Euclidean: ``X @ components_.T``, not centred.

        Parameters
        ----------
        X : array-like of shape (n, n_features), or a source of rows
            The rows to transform. A source is read block by block; see :func:`vicinal.io.open_rows`.

        Returns
        -------
        Z : array of shape (n, n_components), float32 when X is float32 (and ``components_`` fit into it), else float64
            NaN, with a warning, for rows with missing values under an estimator that can be fitted to such rows (LCA, LCAGauss).
            A tensor on the same device when X is a tensor on a GPU, and a lazy Dask array when X is a Dask collection.
        """
        check_is_fitted(self, "components_")
        if on_device(X):
            tensor = check_device_rows(self, X)
            return tensor @ tensor.new_tensor(self.components_).T
        source = as_source(X)
        return self._map_rows(X) if source is None else by_blocks(self._map_rows, source)

    def _map_rows(self, X: Any) -> NDArray[Any]:
        X = check_rows(self, X, reset=False, gaps=get_tags(self).input_tags.allow_nan)
        if has_gaps(X):
            warn_of_unknown_images(np.isnan(X), getattr(self, "feature_names_in_", None))
        if X.dtype != self.components_.dtype and not _holds(X.dtype, self.components_):
            return X @ self.components_.T  # in the wider of the two precisions
        return X @ self.components_.T.astype(X.dtype, copy=False)

    def get_mahalanobis_matrix(self) -> NDArray[Any]:
        """Return ``M = components_.T @ components_`` of shape (n_features, n_features).

        Raises
        ------
        ValueError
            If entries of M are beyond float64, as those of columns in units of 1e-155 can be.
        """
        check_is_fitted(self, "components_")
        with np.errstate(over="ignore", invalid="ignore"):
            matrix = self.components_.T @ self.components_
        if not np.isfinite(matrix).all():
            raise ValueError(
                f"the Mahalanobis matrix must fit into {matrix.dtype}, but components_ hold values of magnitude "
                f"{np.abs(self.components_).max():.3g}, whose squares overflow. Use transform, mahalanobis or "
                "pair_distance, which do not need the matrix, or fit to columns in larger units."
            )
        return matrix

    def mahalanobis(self, X: ArrayLike, Y: ArrayLike | None = None) -> NDArray[Any]:
        """Return distances between all rows of X and all rows of Y.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
            The rows from which distances are measured.
        Y : array-like of shape (m, n_features), default=None
            The other rows. None computes the distances among the rows of X.

        Returns
        -------
        distances : float64 array of shape (n, m)
            Not squared.  For neighbours in a large set, search ``transform(X)`` with
            :class:`sklearn.neighbors.NearestNeighbors` instead of computing this matrix.
        """
        check_is_fitted(self, "components_")
        rows = self._known_rows(X)
        others = rows if Y is None else self._known_rows(Y)
        # A common shift changes no distance and keeps the digits of data that lie far from the origin.
        images = self._images_between(rows, rows[:1])
        return distances_between(images, images if Y is None else self._images_between(others, rows[:1]))

    def pair_distance(self, pairs: ArrayLike, X: ArrayLike | None = None) -> NDArray[Any]:
        """Return the distance within each pair.

        Parameters
        ----------
        pairs : array-like of shape (p, 2, n_features), or of shape (p, 2) when X is given
            The two rows of each pair, or their positions in X.
        X : array-like of shape (n, n_features), default=None
            The rows to which positions refer.

        Returns
        -------
        distances : float64 array of shape (p,)
            Not squared.
        """
        check_is_fitted(self, "components_")
        if X is None:
            left, right = self._rows_of_pairs(pairs)
        else:
            rows = self._known_rows(X)
            left, right = (rows[positions] for positions in check_pairs(pairs, len(rows), "pairs").T)
        return lengths(self._images_between(left, right))

    def _known_rows(self, X: Any) -> np.ndarray:
        """Return rows between which distances are computed; raise an error for missing values."""
        return check_rows(self, X, reset=False).astype(np.float64, copy=False)

    def _rows_of_pairs(self, pairs: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """Return the first and the second rows of pairs of rows."""
        given = check_array(
            pairs, dtype=np.float64, allow_nd=True, ensure_2d=False, ensure_min_samples=0, input_name="pairs"
        )
        n_features = self.components_.shape[1]
        if given.ndim != 3 or given.shape[1:] != (2, n_features):
            raise ValueError(
                f"pairs must have shape (p, 2, {n_features}), got {given.shape}. Pass "
                "np.stack([left, right], axis=1), or pass positions of shape (p, 2) together with X."
            )
        return given[:, 0], given[:, 1]

    def _images_between(self, rows: np.ndarray, others: np.ndarray) -> np.ndarray:
        """Return the images of rows relative to those of other rows.

        The differences are formed before the product: an offset that rows share costs no digits.
        """
        return (rows - others) @ self.components_.T


def warn_of_unknown_images(missing: np.ndarray, names: Any) -> None:
    """Warn that rows with missing values, shape (n, n_features), have images that are NaN."""
    warnings.warn(
        f"{missing.any(axis=1).sum()} of {len(missing)} rows have missing values in the columns "
        f"{shown_columns(np.asarray(missing.any(axis=0)), names)}, so their images are unknown (NaN). Fill them in with "
        "vicinal.DensityImputer before, or leave such rows out.",
        UserWarning,
        stacklevel=callers_line(),
    )


def distances_between(images: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return the distances between all rows of two tables."""
    unit = _unit(images, others)
    return unit * cdist(images / unit, others / unit)


def lengths(differences: np.ndarray) -> np.ndarray:
    """Return the length of each row."""
    unit = _unit(differences)
    return unit * np.linalg.norm(differences / unit, axis=1)


class Whitening(NamedTuple):
    """A map ``A`` that makes the scatter S the identity and the reference T diagonal.

    components : A of shape (k, d), with ``A S A' = I`` and ``A T A' = diag(ratios)``
    inverse : B of shape (d, k), with ``A B = I``; ``B = S A'``
    ratios : reference over scatter along each component, largest first
    """

    components: np.ndarray
    inverse: np.ndarray
    ratios: np.ndarray


def rank_tolerance(n_features: int, resolution: float = 0.0) -> float:
    """Return the share of a column's variance below which a remainder is rounding.

    Sums of products lose about d machine epsilons; data that were in float32 have their own rounding errors, whose
    variance is the square of the epsilon.
    """
    return 10.0 * max(n_features * np.finfo(np.float64).eps, 10.0 * resolution**2)


def _holds(dtype: Any, components: np.ndarray) -> bool:
    """Return whether a dtype can hold the components: data in units of 1e-100 have some of 1e100."""
    return bool(np.abs(components).max(initial=0.0) <= np.finfo(dtype).max)


def _unit(*images: np.ndarray) -> float:
    """Return a power of two in whose units the squares of the entries neither overflow nor vanish; 1 in ordinary cases."""
    largest = max(float(np.abs(rows).max(initial=0.0)) for rows in images)
    return 1.0 if largest == 0.0 or 1e-100 < largest < 1e100 else float(2.0 ** np.floor(np.log2(largest)))


def range_basis(covariance: np.ndarray, *, tolerance: float, floor: float | np.ndarray = 0.0) -> np.ndarray | None:
    """Return an orthonormal basis (d, r) of the directions with variance, or None if these are all directions.

    The rank is that of the *correlation* matrix, by pivoted Cholesky, so that it does not depend on the
    units of the columns.  Columns with a variance of at most `floor` (a number, or one number per column) count as
    constant.
    """
    d = len(covariance)
    variance = np.diag(covariance)
    varying = np.flatnonzero(variance > floor)
    spread = np.sqrt(variance[varying])
    correlation = covariance[np.ix_(varying, varying)] / np.outer(spread, spread)
    factor, pivots, rank = _pivoted_cholesky(correlation, tolerance)
    if rank == d:
        return None
    basis = np.zeros((d, rank))
    if rank == len(varying):
        basis[varying, np.arange(rank)] = 1.0
    elif rank:
        basis[varying[pivots]] = spread[pivots, None] * factor[:rank].T
        basis = np.linalg.qr(basis)[0]
    return basis


def contrast_shrinkage(sums: ChunkletScatter, spread: np.ndarray) -> float:
    """Return the shrinkage of Ledoit and Wolf (2004) for R contrasts z with known mean zero, in units of the columns.

    With ``S = sum z z' / R`` and ``mu = tr S / d`` the optimal weight of ``mu I`` is estimated by

        min(1, b / c),    b = (sum |z|^4 / R - |S|_F^2) / R,    c = |S - mu I|_F^2.

    With a single contrast, b cannot be estimated, and the weight is 1.

    Parameters
    ----------
    sums : ChunkletScatter
    spread : array of shape (d,)
        The standard deviations of the columns; 0 for constant ones, which are ignored.
    """
    n_contrasts = sums.n_contrasts
    if n_contrasts == 1:
        return 1.0
    moving = np.flatnonzero(spread)
    block = np.ix_(moving, moving)
    units = np.outer(spread[moving], spread[moving])
    S = sums.within[block] / units / n_contrasts
    square = np.vdot(S, S)
    from_isotropic = square - np.trace(S) ** 2 / len(S)
    fourth = (sums.fourth[block] / units / units).sum()
    from_truth = (fourth / n_contrasts - square) / n_contrasts
    if from_isotropic <= np.finfo(np.float64).eps * square:
        return 1.0
    return float(np.clip(from_truth / from_isotropic, 0.0, 1.0))


def shrunk(covariance: np.ndarray, shrinkage: float, spread: np.ndarray) -> np.ndarray:
    """Return ``(1 - s) C + s mu D^2`` with D the standard deviations of the columns and ``mu = tr(D^-1 C D^-1) / d``."""
    moving = spread > 0
    share = np.mean(np.diag(covariance)[moving] / spread[moving] ** 2)
    result = (1.0 - shrinkage) * covariance
    result[np.diag_indices(len(covariance))] += shrinkage * share * spread**2
    return result


def whitening(
    scatter: np.ndarray,
    reference: np.ndarray,
    *,
    basis: np.ndarray | None = None,
    n_components: int | None = None,
    tolerance: float,
    resolution: float,
) -> Whitening | None:
    """Whiten the scatter along the directions that the reference ranks first (generalised eigenproblem).

    The rows ``a`` of the components solve ``T a = ratio S a``: the first k of them maximise the determinant
    ratio ``|A T A'| / |A S A'|`` over all k-dimensional projections (Fisher's discriminant when S is the
    within and T the total covariance).

    Parameters
    ----------
    scatter, reference : arrays of shape (d, d)
        S and T, symmetric; T positive definite on the span of `basis`.
    basis : array of shape (d, r), default=None
        Orthonormal columns; the components lie in their span.  None means every direction.
    n_components : int, default=None
        k; None means r.
    tolerance, resolution : float
        See `rank_tolerance`.

    Returns
    -------
    Whitening, or None if S is zero on the whole span.
    """
    T = reference if basis is None else basis.T @ reference @ basis
    S = scatter if basis is None else basis.T @ scatter @ basis
    S = _fill_null_directions(S, T, tolerance, resolution)
    if S is None:
        return None
    r = len(S)
    k = r if n_components is None else min(n_components, r)
    # The columns are scaled by their scatter, which makes the Cholesky factor of S inside eigh as stable as possible.
    scale = 1.0 / np.sqrt(np.diag(S))
    units = np.outer(scale, scale)
    ratios, vectors = _generalised_eigh(T * units, S * units, k, tolerance)
    vectors = scale[:, None] * vectors
    inverse = S @ vectors
    if basis is not None:
        vectors, inverse = basis @ vectors, basis @ inverse
    signs = signs_of(vectors * np.sqrt(np.diag(reference))[:, None])
    return Whitening(np.ascontiguousarray((vectors * signs).T), inverse * signs, np.maximum(ratios, 0.0))


def signs_of(vectors: np.ndarray) -> np.ndarray:
    """Return signs that make the largest entry of each column positive (the first one, if several are equally large).

    If entries are in units of the features, the signs do not depend on the units, on rounding, or on the basis in
    which the vectors were found.
    """
    size = np.abs(vectors)
    first = np.argmax(size >= (1.0 - 1e-6) * size.max(axis=0), axis=0)
    return np.where(np.take_along_axis(vectors, first[None], axis=0) < 0, -1.0, 1.0)


def _generalised_eigh(T: np.ndarray, S: np.ndarray, k: int, tolerance: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the k largest eigenvalues of ``T v = ratio S v`` and their vectors, for S with unit diagonal."""
    r = len(S)
    few = {"subset_by_index": [r - k, r - 1]} if k <= r // 4 else {}
    try:
        ratios, vectors = eigh(T, S, **few)
    except LinAlgError:  # S is positive definite, but by less than the rounding of its Cholesky factor
        variances, directions = eigh(S)
        root = directions / np.sqrt(np.maximum(variances, tolerance * variances[-1]))
        ratios, vectors = eigh(root.T @ T @ root, **few)
        vectors = root @ vectors
    return ratios[::-1][:k], vectors[:, ::-1][:, :k]


def _fill_null_directions(S: np.ndarray, T: np.ndarray, tolerance: float, resolution: float) -> np.ndarray | None:
    """Give directions without scatter its smallest positive eigenvalue; return None if all directions have none."""
    variance, within_rounding = np.diag(S), 64.0 * resolution**2 * np.diag(T)
    scale = np.sqrt(np.where(variance > within_rounding, variance, np.diag(T)))
    correlation = S / np.outer(scale, scale)
    n_null = len(S) - _pivoted_cholesky(correlation, tolerance)[2]
    if n_null == 0:
        return S
    if n_null == len(S):
        return None
    null = eigh(correlation, subset_by_index=[0, n_null - 1])[1] / scale[:, None]
    null = np.linalg.qr(null)[0]
    eigenvalues = eigvalsh(S)
    smallest = max(eigenvalues[n_null], np.finfo(np.float64).eps * eigenvalues[-1])
    return S + smallest * (null @ null.T)


def _pivoted_cholesky(matrix: np.ndarray, tolerance: float) -> tuple[np.ndarray, np.ndarray, int]:
    """Return the factor F, pivots p and numerical rank of a correlation-like matrix M: ``M[p][:, p] = F' F``."""
    if not matrix.size:
        return matrix, np.empty(0, dtype=np.int64), 0
    factor, pivots, rank, _ = lapack.dpstrf(matrix, tol=tolerance, lower=0)
    return np.triu(factor), pivots - 1, int(rank)
