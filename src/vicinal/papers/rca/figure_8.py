"""Figure 8: the effect of the size of the chunklets.

The faces of Figure 4. 30% of the points are drawn and cut into chunklets of S points, S from 2 to 10; RCA keeps 30 of
60 dimensions. The error is the share of wrong people among the first 64 neighbours.
"""

import numpy as np

from vicinal import RCA, simulate_chunklets
from vicinal.papers._drawing import curve, mean_and_error, panels, plus_minus
from vicinal.papers._experiment import Claim, Summary, Table
from vicinal.papers.rca._faces import STAND_IN, coefficients, purity

TITLE = "Figure 8: sizes of chunklets"
COVERS = ("figure 8",)
NEEDS = ("yale_b",)
ORDER = 8
MINUTES = (0.2, 0.6)

_SIZES = (2, 3, 4, 5, 6, 8, 10)


def units(setting):
    return [{"size": size, "run": run} for size in _SIZES for run in range(20 if setting.full else 4)]


def measure(setting, size, run):
    X, people = coefficients(setting)
    chunklets = simulate_chunklets(people, size, fraction=0.3, random_state=run)
    rca = RCA(30, shrinkage=0).fit(X, chunklets)
    return {"error": round(1 - purity(rca.transform(X), people)[-1], 4), "contrasts": rca.n_contrasts_}


def summarise(setting, records):
    errors = {size: [r["error"] for r in records if r["size"] == size] for size in _SIZES}
    mean = {size: float(np.mean(values)) for size, values in errors.items()}
    rows = [[size, f"{1 + 1 / (size - 1):.3f}", plus_minus(values, 3)] for size, values in errors.items()]
    gained = {size: (mean[2] - mean[size]) / (mean[2] - mean[10]) for size in (3, 4, 5)}
    claims = [
        Claim(
            "larger chunklets give lower errors (10 against 2, by 0.01)",
            mean[10] < mean[2] - 0.01,
            f"{mean[2]:.3f} for 2, {mean[10]:.3f} for 10",
        ),
        Claim(
            "most of the gain from 2 to 10 is there with chunklets of 3 points (over half of it)",
            gained[3] > 0.5,
            ", ".join(f"{share:.0%} with {size}" for size, share in gained.items()),
            departs=f"Nearly: {gained[3]:.0%} ± {_uncertainty(errors):.0%} of the gain is there with 3 points and {gained[4]:.0%} with 4. "
            "The bound of Eq. 12 would have 56% with 3."
            if gained[4] > 0.5
            else "",
        ),
    ]
    remarks = ["The paper shows a curve without numbers. The bound of Eq. 12 is beside it, as there; see Equation 12."]
    remarks += [] if setting.full else [STAND_IN]
    return Summary([Table(["S", "bound of Eq. 12", "error"], rows)], claims, remarks)


def _uncertainty(errors):
    """The standard error of the share of the gain that chunklets of 3 have, to first order."""
    two, three, ten = (mean_and_error(errors[size]) for size in (2, 3, 10))
    gain = two[0] - ten[0]
    share = (two[0] - three[0]) / gain
    return float(np.hypot(np.hypot((1 - share) * two[1], three[1]), share * ten[1]) / gain)


def draw(setting, records):
    figure, axes = panels(1, 2, size=(5.6, 4.4))
    cells = [mean_and_error([r["error"] for r in records if r["size"] == size]) for size in _SIZES]
    curve(axes[0, 0], 0, _SIZES, *np.transpose(cells))
    axes[0, 0].set(xlabel="points in a chunklet", ylabel="mean error of all neighbours", title="RCA on faces")
    curve(axes[0, 1], 1, _SIZES, [1 + 1 / (size - 1) for size in _SIZES])
    axes[0, 1].set(xlabel="points in a chunklet", ylabel="bound of the ratio of variances", title="Eq. 12")
    return {"figure-8": figure}
