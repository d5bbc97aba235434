"""Outlier detectors with default parameters on the sets of ADBench that can be had, fitted to clean rows and to rows with outliers.

::

    VICINAL_DATA=folder python benchmarks/outliers.py                            # the board; needs PyOD
    VICINAL_DATA=folder python benchmarks/outliers.py --detectors vicinal KNN    # measure some again, and keep the other results
    VICINAL_DATA=folder python benchmarks/outliers.py --p-values                 # p-values and false discoveries of vicinal, 20 draws
    python benchmarks/outliers.py --print                                        # the tables of docs/outliers.md, as Markdown

The rows are those of ``adbench.npz`` (at most 5,000 per set), with the mean and the standard deviation of the training rows removed.

clean
    A random half of the normal rows is the training table (``default_rng(s)``, one draw for each s); the other half and all outliers
    are scored as new rows.
contaminated
    All rows are the training table, and are ranked without themselves where the detector can do that: vicinal by ``training_scores_``, KNN and
    DTE-NP (the mean distance from five neighbours) without the row, LOF by ``negative_outlier_factor_``, the others by ``decision_scores_``.

Each figure is an area under the ROC curve and an average precision. Differences are paired over sets, after the mean over draws.

The rules that decide how rows are scored were chosen on samples and halves of these sets: the rule that decides whether a group hides,
before this script was run, and the third score of training rows (the twentieth nearest row) after it.
"""

import argparse
import importlib
import json
import os
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.neighbors import LocalOutlierFactor, NearestNeighbors

from vicinal import DensityOutlierDetector

RESULTS = Path(__file__).parent / "results" / "outliers.json"
PYOD = {"IForest": "iforest.IForest", "MCD": "mcd.MCD", "ECOD": "ecod.ECOD", "COPOD": "copod.COPOD", "HBOS": "hbos.HBOS", "INNE": "inne.INNE"}  # fmt: skip
DETECTORS = ("vicinal", "density alone", "KNN", "DTE-NP", "LOF", *PYOD)
RANDOM = ("IForest", "MCD", "INNE")  # of which a contaminated fit has one draw for each seed as well
DRAWS = 5
NEIGHBORS = 5


def sets():
    """Yield the names, the rows and the labels (1 for outliers) of the sets."""
    data = np.load(Path(os.environ["VICINAL_DATA"]) / "adbench.npz")
    for name in sorted({key[:-2] for key in data.files}):
        yield name, data[f"{name}_X"].astype(np.float64), data[f"{name}_y"]


def standardised(train, rows):
    """Return rows in standard deviations of the training rows."""
    spread = train.std(axis=0)
    return (rows - train.mean(axis=0)) / np.where(spread > 0, spread, 1.0)


