"""Equation 12: the variance of the estimate, by simulation.

N points in chunklets of k, drawn from one Gaussian, estimate its covariance. The bound says that an entry's variance
is at most 1 + 1/(k-1) times that of the best estimate, from all N points known to be of one class. For Gaussian data
the ratio is exactly (nk-1) / (n(k-1)) with n = N/k chunklets, for every entry: both estimates are Wishart matrices, of
n(k-1) and of nk-1 degrees of freedom.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from papers.drawing import curve, panels
from papers.experiment import Claim, Records, Setting, Summary, Table
from vicinal import RCA

if TYPE_CHECKING:
    from matplotlib.figure import Figure


TITLE = "Equation 12: small chunklets cost little"
COVERS = ("equation 12",)
ORDER = 13
MINUTES = (0.2, 0.5)

_N, _D = 120, 8
_SIZES = (2, 3, 4, 5, 6, 8, 10)
_BATCH = 250


def units(setting: Setting) -> list[dict[str, Any]]:
    return [{"size": size, "batch": b} for size in (_N, *_SIZES) for b in range(12 if setting.full else 2)]


def measure(setting: Setting, size: int, batch: int) -> dict[str, Any]:
    """Return sums of the entries and of their squares over a batch of simulations."""
    rng = np.random.RandomState(1000 * size + batch)
    spread = np.arange(1, _D + 1)  # any covariance will do; with this one the entries are uncorrelated
    chunklets = np.arange(_N) // size
    entries = np.array(
        [
            RCA(shrinkage=0, unbiased=True).fit(spread * rng.standard_normal((_N, _D)), chunklets).covariance_
            for _ in range(_BATCH)
        ]
    )
    above = np.triu_indices(_D)
    entries = entries[:, above[0], above[1]]
    return {"sum": entries.sum(axis=0).tolist(), "squares": (entries**2).sum(axis=0).tolist()}


def summarise(setting: Setting, records: Records) -> Summary:
    found = _ratios(records)
    rows = [
        [
            k,
            f"{1 + 1 / (k - 1):.3f}",
            f"{_exact(k):.3f}",
            f"{values.mean():.3f}",
            f"{values.min():.3f} to {values.max():.3f}",
        ]
        for k, values in found.items()
    ]
    off = {k: abs(values.mean() / _exact(k) - 1) for k, values in found.items()}
    margin = 0.02 if setting.full else 0.05  # of fewer simulations
    claims = [
        Claim(
            f"the variance is at most 1 + 1/(k-1) times the best (mean over the entries, {margin:.0%} for the simulation)",
            all(values.mean() < (1 + margin) * (1 + 1 / (k - 1)) for k, values in found.items()),
            ", ".join(f"{found[k].mean():.3f} for chunklets of {k}" for k in (_SIZES[0], _SIZES[-1])),
        ),
        Claim(
            f"for Gaussian data it is (nk-1) / (n(k-1)) times the best (our exact value; within {margin:.0%} for the simulation)",
            max(off.values()) < margin,
            f"largest relative difference {max(off.values()):.1%}",
        ),
    ]
    runs = sum(r["size"] == _N for r in records) * _BATCH
    remarks = [
        f"{runs} simulations of {_N} points in {_D} dimensions. Appendix B has "
        "the variance of the entries off the diagonal over nk instead of the degrees of freedom, which the simulation does not confirm; "
        "the bound nevertheless holds for them."
    ]
    columns = ["chunklet size k", "paper: bound", "exact", "here: mean over entries", "here: entries"]
    return Summary([Table(columns, rows)], claims, remarks)


def _exact(k: int) -> float:
    return (_N - 1) / (_N / k * (k - 1))


def _ratios(records: Records) -> dict[int, np.ndarray]:
    variances = {}
    for size in (_N, *_SIZES):
        own = [record for record in records if record["size"] == size]
        n = len(own) * _BATCH
        total, squares = (np.sum([record[key] for record in own], axis=0) for key in ("sum", "squares"))
        variances[size] = (squares - total**2 / n) / (n - 1)
    return {k: variances[k] / variances[_N] for k in _SIZES}


def draw(setting: Setting, records: Records) -> "dict[str, Figure]":
    figure, axes = panels(1, 1, size=(6.4, 4.6))
    ax, found = axes[0, 0], _ratios(records)
    curve(ax, 0, _SIZES, [1 + 1 / (k - 1) for k in _SIZES], label="bound of the paper")
    curve(ax, 1, _SIZES, [_exact(k) for k in _SIZES], label="exact")
    mean = np.array([values.mean() for values in found.values()])
    ends = np.array([[values.min(), values.max()] for values in found.values()])
    curve(ax, 2, _SIZES, mean, np.abs(ends - mean[:, None]).T, label="simulated: mean, all entries")
    ax.set(xlabel="points in a chunklet", ylabel="variance over the best possible")
    ax.legend()
    return {"equation-12": figure}
