"""The data of `vicinal demo`: two problems that are hard for plain densities and metrics."""

from typing import Any

import numpy as np
from numpy.random import RandomState
from numpy.typing import NDArray

from vicinal._checks import check_integer, check_random_state

_STATES = ("idle", "running", "hot", "failing")


def make_slanted_bars(
    n_samples: int = 300, *, random_state: RandomState | int | None = None
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return rows along four thin, parallel, slanted bars: far apart along a bar, close across it.

    A round kernel must be narrow because of the gaps, and then has few neighbours along the bars. A covariance of
    the whole data set (Scott's rule) is as wide as the stack of bars. A thin, slanted kernel fits best.

    Parameters
    ----------
    n_samples : int, default=300
        The number of rows.
    random_state : int, RandomState or None
        The seed of the random numbers.

    Returns
    -------
    X : ndarray of shape (n_samples, 2)
    y : ndarray of shape (n_samples,)
        The bar, 0 to 3.

    Examples
    --------
    >>> from vicinal import LCA, ParzenWindows
    >>> from vicinal.datasets import make_slanted_bars
    >>> X, _ = make_slanted_bars(300, random_state=0)
    >>> new, _ = make_slanted_bars(1000, random_state=1)
    >>> ParzenWindows("loo").fit(X).score(new) < LCA().fit(X).score(new) - 0.5
    True
    """
    n = check_integer(n_samples, "n_samples")
    rng = check_random_state(random_state)
    bar = rng.randint(4, size=n)
    along, across = rng.uniform(-3.0, 3.0, size=n), 0.03 * rng.normal(size=n)
    angle = np.deg2rad(35.0)
    turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    return np.column_stack([along, across + 0.6 * bar]) @ turn, bar


def make_machine_states(
    n_samples: int = 600, *, random_state: RandomState | int | None = None
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return readings of eight sensors on a machine with four states, under a drift that the sensors share.

    The differences between the states are small compared with the drift. Each state occurs at two places on opposite
    sides, so the means of the states coincide and a linear discriminant cannot distinguish them.

    Parameters
    ----------
    n_samples : int, default=600
        The number of rows.
    random_state : int, RandomState or None
        The seed of the random numbers.

    Returns
    -------
    X : ndarray of shape (n_samples, 8)
    y : ndarray of str of shape (n_samples,)
        "idle", "running", "hot" or "failing".

    Examples
    --------
    >>> from vicinal.datasets import make_machine_states
    >>> X, y = make_machine_states(600, random_state=0)
    >>> X.shape, sorted(set(y.tolist()))
    ((600, 8), ['failing', 'hot', 'idle', 'running'])
    """
    n = check_integer(n_samples, "n_samples")
    rng = check_random_state(random_state)
    place = rng.randint(8, size=n)
    angle = np.pi / 4 * place
    state = np.column_stack([np.cos(angle), np.sin(angle)]) + 0.13 * rng.normal(size=(n, 2))
    drift = rng.normal(size=(n, 3)) * [4.0, 3.0, 2.0]
    directions = np.linalg.qr(rng.normal(size=(8, 8)))[0]
    rest = 0.25 * rng.normal(size=(n, 3))
    X = np.column_stack([state, drift, rest]) @ directions + 20.0
    return X, np.array(_STATES)[place % 4]
