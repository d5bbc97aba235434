"""Compare NCA() with scikit-learn's on small tables: time, objective and error of nearest neighbours.

    OMP_NUM_THREADS=1 python benchmarks/nca_small.py                    # needs VICINAL_DATA
    OMP_NUM_THREADS=1 python benchmarks/nca_small.py --draws 2 --tables wine iris

The tables are those of `papers/real_sets.py` with labels and at most 100 columns, and scikit-learn's digits. For each table and each of
the seeds 100 to 104, which were fixed before any result was seen, a random half of the rows (at most 400) is used for both fits, with
columns standardised by that half, and the other half (at most 1,000 rows) for the accuracy of the nearest neighbour. Both fits use
their defaults, run in turn in one process after a fit that warms both up, and are timed in CPU and wall time. Objectives are Eq. 3 per
row on the training rows, computed here by the same function for both. All tables are printed as Markdown, including losses.
"""

import argparse
import os
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.neighbors import KNeighborsClassifier, NeighborhoodComponentsAnalysis

from vicinal import NCA

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "papers"))
from real_sets import SETS, load

SEEDS = range(100, 105)
ROWS, TEST_ROWS, COLUMNS = 400, 1000, 100


def labelled_tables():
    """Return the rows and labels of every table, by name."""
    tables = {"digits": load_digits(return_X_y=True)}
    for name in SETS:
        try:
            X, y = load(name, return_X_y=True)
        except FileNotFoundError:
            continue
        if y is None or X.shape[1] > COLUMNS:
            continue
        if name == "boston_housing":  # thirds of the price, as in the paper
            y = np.digitize(y, np.quantile(y, [1 / 3, 2 / 3]))
        complete = ~np.isnan(X).any(axis=1)
        tables[name] = X[complete], np.asarray(y)[complete]
    return tables


def halves(X, y, seed):
    """Return standardised training rows with labels, and test rows with labels."""
    order = np.random.default_rng(seed).permutation(len(X))
    train, test = order[: len(X) // 2][:ROWS], order[len(X) // 2 :][:TEST_ROWS]
    spread = X[train].std(axis=0)
    centre, spread = X[train].mean(axis=0), np.where(spread > 0, spread, 1.0)
    return (X[train] - centre) / spread, y[train], (X[test] - centre) / spread, y[test]


def expected_accuracy(A, X, y):
    """Return Eq. 3 per row, from differences."""
    Z = X @ A.T
    squares = ((Z[:, None, :] - Z[None, :, :]) ** 2).sum(axis=2)
    np.fill_diagonal(squares, np.inf)
    weights = np.exp(squares.min(axis=1, keepdims=True) - squares)
    return float(((weights * (y[:, None] == y[None, :])).sum(axis=1) / weights.sum(axis=1)).mean())


def measured(estimator, X, y, X_test, y_test):
    """Return CPU seconds, wall seconds, Eq. 3 per row and the accuracy of the nearest neighbour in per cent."""
    cpu, wall = time.process_time(), time.perf_counter()
    estimator.fit(X, y)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    neighbor = KNeighborsClassifier(1).fit(estimator.transform(X), y)
    accuracy = 100.0 * neighbor.score(estimator.transform(X_test), y_test)
    return cpu, wall, expected_accuracy(estimator.components_, X, y), accuracy


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--draws", type=int, default=len(SEEDS))
    parser.add_argument("--tables", nargs="*")
    arguments = parser.parse_args()
    if not os.environ.get("VICINAL_DATA"):
        raise SystemExit("Set VICINAL_DATA to the folder with the real tables.")
    warnings.simplefilter("ignore")
    contenders = {"NCA": NCA, "scikit-learn": NeighborhoodComponentsAnalysis}
    means = {}
    head = "CPU s | scikit-learn | ratio | wall s | scikit-learn | ratio | Eq. 3 | scikit-learn | 1-NN % | scikit-learn"
    print(f"| table | rows x columns | {head} |\n|---|---|" + "---|" * 10)
    for name, (X, y) in labelled_tables().items():
        if arguments.tables and name not in arguments.tables:
            continue
        results = []
        for seed in list(SEEDS)[: arguments.draws]:
            data = halves(X, y, seed)
            if not results:
                for make in contenders.values():
                    make(random_state=seed).fit(*data[:2])
            results.append([measured(make(random_state=seed), *data) for make in contenders.values()])
        ours, theirs = np.mean(results, axis=0)
        means[name] = ours, theirs
        times = " | ".join(f"{ours[k]:.3f} | {theirs[k]:.3f} | {ours[k] / theirs[k]:.2f}" for k in (0, 1))
        values = f"{ours[2]:.4f} | {theirs[2]:.4f} | {ours[3]:.1f} | {theirs[3]:.1f}"
        print(f"| {name} | {len(data[0])} x {X.shape[1]} | {times} | {values} |", flush=True)
    ours, theirs = np.moveaxis(np.array(list(means.values())), 1, 0)
    ratio, gain = ours[:, :2] / theirs[:, :2], ours[:, 3] - theirs[:, 3]
    error = gain.std(ddof=1) / np.sqrt(len(gain)) if len(gain) > 1 else float("nan")
    print(
        f"\n{len(means)} tables. CPU time over scikit-learn's: median {np.median(ratio[:, 0]):.2f}, largest {ratio[:, 0].max():.2f}; ",
        end="",
    )
    print(f"wall time: median {np.median(ratio[:, 1]):.2f}, largest {ratio[:, 1].max():.2f}.")
    print(
        f"1-NN accuracy {ours[:, 3].mean():.2f} %, scikit-learn's {theirs[:, 3].mean():.2f} %: {gain.mean():+.2f} ± {error:.2f} points."
    )


if __name__ == "__main__":
    main()
