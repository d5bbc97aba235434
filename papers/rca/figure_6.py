"""Figure 6: what dimensionality reduction and whitening contribute.

The faces and teachers of Figure 4, with {_PERCENTS[2]}% of the points. RCA has two steps: cFLD chooses 30 of 60 dimensions, and
whitening scales them. Left: neither, each alone, and both. Right: the purity of a person's whole set of neighbours
against the share of the points that the teachers see, with and without cFLD.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from papers.drawing import curve, mean_and_error, panels, plus_minus
from papers.experiment import Claim, Records, Setting, Summary, Table
from papers.rca._faces import PLACES, STAND_IN, coefficients, discriminants, draw_purity, purity, taught
from vicinal import RCA

if TYPE_CHECKING:
    from matplotlib.figure import Figure


TITLE = "Figure 6: dimensionality reduction and whitening, apart and together"
COVERS = ("figure 6",)
NEEDS = ("yale_b",)
ORDER = 6
MINUTES = (0.2, 1.3)

_PERCENTS = (10, 20, 30, 45, 60, 75, 90)
_METHODS = ("original space", "RCA without cFLD", "cFLD only", "RCA with cFLD")


def units(setting: Setting) -> list[dict[str, Any]]:
    runs = {30: 50} if setting.full else {}
    return [{"percent": p, "run": run} for p in _PERCENTS for run in range(runs.get(p, 15 if setting.full else 3))]


def measure(setting: Setting, percent: int, run: int) -> dict[str, Any]:
    X, people = coefficients(setting)
    chunklets = taught(people, percent, run)
    whole, reduced = RCA(shrinkage=0).fit(X, chunklets), RCA(30, shrinkage=0).fit(X, chunklets)
    found = {"RCA without cFLD": whole.transform(X), "RCA with cFLD": reduced.transform(X)}
    if percent == 30:
        found["cFLD only"] = X @ discriminants(reduced).T
        found["original space"] = X if run == 0 else None
    return {name: purity(rows, people) for name, rows in found.items() if rows is not None}


def summarise(setting: Setting, records: Records) -> Summary:
    curves = _curves(records)
    last = {name: [values[-1] for values in curves[name]] for name in _METHODS}
    mean = {name: float(np.mean(last[name])) for name in _METHODS}
    k = PLACES[-1]
    rows = [[name, plus_minus(last[name], 3)] for name in _METHODS]
    learning = _learning(records)
    table = [[f"{p}%", *[plus_minus(learning[name][p], 3) for name in learning]] for p in _PERCENTS]
    gains = {p: np.mean(learning["RCA with cFLD"][p]) - np.mean(learning["RCA without cFLD"][p]) for p in _PERCENTS}
    alone = mean["RCA without cFLD"], mean["cFLD only"]
    claims = [
        Claim(
            f"cFLD alone and whitening alone both give a considerable improvement (purity of {k}, by 0.05)",
            min(alone) > mean["original space"] + 0.05,
            f"{mean['original space']:.3f} before; {alone[1]:.3f} (cFLD), {alone[0]:.3f} (whitening)",
        ),
        Claim(
            f"both together gain more than either alone (purity of {k}, by 0.01)",
            mean["RCA with cFLD"] > max(alone) + 0.01,
            f"{mean['RCA with cFLD']:.3f} against {max(alone):.3f}",
        ),
        Claim(
            "cFLD helps more if there are more constraints (gain at 90% over gain at 10%, by 0.02)",
            gains[90] > gains[10] + 0.02,
            ", ".join(f"{gain:+.3f} at {p}%" for p, gain in gains.items()),
        ),
    ]
    remarks = [
        "The paper shows curves without numbers; its claims are compared. “cFLD only” has directions of unit total variance; "
        "Figure 4 shows what depends on that."
    ]
    remarks += [] if setting.full else [STAND_IN]
    columns = ["seen by teachers", *learning]
    tables = [
        Table([f"metric, {_PERCENTS[2]}% seen by teachers", f"purity of the first {k}"], rows),
        Table(columns, table, f"Learning curves: purity of the first {k}"),
    ]
    return Summary(tables, claims, remarks)


def _curves(records: Records) -> dict[str, list[Any]]:
    own = [record for record in records if record["percent"] == 30]
    return {name: [record[name] for record in own if name in record] for name in _METHODS}


def _learning(records: Records) -> dict[str, dict[int, Any]]:
    return {
        name: {p: [record[name][-1] for record in records if record["percent"] == p] for p in _PERCENTS}
        for name in ("RCA without cFLD", "RCA with cFLD")
    }


def draw(setting: Setting, records: Records) -> "dict[str, Figure]":
    figure, axes = panels(1, 2, size=(6.0, 4.8))
    draw_purity(axes[0, 0], _curves(records), "30% of the points seen")
    for number, (name, values) in enumerate(_learning(records).items()):
        mean, error = np.transpose([mean_and_error(values[p]) for p in _PERCENTS])
        curve(axes[0, 1], (1, 3)[number], _PERCENTS, mean, error, label=name)
    axes[0, 1].set(
        xlabel="points seen by teachers, in %", ylabel=f"purity of the first {PLACES[-1]}", title="learning curves"
    )
    for ax in axes[0]:
        ax.legend()
    return {"figure-6": figure}
