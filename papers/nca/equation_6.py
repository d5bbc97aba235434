"""Equation 6: the likelihood g in place of the expected accuracy f.

"We have experimented with optimizing this cost function as well, and found both the transformations learned and the
performance results on training and testing data to be very similar" (sec. 2). The sets and splits of Figure 1; both
objectives from the same automatic start, square and of rank two, {_ITERATIONS} iterations. Transformations are compared by
the correlation of the distances that they give to {_PAIRS} random pairs of test rows, which is one for metrics that are equal
up to scale.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from papers.drawing import mean_and_error, panels, plus_minus
from papers.experiment import Claim, Records, Setting, Summary, Table
from papers.nca._neighbours import fitted_nca, one_neighbour
from papers.nca._sets import QUICK_SETS, SETS, STAND_IN, rows_of, split

if TYPE_CHECKING:
    from matplotlib.figure import Figure


TITLE = "Equation 6: the two objectives"
COVERS = ("equation 6", "equation 7")
NEEDS = ("ionosphere", "boston_housing", "usps")
ORDER = 1.2
MINUTES = (0.3, 5)

_ITERATIONS, _PAIRS = 50, 2000
_KINDS = {"square": None, "plane": 2}
_WHERE = {"square": "square A", "plane": "two dimensions"}
_OBJECTIVES = {"f": "accuracy", "g": "likelihood"}


def units(setting: Setting) -> list[dict[str, Any]]:
    splits = {name: 3 if name == "digits" else 8 for name in SETS} if setting.full else dict.fromkeys(QUICK_SETS, 2)
    return [{"set": name, "run": run} for name, runs in splits.items() for run in range(runs)]


def measure(setting: Setting, set: str, run: int) -> dict[str, Any]:
    train, test = split(*rows_of(setting, set), set, run)
    left, right = np.random.RandomState(run).randint(len(test[0]), size=(2, _PAIRS))
    apart = test[0][left] - test[0][right]
    result: dict = {}
    for kind, kept in _KINDS.items():
        distances = []
        for name, objective in _OBJECTIVES.items():
            options: dict[str, Any] = {"n_components": kept, "objective": objective}
            A, converged = fitted_nca(*train, max_iter=_ITERATIONS, random_state=run, **options)
            accuracy = [round(one_neighbour(A, train), 4), round(one_neighbour(A, train, test), 4)]
            result[f"{kind} {name}"] = {"accuracy": accuracy, "converged": converged}
            distances.append(np.linalg.norm(apart @ A.T, axis=1))
        result[f"{kind} correlation"] = round(float(np.corrcoef(distances)[0, 1]), 4)
    return result


def summarise(setting: Setting, records: Records) -> Summary:
    sets = list(dict.fromkeys(record["set"] for record in records))
    tables, claims = [], []
    for kind, where in _WHERE.items():
        rows, correlations = [], {}
        gaps: dict[int, dict] = {0: {}, 1: {}}
        for name in sets:
            own = [record for record in records if record["set"] == name]
            values = {
                (o, part): [r[f"{kind} {o}"]["accuracy"][part] for r in own] for o in _OBJECTIVES for part in (0, 1)
            }
            correlations[name] = [r[f"{kind} correlation"] for r in own]
            for part in (0, 1):
                gaps[part][name] = mean_and_error(np.subtract(values["g", part], values["f", part]))
            cells = [plus_minus(values[o, part], 3) for part in (1, 0) for o in _OBJECTIVES]
            rows.append([name, *cells, plus_minus(correlations[name], 2)])
        columns = ["set", "f, test", "g, test", "f, training", "g, training", "correlation of distances"]
        tables.append(Table(columns, rows, where))
        for part, words in ((0, "training"), (1, "test")):
            claims.append(
                Claim(
                    f"f and g perform very similarly, {where}, {words} rows (mean accuracies within 0.02 on every set)",
                    max(abs(gap) for gap, _ in gaps[part].values()) <= 0.02,
                    "g less f: "
                    + ", ".join(f"{name} {gap:+.3f} ± {error:.3f}" for name, (gap, error) in gaps[part].items()),
                )
            )
        low = {name: float(np.mean(values)) for name, values in correlations.items()}
        claims.append(
            Claim(
                f"the transformations are very similar, {where} (mean correlation of distances of 0.9 or more on every set)",
                min(low.values()) >= 0.9,
                ", ".join(f"{name} {value:.2f}" for name, value in low.items()),
            )
        )
    remarks = [
        "Splits: " + ", ".join(f"{sum(r['set'] == name for r in records)} ({name})" for name in sets) + ".",
    ]
    remarks += [] if setting.full else [STAND_IN]
    return Summary(tables, claims, remarks)


def _far(gaps: dict[str, tuple[float, float]]) -> list[str]:
    return [name for name, (gap, _) in gaps.items() if abs(gap) > 0.02]


def draw(setting: Setting, records: Records) -> "dict[str, Figure]":
    from papers.drawing import COLOURS, MARKERS

    sets = list(dict.fromkeys(record["set"] for record in records))
    figure, axes = panels(1, 2, size=(5.2, 4.8), sharex=True, sharey=True)
    for ax, (kind, where) in zip(axes[0], _WHERE.items(), strict=True):
        ax.plot([0.4, 1], [0.4, 1], color="0.7", linewidth=1)
        for number, name in enumerate(sets):
            points = [[r[f"{kind} {o}"]["accuracy"][1] for o in _OBJECTIVES] for r in records if r["set"] == name]
            style = {"color": COLOURS[number % len(COLOURS)], "marker": MARKERS[number % len(MARKERS)]}
            ax.scatter(*np.transpose(points), s=36, label=name, **style)
        ax.set(title=f"{where}, test rows", xlabel="accuracy with f", aspect="equal")
    axes[0, 0].set_ylabel("accuracy with g")
    axes[0, 1].legend(loc="upper left", fontsize=11)
    return {"equation-6": figure}
