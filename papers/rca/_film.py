"""A drawn surveillance film: people in clothes of their own walk through places of different light.

It stands in for the clips of section 8.2, which are not public. What is drawn is what the paper says of them: one person per
clip, of any size in the picture, partly hidden at times, under light that changes over the scene in intensity (from brighter
to darker regions) and in spectrum (from neon light to daylight). Every frame becomes a colour histogram in L*a*b* space with
five bins per dimension.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

BINS = 5
_HEIGHT, _WIDTH = 32, 16
_NEON, _DAY = np.array([0.80, 1.00, 0.90]), np.array([1.10, 0.95, 0.70])
# Linear sRGB to XYZ, divided by the white point D65: rows are X, Y, Z.
_XYZ = np.array([[0.4339, 0.3763, 0.1899], [0.2126, 0.7152, 0.0722], [0.0178, 0.1095, 0.8728]])


class Film(NamedTuple):
    """Frames of clips, one after the other.

    Attributes
    ----------
    histograms : array of shape (n_frames, BINS ** 3); each row sums to one.
    people, clips : int arrays; who is seen, and in which clip.
    pictures : array of shape (n_shown, height, width, 3), sRGB: frames of the first clip, evenly spread.
    """

    histograms: NDArray[Any]
    people: NDArray[Any]
    clips: NDArray[Any]
    pictures: NDArray[Any]


def drawn_film(
    n_people: int = 20, n_clips: int = 130, frames: int = 46, n_shown: int = 6, random_state: int = 0
) -> Film:
    """Return a film of clips of about `frames` frames each."""
    rng = np.random.RandomState(random_state)
    clothes = [_clothes(rng) for _ in range(n_people)]
    walls = rng.uniform(0.15, 0.7, size=(9, 3)) * 0.4 + 0.6 * rng.uniform(0.25, 0.6, size=(9, 1))
    histograms, people, clips, pictures = [], [], [], []
    for clip in range(n_clips):
        person = clip % n_people
        n = rng.randint(frames - 16, frames + 17)
        begin, length = rng.uniform(0, 0.7), rng.uniform(0.1, 0.3)
        place = begin + length * np.linspace(0, 1, n)[:: rng.choice([-1, 1])]
        shown = _frames(clothes[person], place, walls, rng)
        histograms.append(_histograms(shown))
        people += [person] * n
        clips += [clip] * n
        if clip == 0:
            pictures = shown[np.linspace(0, n - 1, n_shown).astype(int)]
    return Film(np.concatenate(histograms), np.array(people), np.array(clips), np.asarray(pictures))


def _clothes(rng: np.random.RandomState) -> NDArray[Any]:
    """Return a person as reflectances in linear RGB, of shape (height, width, 3): hair, face, shirt (some with stripes),
    trousers."""
    picture = np.empty((_HEIGHT, _WIDTH, 3))
    picture[:3] = rng.uniform(0.03, 0.25) * np.array([1.0, 0.8, 0.6])
    picture[3:8] = rng.uniform(0.25, 0.6) * np.array([1.0, 0.72, 0.58])
    shirt, stripes, trousers = rng.uniform(0.05, 0.8, size=(3, 3))
    picture[8:19] = shirt
    if rng.uniform() < 0.4:
        picture[9:19:3] = stripes
    picture[19:] = 0.5 * trousers
    return picture


def _frames(
    clothes: NDArray[Any], place: NDArray[Any], walls: NDArray[Any], rng: np.random.RandomState
) -> NDArray[Any]:
    """Return frames of a walk along places from 0 to 1, as sRGB of shape (n, height, width, 3)."""
    n = len(place)
    y, x = np.meshgrid(np.linspace(0, 1, _HEIGHT), np.linspace(-1, 1, _WIDTH), indexing="ij")
    intensity = 0.25 + 0.75 * (0.5 + 0.5 * np.cos(2 * np.pi * (place * 1.3 + 0.1)))
    mix = np.clip(place * 1.4 - 0.2, 0, 1)[:, None]
    light = intensity[:, None] * ((1 - mix) * _NEON + mix * _DAY)
    size = np.clip(0.75 + 0.2 * np.cos(2 * np.pi * (place + rng.uniform())), 0.5, 1.0)  # near or far
    hidden = np.clip(rng.uniform(-0.6, 0.5) + 0.2 * np.sin(6 * place + rng.uniform(0, 6)), 0, 0.5)  # from below
    wall = walls[np.clip((place * len(walls)).astype(int), 0, len(walls) - 1)]
    frames = np.broadcast_to(wall[:, None, None], (n, _HEIGHT, _WIDTH, 3)).copy()
    for i in range(n):
        half = np.where(y < 0.25, 0.35, 0.8 - 0.25 * (y > 0.6)) * size[i]
        top = 1 - size[i]
        inside = (np.abs(x) < half) & (y >= top) & (y < 1 - hidden[i])
        line = np.clip(((y - top) / size[i] * _HEIGHT).astype(int), 0, _HEIGHT - 1)
        frames[i][inside] = clothes[line, np.arange(_WIDTH)[None]][inside]
    shade = 1 + 0.35 * x * rng.uniform(-1, 1, size=(n, 1, 1))  # the light comes from one side
    linear = frames * light[:, None, None] * shade[..., None] * 1.6
    linear = np.clip(linear + 0.01 * rng.standard_normal(linear.shape), 0, 1)
    return np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * np.maximum(linear, 1e-9) ** (1 / 2.4) - 0.055)


def lab(pictures: NDArray[Any]) -> NDArray[Any]:
    """Return CIE L*a*b* (white D65) of sRGB colours from 0 to 1, in the last axis."""
    linear = np.where(pictures <= 0.04045, pictures / 12.92, ((pictures + 0.055) / 1.055) ** 2.4)
    ratio = linear @ _XYZ.T
    root = np.where(ratio > (6 / 29) ** 3, np.cbrt(ratio), ratio / (3 * (6 / 29) ** 2) + 4 / 29)
    X, Y, Z = np.moveaxis(root, -1, 0)
    return np.stack([116 * Y - 16, 500 * (X - Y), 200 * (Y - Z)], axis=-1)


def _histograms(pictures: NDArray[Any]) -> NDArray[Any]:
    """Return the shares of the pixels in five bins of L* (0 to 100), a* and b* (-50 to 50; the last bins include all values beyond)."""
    colours = lab(pictures).reshape(len(pictures), -1, 3)
    bins = np.clip(((colours - [0, -50, -50]) / 100 * BINS).astype(int), 0, BINS - 1)
    codes = bins @ [BINS * BINS, BINS, 1] + BINS**3 * np.arange(len(pictures))[:, None]
    return np.bincount(codes.ravel(), minlength=BINS**3 * len(pictures)).reshape(len(pictures), -1) / codes.shape[1]
