"""Figure 1: what RCA does, on three Gaussian classes.

The panels show three long classes side by side (a), which can hardly be distinguished without colours (b); a few small chunklets (c),
centred (d), whitened (e); and all points in the new space (f).
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from papers.drawing import dots, panels, plus_minus
from papers.experiment import Claim, Records, Setting, Summary, Table
from vicinal import RCA
from vicinal.companions import ConstrainedKMeans, simulate_chunklets
from vicinal.quality import clustering_accuracy
from vicinal.results import ChunkletRows

if TYPE_CHECKING:
    from matplotlib.figure import Figure


TITLE = "Figure 1: the steps of RCA on synthetic classes"
COVERS = ("figure 1",)
ORDER = 1
MINUTES = (0.2, 0.1)

_COVARIANCE = np.array([[9.0, 7.6], [7.6, 6.8]])
_CENTRES = np.array([[-2.0, 2.0], [0.0, 0.0], [2.0, -2.0]])


def units(setting: Setting) -> list[dict[str, Any]]:
    return [{"run": run} for run in range(20 if setting.full else 8)]


def _classes(run: int) -> tuple[np.ndarray, np.ndarray, ChunkletRows]:
    rng = np.random.RandomState(run)
    y = np.repeat(np.arange(3), 120)
    X = _CENTRES[y] + rng.multivariate_normal(np.zeros(2), _COVARIANCE, size=len(y))
    return X, y, simulate_chunklets(y, 4, fraction=0.15, random_state=run)


def measure(setting: Setting, run: int) -> dict[str, Any]:
    X, y, chunklets = _classes(run)
    rca = RCA(shrinkage=0, unbiased=True).fit(X, chunklets)
    found = {
        when: clustering_accuracy(y, ConstrainedKMeans(3, random_state=run).fit_predict(rows))
        for when, rows in {"before": X, "after": rca.transform(X)}.items()
    }
    within = np.mean([np.cov(rca.transform(X[y == k]).T) for k in range(3)], axis=0)
    return {"accuracy": found, "within": np.linalg.eigvalsh(within).round(4).tolist()}


def summarise(setting: Setting, records: Records) -> Summary:
    accuracy = {when: [record["accuracy"][when] for record in records] for when in ("before", "after")}
    ends = np.array([record["within"] for record in records])
    before, after = (float(np.mean(accuracy[when])) for when in ("before", "after"))
    claims = [
        Claim(
            "the classes become evident (accuracy of k-means without labels, by 0.2)",
            after > before + 0.2,
            f"{before:.2f} before, {after:.2f} after",
        ),
        Claim(
            "the covariance within the classes becomes nearly the identity (mean eigenvalues from 0.6 to 1.6)",
            ends[:, 0].mean() > 0.6 and ends[:, 1].mean() < 1.6,
            f"{ends[:, 0].mean():.2f} and {ends[:, 1].mean():.2f}; {np.linalg.cond(_COVARIANCE):.0f} apart before",
        ),
    ]
    rows = [[when, plus_minus(accuracy[when], 3)] for when in accuracy]
    return Summary(
        [Table(["", "accuracy of k-means"], rows)], claims, ["The paper gives no numbers; the layout is ours."]
    )


def draw(setting: Setting, records: Records) -> "dict[str, Figure]":
    X, y, chunklets = _classes(0)
    rca = RCA(shrinkage=0).fit(X, chunklets)
    rows, ids = chunklets.rows, chunklets.ids
    centred = np.concatenate([X[rows[ids == k]] - X[rows[ids == k]].mean(axis=0) for k in np.unique(ids)])
    order = np.concatenate([np.flatnonzero(ids == k) for k in np.unique(ids)])
    figure, axes = panels(2, 3, size=(4.6, 4.2))
    steps = {
        "(a) classes": (X, y),
        "(b) without labels": (X, None),
        "(c) chunklets": (X[rows], ids),
        "(d) centred chunklets": (centred, ids[order]),
        "(e) whitened": (centred @ rca.components_.T, ids[order]),
        "(f) all points after RCA": (rca.transform(X), y),
    }
    for ax, (title, (points, groups)) in zip(axes.ravel(), steps.items(), strict=True):
        dots(ax, points, groups, size=14 if len(points) > 100 else 40)
        new = title[1] in "ef"
        ax.set(title=title, xlabel="component 1" if new else "x", ylabel="component 2" if new else "y", aspect="equal")
        ax.set_adjustable("datalim")
    return {"figure-1": figure}
