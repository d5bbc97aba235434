"""Section 2: positive against negative constraints.

The counting argument is that two rows have M x M pairs of labels; if they are known to have the same class, M are left, and if they are
known to have different classes, M(M - 1). These are enumerated here, with the information of a constraint in nats. The paper's second
argument is that positive constraints help clustering more (Shental et al.): a Gaussian mixture by EM with as many random pairs
of one class, or of two classes, as {_SHARE:.0%} of the rows (`ConstrainedGaussianMixture` with `cannot_link`), or with both.
Columns are standardised. The third part shows why RCA does not use negative constraints: the difference between the scatters of
similar and of dissimilar pairs need not be a metric.
"""

import warnings
from itertools import product
from math import log
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import rand_score
from sklearn.preprocessing import scale

from papers.drawing import bars, mean_and_error, panels, plus_minus
from papers.experiment import Claim, Records, Setting, Summary, Table
from papers.rca._uci import QUICK_SETS, SETS, STAND_IN, rows_of
from vicinal.companions import ConstrainedGaussianMixture
from vicinal.quality import balanced_rand_score

if TYPE_CHECKING:
    from matplotlib.figure import Figure


TITLE = "Section 2: positive and negative constraints"
COVERS = ("section 2",)
NEEDS = ("ionosphere", "soybean_small", "boston_housing")
ORDER = 2
MINUTES = (0.3, 3)

_SHARE = 0.25
_CLASSES = (2, 3, 4, 6, 10, 30)
_METHODS = {"none": "no constraints", "positive": "positive", "negative": "negative", "both": "both"}


def units(setting: Setting) -> list[dict[str, Any]]:
    names, runs = (SETS, 12) if setting.full else (QUICK_SETS, 2)
    return [{"set": name, "run": run} for name in names for run in range(runs)]


def measure(setting: Setting, set: str, run: int) -> dict[str, Any]:
    X, y = rows_of(setting, set)
    X = scale(X)[:, np.ptp(X, axis=0) > 0]
    rng = np.random.RandomState(run)
    n_pairs = round(_SHARE * len(X))
    same, other = (_pairs(y, n_pairs, alike, rng) for alike in (True, False))
    k = len(np.unique(y))
    score = rand_score if k == 2 else balanced_rand_score
    fits = {"none": (None, None), "positive": (same, None), "negative": (None, other), "both": (same, other)}
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for name, (y_pairs, apart) in fits.items():
            # A floor of the variances, because small classes have fewer rows than columns.
            mixture = ConstrainedGaussianMixture(k, reg_covar=1e-2, max_iter=100, tol=1e-3, random_state=run)
            labels = mixture.fit_predict(X, y_pairs, apart)
            found[name] = round(float(score(y, labels)), 4)
    differences = [X[pairs[:, 0]] - X[pairs[:, 1]] for pairs in (same, other)]
    alike, apart = (rows.T @ rows / len(rows) for rows in differences)
    return {
        "score": found,
        "smallest": float(np.linalg.eigvalsh(alike - apart)[0]),
        "largest": float(np.linalg.eigvalsh(alike - apart)[-1]),
    }


def _pairs(y: np.ndarray, n_pairs: int, alike: bool, rng: np.random.RandomState) -> np.ndarray:
    """Return different pairs of rows of one class, or of two."""
    found: dict[tuple[int, int], None] = {}
    while len(found) < n_pairs:
        left, right = sorted(rng.choice(len(y), 2, replace=False).tolist())
        if (y[left] == y[right]) == alike:
            found[left, right] = None
    return np.array(list(found))


def _counted() -> list[list[Any]]:
    """Return pairs of labels that a positive and a negative constraint leave, for each number of classes, and what that
    is in nats."""
    counting = []
    for n_classes in _CLASSES:
        labels = list(product(range(n_classes), repeat=2))
        same = sum(a == b for a, b in labels)
        other = len(labels) - same
        counting.append(
            [n_classes, len(labels), same, other, f"{log(len(labels) / same):.3f}", f"{log(len(labels) / other):.3f}"]
        )
    return counting


def summarise(setting: Setting, records: Records) -> Summary:
    counting = _counted()
    names = list(dict.fromkeys(record["set"] for record in records))
    scores = {s: {m: [r["score"][m] for r in records if r["set"] == s] for m in _METHODS} for s in names}
    rows = [[s, *[plus_minus(scores[s][m], 3) for m in _METHODS]] for s in names]
    gains = {
        kind: {s: np.subtract(scores[s][kind], scores[s]["none"]) for s in names}
        for kind in ("positive", "negative", "both")
    }
    total = {kind: mean_and_error(np.concatenate(list(by.values()))) for kind, by in gains.items()}
    difference = mean_and_error(np.concatenate([gains["positive"][s] - gains["negative"][s] for s in names]))
    indefinite = np.mean([record["smallest"] < 0 < record["largest"] for record in records])
    negative = np.mean([record["largest"] <= 0 for record in records])
    claims = [
        Claim(
            "a positive constraint leaves M of M x M pairs of labels, a negative one M(M - 1), so that it excludes less for every "
            "M above 2",
            all(row[2:4] == [m, m * (m - 1)] for m, row in zip(_CLASSES, counting, strict=True)),
            ", ".join(f"M = {row[0]}: {row[2]} and {row[3]} of {row[1]}" for row in counting),
        ),
        Claim(
            "positive constraints give a much higher gain than as many negative ones (mean over the sets and realisations, by two "
            "standard errors)",
            difference[0] > 2 * difference[1],
            f"{total['positive'][0]:+.3f} and {total['negative'][0]:+.3f}; difference {difference[0]:+.3f} ± {difference[1]:.3f}. By set "
            + ", ".join(
                f"{s} {np.mean(gains['positive'][s]):+.3f} and {np.mean(gains['negative'][s]):+.3f}" for s in names
            ),
        ),
        Claim(
            "the difference of the two scatters is no metric (not positive semidefinite, in every realisation)",
            indefinite + negative == 1,
            f"indefinite in {indefinite:.0%}, negative definite in {negative:.0%} of the realisations",
        ),
    ]
    tables = [
        Table(
            [
                "classes M",
                "pairs of labels",
                "left by a positive",
                "left by a negative",
                "nats: positive",
                "nats: negative",
            ],
            counting,
            "Counting",
        ),
        Table(["set", *_METHODS.values()], rows, "(Balanced) Rand score of the mixture"),
    ]
    remarks = [
        f"Realisations per set: {len(records) // len(names)}. The argument counts labels that are equally likely; for two classes both kinds say the same."
    ]
    remarks += [] if setting.full else [STAND_IN]
    return Summary(tables, claims, remarks)


def draw(setting: Setting, records: Records) -> "dict[str, Figure]":
    names = list(dict.fromkeys(record["set"] for record in records))
    figure, axes = panels(1, 1, size=(9.0, 4.6))
    cells = [[mean_and_error([r["score"][m] for r in records if r["set"] == s]) for s in names] for m in _METHODS]
    groups = [name.replace(" ", "\n") for name in names]
    bars(axes[0, 0], groups, list(_METHODS.values()), *[[[c[i] for c in line] for line in cells] for i in (0, 1)])
    axes[0, 0].set(ylim=(0.4, 1.15), ylabel="(balanced) Rand score")
    axes[0, 0].legend(ncols=4, loc="upper center")
    return {"section-2": figure}
