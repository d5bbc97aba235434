"""Sections 3 to 5: the problems that RCA solves.

Each problem of the paper is given to a general optimiser (L-BFGS with numerical gradients, from random matrices) that knows
nothing of RCA; constraints of equality are kept by scaling the matrix. Chunklets of two to five points in five columns.
Equations 2 to 4: the largest volume of a linear map whose mean squared distance within chunklets is one; Eq. 5: the
largest entropy of a Gaussian in fewer dimensions; Eqs. 6 and 7: the smallest distance within chunklets of a metric of
volume one; Eq. 11: the largest likelihood of Gaussian classes. What is found is compared with RCA scaled to the constraint.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from papers.drawing import panels
from papers.experiment import Claim, Records, Setting, Summary, Table
from papers.rca import _problems as problems
from vicinal import RCA

if TYPE_CHECKING:
    from matplotlib.figure import Figure


TITLE = "Sections 3 to 5: the problems that RCA solves"
COVERS = ("section 3", "section 4", "section 5", "equation 2", "equation 5", "equation 6", "equation 11")
ORDER = 2.5
MINUTES = (0.1, 0.2)

_D, _KEPT = 5, 2
_PROBLEMS = {
    "volume": "Eqs. 2 to 4: log volume",
    "entropy": "Eq. 5: log determinant in fewer dimensions",
    "distance": "Eqs. 6 and 7: distance within chunklets",
    "likelihood": "Eq. 11: log-likelihood",
}


def units(setting: Setting) -> list[dict[str, Any]]:
    return [{"problem": name, "run": run} for name in _PROBLEMS for run in range(10 if setting.full else 3)]


def measure(setting: Setting, problem: str, run: int) -> dict[str, Any]:
    rng = np.random.RandomState(run)
    ids = np.repeat(np.arange(40), rng.randint(2, 6, size=40))
    mixing = rng.standard_normal((_D, _D))
    X = 2 * rng.standard_normal((40, _D))[ids] + rng.standard_normal((len(ids), _D)) @ mixing
    rca = RCA(_KEPT if problem == "entropy" else None, shrinkage=0).fit(X, ids)
    C, total, A = rca.covariance_, rca.total_covariance_, rca.components_
    if problem == "volume":
        admitted, value = (lambda M: problems.scaled_to_constraint(M, C)), (lambda M: problems.log_volume(M, C))
    elif problem == "entropy":
        admitted, value = (lambda M: problems.scaled_to_constraint(M, C)), (lambda M: problems.log_entropy(M, C, total))
    elif problem == "distance":
        admitted, value = problems.scaled_to_volume, (lambda M: problems.within_distance(M, C))
    else:
        admitted, value = (lambda M: M), (lambda M: problems.minus_log_likelihood(M, C))
    found = [problems.search(value, rng.standard_normal(A.shape), admitted) for _ in range(5)]
    best = min(found, key=lambda solution: solution.value)
    ours = admitted(A)
    apart = np.linalg.norm(best.metric - ours.T @ ours) / np.linalg.norm(ours.T @ ours)
    return {"ours": value(A), "found": [solution.value for solution in found], "apart": float(apart)}


def summarise(setting: Setting, records: Records) -> Summary:
    rows, better, apart = [], {}, {}
    for name, words in _PROBLEMS.items():
        own = [record for record in records if record["problem"] == name]
        better[name] = max(record["ours"] - min(record["found"]) for record in own)
        nearest = max(min(record["found"]) - record["ours"] for record in own)
        apart[name] = max(record["apart"] for record in own)
        rows.append([words, len(own), f"{better[name]:.1e}", f"{nearest:.1e}", f"{apart[name]:.1e}"])
    claims = [
        Claim(
            "no optimiser finds anything better than RCA in any of the problems (by more than 1e-6)",
            max(better.values()) < 1e-6,
            f"by {max(better.values()):.1e} at most",
        ),
        Claim(
            "and what it finds is RCA's metric (relative distance of the matrices below 1e-3)",
            max(apart.values()) < 1e-3,
            f"{max(apart.values()):.1e} at most",
        ),
    ]
    columns = [
        "problem",
        "data sets",
        "most that is gained over RCA",
        "most that is lacking to RCA",
        "distance of the metrics",
    ]
    remarks = [
        "The tests (`test_rca_optimality.py`) have the inequalities of Eqs. 2 and 6, the multipliers of Eqs. 4 and 7, and Eqs. 9 and 10."
    ]
    return Summary([Table(columns, rows, "Best of five starts, largest over data sets")], claims, remarks)


def draw(setting: Setting, records: Records) -> "dict[str, Figure]":
    figure, axes = panels(1, 1, size=(7.4, 3.8))
    ax = axes[0, 0]
    for number, name in enumerate(_PROBLEMS):
        own = [np.abs(np.subtract(record["found"], record["ours"])) for record in records if record["problem"] == name]
        values = np.maximum(np.concatenate(own), 1e-16)
        ax.scatter(values, np.full(len(values), number) + np.linspace(-0.25, 0.25, len(values)), s=14)
    ax.set_yticks(range(len(_PROBLEMS)), [words.partition(":")[0] for words in _PROBLEMS.values()])
    ax.set(xscale="log", xlabel="difference from RCA's value, all starts", xlim=(1e-16, 1e1))
    ax.invert_yaxis()
    return {"section-3": figure}
