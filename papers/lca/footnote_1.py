"""Footnote 1: outliers.

The leave-one-out likelihood is known to be sensitive to outliers; the paper says that it had enough rows not to suffer from them. This
experiment asks two questions. What is the effect of the most outlying rows of real data? (The digits are those of Fig. 4; the hundredth of
the training rows that is least likely when left out is dropped, and LCA is fitted again.) And how much do 5 distant rows cost, as the number
of other rows grows? (The data are five Gaussians in the plane; the added rows are Gaussian with ten times their spread; clean rows are used
for testing.)
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from papers.drawing import curve, mean_and_error, panels, plus_minus
from papers.experiment import Claim, Records, Setting, Summary, Table
from papers.lca._digits import STAND_IN, split_digits
from papers.lca._problems import noisy
from vicinal import LCA

if TYPE_CHECKING:
    from matplotlib.figure import Figure


TITLE = "Footnote 1: outliers"
COVERS = ("footnote 1",)
ORDER = 1.5
NEEDS = ("usps",)
MINUTES = (0.1, 6)

_PLANTED, _FAR = 5, 10.0
_DIGITS, _PLANE = "digits", "five Gaussians"


def _sizes(setting: Setting) -> tuple[tuple[int, ...], int, int]:
    """Return rows of the plane, runs of it (fewer with the most rows), runs of the digits."""
    return ((100, 300, 1000, 3000, 10_000), 20, 5) if setting.full else ((100, 300, 1000), 3, 1)


def units(setting: Setting) -> list[dict[str, Any]]:
    sizes, runs, digits = _sizes(setting)
    plane = [{"data": _PLANE, "rows": n, "run": run} for n in sizes for run in range(runs)]
    return [*plane, *({"data": _DIGITS, "rows": 2000 if setting.full else 600, "run": run} for run in range(digits))]


def measure(setting: Setting, data: str, rows: int, run: int) -> dict[str, Any]:
    if data == _DIGITS:
        train, test = split_digits(setting, run, rows, 3000 if setting.full else 800)
        options = {"reg": 5e-6 if setting.full else 2.5e-4, "tol": 1e-3}
        lca = LCA(**options, engine=setting.engine).fit(train)  # type: ignore[arg-type]
        kept = np.argsort(lca.score_samples(None))[len(train) // 100 :]
        without = LCA(**options, engine=setting.engine).fit(train[kept])  # type: ignore[arg-type]
        return {"with": -lca.score(test), "without": -without.score(test)}
    X, _ = noisy(_PLANE, rows + 2000, 0, run)
    train, test = np.split(X, [rows])
    planted = _FAR * np.random.RandomState(run).standard_normal((_PLANTED, 2))
    clean, both = (LCA(reg=0.0, tol=1e-6).fit(part) for part in (train, np.concatenate([train, planted])))
    wider = np.linalg.slogdet(both.covariance_)[1] - np.linalg.slogdet(clean.covariance_)[1]
    return {"with": -both.score(test), "without": -clean.score(test), "wider": float(np.exp(wider / 4))}


def summarise(setting: Setting, records: Records) -> Summary:
    sizes, _, _ = _sizes(setting)
    plane = [r for r in records if r["data"] == _PLANE]
    cost = {n: np.array([r["with"] - r["without"] for r in plane if r["rows"] == n]) for n in sizes}
    wider = {n: np.array([r["wider"] for r in plane if r["rows"] == n]) for n in sizes}
    digits = np.array([r["with"] - r["without"] for r in records if r["data"] == _DIGITS])
    caption = f"Five Gaussians with {_PLANTED} planted outliers: the cost on clean test rows and how much wider the kernel gets (as a standard deviation), mean and standard error over the runs:"
    rows = [[n, len(cost[n]), plus_minus(cost[n], 4), plus_minus(wider[n], 2)] for n in sizes]
    last, first = (float(cost[n].mean()) for n in (sizes[-1], sizes[0]))
    claims = [
        Claim(
            "on real data LCA does not suffer from the presence of outliers (dropping the hundredth of the rows that is least likely gains less than 1 nat per digit)",
            float(digits.mean()) < 1,
            f"{digits.mean():+.2f} nats on the test rows, mean of {len(digits)} runs" + ("" if setting.full else f". {STAND_IN}"),
        ),
        Claim(
            "the number of rows makes up for planted outliers: their cost falls as rows are added, at least tenfold from the fewest rows to the most",
            last < 0.1 * first,
            f"{first:.2f} nats with {sizes[0]} rows, {last:.4f} with {sizes[-1]}, {first / last:.1f}-fold",
        ),
    ]  # fmt: skip
    remarks = [
        "A row far from all others favours a wide kernel however many rows there are: with "
        f"{sizes[-1]} rows and {_PLANTED} planted ones it is {wider[sizes[-1]].mean():.2f} times as wide."
    ]
    return Summary(
        [Table(["rows", "runs", "cost (nats per row)", "kernel wider by a factor"], rows, caption)], claims, remarks
    )


def draw(setting: Setting, records: Records) -> "dict[str, Figure]":
    sizes, _, _ = _sizes(setting)
    plane = [r for r in records if r["data"] == _PLANE]
    figure, axes = panels(1, 2, size=(5.2, 4.4))
    for ax, value in zip(axes[0], (lambda r: r["with"] - r["without"], lambda r: r["wider"]), strict=True):
        means, errors = zip(*(mean_and_error([value(r) for r in plane if r["rows"] == n]) for n in sizes), strict=True)
        curve(ax, 0, sizes, means, errors)
        ax.set(xscale="log", xlabel="rows that are no outliers")
    axes[0, 0].set_ylabel(f"cost of {_PLANTED} outliers (nats per row)")
    axes[0, 1].set_ylabel("kernel wider by a factor")
    axes[0, 0].axhline(0, color="0.6", linewidth=0.8)
    axes[0, 1].axhline(1, color="0.6", linewidth=0.8)
    return {"footnote-1": figure}