def drawn(X, y, seed):
    """Return the training rows, and the other rows with their labels, of a clean fit."""
    normal = np.random.default_rng(seed).permutation(np.flatnonzero(y == 0))
    train = normal[: len(normal) // 2]
    rest = np.setdiff1d(np.arange(len(X)), train)
    return standardised(X[train], X[train]), standardised(X[train], X[rest]), y[rest]


def outlier_scores(name, rows, new=None, seed=0):
    """Return the outlier scores of the training rows, or of new rows; larger scores are more unusual."""
    if name in ("KNN", "DTE-NP"):
        distances = NearestNeighbors(n_neighbors=NEIGHBORS).fit(rows).kneighbors(new)[0]
        return distances[:, -1] if name == "KNN" else distances.mean(axis=1)
    if name == "LOF":
        lof = LocalOutlierFactor(min(20, len(rows) - 1), novelty=new is not None).fit(rows)
        return -lof.negative_outlier_factor_ if new is None else -lof.score_samples(new)
    if name in ("vicinal", "density alone"):
        detector = DensityOutlierDetector(**({} if name == "vicinal" else {"largest_group": None})).fit(rows)
        return -detector.training_scores_ if new is None else -detector.score_samples(new)
    module, kind = PYOD[name].split(".")
    options = {"random_state": seed} if name in RANDOM else {}
    detector = getattr(importlib.import_module(f"pyod.models.{module}"), kind)(**options).fit(rows)
    return detector.decision_scores_ if new is None else detector.decision_function(new)


def quality(labels, scores):
    """Return the area under the ROC curve and the average precision; a score that is no finite number is the largest."""
    scores = np.nan_to_num(scores, nan=1e300, posinf=1e300, neginf=-1e300)
    return [float(roc_auc_score(labels, scores)), float(average_precision_score(labels, scores))]


def measure(name, X, y, draws):
    """Return the quality of a detector in each draw of both protocols, and the CPU time of the contaminated fit."""
    clean = [drawn(X, y, seed) for seed in range(draws)]
    start = time.process_time()
    seeds = range(draws if name in RANDOM else 1)
    contaminated = [quality(y, outlier_scores(name, standardised(X, X), seed=seed)) for seed in seeds]
    seconds = (time.process_time() - start) / len(contaminated)
    of_clean = [
        quality(labels, outlier_scores(name, rows, new, seed)) for seed, (rows, new, labels) in enumerate(clean)
    ]
    return {"clean": of_clean, "contaminated": contaminated, "seconds": seconds}


def p_values(X, y, draws=20):
    """Return shares of p-values of fresh clean rows, false discovery proportions, and the recall of contaminated fits."""
    shares, false = [], []
    for seed in range(draws):
        rows, new, labels = drawn(X, y, seed)
        detector = DensityOutlierDetector(fdr=0.1).fit(rows)
        p = detector.p_values(new)
        usual = p[labels == 0]
        shares.append([float((usual <= level).mean()) for level in (0.05, 0.01)])
        flagged = detector.predict(new) == -1
        false.append(float((flagged & (labels == 0)).sum() / max(flagged.sum(), 1)))
    detector = DensityOutlierDetector().fit(standardised(X, X))
    p = detector.training_p_values_
    return {
        "at_05": [share[0] for share in shares],
        "at_01": [share[1] for share in shares],
        "n_fresh": int((labels == 0).sum()),
        "fdp": false,
        "contaminated_usual_at_05": float((p[y == 0] <= 0.05).mean()),
        "contaminated_recall_at_05": float((p[y == 1] <= 0.05).mean()),
    }


def _means(board, protocol, name):
    """Return the mean quality of a detector on each set on which it was measured, shape (sets, 2)."""
    return {key: np.mean(line[name][protocol], axis=0) for key, line in board.items() if name in line}


def print_tables(results):
    """Print the tables of the page as Markdown."""
    board = results["board"]
    for protocol in ("clean", "contaminated"):
        ours = _means(board, protocol, "vicinal")
        print(f"\n| {protocol} | sets | AUC | average precision | vicinal's lead in AUC | in average precision | sets on which vicinal is more than 0.06 AUC behind |")  # fmt: skip
        print("|---|---|---|---|---|---|---|")
        for name in DETECTORS:
            theirs = _means(board, protocol, name)
            if not theirs:
                continue
            values = np.array(list(theirs.values()))
            away = np.array([ours[key] - theirs[key] for key in theirs])
            mean, error = away.mean(axis=0), away.std(axis=0, ddof=1) / np.sqrt(len(away))
            leads = ["", ""] if name == "vicinal" else [f"{m:+.3f} ± {e:.3f}" for m, e in zip(mean, error, strict=True)]
            behind = [key.split("_", 1)[1] for key, gap in zip(theirs, away[:, 0], strict=True) if gap < -0.06]
            print(f"| {name} | {len(values)} | {values[:, 0].mean():.3f} | {values[:, 1].mean():.3f} | {leads[0]} | {leads[1]} | {', '.join(behind) or 'none'} |")  # fmt: skip
    if "p_values" in results:
        _print_p_values(results["p_values"])


def _print_p_values(lines):
    for level, key in ((0.05, "at_05"), (0.01, "at_01")):
        means = {name: np.mean(line[key]) for name, line in lines.items()}
        values = np.array(list(means.values()))
        print(
            f"\nfresh clean rows with p <= {level}: {values.mean():.4f} ± {values.std(ddof=1) / np.sqrt(len(values)):.4f}"
        )
        high = {n: round(float(v), 3) for n, v in means.items() if v > 2 * level}
        print(f"more than twice {level}: {high or 'none'}")
    far = {}
    for name, line in lines.items():
        mean, error = np.mean(line["fdp"]), np.std(line["fdp"], ddof=1) / np.sqrt(len(line["fdp"]))
        if mean > 0.1 + 2 * error:
            far[name] = round(float(mean), 3)
    print(
        f"\nmean false discovery proportion at fdr=0.1: {np.mean([np.mean(line['fdp']) for line in lines.values()]):.3f}"
    )
    print(f"above 0.1 by more than two standard errors: {far or 'none'}")
    usual = [line["contaminated_usual_at_05"] for line in lines.values()]
    recall = [line["contaminated_recall_at_05"] for line in lines.values()]
    print(
        f"contaminated fits: {np.mean(usual):.3f} of the normal rows and {np.mean(recall):.3f} of the outliers have p <= 0.05"
    )


def main():
    """Measure, and write the results after each set."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sets", nargs="*", help="names; the default is all")
    parser.add_argument("--detectors", nargs="+", choices=DETECTORS, default=DETECTORS)
    parser.add_argument("--draws", type=int, default=DRAWS)
    parser.add_argument("--p-values", action="store_true")
    parser.add_argument("--print", action="store_true", dest="only_print")
    parser.add_argument("--json", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    results = json.loads(arguments.json.read_text()) if arguments.json.exists() else {"board": {}}
    if arguments.only_print:
        print_tables(results)
        return
    warnings.simplefilter("ignore")
    for key, X, y in sets():
        if arguments.sets and key not in arguments.sets:
            continue
        if arguments.p_values:
            results.setdefault("p_values", {})[key] = p_values(X, y)
        else:
            line = results["board"].setdefault(key, {})
            for name in arguments.detectors:
                try:
                    line[name] = measure(name, X, y, arguments.draws)
                except (ValueError, np.linalg.LinAlgError) as error:  # such as MCD's, for a covariance of no rank
                    print(f"{key}: {name}: {error}", flush=True)
        arguments.json.write_text(json.dumps(results, indent=1) + "\n")
        print(key, flush=True)
    print_tables(results)


if __name__ == "__main__":
    main()
