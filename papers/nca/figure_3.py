"""Figure 3: a network finds polar coordinates.

Pairs of faces of two people are rotated and scaled equally except for a little noise (sec. 5), with the weights of the paper:
angles up to 45 degrees, heights from 25 to 35 pixels, pictures of 35x35 pixels. The network has one hidden layer of
100 logistic units and two outputs, and maximises Eq. 8 (`NeuralNCA`); the sum over all faces in its denominator runs over those of a minibatch of
{_BATCH} rows. It is not given angles or heights. FERET-B, the
paper's 5,000 isolated faces, is not freely available: Olivetti faces replace it (40 people, 30 for training and 10 for testing; an oval
is cut out), and drawn faces in quick mode. Each point is a face of a person that the network has not seen.

Polar coordinates are a direction that gives the angle and a distance that gives the size, seen from one centre: the centre is sought from which
both correlations together are highest. A map to Cartesian coordinates, with the angle along one axis and the size along the other, passes this test
from a centre far away. It is told apart by a straight line: where the map is Cartesian, a linear regression of the size on the two outputs
gives the size as well as the distance does.
"""

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Bunch

from papers.drawing import panels
from papers.experiment import Claim, Records, Setting, Summary, Table
from papers.face_pairs import make_face_pairs, make_faces

if TYPE_CHECKING:
    from matplotlib.figure import Figure


TITLE = "Figure 3: NeuralNCA on turned and scaled faces"
COVERS = ("figure 3",)
EXTRAS = {"torch": "torch"}
NEEDS = ("olivetti_faces",)
ORDER = 3
MINUTES = (0.2, 0.6)

_SHOWN = 200  # faces of each network in the picture
_EPOCHS, _BATCH = 40, 256
_LEARNED = 30  # of the people
_FACES = {True: (1500, 200), False: (500, 150)}  # pairs to learn from and to test, in full and in quick mode
_DRAWN = (60, 30)  # faces of quick mode


def units(setting: Setting) -> list[dict[str, Any]]:
    return [{"run": run} for run in range(5 if setting.full else 2)]


