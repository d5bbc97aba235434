"""Section 9.2: when the assumptions do not hold.

RCA is maximum likelihood for Gaussian classes with one covariance. Mardia's tests of skewness and kurtosis check this assumption
at the level of {LEVEL:.0%}, in two readings. Pooled: the residuals of all classes together, each row minus the mean
of its class, as in RCA's likelihood. By class: each class separately; a set passes if no class fails. In both, the
smallest p-value is multiplied by the number of tests (Bonferroni). Pooled p-values come from {DRAWS} draws of Gaussian rows in
classes of the same sizes, because the usual approximations are poor with nearly as many columns as rows. The second
question is whether the classes get rounder: the condition number of each class's covariance, before and after RCA with all
labels. Columns that are constant within a class are left out there (their condition number is infinite), and a class with no
more rows than columns has none.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from papers.drawing import panels
from papers.experiment import Claim, Records, Setting, Summary, Table
from papers.rca._faces import coefficients
from papers.rca._normality import condition_numbers, mardia_test
from papers.rca._uci import QUICK_SETS, SETS, STAND_IN, rows_of
from vicinal import RCA

if TYPE_CHECKING:
    from matplotlib.figure import Figure


TITLE = "Section 9.2: classes that are not Gaussian, and how round they get"
COVERS = ("section 9.2",)
NEEDS = ("ionosphere", "soybean_small", "boston_housing", "yale_b")
ORDER = 12
MINUTES = (0.1, 0.4)

LEVEL, DRAWS = 0.01, 999
_KEPT = 10  # of the PCA coefficients of faces: 64 pictures per person do not fill 60 dimensions


def units(setting: Setting) -> list[dict[str, Any]]:
    return [{"set": name} for name in (*(SETS if setting.full else QUICK_SETS), "faces")]


def measure(setting: Setting, set: str) -> dict[str, Any]:
    X, y = coefficients(setting) if set == "faces" else rows_of(setting, set)
    if set == "faces":
        X = X[:, :_KEPT]
    names, classes, sizes = np.unique(y, return_inverse=True, return_counts=True)
    pooled = _pooled(X, classes, DRAWS if setting.full else 399)
    varies = np.min([np.ptp(X[y == name], axis=0) > 0 for name in names], axis=0)
    X = X[:, varies]
    large = [name for name, size in zip(names, sizes, strict=True) if size > X.shape[1] + 2]
    tests = [mardia_test(X[y == name]) for name in large]
    p_values = [p for test in tests for p in (test.skewness_p_value, test.kurtosis_p_value)]
    _, before, after = condition_numbers(X, y, RCA(shrinkage=0).fit(X, y))
    usable = np.isfinite(before) & np.isfinite(after)
    return {
        "columns": int(varies.sum()),
        "dropped": int((~varies).sum()),
        "classes": len(names),
        "tested": len(large),
        "p": float(min(1.0, min(p_values) * len(p_values))) if p_values else None,
        "pooled": pooled,
        "before": before[usable].round(3).tolist(),
        "after": after[usable].round(3).tolist(),
    }


def _pooled(X: np.ndarray, classes: np.ndarray, draws: int) -> dict[str, float]:
    """Return Mardia's skewness and kurtosis of the residuals within classes, and their p-values by simulation."""
    found = mardia_test(_residuals(X, classes))
    d = found.n_dimensions
    rng = np.random.RandomState(0)
    drawn = np.array(
        [
            [test.skewness, test.kurtosis]
            for test in (mardia_test(_residuals(rng.standard_normal((len(X), d)), classes)) for _ in range(draws))
        ]
    )
    skewness = (1 + np.sum(drawn[:, 0] >= found.skewness)) / (draws + 1)
    middle = np.mean(drawn[:, 1])  # of the kurtosis both tails count
    kurtosis = (1 + np.sum(np.abs(drawn[:, 1] - middle) >= abs(found.kurtosis - middle))) / (draws + 1)
    return {"dimensions": d, "rows": len(X), "skewness": float(skewness), "kurtosis": float(kurtosis)}


