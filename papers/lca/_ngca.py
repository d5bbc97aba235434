"""Non-Gaussian component analysis (Blanchard, Kawanabe, Sugiyama, Spokoiny and Müller, 2006), a rival of LCA-Gauss.

For white rows y and any smooth h, Stein's identity says that :math:`E[y h(y) - \\nabla h(y)]` is zero for Gaussian
rows and lies in the non-Gaussian subspace for a product of that subspace and a Gaussian.  NGCA takes many functions
:math:`h(y) = f(w'y)`, improves each direction w by FastICA's iteration, scales the vectors found by their standard
deviation, drops the small ones, which are noise, and takes the principal directions of the others.
"""

from collections.abc import Callable

import numpy as np
from sklearn.decomposition import PCA

_FASTICA_STEPS = 10
_SIGNIFICANT = 1.6  # length in standard deviations, the authors' choice


def ngca(X: np.ndarray, n_components: int, n_functions: int = 60, random_state: int | None = None) -> np.ndarray:
    """Project rows to the non-Gaussian subspace.

    Parameters
    ----------
    X : array of shape (n, d)
    n_components : int
        The dimension of the subspace: NGCA does not find it.
    n_functions : int
        Functions of each of the four families, with parameters spread over the authors' ranges.
    random_state : int or None
        For the directions to start from.

    Returns
    -------
    array of shape (n, n_components)
    """
    rows = PCA(whiten=True).fit_transform(X)
    rng = np.random.RandomState(random_state)
    found = np.concatenate([_directions(rows, family, n_functions, rng) for family in _families(n_functions)])
    lengths = np.linalg.norm(found, axis=1)
    keep = np.argsort(-lengths)[: max(n_components, int((lengths > _SIGNIFICANT).sum()))]
    axes = np.linalg.svd(found[keep], full_matrices=False)[2]
    return rows @ axes[:n_components].T


def _families(count: int) -> list[Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]]:
    """Return functions f and their derivatives, each for a row of parameters: the four families of the paper."""
    widths = np.linspace(0.5, 5.0, count)
    slopes = np.linspace(0.05, 5.0, count)
    waves = np.linspace(0.05, 4.0, count)

    def cube(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        bell = np.exp(-0.5 * z**2 / widths)
        return z**3 * bell, (3 * z**2 - z**4 / widths) * bell

    def tanh(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        t = np.tanh(slopes * z)
        return t, slopes * (1 - t**2)

    return [
        cube,
        tanh,
        lambda z: (np.sin(waves * z), waves * np.cos(waves * z)),
        lambda z: (np.cos(waves * z), -waves * np.sin(waves * z)),
    ]


def _directions(
    rows: np.ndarray,
    family: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]],
    count: int,
    rng: np.random.RandomState,
) -> np.ndarray:
    """Return the improved vector of each function of a family, in standard deviations; shape (count, d)."""
    w = rng.standard_normal((count, rows.shape[1]))
    for _ in range(_FASTICA_STEPS):
        w /= np.linalg.norm(w, axis=1, keepdims=True)
        value, slope = family(rows @ w.T)
        w = (value.T @ rows - slope.sum(axis=0)[:, None] * w) / len(rows)
    return _scaled(rows, family, w / np.linalg.norm(w, axis=1, keepdims=True))


def _scaled(
    rows: np.ndarray, family: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]], w: np.ndarray
) -> np.ndarray:
    """Return the mean of y h(y) - grad h(y) for each direction (of length one), over its standard deviation."""
    n = len(rows)
    value, slope = family(rows @ w.T)
    vectors = (value.T @ rows - slope.sum(axis=0)[:, None] * w) / n
    # E |y h - grad h|^2, with grad h = slope w and |w| = 1
    square = (value**2 * (rows**2).sum(axis=1)[:, None] - 2 * value * slope * (rows @ w.T) + slope**2).mean(axis=0)
    variance = square - (vectors**2).sum(axis=1)
    return vectors * np.sqrt(n / variance)[:, None]
