"""Figure 2: the faces.

Four of the 30 people of Extended Yale B whose pictures the experiments use, under five of 64 lights. The paper says that the
light makes pictures of one person differ more than pictures of different people do. Mean squared differences of pixels, of
pictures of zero mean and unit variance: of one person under two lights, and of two people under one light.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from papers.drawing import panels
from papers.experiment import Claim, Records, Setting, Summary, Table
from papers.rca._faces import STAND_IN, faces, normalised

if TYPE_CHECKING:
    from matplotlib.figure import Figure


TITLE = "Figure 2: faces under different lights"
COVERS = ("figure 2", "section 8.1.1")
NEEDS = ("yale_b",)
ORDER = 3.5
MINUTES = (0.1, 0.1)


def units(setting: Setting) -> list[dict[str, Any]]:
    return [{}]


def measure(setting: Setting) -> dict[str, Any]:
    pictures, people, lights = faces(setting)
    rows = normalised(pictures)
    names, counts = np.unique(people, return_counts=True)
    places = np.unique(lights, axis=0, return_inverse=True)[1].ravel()
    return {
        "pictures": len(rows),
        "people": len(names),
        "lights": sorted({int(count) for count in counts}),
        "two lights": _mean_difference(rows, people),
        "two people": _mean_difference(rows, places),
    }


def _mean_difference(rows: np.ndarray, groups: np.ndarray) -> float:
    """Return the mean squared difference per pixel of two different pictures of one group."""
    means, weights = [], []
    for name in np.unique(groups):
        own = rows[groups == name]
        n = len(own)
        if n > 1:
            means.append(2 * own.var(axis=0).mean() * n / (n - 1))
            weights.append(n)
    return float(np.average(means, weights=weights))


def summarise(setting: Setting, records: Records) -> Summary:
    (found,) = records
    same, other = found["two lights"], found["two people"]
    rows = [["one person, two lights", f"{same:.3f}"], ["two people, one light", f"{other:.3f}"]]
    claims = [
        Claim(
            "1,920 pictures: 64 of each of 30 people",
            (found["pictures"], found["people"], found["lights"]) == (1920, 30, [64]),
            f"{found['pictures']} pictures of {found['people']} people, {found['lights'][0]} of each",
        ),
        Claim(
            "pictures of one person differ more, by the light, than pictures of different people do under one light",
            same > other,
            f"{same:.3f} against {other:.3f}",
        ),
    ]
    remarks = [] if setting.full else [STAND_IN]
    return Summary([Table(["", "mean squared difference per pixel"], rows)], claims, remarks)


def draw(setting: Setting, records: Records) -> "dict[str, Figure]":
    pictures, people, _ = faces(setting)
    side = round(pictures.shape[1] ** 0.5)
    figure, axes = panels(4, 5, size=(1.3, 1.4))
    for line, person in zip(axes, np.unique(people)[[0, 7, 14, 21]], strict=True):
        own = np.flatnonzero(people == person)
        for ax, row in zip(line, own[[2, 8, 24, 36, 48]], strict=True):
            ax.imshow(pictures[row].reshape(side, side), cmap="gray", interpolation="nearest")
            ax.set(xticks=[], yticks=[])
            for spine in ax.spines.values():
                spine.set_visible(False)
    return {"figure-2": figure}