def _residuals(X: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Return rows less the mean of their class."""
    means = np.stack([np.bincount(classes, column) for column in X.T], axis=1) / np.bincount(classes)[:, None]
    return X - means[classes]


def summarise(setting: Setting, records: Records) -> Summary:
    rows, fallen = [], []
    passed: dict[str, list] = {"pooled": [], "by class": []}
    for r in records:
        ratio = np.array(r["before"]) / np.array(r["after"])
        fallen.append((r["set"], int((ratio > 1).sum()), len(ratio)))
        pooled = min(1.0, 2 * min(r["pooled"]["skewness"], r["pooled"]["kurtosis"]))
        for reading, p in {"pooled": pooled, "by class": r["p"]}.items():
            if p is not None and p > LEVEL:
                passed[reading].append(r["set"])
        kept = f"{r['columns']}" + (f" ({r['dropped']} constant in a class)" if r["dropped"] else "")
        fall = f"{np.median(r['before']):.3g} → {np.median(r['after']):.3g}" if len(ratio) else "singular"
        rows.append(
            [
                r["set"],
                f"{r['pooled']['rows']} rows, rank {r['pooled']['dimensions']}",
                f"{r['pooled']['skewness']:.3f}, {r['pooled']['kurtosis']:.3f}",
                kept,
                "too few rows" if r["p"] is None else f"{r['p']:.2g}",
                fall,
                f"{fallen[-1][1]} of {len(ratio)}",
            ]
        )
    columns = [
        "set",
        "pooled residuals",
        "pooled p-values: skewness, kurtosis",
        "columns by class",
        "smallest p-value by class (Bonferroni)",
        "condition number (median class)",
        "classes that fall",
    ]
    down, total = sum(f[1] for f in fallen), sum(f[2] for f in fallen)
    exceptions = [f"{name} ({n - k} of {n})" for name, k, n in fallen if k < n]
    claims = [
        Claim(
            f"every set is significantly not Gaussian, except iris: {reading} (level 1%)",
            set(found) == {"iris"},
            f"not distinguished from Gaussian: {', '.join(found) or 'none'}",
        )
        for reading, found in passed.items()
    ]
    claims.append(
        Claim(
            "condition numbers fall for the classes of all sets",
            down == total,
            f"{down} of {total} classes" + (f"; not {', '.join(exceptions)}" if exceptions else ""),
        )
    )
    rounder = "RCA makes the average of the classes' covariances round; a class whose covariance is far from that average can get less round."
    remarks = [
        rounder,
        "A test finds nothing in few rows: the classes of soybean have some ten rows each.",
        f"Faces are their first {_KEPT} PCA coefficients here: the pictures of one person do not fill all dimensions.",
    ]
    remarks += [] if setting.full else [STAND_IN, "Faces are drawn ones in quick mode."]
    return Summary([Table(columns, rows)], claims, remarks)


def draw(setting: Setting, records: Records) -> "dict[str, Figure]":
    """Return a line per class, from its condition number before RCA to that after it."""
    from papers.drawing import COLOURS, MARKERS

    shown = [record for record in records if record["before"]]
    figure, axes = panels(1, 1, size=(9.4, 4.8))
    ax = axes[0, 0]
    for number, record in enumerate(shown):
        before, after = (np.array(record[when]) for when in ("before", "after"))
        place = number + np.linspace(-0.3, 0.3, len(before) + 2)[1:-1]
        ax.vlines(place, np.minimum(before, after), np.maximum(before, after), color="0.7", linewidth=1)
        for k, (when, values) in enumerate({"before RCA": before, "after RCA": after}.items()):
            label = when if number == 0 else None
            ax.scatter(place, values, s=34, color=COLOURS[k], marker=MARKERS[k], label=label, zorder=3)
    ax.set_xticks(range(len(shown)), [record["set"].replace(" ", "\n") for record in shown])
    ax.set(yscale="log", ylabel="condition number, one line per class")
    ax.legend()
    return {"section-9-2": figure}
