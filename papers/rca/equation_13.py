"""Equation 13: what whitening does to the weights of the dimensions.

First, ten classes with within-class variances of nine to a tenth along the axes: the weight of an axis is its share in the mean
squared distance of two points of one class, and Eq. 13 says by which factor RCA changes it. RCA learns from 300 pairs, the
weights are taken from new rows. Second, what the paper concludes: noise that is large in a few dimensions is scaled down, and
noise that is scattered over many dimensions with a low amplitude is amplified, so that dimensionality must be reduced
first. Ten classes in the plane, 100 rows each to learn from, all in chunklets of ten, and 100 new rows each, among which neighbours are
counted; noise in further columns, large (standard deviation {_LARGE}) in four or small ({_SMALL}) in up to 240.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from papers.drawing import bars, curve, mean_and_error, panels, plus_minus
from papers.experiment import Claim, Records, Setting, Summary, Table
from vicinal import RCA
from vicinal.companions import simulate_chunklets
from vicinal.quality import neighbor_purity

if TYPE_CHECKING:
    from matplotlib.figure import Figure


TITLE = "Equation 13: weights of the dimensions, and scattered noise"
COVERS = ("equation 13", "section 6")
ORDER = 2.7
MINUTES = (0.1, 1)

_VARIANCES = np.array([9.0, 4.0, 1.0, 0.5, 0.25, 0.1])
_LARGE, _SMALL = 4.0, 0.15
_NOISES = {"none": (0, 0.0), "4 large": (4, _LARGE), **{f"{m} small": (m, _SMALL) for m in (15, 60, 120, 240)}}
_METHODS = {"before": "before", "whitened": "RCA without cFLD", "reduced": "RCA with cFLD"}


def units(setting: Setting) -> list[dict[str, Any]]:
    runs = 20 if setting.full else 5
    return [{"part": "weights", "run": run} for run in range(runs)] + [
        {"part": noise, "run": run} for noise in _NOISES for run in range(runs)
    ]


def measure(setting: Setting, part: str, run: int) -> dict[str, Any]:
    rng = np.random.RandomState(run)
    if part == "weights":
        return _weights(rng)
    m, spread = _NOISES[part]
    y = np.repeat(np.arange(10), 100)
    centers = 4 * rng.standard_normal((10, 2))

    def rows() -> np.ndarray:
        plane = centers[y] + rng.standard_normal((1000, 2))
        return np.column_stack([plane, spread * rng.standard_normal((1000, m))])

    X, new = rows(), rows()
    chunklets = simulate_chunklets(y, 10, fraction=1.0, random_state=run)
    images = {
        "before": new,
        "whitened": RCA(shrinkage=0).fit(X, chunklets).transform(new),
        "reduced": RCA(2, shrinkage=0).fit(X, chunklets).transform(new),
    }
    return {name: round(float(neighbor_purity(Z, y, 10)[-1]), 5) for name, Z in images.items()}


def _weights(rng: np.random.RandomState) -> dict[str, list[float]]:
    """Return the shares of the axes in squared distances of new rows of one class, before and after RCA."""
    d = len(_VARIANCES)
    y = np.repeat(np.arange(10), 60)
    X = 5 * rng.standard_normal((10, d))[y] + rng.standard_normal((600, d)) * np.sqrt(_VARIANCES)
    rca = RCA(shrinkage=0).fit(X, np.arange(600) // 2)
    apart = (rng.standard_normal((4000, d)) - rng.standard_normal((4000, d))) * np.sqrt(_VARIANCES)
    values, axes = np.linalg.eigh(rca.get_mahalanobis_matrix())
    root = (axes * np.sqrt(values)) @ axes.T  # the paper's W, the symmetric root: the axes stay what they are
    before, after = (np.mean(h**2, axis=0) / np.mean(np.sum(h**2, axis=1)) for h in (apart, apart @ root))
    return {"before_weights": before.round(5).tolist(), "after_weights": after.round(5).tolist()}


def summarise(setting: Setting, records: Records) -> Summary:
    told = [r for r in records if r["part"] == "weights"]
    before, after = (np.array([r[f"{when}_weights"] for r in told]) for when in ("before", "after"))
    ratio, expected = (before / after).mean(axis=0), _VARIANCES / _VARIANCES.mean()
    rows = [
        [i, f"{variance:g}", f"{b:.3f}", f"{a:.3f}", f"{r:.3f}", f"{e:.3f}"]
        for i, (variance, b, a, r, e) in enumerate(
            zip(_VARIANCES, before.mean(axis=0), after.mean(axis=0), ratio, expected, strict=True), 1
        )
    ]
    found = {noise: {m: [r[m] for r in records if r["part"] == noise] for m in _METHODS} for noise in _NOISES}
    mean = {noise: {m: float(np.mean(values)) for m, values in by.items()} for noise, by in found.items()}
    purities = [[noise, *[plus_minus(found[noise][m], 3) for m in _METHODS]] for noise in _NOISES]
    most = list(_NOISES)[-1]
    off = float(np.max(np.abs(ratio / expected - 1)))
    claims = [
        Claim(
            "Eq. 13: the weight of a dimension before whitening over that after is its variance over the mean variance (within 10%)",
            off < 0.1,
            f"largest relative difference {off:.1%}",
        ),
        Claim(
            "large noise along a few dimensions is scaled down (purity of 10: RCA without cFLD above the plain distance by 0.1)",
            mean["4 large"]["whitened"] > mean["4 large"]["before"] + 0.1,
            f"{mean['4 large']['before']:.3f} before, {mean['4 large']['whitened']:.3f} after",
        ),
        Claim(
            "noise scattered over many dimensions is amplified (240 small: RCA without cFLD below the plain distance by 0.05)",
            mean[most]["whitened"] < mean[most]["before"] - 0.05,
            f"{mean[most]['before']:.3f} before, {mean[most]['whitened']:.3f} after",
        ),
        Claim(
            "so that reducing the dimension first is mandatory (240 small: RCA with cFLD above RCA without by 0.05)",
            mean[most]["reduced"] > mean[most]["whitened"] + 0.05,
            f"{mean[most]['reduced']:.3f} with, {mean[most]['whitened']:.3f} without",
        ),
    ]
    tables = [
        Table(["axis", "variance within", "weight before", "weight after", "ratio", "Eq. 13"], rows),
        Table(["noise columns", *_METHODS.values()], purities, "Purity of the first ten neighbours, new rows"),
    ]
    remarks = [
        f"Means over {len(told)} realisations. The paper states this without an experiment.",
        "The reduction is learned as well, and noise costs it something: with cFLD the purity goes from "
        f"{mean['none']['reduced']:.3f} without noise to {mean[most]['reduced']:.3f} with {most}, where the plain distance has {mean[most]['before']:.3f}.",
    ]
    return Summary(tables, claims, remarks)


def draw(setting: Setting, records: Records) -> "dict[str, Figure]":
    figure, axes = panels(1, 2, size=(6.4, 4.4))
    told = [r for r in records if r["part"] == "weights"]
    weights = [np.mean([r[f"{when}_weights"] for r in told], axis=0) for when in ("before", "after")]
    bars(axes[0, 0], [f"{variance:g}" for variance in _VARIANCES], ["before RCA", "after RCA"], weights)
    axes[0, 0].set(xlabel="variance within classes", ylabel="weight of the axis", title="Eq. 13")
    axes[0, 0].legend()
    small = {noise: m for noise, (m, spread) in _NOISES.items() if spread in (0.0, _SMALL)}
    for number, (name, words) in enumerate(_METHODS.items()):
        cells = [mean_and_error([r[name] for r in records if r["part"] == noise]) for noise in small]
        means, errors = np.transpose(cells)
        curve(axes[0, 1], number, list(small.values()), means, errors, label=words)
    axes[0, 1].set(xlabel="columns of small noise", ylabel="purity of the first ten, new rows", title="scattered noise")
    axes[0, 1].legend()
    return {"equation-13": figure}
