"""The three ways in which Bar-Hillel et al. (2005) draw chunklets from labelled data.

Each returns :class:`ChunkletRows` ``(rows, ids)``, because teachers may share points.  Pass the result as
``y`` to an estimator, or use ``X[rows]`` with ``ids``.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.random import RandomState
from numpy.typing import ArrayLike

from vicinal._checks import check_integer, check_positive, check_random_state
from vicinal._supervision.chunklets import ChunkletRows, merge_shared
from vicinal._supervision.labels import code_groups


def simulate_teachers(
    y: ArrayLike,
    n_teachers: int,
    n_points: int | None = None,
    *,
    ratio: float = 2.0,
    merge: bool = False,
    random_state: RandomState | int | None = None,
) -> ChunkletRows:
    """Draw the chunklets of teachers who each group a random part of the data (sec. 8.1.2, Appendix D).

    Every teacher sees ``L`` random rows and groups those that belong together, under labels that only this teacher uses.  With
    ``M`` classes the sizes of the groups depend on ``r = L / M``; r = 2 gives 2.9 on average (see
    :func:`expected_chunklet_size`).

    Parameters
    ----------
    y : array-like of shape (n,)
        The true classes; rows without one (-1, None, NaN) are shown to no teacher.
    n_teachers : int
        The number ``T`` of teachers.  All teachers together see ``T L`` rows, including repetitions.
    n_points : int, default=None
        ``L``, the rows that one teacher sees.  None means ``round(ratio * M)``.
    ratio : float, default=2.0
        ``r``, used when ``n_points`` is None.
    merge : bool, default=False
        Whether to join groups of different teachers that share a row.
    random_state : int, RandomState or None, default=None
        The seed of the random numbers.

    Returns
    -------
    rows, ids : ChunkletRows of two int arrays of the same length

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal.companions import simulate_teachers
    >>> y = np.repeat(np.arange(30), 64)
    >>> rows, ids = simulate_teachers(y, n_teachers=10, random_state=0)
    >>> print(round(float(np.bincount(ids).mean()), 1))
    2.8
    """
    codes, labelled, n_classes = _read_classes(y)
    n_teachers = check_integer(n_teachers, "n_teachers")
    if n_points is None:
        n_points = max(2, round(check_positive(ratio, "ratio") * n_classes))
    n_points = check_integer(n_points, "n_points", least=2)
    if n_points > len(labelled):
        raise ValueError(
            f"n_points={n_points} is more than the {len(labelled)} labelled rows that a teacher can see. "
            "Lower n_points (or ratio)."
        )
    # RandomState.choice would permute all rows for each teacher; a Generator draws a few quickly.
    draw = np.random.default_rng(check_random_state(random_state).randint(2**31))
    seen = np.concatenate([draw.choice(labelled, n_points, replace=False) for _ in range(n_teachers)])
    groups = np.repeat(np.arange(n_teachers), n_points) * (codes.max() + 1) + codes[seen]
    return _collect(seen, groups, len(codes), merge)


def expected_chunklet_size(ratio: float) -> float:
    """Return the mean size of a teacher's chunklets if classes are equally likely (Appendix D).

    ``E(x | x >= 2) = r (1 - exp(-r)) / (1 - (r + 1) exp(-r))`` with ``r = L / M`` rows per class and teacher.

    Examples
    --------
    >>> from vicinal.companions import expected_chunklet_size
    >>> print(round(expected_chunklet_size(2.0), 3))
    2.911
    """
    ratio = check_positive(ratio, "ratio")
    if ratio < 1e-3:  # 1 - (r + 1) exp(-r) = r^2/2 - r^3/3 + ... cancels; the series of the quotient does not
        return 2.0 + ratio / 3.0
    return float(ratio * -math.expm1(-ratio) / (-math.expm1(-ratio) - ratio * math.exp(-ratio)))


def simulate_pairs(
    y: ArrayLike, fraction: float = 0.9, *, merge: bool = True, random_state: RandomState | int | None = None
) -> ChunkletRows:
    """Draw random pairs of rows of the same class until ``K_c`` connected components remain (sec. 8.3).

    Pairs are drawn uniformly from all pairs of rows that share a class, without repetition.

    Parameters
    ----------
    y : array-like of shape (n,)
        True classes; rows without one (-1, None, NaN) stay alone.
    fraction : float, default=0.9
        ``K_c / n`` to stop at: 0.9 is the paper's "little" side-information and 0.7 its "much".
    merge : bool, default=True
        Whether to return the transitive closure of the pairs.  With False every pair is a separate chunklet, and
        ``rows.reshape(-1, 2)`` are the pairs.
    random_state : int, RandomState or None, default=None
        The seed of the random numbers.

    Returns
    -------
    rows, ids : ChunkletRows of two int arrays of the same length

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal.companions import simulate_pairs
    >>> y = np.repeat([0, 1, 2], 50)
    >>> rows, ids = simulate_pairs(y, 0.9, random_state=0)
    >>> print(150 - len(rows) + len(set(ids.tolist())))
    135
    """
    codes, labelled, n_classes = _read_classes(y)
    _check_fraction(fraction)
    n, target = len(codes), max(1, math.floor(fraction * len(codes)))
    fewest = n - len(labelled) + n_classes
    if target < fewest:
        raise ValueError(
            f"fraction={fraction} requires {target} connected components of {n} rows, but pairs inside "
            f"{n_classes} classes leave at least {fewest}. Raise fraction to {fewest / n:.3g} or more."
        )
    members = [np.flatnonzero(codes == code) for code in np.unique(codes[labelled])]
    n_pairs = np.array([len(rows) * (len(rows) - 1) / 2 for rows in members])
    draw = np.random.default_rng(check_random_state(random_state).randint(2**31))
    parent = np.arange(n).tolist()
    pairs: dict = {}
    n_components = n
    while n_components > target:
        for which in draw.choice(len(members), size=n_components - target, p=n_pairs / n_pairs.sum()):
            left, right = draw.choice(members[which], 2, replace=False).tolist()
            key = (min(left, right), max(left, right))
            if key in pairs:
                continue
            pairs[key] = None
            left, right = _root(parent, left), _root(parent, right)
            if left != right:
                parent[left] = right
                n_components -= 1
    seen = np.array(list(pairs), dtype=np.int64).ravel()
    return _collect(seen, np.repeat(np.arange(len(pairs)), 2), n, merge)


def simulate_chunklets(
    y: ArrayLike,
    size: int = 2,
    *,
    fraction: float = 0.3,
    remainder: bool = True,
    random_state: RandomState | int | None = None,
) -> ChunkletRows:
    """Draw a share of the rows and divide each class of it into chunklets of equal size (sec. 8.1.6).

    Parameters
    ----------
    y : array-like of shape (n,)
        True classes; rows without one (-1, None, NaN) are never drawn.
    size : int, default=2
        ``S``, the number of points in a chunklet.
    fraction : float, default=0.3
        The share of the labelled rows that is drawn, in proportion to the sizes of the classes.
    remainder : bool, default=True
        Whether the rows of a class that do not fill a chunklet make a smaller one (if there are two or more),
        as in footnote 7 of the paper.
    random_state : int, RandomState or None, default=None
        The seed of the random numbers.

    Returns
    -------
    rows, ids : ChunkletRows of two int arrays of the same length

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal.companions import simulate_chunklets
    >>> y = np.repeat([0, 1, 2], 40)
    >>> rows, ids = simulate_chunklets(y, size=4, fraction=0.5, remainder=False, random_state=0)
    >>> print(set(np.bincount(ids).tolist()))
    {4}
    """
    codes, labelled, _ = _read_classes(y)
    size = check_integer(size, "size", least=2)
    _check_fraction(fraction)
    rng = check_random_state(random_state)
    # One shuffle orders every class at random; the share of each class is its first rows.
    shuffled = rng.permutation(labelled)
    shuffled = shuffled[np.argsort(codes[shuffled], kind="stable")]
    _, start, counts = np.unique(codes[shuffled], return_index=True, return_counts=True)
    place = np.arange(len(shuffled)) - np.repeat(start, counts)
    quota = _shares(counts, fraction, rng)
    taken = place < np.repeat(quota, counts)
    filled = np.repeat(quota // size * size, counts)
    if not remainder:
        taken &= place < filled
    # Departure 2 (chunklets): Every class is cut into chunklets of its own.
    groups = np.repeat(start, counts) + place // size  # place // size < counts: groups of two classes differ
    return _collect(shuffled[taken], groups[taken], len(codes), merge=False)


def _shares(counts: np.ndarray, fraction: float, rng: np.random.RandomState) -> np.ndarray:
    """Return whole numbers near ``fraction * counts`` whose sum is ``round(fraction * sum(counts))``."""
    exact = fraction * counts
    shares = np.floor(exact).astype(np.int64)
    missing = round(float(fraction * counts.sum())) - int(shares.sum())
    order = np.lexsort((rng.random_sample(len(counts)), shares - exact))
    shares[order[: max(missing, 0)]] += 1
    return np.minimum(shares, counts)


def _collect(rows: np.ndarray, groups: np.ndarray, n_samples: int, merge: bool) -> ChunkletRows:
    """Drop repeated entries and singletons, number the groups, and join those that share rows if requested."""
    codes = np.unique(groups, return_inverse=True)[1]
    order = np.lexsort((rows, codes))
    rows, codes = rows[order], codes[order]
    inside = np.bincount(codes)[codes] >= 2
    rows, ids = rows[inside], np.unique(codes[inside], return_inverse=True)[1]
    entries = ChunkletRows(rows, ids)
    # Departure 1 (chunklets): Chunklets of teachers that share points stay apart or are merged.
    return merge_shared(entries, n_samples) if merge else entries


def _root(parent: list[int], node: int) -> int:
    while parent[node] != node:
        parent[node] = parent[parent[node]]
        node = parent[node]
    return node


def _read_classes(y: ArrayLike) -> tuple[np.ndarray, np.ndarray, int]:
    codes = code_groups(y)
    labelled = np.flatnonzero(codes >= 0)
    if len(labelled) < 2:
        raise ValueError(f"y must label at least 2 rows, got {len(labelled)}. Pass the true classes.")
    return codes, labelled, int(codes.max()) + 1


def _check_fraction(fraction: float) -> None:
    if check_positive(fraction, "fraction") > 1:
        raise ValueError(f"fraction must be greater than 0 and at most 1, got {fraction!r}.")
