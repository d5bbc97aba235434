"""What the figures of the paper share: the metrics they compare, the vote of one neighbour, the objective."""

import warnings
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist
from scipy.special import softmax
from sklearn.exceptions import ConvergenceWarning
from sklearn.neighbors import KNeighborsClassifier

from vicinal import NCA, RCA


def fitted_nca(X: np.ndarray, y: np.ndarray, **options: Any) -> tuple[np.ndarray, bool]:
    """Return a fitted NCA and whether it has converged; the page states how often it has not."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        nca = NCA(**options).fit(X, y)
    return nca.components_, bool(nca.converged_)


def discriminants(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return LDA in the plane: at most two directions of unit length, and at most one fewer than there are classes."""
    whitened = whitened_discriminants(X, y)
    return whitened / np.linalg.norm(whitened, axis=1, keepdims=True)


def whitened_discriminants(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return LDA followed by RCA: the same directions, scaled to unit variance within the classes."""
    return RCA(min(2, len(np.unique(y)) - 1), shrinkage=0).fit(X, y).components_


def one_neighbour(
    A: np.ndarray, train: tuple[np.ndarray, np.ndarray], test: tuple[np.ndarray, np.ndarray] | None = None
) -> float:
    """Return the accuracy of 1-NN in the image of A: of test rows, or of training rows with each one left out."""
    X, y = train
    vote = KNeighborsClassifier(1).fit(X @ A.T, y)
    if test is not None:
        return float(vote.score(test[0] @ A.T, test[1]))
    return float((y[vote.kneighbors(return_distance=False)[:, 0]] == y).mean())


def expected_accuracy(A: np.ndarray, X: np.ndarray, y: np.ndarray) -> float:
    """Return f of Eq. 3 per row: the probability that a row picks a neighbour of its own class (Eqs. 1 and 2)."""
    distances = cdist(X @ A.T, X @ A.T, "sqeuclidean")
    np.fill_diagonal(distances, np.inf)  # p_ii = 0
    p = softmax(-distances, axis=1)
    return float((p * (y[:, None] == y)).sum() / len(y))
