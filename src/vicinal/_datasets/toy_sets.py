"""Clusters, circles, a spiral and mixtures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.random import RandomState
from numpy.typing import ArrayLike, NDArray
from scipy.stats import ortho_group
from sklearn.utils import Bunch, shuffle

from vicinal._checks import check_integer, check_positive, check_random_state
from vicinal._rows import check_array, check_magnitude


def make_two_gaussians(
    n_samples: int = 500, *, random_state: RandomState | int | None = None
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return two round Gaussians of unit variance with means (-3, 0) and (3, 0) (LCA paper, Fig. 2, left).

    Parameters
    ----------
    n_samples : int, default=500
        The total number of rows, half of them in each cluster.
    random_state : int, RandomState or None
        The seed of the random numbers.

    Returns
    -------
    X : ndarray of shape (n_samples, 2)
    y : ndarray of shape (n_samples,)
        The cluster, 0 or 1.

    Examples
    --------
    >>> from vicinal.datasets import make_two_gaussians
    >>> X, y = make_two_gaussians(1000, random_state=0)
    >>> X[y == 1].mean(axis=0).round(1)
    array([3., 0.])
    """
    n = check_integer(n_samples, "n_samples", least=2)
    rng = check_random_state(random_state)
    return _gaussians(np.array([[-3.0, 0.0], [3.0, 0.0]]), _shares(n, [1, 1]), rng)


