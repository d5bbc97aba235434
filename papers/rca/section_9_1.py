"""Section 9.1: run time against the method of Xing et al.

The faces and teachers of Figure 4 with {PERCENT}% of the points, in their first 10, 30 and 60 PCA coefficients: seconds of
`RCA`, of Xing's algorithm as published (at most {ROUNDS} rounds of projections per step), and of `MMC`, which solves Xing's
problem to a proven gap. The methods are interleaved within a unit, on one core; the faster of two runs is used.
"""

import time
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from papers.drawing import curve, mean_and_error, panels
from papers.experiment import Claim, Records, Setting, Summary, Table
from papers.rca._faces import STAND_IN, coefficients, pairs_within, taught_both_ways
from papers.rca._xing import xing_metric
from vicinal import RCA
from vicinal.companions import MMC

if TYPE_CHECKING:
    from matplotlib.figure import Figure


TITLE = "Section 9.1: run time"
COVERS = ("section 9.1",)
NEEDS = ("yale_b",)
ORDER = 12
MINUTES = (0.1, 1.5)

PERCENT, ROUNDS = 30, 1000
_DIMENSIONS = (10, 30, 60)
_METHODS = {"rca": "RCA", "published": "Xing et al., as published", "mmc": "MMC"}


def units(setting: Setting) -> list[dict[str, Any]]:
    return [{"dimensions": d, "run": run} for d in _DIMENSIONS for run in range(8 if setting.full else 2)]


def measure(setting: Setting, dimensions: int, run: int) -> dict[str, Any]:
    X, people = coefficients(setting)
    X = np.ascontiguousarray(X[:, :dimensions])
    together, apart = taught_both_ways(people, PERCENT, run)

    def published() -> None:
        left, right = pairs_within(together)
        xing_metric(X[left] - X[right], X[apart[:, 0]] - X[apart[:, 1]], ROUNDS)

    fits = {
        "rca": lambda: RCA(shrinkage=0).fit(X, together),
        "published": published,
        "mmc": lambda: MMC(max_iter=100, gap_tol=0.01).fit(X, together, apart),
    }
    seconds: dict[str, list[float]] = {name: [] for name in fits}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for _ in range(2):
            for name, fit in fits.items():
                start = time.perf_counter()
                fit()
                seconds[name].append(time.perf_counter() - start)
    return {"seconds": {name: min(values) for name, values in seconds.items()}, "pairs_apart": len(apart)}


def summarise(setting: Setting, records: Records) -> Summary:
    times = {d: {m: [r["seconds"][m] for r in records if r["dimensions"] == d] for m in _METHODS} for d in _DIMENSIONS}
    ratios = {
        m: {d: float(np.median(np.divide(times[d][m], times[d]["rca"]))) for d in _DIMENSIONS}
        for m in ("published", "mmc")
    }
    rows = [
        [d, *[f"{1000 * np.median(times[d][m]):.1f}" for m in _METHODS], *[f"{ratios[m][d]:.0f}" for m in ratios]]
        for d in _DIMENSIONS
    ]
    claims = [
        Claim(
            "RCA is much faster than Xing's algorithm as published (median of the ratios at every number of dimensions: ten times "
            "or more)",
            min(ratios["published"].values()) >= 10,
            ", ".join(f"{ratio:.0f} times in {d} dimensions" for d, ratio in ratios["published"].items()),
        )
    ]
    columns = ["dimensions", *[f"{words}: ms" for words in _METHODS.values()]]
    columns += [f"{_METHODS[m]} over RCA" for m in ratios]
    pairs = np.mean([r["pairs_apart"] for r in records])
    remarks = [
        f"The paper has no figures. {pairs:.0f} pairs apart on average; milliseconds are medians over realisations."
    ]
    remarks += [] if setting.full else [STAND_IN]
    return Summary([Table(columns, rows)], claims, remarks)


def draw(setting: Setting, records: Records) -> "dict[str, Figure]":
    figure, axes = panels(1, 1, size=(6.4, 4.6))
    for number, (name, words) in enumerate(_METHODS.items()):
        values = [[r["seconds"][name] for r in records if r["dimensions"] == d] for d in _DIMENSIONS]
        mean, error = np.transpose([mean_and_error(v) for v in values])
        curve(axes[0, 0], number, _DIMENSIONS, mean, error, label=words)
    axes[0, 0].set(yscale="log", xlabel="dimensions", ylabel="seconds")
    axes[0, 0].legend()
    return {"section-9-1": figure}
