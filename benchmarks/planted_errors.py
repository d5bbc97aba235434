"""Wrong values that are planted in real tables: which score of `DensityOutlierDetector` finds them?

One value in 2 % of the rows is moved by three to six standard deviations (``shift``) or multiplied by 0.1 or 10 (``x10``). The
figures are average precisions, means over three draws. ``VICINAL_DATA=folder python benchmarks/planted_errors.py``
"""

import os
import warnings
from pathlib import Path

import numpy as np
from sklearn.metrics import average_precision_score
from sklearn.neighbors import LocalOutlierFactor
from sklearn.preprocessing import StandardScaler

from vicinal import LCA, DensityOutlierDetector, ManifoldParzen, ParzenWindows

DRAWS = 3


def tables():
    """Yield the names and the rows of the tables."""
    folder = Path(os.environ["VICINAL_DATA"])
    boston = np.load(folder / "uci_boston_housing.npz")
    yield "boston", np.column_stack([boston["X"], boston["y"]])
    yield "wine", np.load(folder / "uci_wine.npz")["X"].astype(float)
    yield "wdbc, 10 columns", np.load(folder / "uci_breast_cancer_wdbc.npz")["X"][:, :10].astype(float)
    yield "glass", np.load(folder / "uci_glass.npz")["X"].astype(float)


def planted(X, how, seed):
    """Return standardised rows of which some have a wrong value, and which ones have."""
    rng = np.random.default_rng(seed)
    X, wrong = X.copy(), np.zeros(len(X), dtype=bool)
    wrong[rng.choice(len(X), max(int(0.02 * len(X)), 5), replace=False)] = True
    for i in np.flatnonzero(wrong):
        j = rng.integers(X.shape[1])
        if how == "x10":
            X[i, j] *= rng.choice([0.1, 10.0])
        else:
            X[i, j] += rng.choice([-1, 1]) * rng.uniform(3, 6) * X[:, j].std()
    return StandardScaler().fit_transform(X), wrong


def scores(Z, wrong):
    """Yield the names of scores and the scores of the rows, each without itself."""
    yield "LOF", LocalOutlierFactor(20).fit(Z).negative_outlier_factor_
    for name, density in (("Parzen", ParzenWindows()), ("LCA", LCA())):
        for group, what in ((None, "largest_group=None"), ("auto", "the default")):
            detector = DensityOutlierDetector(density, largest_group=group).fit(Z)
            yield f"{name}, {what}", detector.training_scores_
    clean = LCA().fit(Z[~wrong]).covariance_
    detector = DensityOutlierDetector(ParzenWindows(clean), largest_group=None).fit(Z)
    yield "the metric of LCA without the wrong rows", detector.training_scores_
    yield "Manifold Parzen", DensityOutlierDetector(ManifoldParzen()).fit(Z).training_scores_


def main():
    """Print a table for each kind of error."""
    warnings.simplefilter("ignore")
    for how in ("shift", "x10"):
        found: dict[str, dict[str, list[float]]] = {}
        for table, X in tables():
            for seed in range(DRAWS):
                Z, wrong = planted(X, how, seed)
                for name, score in scores(Z, wrong):
                    found.setdefault(name, {}).setdefault(table, []).append(average_precision_score(wrong, -score))
        print(f"\n| {how} | " + " | ".join(next(iter(found.values()))) + " |")
        print("|---|" + "---|" * len(next(iter(found.values()))))
        for name, by_table in found.items():
            print(f"| {name} | " + " | ".join(f"{np.mean(values):.2f}" for values in by_table.values()) + " |")


if __name__ == "__main__":
    main()
