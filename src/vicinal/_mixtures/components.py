"""The components of a mixture: their weights, and the components from which rows are drawn."""

import numbers

import numpy as np

from vicinal._checks import check_random_state

RandomState = int | np.random.RandomState | None
LOG_2PI = float(np.log(2.0 * np.pi))


def normalised_log_weights(log_weights: np.ndarray | None, n: int) -> np.ndarray:
    """Return the log-weights of n components, of sum one; None means equal weights, which are held as one number."""
    if log_weights is None:
        return np.broadcast_to(-np.log(float(n)), n)
    top = log_weights.max()
    if not np.isfinite(top):
        raise ValueError(
            "the given values lie so far from all components, in units of the kernel, that the square of the distance "
            "overflows. Rescale the data or increase the bandwidth or noise."
        )
    shifted = log_weights - top
    return shifted - np.log(np.exp(shifted).sum())


def log_weight_of_others(log_weights: np.ndarray) -> np.ndarray:
    """Return log(1 - w_i) for log-weights of sum one, exactly even if one component has nearly all the weight."""
    if np.count_nonzero(log_weights > -np.inf) < 2:
        raise ValueError(
            "leave-one-out needs at least two rows of positive weight, because no component is left without the row."
        )
    # The heaviest is replaced below. Until then it must not be rounded to a weight of one, as exp(-1e-16) is by some versions of NumPy.
    others = np.log1p(-np.exp(np.minimum(log_weights, -1e-15)))
    heaviest = int(np.argmax(log_weights))
    rest = np.delete(log_weights, heaviest)
    others[heaviest] = rest.max() + np.log(np.exp(rest - rest.max()).sum())
    return others


def draw_components(
    log_weights: np.ndarray, n_samples: int, random_state: RandomState
) -> tuple[np.random.RandomState, np.ndarray]:
    """Return a random generator, and the components from which `n_samples` rows are drawn."""
    if not isinstance(n_samples, numbers.Integral) or isinstance(n_samples, bool) or n_samples < 1:
        raise ValueError(f"n_samples must be a positive integer, got {n_samples!r}.")
    rng = check_random_state(random_state)
    weights = np.exp(log_weights)
    return rng, rng.choice(len(weights), size=n_samples, p=weights / weights.sum())


def check_log_density(log_density: np.ndarray) -> np.ndarray:
    """Return the log-densities, or raise an error if some are not finite because rows are too far from every component."""
    finite = np.isfinite(log_density) if isinstance(log_density, np.ndarray) else log_density.isfinite()
    if not finite.all():
        raise ValueError(
            f"{int((~finite).sum())} rows lie so far from every component, in units of the bandwidth, "
            "that the square of their distance overflows. Rescale the data or increase the bandwidth."
        )
    return log_density
