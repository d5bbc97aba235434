"""Section 9.2: when the assumptions do not hold.

RCA is maximum likelihood for Gaussian classes with one covariance. Mardia's tests of skewness and kurtosis say whether
a class can be Gaussian; a set passes when no class fails at the level of 1%, counted over both tests and all classes.
The second question is whether the classes get rounder: the condition number of each class's covariance, before and
after RCA with all labels. Columns that are constant within a class are left out (their condition number is infinite),
and a class with no more rows than columns has none.
"""

import numpy as np

from vicinal import RCA
from vicinal.papers._drawing import bars, panels
from vicinal.papers._experiment import Claim, Summary, Table
from vicinal.papers.rca._faces import coefficients
from vicinal.papers.rca._uci import QUICK_SETS, SETS, STAND_IN, rows_of
from vicinal.quality import condition_numbers, mardia_test

TITLE = "Section 9.2: classes that are not Gaussian, and how round they get"
COVERS = ("section 9.2",)
NEEDS = ("ionosphere", "soybean_small", "boston_housing", "yale_b")
ORDER = 12
MINUTES = (0.2, 0.1)


def units(setting):
    return [{"set": name} for name in (*(SETS if setting.full else QUICK_SETS), "faces")]


def measure(setting, set):
    X, y = coefficients(setting) if set == "faces" else rows_of(setting, set)
    names, sizes = np.unique(y, return_counts=True)
    if set == "faces":  # 60 coefficients of 64 pictures a person: too few for a test, and nearly singular
        X = X[:, :10]
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
        "before": before[usable].round(3).tolist(),
        "after": after[usable].round(3).tolist(),
    }


def summarise(setting, records):
    rows, fallen, gaussian = [], [], []
    for r in records:
        ratio = np.array(r["before"]) / np.array(r["after"])
        fallen.append((r["set"], int((ratio > 1).sum()), len(ratio)))
        if r["p"] is not None and r["p"] > 0.01:
            gaussian.append(r["set"])
        kept = f"{r['columns']}" + (f" ({r['dropped']} constant in a class)" if r["dropped"] else "")
        p = "too few rows" if r["p"] is None else f"{r['p']:.2g}"
        fall = f"{np.median(r['before']):.3g} → {np.median(r['after']):.3g}" if len(ratio) else "singular"
        rows.append([r["set"], kept, p, fall, f"{fallen[-1][1]} of {len(ratio)}"])
    columns = [
        "set",
        "columns",
        "smallest p-value (Bonferroni)",
        "condition number (median class)",
        "classes that fall",
    ]
    down, total = sum(f[1] for f in fallen), sum(f[2] for f in fallen)
    exceptions = [f"{name} ({n - k} of {n})" for name, k, n in fallen if k < n]
    claims = [
        Claim(
            "every set is significantly not Gaussian, except iris",
            set(gaussian) <= {"iris"},
            f"Gaussian at 1%: {', '.join(gaussian) or 'none'}",
            departs="Sets of some ten rows a class are too small for the tests to find anything: soybean (10 to 17 rows a class, six "
            "columns that vary in all of them) holds category codes, which are not Gaussian."
            if set(gaussian) <= {"iris", "faces", "digits 0-3", "soybean"}
            else "",
        ),
        Claim(
            "condition numbers fall for the classes of all sets",
            down == total,
            f"{down} of {total} classes" + (f"; not {', '.join(exceptions)}" if exceptions else ""),
            departs="RCA makes the average of the classes' covariances round. A class whose covariance is far from that "
            "average can lose: most classes get rounder, not all."
            if down > 0.75 * total
            else "",
        ),
    ]
    remarks = ["Faces are their first 10 PCA coefficients here: 64 pictures a person do not fill 60 dimensions."]
    remarks += [] if setting.full else [STAND_IN, "Faces are drawn ones in quick mode."]
    return Summary([Table(columns, rows)], claims, remarks)


def draw(setting, records):
    shown = [record for record in records if record["before"]]
    figure, axes = panels(1, 1, size=(8.4, 4.4))
    ax = axes[0, 0]
    values = [[float(np.median(record[when])) for record in shown] for when in ("before", "after")]
    bars(ax, [record["set"].replace(" ", "\n") for record in shown], ["before RCA", "after RCA"], values)
    ax.set(yscale="log", ylabel="condition number, median class")
    ax.legend()
    return {"section-9-2": figure}
