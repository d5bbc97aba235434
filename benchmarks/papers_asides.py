"""The numbers that the pages of the papers name beside their tables: what other parameters would have given.

    VICINAL_DATA=folder python benchmarks/papers_asides.py     # half a minute

The tables and claims themselves are made by ``vicinal papers --full``; the splits are the same.
"""

import os

import numpy as np
from sklearn.svm import SVC

from vicinal import LCA, DensityClassifier, ManifoldParzen, ParzenWindows
from vicinal.datasets import add_noise_dimensions, make_spiral, make_two_circles
from vicinal.papers._experiment import Setting
from vicinal.papers.lca._clustering import accuracy
from vicinal.papers.lca._digits import split_digits
from vicinal.papers.manifold_parzen._digits import ten_digits
from vicinal.papers.manifold_parzen.tables_3_4 import _scores


def circles():
    """LCA, Figure 3: more points move the number of noise dimensions at which a method breaks."""
    for n in (500, 2000):
        X, y = make_two_circles(n, random_state=0)
        X = add_noise_dimensions(X, 10, random_state=0)
        print(
            f"two circles, 10 noise dimensions, {n} points: LCA {accuracy(LCA(tol=1e-5, reg=0.0).fit_transform(X), y):.0f}%"
        )


def digit_densities(setting):
    """LCA, Figure 4: the kernels that give the paper's isotropic and diagonal numbers."""
    scores = []
    for run in range(6):
        train, _, test = split_digits(setting, run, 2000, 1000, 3000)
        scores.append(-ParzenWindows(np.sqrt(1.155)).fit(train).score(test))
    print(f"USPS, isotropic kernel of variance 1.155: {np.mean(scores):.2f} nats")
    train, valid, test = split_digits(setting, 0, 2000, 1000, 3000)
    for reg in (0.006, 0.0):
        model = LCA("diag", reg=reg, tol=3e-3).fit(train)
        print(
            f"USPS, diagonal LCA, reg={reg}: test {-model.score(test):.2f}, validation {-model.score(valid):.2f} nats"
        )


def spiral_widths():
    """Manifold Parzen, Table 1: the width that gives the paper's number for Parzen windows."""
    for width in (0.016, 0.02, 0.0225, 0.025):
        scores = []
        for run in range(20):
            rng = np.random.RandomState(run)
            train, _, test = (make_spiral(n, random_state=rng)[0] for n in (300, 300, 10_000))
            scores.append(-ParzenWindows(width).fit(train).score(test))
        print(f"spiral, Parzen of width {width}: {np.mean(scores):.3f}")


def digit_classifiers(setting):
    """Manifold Parzen, Tables 3 and 4: published widths, and beyond the ends of the grids."""
    (train, y), (valid, v), (test, labels) = ten_digits(setting)
    models = {"SVM, C=3, gamma=0.03": SVC(C=3.0, gamma=0.03), "SVM, C=30, gamma=0.03": SVC(C=30.0, gamma=0.03)}
    for k, d, noise in ((1, 0, 1.0), (1, 0, 0.02), (1, 0, 0.005), (11, 11, 0.6), (17, 5, 0.02), (17, 5, 0.01)):
        model = ManifoldParzen(d, n_neighbors=k, noise=noise)
        models[f"k={k}, d={d}, noise variance {noise}"] = DensityClassifier(model)
    for name, model in models.items():
        model.fit(train, y)
        parts = [_scores(model, *part) for part in ((valid, v), (test, labels))]
        print(f"USPS, {name}: validation, test:", *({key: round(x, 4) for key, x in part.items()} for part in parts))


if __name__ == "__main__":
    full = Setting(full=True, data_home=os.environ["VICINAL_DATA"])
    circles()
    spiral_widths()
    digit_densities(full)
    digit_classifiers(full)
