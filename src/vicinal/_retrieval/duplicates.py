"""A threshold for duplicates that keeps a promise, and the pairs that have to be labelled for it.

The pairs at a threshold or nearer are tested at thresholds that are fixed by counts, from the nearest pairs on. Each test asks
whether Clopper and Pearson's upper bound on the share of false pairs is at most `max_false`, and the first failure ends the tests.
The tests have a fixed order, so the probability that a threshold beyond the promise is accepted is at most ``1 - confidence``,
however many are tried.
"""

from __future__ import annotations

import numbers
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaincinv

from vicinal._checks import check_integer, check_random_state
from vicinal._retrieval.search import Found
from vicinal._supervision import check_length, chunklets_from_pairs, code_groups
from vicinal._words import count

_STEPS = 20  # thresholds that are tested: each twentieth of the pairs


@dataclass(frozen=True)
class DuplicateThreshold:
    """The result of `duplicate_threshold`.

    Attributes
    ----------
    threshold : float or None
        The score up to which pairs are taken for duplicates; None if no threshold keeps the promise.
    bound : float
        The upper bound, with the given confidence, on the share of pairs up to the threshold that are not duplicates. Without a
        threshold it is the bound at the strictest threshold that was tested.
    n_units, n_false : int
        The labelled pairs (with `groups`: the groups with such pairs) up to that threshold, and how many of them are false.
    share : float
        The share of all labelled duplicates that the threshold finds; 0 without a threshold.
    max_false, confidence : float
        What was asked for.
    unit : str
        "pair" or "group".
    """

    threshold: float | None
    bound: float
    n_units: int
    n_false: int
    share: float
    max_false: float
    confidence: float
    unit: str

    def __str__(self) -> str:
        tested = (
            f"{self.n_false} of the nearest {count(self.n_units, self.unit)} false, at most {self.bound:.1%} of all"
        )
        if self.threshold is None:
            return f"no threshold has at most {self.max_false:.1%} false pairs with {self.confidence:.0%} confidence ({tested})."
        return (
            f"threshold {self.threshold:.6g}: at most {self.max_false:.1%} of the pairs up to it are false, with "
            f"{self.confidence:.0%} confidence ({tested}); it finds {self.share:.0%} of the labelled duplicates."
        )


def duplicate_threshold(
    scores: ArrayLike,
    labels: ArrayLike,
    *,
    groups: ArrayLike | None = None,
    larger_is_nearer: bool = True,
    max_false: float = 0.05,
    confidence: float = 0.95,
) -> DuplicateThreshold:
    """Return the loosest threshold with a bound on the share of false duplicates.

    Among the pairs that a search returns at the threshold or nearer, the share that are not duplicates is at most `max_false`,
    with probability `confidence` over the draw of the labelled pairs. The labelled pairs must be a random sample of the pairs that
    the search returns: `pairs_to_label` draws one. Joining chains of pairs into groups is not covered, because one false pair can
    join two groups.

    Parameters
    ----------
    scores : array-like of shape (p,)
        The scores of labelled pairs: cosines, or distances with ``larger_is_nearer=False``.
    labels : array-like of bool of shape (p,)
        Whether the two rows of each pair are duplicates.
    groups : array-like of shape (p,), optional
        The group of each pair, if pairs of a group are not independent, for example because they share rows. A group is then the
        unit: it is false if any of its pairs is, and the promise is about the mean share of false pairs per group.
    larger_is_nearer : bool, default=True
        Whether larger scores mean nearer rows, as cosines do.
    max_false : float, default=0.05
        The largest share of false pairs.
    confidence : float, default=0.95
        The probability with which the promise is kept.

    Returns
    -------
    DuplicateThreshold

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal import retrieval
    >>> rng = np.random.default_rng(0)
    >>> cosines = rng.uniform(0.5, 1.0, size=1000)
    >>> labels = rng.random(1000) < np.clip(10 * (cosines - 0.65), 0, 0.99)
    >>> result = retrieval.duplicate_threshold(cosines, labels)
    >>> 0.7 < result.threshold < 0.75, result.bound <= 0.05
    (True, True)
    """
    near = _numbers(scores, "scores")
    true = _truth(labels, len(near))
    for name, value in (("max_false", max_false), ("confidence", confidence)):
        if not (isinstance(value, numbers.Real) and 0.0 < value < 1.0):
            raise ValueError(f"{name} must be a number between 0 and 1, got {value!r}.")
    unit = "pair" if groups is None else "group"
    if groups is None:
        codes = np.arange(len(near))
    else:
        codes = code_groups(groups, "groups")
        check_length(codes, len(near), "groups", "Pass one group per pair.")
        if (codes < 0).any():
            raise ValueError(f"groups must name the group of every pair, got {count(int((codes < 0).sum()), 'gap')}.")
    least = _fewest(max_false, confidence)
    n_units = len(np.unique(codes))
    if n_units < least:
        raise ValueError(
            f"a share of at most {max_false:g} false pairs with confidence {confidence:g} needs at least {count(least, f'labelled {unit}')}, "
            f"even if all of them are duplicates, got {n_units}. Label more of them (vicinal.retrieval.pairs_to_label draws a sample), or allow a "
            "larger max_false."
        )
    order = np.argsort(-near if larger_is_nearer else near, kind="stable")
    near, true, codes = near[order], true[order], codes[order]
    # A threshold takes all pairs with the same score, so it ends where the score changes.
    ends = np.append(np.flatnonzero(np.diff(near)), len(near) - 1)
    is_new = np.zeros(len(near), dtype=bool)
    is_new[np.unique(codes, return_index=True)[1]] = True
    so_far = np.cumsum(is_new)  # units with a pair up to each place
    first_false = np.full(codes.max() + 1, len(near))
    np.minimum.at(first_false, codes[~true], np.flatnonzero(~true))
    false_so_far = np.cumsum(np.bincount(first_false, minlength=len(near) + 1)[: len(near)])
    accepted: tuple[int, float] | None = None
    strictest: tuple[int, float] | None = None
    for wanted in np.unique(np.linspace(0, n_units, _STEPS + 1).astype(int)[1:]):
        place = ends[np.searchsorted(so_far[ends], max(wanted, least))]
        bound = _upper_bound(int(false_so_far[place]), int(so_far[place]), confidence)
        strictest = strictest or (place, bound)
        if bound > max_false:
            break
        accepted = place, bound
    assert strictest is not None
    place, bound = accepted or strictest
    threshold = None
    if accepted:
        # Given the score of the next pair, the labelled pairs before it are a random sample of all that are nearer than it.
        following = near[place + 1] if place + 1 < len(near) else near[place]
        threshold = float(np.nextafter(following, near[place]))
    return DuplicateThreshold(
        threshold=threshold,
        bound=bound,
        n_units=int(so_far[place]),
        n_false=int(false_so_far[place]),
        share=float(true[: place + 1].sum() / max(true.sum(), 1)) if accepted else 0.0,
        max_false=float(max_false),
        confidence=float(confidence),
        unit=unit,
    )


