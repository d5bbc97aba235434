"""Close pairs, listed or as groups: the supervision of Eq. 8 of the NCA paper."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import coo_array

from vicinal._supervision.chunklets import chunklets_from_labels
from vicinal._supervision.labels import check_length, check_pairs

PullClose = Callable[[np.ndarray], np.ndarray]  # maps images to the pull of their close pairs

_SAMPLE_PAIRS, _SAMPLE_ROWS = 512, 2048  # from which a scale is estimated


def read_close_pairs(
    y: ArrayLike | None, pairs: ArrayLike | None, pair_weight: ArrayLike | None, n: int, name: str
) -> Grouped | Listed:
    """Read the supervision of `PairNCA.fit` and similar methods: pairs with weights, or groups y.

    Returns
    -------
    Listed or Grouped
    """
    if pairs is None:
        return Grouped(_read_groups(y, pair_weight, n, name))
    if y is not None:
        raise ValueError("pass close pairs either as pairs or as groups y, not both.")
    return Listed(*_read_pairs(pairs, pair_weight, n))


class Listed:
    """Close pairs as a list."""

    def __init__(self, pairs: np.ndarray, weight: np.ndarray) -> None:
        self.pairs, self.weight = pairs, weight

    def pull(self, n: int) -> PullClose:
        return listed_pairs(self.pairs, self.weight, n)

    def some(self, random: np.random.RandomState | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return pairs and their weights, to sample from."""
        return self.pairs, self.weight


class Grouped:
    """All pairs inside groups, which are never listed."""

    def __init__(self, groups: np.ndarray) -> None:
        self.groups = groups

    def pull(self, n: int) -> PullClose:
        return pairs_in_groups(self.groups)

    def some(self, random: np.random.RandomState | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return a sample of the pairs that keeps every row, all of one weight.

        Each row is paired with the next one of its group, in the given order or in four random orders.
        """
        n = len(self.groups)
        orders = [np.arange(n)] if random is None else [random.permutation(n) for _ in range(4)]
        chains = []
        for order in orders:
            order = order[np.argsort(self.groups[order], kind="stable")]
            order = order[self.groups[order] >= 0]
            chain = np.column_stack([order[:-1], order[1:]])
            chains.append(chain[self.groups[chain[:, 0]] == self.groups[chain[:, 1]]])
        pairs = np.unique(np.sort(np.vstack(chains), axis=1), axis=0)
        return pairs, np.ones(len(pairs))


def sample_pairs(close: Grouped | Listed, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a few of the rows and of the pairs among them: both ends of some pairs, then other rows."""
    pairs, weight = close.some()
    pairs = pairs[weight > 0]
    pairs = pairs[np.unique(np.linspace(0, len(pairs) - 1, min(len(pairs), _SAMPLE_PAIRS)).astype(np.intp))]
    others = np.linspace(0, n - 1, min(n, _SAMPLE_ROWS)).astype(np.intp)
    rows = np.unique(np.concatenate([pairs.ravel(), others]))
    return rows, np.searchsorted(rows, pairs)


def listed_pairs(pairs: np.ndarray, weight: np.ndarray, n: int) -> PullClose:
    """Return the attraction of close pairs as a function ``pull(Z) = L Z``.

    L is the Laplacian of the pairs, with weights that sum to one: ``sum_ab w_ab |z_a - z_b|^2 = tr(Z' L Z)``.

    Parameters
    ----------
    pairs : row positions, shape (p, 2)
    weight : array of shape (p,)
    n : int
        The number of all rows.
    """
    share = weight / weight.sum()
    a, b = pairs.T
    rows, columns = np.concatenate([a, b, a, b]), np.concatenate([a, b, b, a])
    entries = np.concatenate([share, share, -share, -share])
    laplacian = coo_array((entries, (rows, columns)), shape=(n, n)).tocsr()
    return lambda Z: laplacian @ Z


def pairs_in_groups(groups: np.ndarray) -> PullClose:
    """Return the attraction of all pairs of rows with the same code (-1: in no group), each of weight one.

    They need no list: ``(L Z)_a = size (z_a - mean of the group) / n_pairs``.
    """
    inside = groups >= 0
    codes = groups[inside]
    sizes = np.bincount(codes)
    n_pairs = float((sizes * (sizes - 1) / 2).sum())

    def pull(Z: np.ndarray) -> np.ndarray:
        sums = np.stack([np.bincount(codes, z, minlength=len(sizes)) for z in Z[inside].T], axis=1)
        out = np.zeros(Z.shape)
        out[inside] = (sizes[codes, None] * Z[inside] - sums[codes]) / n_pairs
        return out

    return pull


def _read_pairs(pairs: ArrayLike, pair_weight: ArrayLike | None, n: int) -> tuple[np.ndarray, np.ndarray]:
    pairs = check_pairs(pairs, n, "pairs")
    if len(pairs) == 0:
        raise ValueError("pairs is empty: at least one close pair is needed. Pass row positions of shape (p, 2).")
    same = int((pairs[:, 0] == pairs[:, 1]).sum())
    if same:
        raise ValueError(f"pairs must join two different rows, got {same} pairs of a row with itself. Drop them.")
    weight = check_pair_weight(pair_weight, len(pairs))
    if weight is None:
        return pairs, np.ones(len(pairs))
    return pairs, weight / weight.max()  # sums of weights of 1e308 stay finite


def check_pair_weight(pair_weight: ArrayLike | None, n_pairs: int) -> np.ndarray | None:
    """Return the weights of pairs; raise an error if they are not finite, negative, or all zero."""
    if pair_weight is None:
        return None
    try:
        weight = np.asarray(pair_weight, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(f"pair_weight must hold one number for each of the {n_pairs} pairs, but {error}.") from error
    if weight.shape != (n_pairs,):
        raise ValueError(f"pair_weight must hold one weight for each of the {n_pairs} pairs, got shape {weight.shape}.")
    if not np.isfinite(weight).all() or weight.min() < 0 or weight.max() == 0:
        raise ValueError(
            "pair_weight must be finite, not negative and not all zero, got values from "
            f"{weight.min():g} to {weight.max():g}. Drop pairs of weight 0."
        )
    return weight


def _read_groups(y: ArrayLike | None, pair_weight: ArrayLike | None, n: int, name: str) -> np.ndarray:
    if y is None:
        raise ValueError(
            f"{name} requires y to be passed, but the target y is None: pass groups as y, or close pairs as pairs=."
        )
    if pair_weight is not None:
        raise ValueError("pair_weight is only for pairs=, got groups y. Pass pairs, or leave pair_weight None.")
    groups = chunklets_from_labels(y)
    check_length(groups, n, "y", "Pass one group per row (-1 for none).")
    if groups.max(initial=-1) < 0:
        raise ValueError(
            f"no two of the {n} rows share a group: at least one close pair is needed. Pass coarser groups."
        )
    return groups