def make_two_circles(
    n_samples: int = 500, *, noise_std: float = 0.1, random_state: RandomState | int | None = None
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return two concentric circles of radii 1 and 2 with Gaussian noise (LCA paper, Fig. 2, centre).

    Parameters
    ----------
    n_samples : int, default=500
        The total number of rows, half of them on each circle.
    noise_std : float, default=0.1
        Standard deviation of the noise, in both coordinates.
    random_state : int, RandomState or None
        The seed of the random numbers.

    Returns
    -------
    X : ndarray of shape (n_samples, 2)
    y : ndarray of shape (n_samples,)
        The circle: 0 for radius 1, 1 for radius 2.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal.datasets import make_two_circles
    >>> X, y = make_two_circles(1000, random_state=0)
    >>> float(np.linalg.norm(X[y == 1], axis=1).mean().round(2))
    2.0
    """
    n = check_integer(n_samples, "n_samples", least=2)
    noise = check_positive(noise_std, "noise_std", strict=False)
    rng = check_random_state(random_state)
    return _circles([1.0, 2.0], n, noise, rng)


def make_five_gaussians(
    n_samples: int = 800, *, radius: float = 5.0, random_state: RandomState | int | None = None
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return five round Gaussians of unit variance, the central one four times as large (LCA paper, Fig. 2, right).

    The paper gives neither centres nor widths.  Here the outer four sit on
    the axes at distance ``radius`` from the centre, so that both marginals
    have one peak and are nearly Gaussian, as the paper says of its data:
    their fourth cumulant is that of a Gaussian up to ``radius**4 / 16``.

    Parameters
    ----------
    n_samples : int, default=800
        The total number of rows: an eighth in each outer cluster, the rest in the centre.
    radius : float, default=5.0
        Distance of the outer centres; 5 keeps the overlap below one per cent of the rows.
    random_state : int, RandomState or None
        The seed of the random numbers.

    Returns
    -------
    X : ndarray of shape (n_samples, 2)
    y : ndarray of shape (n_samples,)
        The cluster: 0 is the centre, 1 to 4 are the outer ones.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal.datasets import make_five_gaussians
    >>> X, y = make_five_gaussians(80, random_state=0)
    >>> np.bincount(y)
    array([40, 10, 10, 10, 10])
    """
    n = check_integer(n_samples, "n_samples", least=5)
    radius = check_positive(radius, "radius")
    rng = check_random_state(random_state)
    # Departure 1 (datasets): The layout of the five Gaussians is ours.
    centers = radius * np.array([[0, 0], [1, 0], [0, 1], [-1, 0], [0, -1]], dtype=float)
    return _gaussians(centers, _shares(n, [4, 1, 1, 1, 1]), rng)


def add_noise_dimensions(
    X: ArrayLike, n_dimensions: int, *, random_state: RandomState | int | None = None
) -> NDArray[Any]:
    r"""Whiten the data, then append columns of white Gaussian noise (LCA paper, sec. 6.1).

    The columns are standardised and multiplied by the symmetric root of their
    inverse correlation, which whitens them in any units and rotates them as
    little as possible.  The noise has unit variance and is independent of
    the data, so the covariance does not distinguish signal from noise.

    Parameters
    ----------
    X : array-like of shape (n, d)
        Rows; their covariance must not be singular.
    n_dimensions : int
        The number of noise columns to append; 0 only whitens.
    random_state : int, RandomState or None
        The seed of the random numbers.

    Returns
    -------
    ndarray of shape (n, d + n_dimensions)
        The whitened columns first.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal.datasets import add_noise_dimensions, make_two_gaussians
    >>> X, y = make_two_gaussians(1000, random_state=0)
    >>> noisy = add_noise_dimensions(X, 3, random_state=0)
    >>> noisy.shape, bool(np.allclose(np.cov(noisy[:, :2].T, bias=True), np.eye(2)))
    ((1000, 5), True)
    """
    X = check_array(X, dtype=np.float64, ensure_min_samples=2, input_name="X", copy=True)
    check_magnitude(X)
    k = check_integer(n_dimensions, "n_dimensions", least=0)
    rng = check_random_state(random_state)
    n, d = X.shape
    X -= X.mean(axis=0)
    X /= np.maximum(np.abs(X).max(axis=0), np.finfo(np.float64).tiny)  # then squares neither overflow nor vanish
    X /= np.maximum(X.std(axis=0), np.finfo(np.float64).tiny)
    values, vectors = np.linalg.eigh(X.T @ X / n)
    rank = int((values > values[-1] * max(n, d) * np.finfo(np.float64).eps).sum())
    if rank < d:
        raise ValueError(
            f"X must have a covariance of full rank to be whitened, got rank {rank} with {d} columns and {n} "
            "rows. Drop constant or repeated columns, or project with sklearn.decomposition.PCA first."
        )
    # Departure 2 (datasets): Whitening uses the symmetric root. Any rotation of this is white, too.
    whitened = (X @ vectors / np.sqrt(values)) @ vectors.T
    return np.hstack([whitened, rng.standard_normal((n, k))])


def make_spiral(
    n_samples: int = 300, *, noise_std: float = 0.01, random_state: RandomState | int | None = None
) -> tuple[NDArray[Any], NDArray[Any]]:
    r"""Return points along a spiral, with Gaussian noise (Manifold Parzen paper, sec. 4.1).

    .. math:: x = 0.04\, t \sin t + \varepsilon_x, \qquad y = 0.04\, t \cos t + \varepsilon_y, \qquad
              t \sim U(3, 15), \quad \varepsilon \sim N(0, \mathrm{noise\_std}^2)

    Parameters
    ----------
    n_samples : int, default=300
        The number of points.  The paper trains and validates on 300 each and tests on 10,000.
    noise_std : float, default=0.01
        Standard deviation of the noise, in both coordinates.
    random_state : int, RandomState or None
        The seed of the random numbers.

    Returns
    -------
    X : ndarray of shape (n_samples, 2)
    t : ndarray of shape (n_samples,)
        The position of each point along the spiral.

    Examples
    --------
    >>> from vicinal.datasets import make_spiral
    >>> X, t = make_spiral(300, random_state=0)
    >>> X.shape, bool(t.min() > 3), bool(t.max() < 15)
    ((300, 2), True, True)
    """
    n = check_integer(n_samples, "n_samples")
    noise = check_positive(noise_std, "noise_std", strict=False)
    rng = check_random_state(random_state)
    t = rng.uniform(3.0, 15.0, size=n)
    curve = 0.04 * t[:, None] * np.column_stack([np.sin(t), np.cos(t)])
    return curve + noise * rng.standard_normal((n, 2)), t


def make_anisotropic_mixture(
    n_samples: int = 500,
    n_features: int = 2,
    *,
    n_components: int | None = 3,
    condition: float = 100.0,
    separation: float = 4.0,
    random_state: RandomState | int | None = None,
) -> Bunch:
    r"""Return rows of a Gaussian mixture with one narrow, rotated covariance, and their true density.

    .. math:: p(x) = \frac1m \sum_{c=1}^m N(x; \mu_c, \Sigma), \qquad
              \Sigma = R \operatorname{diag}(1, \ldots, 1/\kappa) R'

    with a random rotation :math:`R`, variances falling geometrically from 1 to
    :math:`1/\kappa`, and means drawn from a Gaussian of standard deviation
    ``separation`` times that of :math:`\Sigma` in each of its directions.

    Parameters
    ----------
    n_samples : int, default=500
        The number of rows.
    n_features : int, default=2
        The number of columns.
    n_components : int, default=3
        The number m of components, which have equal weights.
    condition : float, default=100.0
        Condition number :math:`\kappa \ge 1` of the covariance.
    separation : float, default=4.0
        The standard deviation of the means, in units of that of the components.
    random_state : int, RandomState or None
        The seed of the random numbers.

    Returns
    -------
    Bunch
        ``data`` (n_samples, n_features), ``target`` (the component of each row), ``weights``, ``means``,
        ``covariance`` and ``log_density``, the true log-density of each row.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal.datasets import make_anisotropic_mixture
    >>> mixture = make_anisotropic_mixture(1000, 5, condition=100, random_state=0)
    >>> float(np.linalg.cond(mixture.covariance).round(6))
    100.0
    """
    n = check_integer(n_samples, "n_samples")
    d = check_integer(n_features, "n_features")
    m = check_integer(n_components, "n_components")
    separation = check_positive(separation, "separation", strict=False)
    condition = check_positive(condition, "condition")
    if condition < 1 or condition > 1e12:
        raise ValueError(
            f"condition must be between 1 and 1e12, got {condition:g}. Beyond 1e12 the covariance is singular."
        )
    rng = check_random_state(random_state)
    rotation = ortho_group.rvs(d, random_state=rng) if d > 1 else np.ones((1, 1))
    root = rotation * np.sqrt(np.geomspace(1, 1 / condition, d) if d > 1 else np.ones(1))  # root @ root.T = Sigma
    standard_means = separation * rng.standard_normal((m, d))
    y = rng.randint(m, size=n)
    standard = standard_means[y] + rng.standard_normal((n, d))
    return Bunch(
        data=standard @ root.T,
        target=y,
        weights=np.full(m, 1 / m),
        means=standard_means @ root.T,
        covariance=root @ root.T,
        log_density=_round_mixture_log_density(standard, standard_means) - np.linalg.slogdet(root)[1],
    )


def _round_mixture_log_density(X: np.ndarray, means: np.ndarray) -> np.ndarray:
    """Return the log-density of equally weighted unit Gaussians."""
    exponent = np.stack([-0.5 * ((X - mean) ** 2).sum(axis=1) for mean in means])
    constant = -0.5 * X.shape[1] * np.log(2 * np.pi) - np.log(len(means))
    return np.logaddexp.reduce(exponent, axis=0) + constant


def _gaussians(centers: np.ndarray, counts: np.ndarray, rng: np.random.RandomState) -> tuple[np.ndarray, np.ndarray]:
    y = np.repeat(np.arange(len(centers)), counts)
    X = centers[y] + rng.standard_normal((len(y), centers.shape[1]))
    return tuple(shuffle(X, y, random_state=rng))


def _circles(
    radii: Sequence[float] | np.ndarray, n: int, noise: float, rng: np.random.RandomState
) -> tuple[np.ndarray, np.ndarray]:
    y = np.repeat(np.arange(len(radii)), _shares(n, np.ones(len(radii))))
    angle = rng.uniform(0, 2 * np.pi, size=n)
    circle = np.asarray(radii)[y, None] * np.column_stack([np.cos(angle), np.sin(angle)])
    return tuple(shuffle(circle + noise * rng.standard_normal((n, 2)), y, random_state=rng))


def _shares(n: int, parts: Sequence[int] | np.ndarray) -> np.ndarray:
    """Divide n rows in proportion to ``parts``; a remainder is distributed over the first parts, one row each."""
    parts = np.asarray(parts)
    counts = (n * parts / parts.sum()).astype(int)
    counts[: n - counts.sum()] += 1
    return counts
