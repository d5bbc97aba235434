"""Compare the imputation of `DensityImputer` with scikit-learn's `KNNImputer` and `IterativeImputer`.

::

    python benchmarks/imputation.py --json benchmarks/results/imputation.json
    VICINAL_DATA=folder python benchmarks/imputation.py --sets others --json benchmarks/results/imputation_others.json
    python benchmarks/imputation.py --draws --json benchmarks/results/imputation.json

With ``--draws`` only the coverage of `DensityImputer` is measured, and the rest of an existing file is kept.

The penalty of `DensityImputer` was chosen on five of the first six tables. The others were measured once, afterwards.

Entries of standardised tables are removed at random (10, 30 and 50 %). The error is the root of the mean squared error of
the filled entries; imputing the mean of the column has an error of 1. The coverage is the share of removed entries that lie between the
smallest and the largest of 19 draws, which is 0.90 for perfectly calibrated draws. KNNImputer makes no draws.
"""

import argparse
import json
import sys
import warnings
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris, load_wine
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, KNNImputer
from sklearn.preprocessing import StandardScaler

from vicinal import DensityImputer
from vicinal.datasets import make_machine_states

sys.path.append(str(Path(__file__).resolve().parents[1]))  # the loader of real sets stands in `papers`
from papers.real_sets import load

SHARES = (0.1, 0.3, 0.5)
N_DRAWS = 19


def data_sets(n_rows: int, seed: int) -> dict[str, np.ndarray]:
    """Return a random sample of rows of six standardised tables: five real ones and a generated one."""
    digits = load_digits().data
    raw = {
        "wine": load_wine().data,
        "iris": load_iris().data,
        "breast cancer, 10 means": load_breast_cancer().data[:, :10],
        "diabetes": load_diabetes().data,
        "digits, 10 pixels": digits[:, np.argsort(-digits.var(axis=0))[:10]],
        "machine states (generated)": make_machine_states(random_state=0)[0],
    }
    rng = np.random.default_rng(seed)
    return {
        name: StandardScaler().fit_transform(X[np.sort(rng.permutation(len(X))[:n_rows])]) for name, X in raw.items()
    }


def other_sets(n_rows: int, seed: int) -> dict[str, np.ndarray]:
    """Return a random sample of rows of six other standardised tables, with at most ten columns each."""
    rng, found = np.random.default_rng(seed), {}
    for name in ("glass", "vehicle", "pima_diabetes", "ionosphere", "satimage", "sonar"):
        X = np.asarray(load(name, return_X_y=True)[0], dtype=np.float64)
        X = X[rng.permutation(len(X))[:n_rows]]
        X = X[:, np.argsort([-len(np.unique(column)) for column in X.T], kind="stable")[:10]]
        found[name if X.shape[1] < 10 else f"{name}, 10 columns"] = StandardScaler().fit_transform(X)
    return found


def error(filled: np.ndarray, X: np.ndarray, gaps: np.ndarray) -> float:
    """Return the root of the mean squared error of the filled entries."""
    return float(np.sqrt(np.mean((filled - X)[gaps] ** 2)))


def coverage(draws: np.ndarray, X: np.ndarray, gaps: np.ndarray) -> float:
    """Return the share of removed entries within the range of the draws."""
    return float(((draws.min(axis=0) <= X) & (draws.max(axis=0) >= X))[gaps].mean())


def measure(X: np.ndarray, share: float, seed: int) -> dict[str, dict[str, float]]:
    """Return the errors and coverages of the three imputers on one table."""
    gaps = np.random.default_rng(seed).random(X.shape) < share
    holed = np.where(gaps, np.nan, X)
    density = DensityImputer()
    mean = density.fit_transform(holed)
    draws = density.draw(holed, N_DRAWS, random_state=seed, training=True)
    theirs = np.stack(
        [
            IterativeImputer(sample_posterior=True, max_iter=5, random_state=s).fit_transform(holed)
            for s in range(N_DRAWS)
        ]
    )
    iterative = IterativeImputer(max_iter=20, random_state=0).fit_transform(holed)
    return {
        "KNNImputer": {"error": error(KNNImputer().fit_transform(holed), X, gaps)},
        "IterativeImputer": {"error": error(iterative, X, gaps), "coverage": coverage(theirs, X, gaps)},
        "DensityImputer": {"error": error(mean, X, gaps), "coverage": coverage(draws, X, gaps)},
    }


def measure_draws(X: np.ndarray, share: float, seed: int) -> float:
    """Return the coverage of `DensityImputer` on one table."""
    gaps = np.random.default_rng(seed).random(X.shape) < share
    holed = np.where(gaps, np.nan, X)
    draws = DensityImputer().fit(holed).draw(holed, N_DRAWS, random_state=seed, training=True)
    return coverage(draws, X, gaps)


def update_draws(tables: dict[str, np.ndarray], path: str) -> None:
    """Measure the coverage of `DensityImputer` again, and update the file of results after each table."""
    with open(path, encoding="utf-8") as file:
        known = json.load(file)
    for name, X in tables.items():
        for share in SHARES:
            cell = known["results"][name][f"{share:.0%}"]["DensityImputer"]
            before, cell["coverage"] = cell["coverage"], measure_draws(X, share, known["seed"])
            print(f"{name:28} {share:4.0%}  coverage {before:.2f} -> {cell['coverage']:.2f}", flush=True)
        with open(path, "w", encoding="utf-8") as file:
            json.dump(known, file, indent=1)
            file.write("\n")
    found = [of["DensityImputer"]["coverage"] for table in known["results"].values() for of in table.values()]
    print(f"coverage on average {np.mean(found):.3f}, {min(found):.2f} to {max(found):.2f}")


def main() -> None:
    """Measure and print the results; write them as JSON if a file is given."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=120)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sets", choices=("first", "others"), default="first")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument(
        "--draws", action="store_true", help="measure only DensityImputer's coverage, and update the file of --json"
    )
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")  # IterativeImputer rarely converges in so few rounds
    results: dict[str, dict] = {}
    tables = data_sets if arguments.sets == "first" else other_sets
    if arguments.draws:
        update_draws(tables(arguments.rows, arguments.seed), arguments.json)
        return
    for name, X in tables(arguments.rows, arguments.seed).items():
        for share in SHARES:
            found = measure(X, share, arguments.seed)
            results.setdefault(name, {})[f"{share:.0%}"] = found
            cells = [f"{k} {v['error']:.3f} {v.get('coverage', float('nan')):.2f}" for k, v in found.items()]
            print(f"{name:28} {share:4.0%}  " + "  ".join(cells), flush=True)
    for share in SHARES:
        ratios = [
            found[f"{share:.0%}"]["DensityImputer"]["error"] / found[f"{share:.0%}"]["IterativeImputer"]["error"]
            for found in results.values()
        ]
        print(
            f"{share:.0%}: error beside IterativeImputer's, median of the sets {np.median(ratios):.3f}", file=sys.stderr
        )
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump({"rows": arguments.rows, "seed": arguments.seed, "results": results}, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
