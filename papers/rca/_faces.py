"""What the figures on faces share: the pictures, the teachers, and curves of neighbour purity."""

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.decomposition import PCA

from papers.drawing import curve, mean_and_error
from papers.experiment import Setting
from papers.face_pairs import make_faces
from vicinal.companions import simulate_teachers
from vicinal.quality import neighbor_purity
from vicinal.results import ChunkletRows

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from vicinal import RCA


PEOPLE = 30
PLACES = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64)  # the k at which curves of purity are kept
STAND_IN = "Quick mode has no photographs: drawn faces (`make_faces`) under drawn lights stand in for Extended Yale B."


@lru_cache(maxsize=2)
def faces(setting: Setting) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return pictures, people and lights: 30 people of Extended Yale B under all 64 lights, or drawn ones.

    The paper has 1,920 pictures of 30 people; these are the first 30 people of whom no picture is missing.
    """
    if not setting.full:
        return drawn_faces()
    yale = setting.load("yale_b")
    complete = [person for person in np.unique(yale.target) if (yale.target == person).sum() == 64]
    rows = np.isin(yale.target, complete[:PEOPLE])
    lights = np.column_stack([yale.azimuth, yale.elevation])[rows]
    return yale.data[rows].astype(float), yale.target[rows], lights


def drawn_faces(
    people: int = PEOPLE, size: int = 20, random_state: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return drawn faces, each under 64 lights: the shade is that of an ellipsoid lit from one side."""
    rng = np.random.RandomState(random_state)
    axis = (np.arange(size) + 0.5) / size * 2 - 1
    down, across = np.meshgrid(axis, axis, indexing="ij")
    depth = np.sqrt(np.clip(1 - 0.6 * down**2 - 0.8 * across**2, 0.05, None))
    normals = np.stack([across, down, depth], axis=-1)
    normals /= np.linalg.norm(normals, axis=-1, keepdims=True)
    azimuth, elevation = (grid.ravel() for grid in np.meshgrid(np.linspace(-90, 90, 16), [-40.0, -10.0, 20.0, 50.0]))
    east, north = np.deg2rad(azimuth), np.deg2rad(elevation)
    lights = np.column_stack([np.sin(east) * np.cos(north), -np.sin(north), np.cos(east) * np.cos(north)])
    shades = 0.08 + np.clip(np.einsum("hwc,lc->lhw", normals, lights), 0, None)
    pictures = make_faces(people, size=size, random_state=rng)[:, None] * shades
    pictures = pictures + 0.02 * rng.standard_normal(pictures.shape)
    directions = np.tile(np.column_stack([azimuth, elevation]), (people, 1))
    return pictures.reshape(-1, size * size), np.repeat(np.arange(people), len(lights)), directions


@lru_cache(maxsize=2)
def coefficients(setting: Setting) -> tuple[np.ndarray, np.ndarray]:
    """Return the first 60 PCA coefficients of pictures of zero mean and unit variance, and the people."""
    pictures, people, _ = faces(setting)
    return eigenfaces(setting).transform(normalised(pictures)), people


@lru_cache(maxsize=2)
def eigenfaces(setting: Setting) -> PCA:
    """Return the PCA of all pictures, which needs no labels."""
    return PCA(60, svd_solver="full").fit(normalised(faces(setting)[0]))


def normalised(pictures: np.ndarray) -> np.ndarray:
    """Return every picture with zero mean and unit variance (sec. 8.1.3)."""
    centred = pictures - pictures.mean(axis=1, keepdims=True)
    return centred / centred.std(axis=1, keepdims=True)


def n_teachers(people: np.ndarray, percent: int) -> int:
    """Return how many teachers see this share of the points, if each sees two per person (r = 2)."""
    return max(1, round(percent / 100 * len(people) / (2 * len(np.unique(people)))))


def taught(people: np.ndarray, percent: int, random_state: int) -> ChunkletRows:
    """Return chunklets of teachers who together see this share of the points (sec. 8.1.2)."""
    return simulate_teachers(people, n_teachers(people, percent), random_state=random_state)


def taught_both_ways(people: np.ndarray, percent: int, random_state: int) -> tuple[ChunkletRows, np.ndarray]:
    """Return the same with what else the teachers know: pairs of rows that one of them tells apart.

    Points that are alone in their teacher's view are in no pair.
    """
    rng = np.random.RandomState(random_state)
    rows, ids, apart, used = [], [], [], 0
    for _ in range(n_teachers(people, percent)):
        own, groups = simulate_teachers(people, 1, random_state=rng)
        left, right = np.triu_indices(len(own), 1)
        other = groups[left] != groups[right]
        apart.append(np.column_stack([own[left[other]], own[right[other]]]))
        rows.append(own)
        ids.append(groups + used)
        used += groups.max() + 1
    return ChunkletRows(np.concatenate(rows), np.concatenate(ids)), np.concatenate(apart)


def pairs_within(chunklets: ChunkletRows) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of all pairs that are in one chunklet together."""
    rows, ids = chunklets
    left, right = np.triu_indices(len(rows), 1)
    same = ids[left] == ids[right]
    return rows[left[same]], rows[right[same]]


def discriminants(metric: "RCA") -> np.ndarray:
    """Return the directions of a fitted RCA without its whitening (FLD, cFLD), each scaled to unit total variance.

    That is how they come out "using SVD in the usual way" (sec. 6): total covariance to the identity, then a rotation.
    """
    return metric.components_ / np.sqrt(metric.ratios_)[:, None]


def purity(rows: np.ndarray, people: np.ndarray) -> list[float]:
    """Return the cumulative neighbour purity at `PLACES`."""
    return neighbor_purity(rows, people, PLACES[-1])[np.array(PLACES) - 1].round(4).tolist()


def draw_purity(ax: "Axes", curves: dict[str, list[Any]], title: str) -> None:
    """Draw curves of purity with standard errors, from a dict from names to lists of curves."""
    for number, (name, values) in enumerate(curves.items()):
        mean, error = np.transpose([mean_and_error(column) for column in np.transpose(values)])
        curve(ax, number, PLACES, mean, error, label=name)
    ax.set(xlabel="first k neighbours", ylabel="share of the same person", title=title, ylim=(0, 1))