def measure(setting: Setting, run: int) -> dict[str, Any]:
    from vicinal import Adam, NeuralNCA

    train, test = _pairs(setting, run)
    solver = Adam(batch_size=_BATCH // 2, n_candidates=0)  # pairs, whose rows are each other's neighbours
    nca = NeuralNCA(2, network=100, objective="pairs", max_iter=_EPOCHS, random_state=run, solver=solver)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # 40 epochs are enough to see it
        nca.fit(train.data, pairs=train.pairs, pair_weight=train.weights)
    points = nca.transform(test.data)
    return {
        "points": points[:_SHOWN].round(3).tolist(),
        "angles": test.angles[:_SHOWN].round(1).tolist(),
        "heights": test.heights[:_SHOWN].round(1).tolist(),
    }


def _pairs(setting: Setting, run: int) -> list[Bunch]:
    if not setting.full:
        shape: dict[str, Any] = {"size": 14, "heights": (9.0, 14.0), "height_noise": 0.6}
        drawn = [make_faces(n, size=28, random_state=seed) for n, seed in zip(_DRAWN, (run, 100 + run), strict=True)]
        return [make_face_pairs(f, n, random_state=run, **shape) for f, n in zip(drawn, _FACES[False], strict=True)]
    olivetti = setting.load("olivetti_faces")
    faces, people = olivetti.data.reshape(-1, 64, 64) * _oval(64), olivetti.target
    parts = [people < _LEARNED, people >= _LEARNED]
    return [
        make_face_pairs(faces[part], n, groups=people[part], random_state=run)
        for part, n in zip(parts, _FACES[True], strict=True)
    ]


def _oval(size: int) -> np.ndarray:
    """Return the face without its surroundings: the paper's faces are isolated, too."""
    axis = (np.arange(size) + 0.5) / size * 2 - 1
    return axis[:, None] ** 2 + (axis[None] / 0.75) ** 2 < 1


def polar_correlations(points: np.ndarray, angles: np.ndarray, heights: np.ndarray) -> tuple[float, float]:
    """Return the correlations of direction and angle, and of the logarithms of distance and height, seen from the best centre."""

    def correlations(centre: np.ndarray) -> tuple[float, float]:
        away = (points - centre) @ [1, 1j]
        direction = np.angle(away / np.mean(away / np.abs(away)))  # from the mean direction
        distance = np.corrcoef(np.log(np.abs(away)), np.log(heights))[0, 1]
        return abs(np.corrcoef(direction, angles)[0, 1]), abs(distance)

    grid = [points.mean(0) + points.std(0) * np.array([a, b]) / 2 for a in range(-8, 9) for b in range(-8, 9)]
    first = max(grid, key=lambda centre: sum(correlations(centre)))
    return correlations(minimize(lambda centre: -sum(correlations(centre)), first, method="Nelder-Mead").x)


def linear_correlations(points: np.ndarray, angles: np.ndarray, heights: np.ndarray) -> tuple[float, float]:
    """Return the multiple correlations of the angle and of the logarithm of the height with the two outputs."""
    design = np.column_stack([points, np.ones(len(points))])
    found = []
    for target in (angles, np.log(heights)):
        fitted = design @ np.linalg.lstsq(design, target, rcond=None)[0]
        found.append(float(np.corrcoef(fitted, target)[0, 1]))
    return found[0], found[1]


_PAPER_FACES = 5000
_GAIN = 0.05  # by which the distance must give the size better than a straight line does


def summarise(setting: Setting, records: Records) -> Summary:
    shown = [tuple(np.array(r[key]) for key in ("points", "angles", "heights")) for r in records]
    polar, linear = (
        np.array([measure(*own) for own in shown]) for measure in (polar_correlations, linear_correlations)
    )
    claims = [
        Claim(
            "the direction of the output gives the angle of the face (correlation above 0.95 in every network)",
            polar[:, 0].min() > 0.95,
            ", ".join(f"{value:.3f}" for value in polar[:, 0]),
        ),
        Claim(
            "its distance from a centre gives the size of the face (correlation of the logarithms above 0.6 in every network)",
            polar[:, 1].min() > 0.6,
            ", ".join(f"{value:.3f}" for value in polar[:, 1]),
        ),
        Claim(
            f"the network discovers polar coordinates (the size is given better by the distance than by a straight line, by {_GAIN}, in most networks)",
            bool(np.mean(polar[:, 1] > linear[:, 1] + _GAIN) > 0.5),
            ", ".join(f"{a:.3f} against {b:.3f}" for a, b in zip(polar[:, 1], linear[:, 1], strict=True)),
        ),
    ]
    rows = [
        [number, *(f"{value:.3f}" for value in (*a, *b))]
        for number, (a, b) in enumerate(zip(polar, linear, strict=True), 1)
    ]
    remarks = [
        f"The paper shows a picture without numbers, and says that the network found polar coordinates. It has {_PAPER_FACES:,} faces; here there are "
        + (
            f"those of {_LEARNED} people to learn from, {_FACES[True][0]:,} pairs, {_EPOCHS} epochs. The picture has all networks, with both polar correlations above each."
            if setting.full
            else f"{_DRAWN[0]} drawn ones."
        ),
        "Of the four example faces those of a line are a pair, turned and scaled alike; those of a column are not.",
    ]
    columns = [
        "network",
        "direction and angle",
        "distance and size",
        "straight line and angle",
        "straight line and size",
    ]
    return Summary([Table(columns, rows, f"Correlations on {_SHOWN} faces for each network:")], claims, remarks)


def draw(setting: Setting, records: Records) -> "dict[str, Figure]":
    """Return a column per network; and four faces, as in the paper: those of a line agree, those of a column do not."""
    figure, axes = panels(2, len(records), size=(3.9, 3.9))
    for column, record in enumerate(records):
        points, angles, heights = (np.array(record[key]) for key in ("points", "angles", "heights"))
        # Segments as the face stands: upright is vertical, positive angles turn counter-clockwise.
        turned = np.deg2rad(angles)
        across = 0.02 * np.ptp(points, axis=0).max() * np.column_stack([-np.sin(turned), np.cos(turned)])
        axes[0, column].plot(
            *np.stack([points - across, points + across]).transpose(2, 0, 1), color="#0072B2", linewidth=1.5
        )
        polar = polar_correlations(points, angles, heights)
        axes[0, column].set(title=f"network {column + 1}: {polar[0]:.2f}, {polar[1]:.2f}")
        size = (heights - heights.min()) / np.ptp(heights)
        axes[1, column].scatter(*points.T, s=4 + 120 * size**2, facecolors="none", edgecolors="#D55E00")
    for ax in axes.ravel():
        ax.set(aspect="equal", xticks=[], yticks=[])  # angles are seen as they are
        ax.set_adjustable("datalim")
    axes[0, 0].set_ylabel("orientation of the face")
    axes[1, 0].set_ylabel("size of the face")
    return {"figure-3": figure, "figure-3-faces": _four_faces(setting)}


def _four_faces(setting: Setting) -> "Figure":
    test = _pairs(setting, 0)[1]
    turns = np.abs(test.angles[test.pairs[:, 0]] - test.angles[test.pairs[:1, 0]])
    figure, axes = panels(2, 2, size=(1.7, 1.7))
    side = round(test.data.shape[1] ** 0.5)
    for line, pair in zip(axes, test.pairs[[0, int(turns.argmax())]], strict=True):
        for ax, row in zip(line, pair, strict=True):
            ax.imshow(test.data[row].reshape(side, side), cmap="gray", interpolation="nearest")
            ax.set(xticks=[], yticks=[])
    return figure
