"""Figure 5: RCAfaces.

The faces of Figure 4: {_SEEN}% of the points seen by teachers, RCA with 10 (as in the picture) or 30 of 60 dimensions, then
back to pixels by `inverse_transform` and the inverse of the PCA. The table shows how much one person's pictures differ: the mean squared distance to the person's mean picture over that of all pictures to the mean.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from papers.drawing import panels
from papers.experiment import Claim, Records, Setting, Summary, Table
from papers.rca._faces import STAND_IN, coefficients, eigenfaces, faces, normalised, taught
from vicinal import RCA

if TYPE_CHECKING:
    from matplotlib.figure import Figure


TITLE = "Figure 5: RCAfaces"
COVERS = ("figure 5",)
NEEDS = ("yale_b",)
ORDER = 5
MINUTES = (0.2, 0.1)

_KEPT = (10, 30)
_SEEN = 75  # percent


def units(setting: Setting) -> list[dict[str, Any]]:
    return [{"kept": kept} for kept in _KEPT]


def measure(setting: Setting, kept: int) -> dict[str, Any]:
    _, people = coefficients(setting)
    shares = {name: _share_within(rows, people) for name, rows in _pictures(setting, kept).items()}
    return {"within": {name: round(share, 4) for name, share in shares.items()}}


def _pictures(setting: Setting, kept: int) -> dict[str, np.ndarray]:
    """Return pixels as they are, after PCA, and after PCA and RCA."""
    X, people = coefficients(setting)
    pca = eigenfaces(setting)
    rca = RCA(kept, shrinkage=0).fit(X, taught(people, _SEEN, 0))
    return {
        "pictures": normalised(faces(setting)[0]),
        "Eigenfaces": pca.inverse_transform(X),
        "RCAfaces": pca.inverse_transform(rca.inverse_transform(rca.transform(X))),
    }


def _share_within(rows: np.ndarray, people: np.ndarray) -> float:
    means = np.array([rows[people == person].mean(axis=0) for person in np.unique(people)])
    own = means[np.unique(people, return_inverse=True)[1]]
    return float(((rows - own) ** 2).sum() / ((rows - rows.mean(axis=0)) ** 2).sum())


def summarise(setting: Setting, records: Records) -> Summary:
    names = list(records[0]["within"])
    rows = [[name, *[f"{record['within'][name]:.3f}" for record in records]] for name in names]
    shares = {record["kept"]: record["within"]["RCAfaces"] for record in records}
    plain = records[0]["within"]["Eigenfaces"]
    claims = [
        Claim(
            "RCA dramatically reduces the effect of the light (the share within people falls by a third or more, with 10 dimensions)",
            shares[_KEPT[0]] < 2 / 3 * plain,
            f"{records[0]['within']['pictures']:.3f} in the pictures; in RCAfaces "
            + ", ".join(f"{share:.3f} ({kept} dimensions)" for kept, share in shares.items()),
        ),
        Claim(
            "Eigenfaces do not (the share falls by less than 0.02)",
            records[0]["within"]["pictures"] - plain < 0.02,
            f"{plain:.3f} in Eigenfaces",
        ),
    ]
    columns = ["share of the variance within people", *[f"{record['kept']} dimensions" for record in records]]
    remarks = ["The paper does not tell how many dimensions its RCAfaces keep: fewer leave less of the light."]
    remarks += [] if setting.full else [STAND_IN]
    return Summary([Table(columns, rows)], claims, remarks)


def draw(setting: Setting, records: Records) -> "dict[str, Figure]":
    pictures, people, _ = faces(setting)
    side = (32, 32) if setting.full else (20, 20)
    shown = []
    for person in np.unique(people)[:2]:
        own = np.flatnonzero(people == person)
        shown += own[[2, 8, 24, 36, 48]].tolist()
    found: dict[str, Any] = {"pictures": pictures, "Eigenfaces": None, "RCAfaces": None}
    found = {**found, **{k: v for k, v in _pictures(setting, _KEPT[0]).items() if k != "pictures"}}
    figure, axes = panels(3, 10, size=(1.0, 1.15))
    for line, (name, rows) in zip(axes, found.items(), strict=True):
        for ax, row in zip(line, shown, strict=True):
            ax.imshow(rows[row].reshape(side), cmap="gray", interpolation="nearest")
            ax.set(xticks=[], yticks=[])
            for spine in ax.spines.values():
                spine.set_visible(False)
        line[0].set_ylabel(name, fontsize=12)
    axes[0, 0].set_title("one person", loc="left", fontsize=13)
    axes[0, 5].set_title("another", loc="left", fontsize=13)
    return {"figure-5": figure}
