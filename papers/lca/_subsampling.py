"""Sec. 5 to the letter: Eq. 7 on minibatches, with a sample of the rows as neighbours, and nothing else.

The start is the covariance of the data, as in Algorithm 1; the number of sweeps is given; the last iterate is the answer.
(`vicinal.StochasticEM` starts close to the answer and keeps the best of its sweeps.)
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from papers.arrays import back, placed


def eq_7(
    X: np.ndarray,
    *,
    discount: float,
    batch: int,
    neighbors: int,
    sweeps: int,
    reg: float,
    random_state: int,
    device: str | None = None,
) -> Iterator[np.ndarray]:
    """Yield the kernel's covariance after each sweep over the rows.

    Parameters
    ----------
    X : array of shape (n, d)
    discount : float
        gamma of Eq. 7; 0 forgets all of the past.
    batch, neighbors : int
        B rows of a minibatch, and N rows among which their neighbours are.
    sweeps : int
    reg : float
        The penalty, added to the diagonal.
    random_state : int
    device : str, optional
        A torch device for the products; None is NumPy.

    Yields
    ------
    array of shape (d, d)
    """
    n, d = X.shape
    rng = np.random.RandomState(random_state)
    rows = placed(X - X.mean(axis=0), device)
    local = rows.T @ rows / n
    ridge = reg * placed(np.eye(d), device)
    for _ in range(sweeps):
        order = rng.permutation(n)
        for start in range(0, n, batch):
            terms = order[start : start + batch]
            points = np.arange(n) if neighbors >= n else rng.choice(n, neighbors, replace=False)
            kept = discount ** (len(terms) / n)
            local = kept * local + (1 - kept) * local_covariance(rows, terms, points, local + ridge)
        yield back(local + ridge)


def local_covariance(rows: Any, terms: Any, points: Any, covariance: Any) -> Any:
    """Return the mean over the terms of the covariance of their neighbours about them (Eqs. 3 and 4).

    Parameters
    ----------
    rows : array of shape (n, d)
    terms, points : arrays of row positions
        The rows about which, and the rows that may be neighbours; none is its own.
    covariance : array of shape (d, d)
    """
    xp = array_namespace(rows)
    terms, points = _at(rows, terms), _at(rows, points)
    a, b = rows[terms], rows[points]
    image = b @ xp.linalg.inv(covariance)
    # -|a - b|^2 / 2 in the metric, up to a term of a alone, which the softmax over b forgets
    scores = a @ image.T - 0.5 * xp.sum(b * image, axis=1)[None, :]
    scores = xp.where(terms[:, None] == points[None, :], -xp.inf, scores)
    weight = xp.exp(scores - xp.max(scores, axis=1, keepdims=True))
    weight = weight / xp.sum(weight, axis=1, keepdims=True)
    cross = a.T @ (weight @ b)
    total = a.T @ a + b.T @ (xp.sum(weight, axis=0)[:, None] * b) - cross - cross.T
    return total / len(terms)


def _at(rows: Any, positions: np.ndarray) -> Any:
    """Return positions where the rows are."""
    return positions if isinstance(rows, np.ndarray) else array_namespace(rows).asarray(positions, device=rows.device)
