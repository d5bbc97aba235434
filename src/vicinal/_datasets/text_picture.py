"""A word sequence as a cloud of points (LCA paper, Fig. 1), from a small bitmap font."""

from typing import Any

import numpy as np
from numpy.random import RandomState
from numpy.typing import NDArray

from vicinal._checks import check_integer, check_random_state

# Seven rows from top to bottom, base line last; "#" is ink.  Enough for the paper's sentence.
_FONT = {
    "T": ("#####", "..#..", "..#..", "..#..", "..#..", "..#..", "..#.."),
    "b": ("#....", "#....", "####.", "#...#", "#...#", "#...#", "####."),
    "e": (".....", ".....", ".###.", "#...#", "#####", "#....", ".###."),
    "n": (".....", ".....", "#.##.", "##..#", "#...#", "#...#", "#...#"),
    "o": (".....", ".....", ".###.", "#...#", "#...#", "#...#", ".###."),
    "r": (".....", ".....", "#.##", "##..", "#...", "#...", "#..."),
    "t": (".#..", ".#..", "###.", ".#..", ".#..", ".#..", ".##."),
    " ": ("...",) * 7,
}


def make_text(
    text: str = "To be or not to be", n_samples: int = 2000, *, random_state: RandomState | int | None = None
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return a word sequence as a cloud of points in the plane (LCA paper, Fig. 1).

    Points are spread evenly over the ink; a pixel is one unit wide and high,
    the base line is at height 0 and the text begins at 0.  Whitening (PCA) squeezes the
    picture more the longer the text is; LCA uses only the local shapes.

    Parameters
    ----------
    text : str, default="To be or not to be"
        The text, which consists of the letters ``T b e n o r t`` and spaces.
    n_samples : int, default=2000
        The total number of points.
    random_state : int, RandomState or None
        The seed of the random numbers.

    Returns
    -------
    X : ndarray of shape (n_samples, 2)
        The horizontal and the vertical coordinate of each point.
    y : ndarray of shape (n_samples,)
        The position in ``text`` of the letter to which each point belongs.

    Examples
    --------
    >>> from vicinal.datasets import make_text
    >>> X, y = make_text(random_state=0)
    >>> X.max(axis=0).round(), "To be or not to be"[y[0]]
    (array([95.,  7.]), 'e')
    """
    if not isinstance(text, str):
        raise TypeError(f"text must be a string, got {type(text).__name__}.")
    unknown = sorted(set(text) - set(_FONT))
    if unknown or not text.strip():
        known = " ".join(letter for letter in _FONT if letter != " ")
        raise ValueError(f"text must hold only the letters {known} and spaces, and at least one letter, got {text!r}.")
    n = check_integer(n_samples, "n_samples")
    rng = check_random_state(random_state)
    pixels, letters, left = [], [], 0
    for position, letter in enumerate(text):
        rows = _FONT[letter]
        ink = [(left + across, 6 - down) for down, row in enumerate(rows) for across, p in enumerate(row) if p == "#"]
        pixels += ink
        letters += [position] * len(ink)
        left += len(rows[0]) + 1
    chosen = rng.randint(len(pixels), size=n)
    return np.array(pixels, dtype=float)[chosen] + rng.uniform(size=(n, 2)), np.array(letters)[chosen]