def _upper_bound(n_false: int, n: int, confidence: float) -> float:
    """Return Clopper and Pearson's upper bound on a share, of which `n_false` of n were seen."""
    return 1.0 if n_false == n else float(betaincinv(n_false + 1, n - n_false, confidence))


def _fewest(max_false: float, confidence: float) -> int:
    """Return the smallest number of units without a false one for which the bound holds."""
    return int(np.ceil(np.log1p(-confidence) / np.log1p(-max_false) - 1e-9))


def _numbers(scores: ArrayLike, name: str) -> np.ndarray:
    values = np.asarray(scores)
    if values.ndim != 1 or values.dtype.kind not in "iuf" or not np.isfinite(values).all():
        raise ValueError(f"{name} must be finite numbers, one per pair, got {values.dtype} of shape {values.shape}.")
    return values.astype(np.float64)


def _truth(labels: ArrayLike, n: int) -> np.ndarray:
    values = np.asarray(labels)
    if values.ndim == 1:
        check_length(values, n, "labels", "Pass one label per score.")
    if values.ndim != 1 or values.dtype.kind not in "biuf" or not np.isin(values, (0, 1)).all():
        raise ValueError(
            f"labels must say of each pair whether it is a duplicate (True or False, 1 or 0), got {values.dtype} of shape {values.shape}."
        )
    return values.astype(bool)


class PairsToLabel(NamedTuple):
    """A random sample of the pairs that a search has found.

    Attributes
    ----------
    pairs : ndarray of shape (p, 2)
        Positions: the query and the row of the corpus that it found.
    scores : ndarray of shape (p,)
        Their scores.
    groups : ndarray of shape (p,)
        Pairs of the sample that share rows, directly or through other pairs, have the same number.
    """

    pairs: np.ndarray
    scores: np.ndarray
    groups: np.ndarray


def pairs_to_label(
    found: Found, n_pairs: int = 300, *, queries: ArrayLike | None = None, random_state: int | None = None
) -> PairsToLabel:
    """Draw a random sample of the pairs that a search has found, to be labelled by hand for `duplicate_threshold`.

    Parameters
    ----------
    found : Found
        The result of :func:`search`.
    n_pairs : int, default=300
        The number of pairs; all pairs if there are fewer.
    queries : array-like, optional
        What was passed to `search`: None for all rows of the corpus, positions of rows of the corpus, or new rows. If the queries are
        rows of the corpus, each pair of rows counts once, even if each of the two finds the other.
    random_state : int, optional
        The seed of the sample.

    Returns
    -------
    PairsToLabel

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal import retrieval
    >>> corpus = np.random.default_rng(0).normal(size=(500, 8))
    >>> sample = retrieval.pairs_to_label(retrieval.search(None, corpus, 3), 100, random_state=0)
    >>> sample.pairs.shape, bool((sample.pairs[:, 0] < sample.pairs[:, 1]).all())
    ((100, 2), True)
    """
    indices, scores = np.asarray(found.indices), np.asarray(found.scores)
    n = len(indices) if queries is None else len(np.asarray(queries))
    if indices.ndim != 2 or indices.shape != scores.shape or n != len(indices):
        raise ValueError(
            f"found must be the result of retrieval.search for these queries, got indices of shape {indices.shape} and scores of shape "
            f"{scores.shape} for {n} queries."
        )
    check_integer(n_pairs, "n_pairs")
    are_new_rows = queries is not None and np.ndim(queries) == 2
    asking = np.arange(n) if queries is None or are_new_rows else np.asarray(queries)
    pairs = np.column_stack([np.repeat(asking, indices.shape[1]), indices.ravel()])
    values = scores.ravel()
    if not are_new_rows:
        pairs, first = np.unique(np.sort(pairs, axis=1), axis=0, return_index=True)
        values = values[first]
    chosen = np.sort(check_random_state(random_state).permutation(len(pairs))[:n_pairs])
    pairs, values = pairs[chosen], values[chosen]
    moved = pairs + np.array([pairs[:, 1].max(initial=-1) + 1, 0]) if are_new_rows else pairs
    return PairsToLabel(pairs, values, chunklets_from_pairs(moved, int(moved.max(initial=-1)) + 1)[moved[:, 0]])
