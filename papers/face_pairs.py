"""Pairs of rotated and scaled pictures that nearly agree in both (NCA paper, sec. 5 and Fig. 3)."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.random import RandomState
from numpy.typing import ArrayLike, NDArray
from scipy.ndimage import gaussian_filter, map_coordinates
from sklearn.utils import Bunch, check_random_state


def make_faces(n_samples: int = 100, *, size: int = 35, random_state: RandomState | int | None = None) -> NDArray[Any]:
    """Return upright drawn faces, as a substitute for photographs.

    Each face is an oval with two eyes, a nose and a mouth, whose positions, sizes and shades vary.

    Parameters
    ----------
    n_samples : int, default=100
        The number of faces.
    size : int, default=35
        Height and width in pixels.
    random_state : int, RandomState or None
        The seed of the random numbers.

    Returns
    -------
    ndarray of shape (n_samples, size, size)
        Shades from 0 (background) to 1.
    """
    rng = check_random_state(random_state)

    def vary(low: float, high: float) -> np.ndarray:
        return rng.uniform(low, high, size=(n_samples, 1, 1))

    axis = (np.arange(size) + 0.5) / size * 2 - 1  # pixel centres from -1 (top, left) to 1
    down, across = axis[None, :, None], axis[None, None, :]

    def spot(
        y: float | np.ndarray, x: float | np.ndarray, height: float | np.ndarray, width: float | np.ndarray
    ) -> np.ndarray:
        return np.exp(-(((down - y) / height) ** 2) - ((across - x) / width) ** 2)

    oval = (down / vary(0.85, 0.98)) ** 2 + (across / vary(0.6, 0.75)) ** 2
    head = vary(0.7, 1.0) / (1 + np.exp(12 * (oval - 1)))
    eye_y, eye_x, eye = vary(-0.35, -0.2), vary(0.22, 0.34), vary(0.08, 0.14)
    eyes = spot(eye_y, -eye_x, eye, 1.3 * eye) + spot(eye_y, eye_x, eye, 1.3 * eye)
    nose = 0.4 * spot(vary(0.0, 0.12), 0.0, 0.15, 0.06)
    mouth = spot(vary(0.4, 0.55), 0.0, vary(0.05, 0.1), vary(0.2, 0.35))
    return head * np.clip(1 - vary(0.6, 0.9) * (eyes + nose + mouth), 0, 1)


def make_face_pairs(
    images: ArrayLike,
    n_pairs: int = 1000,
    *,
    groups: Any = None,
    size: int = 35,
    max_angle: float = 45.0,
    heights: Sequence[float] = (25.0, 35.0),
    angle_noise: float = 1.22,
    height_noise: float = 1.5,
    background: float = 0.0,
    random_state: RandomState | int | None = None,
) -> Bunch:
    r"""Return pairs of pictures of different people that nearly agree in rotation and size (NCA paper, sec. 5).

    The first picture is rotated by an angle :math:`\theta \sim U(-45^\circ, 45^\circ)` and
    scaled to a height :math:`h \sim U(25, 35)` pixels.  The second, of another
    person, is rotated and scaled in the same way, except for Gaussian noise; the pair has the weight

    .. math:: w_{ab} = \exp\Bigl(-\frac{(\theta_b - \theta_a)^2}{2 \cdot 1.22^2}
              - \frac{(h_b - h_a)^2}{2 \cdot 1.5^2}\Bigr),

    the density of that noise divided by its largest value.

    Parameters
    ----------
    images : array-like of shape (n, height, width)
        Upright pictures, as from `make_faces`.
    n_pairs : int, default=1000
        The number of pairs.
    groups : array-like of shape (n,), default=None
        The person in each picture; a pair never shows one person twice.  None means that every picture shows a different person.
    size : int, default=35
        Height and width of the results.
    max_angle : float, default=45.0
        Largest rotation in degrees, in either direction.
    heights : pair of float, default=(25, 35)
        Smallest and largest height in pixels.
    angle_noise, height_noise : float
        Standard deviations of the second picture's noise, in degrees and pixels.
    background : float, default=0.0
        Shade outside the picture.
    random_state : int, RandomState or None
        The seed of the random numbers.

    Returns
    -------
    Bunch
        ``data`` (2 * n_pairs, size * size): the pictures, flattened; row ``2 a`` is paired with
        row ``2 a + 1``.  ``pairs`` (n_pairs, 2): those row numbers.  ``weights`` (n_pairs,).  ``angles``
        and ``heights`` (2 * n_pairs,): the true values.  ``sources`` (2 * n_pairs,): the position of the original image.
    """
    images, (low, high), noise = np.asarray(images, dtype=np.float64), heights, (angle_noise, height_noise)
    groups = np.arange(len(images)) if groups is None else np.unique(groups, return_inverse=True)[1]
    rng = check_random_state(random_state)

    # Departure 4 (datasets): Any upright pictures can be used. The paper has FERET-B.
    first = rng.randint(len(images), size=n_pairs)
    second = rng.randint(len(images), size=n_pairs)
    while (same := groups[first] == groups[second]).any():
        second[same] = rng.randint(len(images), size=same.sum())
    draw = rng.standard_normal((n_pairs, 2))
    angles = rng.uniform(-max_angle, max_angle, size=n_pairs)
    tall = rng.uniform(low, high, size=n_pairs)
    sources = np.column_stack([first, second]).ravel()
    angles = np.column_stack([angles, angles + noise[0] * draw[:, 0]]).ravel()
    # The noise must not make the height zero or negative.
    tall = np.maximum(np.column_stack([tall, tall + noise[1] * draw[:, 1]]).ravel(), 1.0)
    pictures = [
        _turn_and_scale(images[source], angle, height, size, background)
        for source, angle, height in zip(sources, angles, tall, strict=True)
    ]
    return Bunch(
        data=np.reshape(pictures, (2 * n_pairs, size * size)),
        pairs=np.arange(2 * n_pairs).reshape(n_pairs, 2),
        weights=np.exp(-0.5 * (draw**2).sum(axis=1)),
        angles=angles,
        heights=tall,
        sources=sources,
    )


def _turn_and_scale(image: np.ndarray, angle: float, height: float, size: int, background: float) -> np.ndarray:
    """Rotate an image counter-clockwise by ``angle`` degrees and scale it to ``height`` pixels."""
    factor = image.shape[0] / height
    if factor > 1:  # blur before shrinking, because fine detail would turn into noise
        image = gaussian_filter(image, (factor - 1) / 2, mode="constant", cval=background)
    cosine, sine = np.cos(np.deg2rad(angle)), np.sin(np.deg2rad(angle))
    offset = np.arange(size) - (size - 1) / 2
    down, across = np.meshgrid(offset, offset, indexing="ij")
    source_down = factor * (cosine * down + sine * across) + (image.shape[0] - 1) / 2
    source_across = factor * (-sine * down + cosine * across) + (image.shape[1] - 1) / 2
    return map_coordinates(image, [source_down, source_across], order=1, mode="constant", cval=background)
