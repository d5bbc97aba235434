"""Outlier detectors with their defaults on labelled sets: fitted to clean rows, and to rows that hold the outliers.

    VICINAL_DATA=folder python benchmarks/outliers.py              # everything; some 15 minutes on 2 cores
    VICINAL_DATA=folder python benchmarks/outliers.py --quick      # one draw of four sets, a minute
    python benchmarks/outliers.py --print                          # the tables of the last full run, as Markdown

Needs PyOD beside vicinal (``pip install pyod``). For each set, share of outliers (2, 5 and 10 %), kind of outliers (of one
class, or of all classes that are not usual) and draw, all detectors see the same rows, one after the other. In a
contaminated fit the training rows are ranked, each detector's own way (PyOD: ``decision_scores_``; vicinal:
``training_scores_``); in a clean fit the other half of the usual rows and the outliers are ranked as new rows.
The sets are in `outlier_sets.py`: those that the method was chosen on, and those that were looked at once, afterwards.
Fit times are of 2,000 rows of three sets, detectors in turn, as ratios to KNN's in the same round.

Writes results/outliers.json.
"""

import argparse
import importlib
import json
import time
import warnings
from pathlib import Path

import numpy as np
from outlier_sets import CHOSEN_ON, HELD_OUT, draw
from run import machine
from scipy.stats import rankdata
from sklearn.metrics import average_precision_score, roc_auc_score

from vicinal import DensityOutlierDetector, datasets

RESULTS = Path(__file__).parent / "results" / "outliers.json"
PYOD = {
    "KNN": "knn.KNN", "LOF": "lof.LOF", "IForest": "iforest.IForest", "ECOD": "ecod.ECOD", "COPOD": "copod.COPOD",
    "GMM": "gmm.GMM", "OCSVM": "ocsvm.OCSVM", "KDE": "kde.KDE",
}  # fmt: skip
TIMED_ON = ("covertype", "letter", "satimage")
SHARES = (0.02, 0.05, 0.1)
DETECTORS = ("vicinal", "plain density", *PYOD)


def fit(name, rows):
    """Fit a detector with its defaults; IForest gets a seed, and the plain density is ours without trust."""
    if name == "vicinal":
        return DensityOutlierDetector().fit(rows)
    if name == "plain density":
        return DensityOutlierDetector(largest_group=None).fit(rows)
    module, kind = PYOD[name].split(".")
    options = {"random_state": 0} if name == "IForest" else {}
    return getattr(importlib.import_module(f"pyod.models.{module}"), kind)(**options).fit(rows)


def strangeness(name, rows, new=None):
    """How strange the training rows are, or new rows; larger is stranger."""
    detector = fit(name, rows)
    if name in PYOD:
        return detector.decision_scores_ if new is None else detector.decision_function(new)
    return -detector.training_scores_ if new is None else -detector.score_samples(new)


def measure(sources, n_draws, shares):
    """One line per set, share, kind of outliers, kind of fit, draw and detector."""
    lines = []
    for source in sources:
        for seed in range(n_draws):
            for share in shares:
                for clustered in (True, False) if source.classes > 1 else (True,):
                    for clean in (False, True):
                        task = draw(source, share=share, clustered=clustered, clean=clean, seed=seed)
                        lines += [
                            {
                                "set": source.name,
                                "share": share,
                                "outliers": "clustered" if clustered else "scattered",
                                "fit": "clean" if clean else "contaminated",
                                "draw": seed,
                                "detector": name,
                                **judge(name, task, clean),
                            }
                            for name in DETECTORS
                        ]
        print(source.name, flush=True)
    return lines


def judge(name, task, clean):
    """AUC and average precision of one detector; a detector that refuses the rows knows nothing of them."""
    try:
        found = strangeness(name, task.training, task.new if clean else None)
        failure = None if np.isfinite(found).all() else "not finite"
    except ValueError as error:
        failure = str(error).split(".")[0]
    truth = task.new_is_outlier
    if failure:
        return {"auc": 0.5, "ap": float(truth.mean()), "failure": failure}
    return {"auc": float(roc_auc_score(truth, found)), "ap": float(average_precision_score(truth, found))}


def fit_times(n_rounds):
    """Seconds of a fit to 2,000 rows, detectors in turn, after a round that does not count; by set and detector."""
    found = {}
    for source in TIMED_ON:
        X = datasets.load(source, return_X_y=True)[0]
        rows = X[np.random.default_rng(0).choice(len(X), 2000, replace=False)].astype(float)
        rows = (rows - rows.mean(axis=0)) / rows.std(axis=0)
        seconds = {name: [] for name in DETECTORS}
        for _ in range(n_rounds + 1):
            for name in DETECTORS:
                start = time.perf_counter()
                fit(name, rows)
                seconds[name].append(time.perf_counter() - start)
        found[f"{source}, {rows.shape[1]} columns"] = {
            name: {
                "seconds": min(times[1:]),
                "times_knn": float(np.median(np.divide(times[1:], seconds["KNN"][1:]))),
            }
            for name, times in seconds.items()
        }
    return found


def summary(lines, names, kind, **only):
    """Mean AUC, mean average precision and mean rank (by AUC) of each detector: over draws, then over sets."""
    chosen = [
        line
        for line in lines
        if line["set"] in names and line["fit"] == kind and all(line[key] == value for key, value in only.items())
    ]
    tables = {}
    for measure_name in ("auc", "ap"):
        tables[measure_name] = np.array(
            [
                [
                    np.mean([line[measure_name] for line in chosen if line["set"] == s and line["detector"] == d])
                    for d in DETECTORS
                ]
                for s in names
                if any(line["set"] == s for line in chosen)
            ]
        )
    ranks = rankdata(-tables["auc"], axis=1).mean(axis=0)
    return {
        d: {"auc": auc, "ap": ap, "rank": rank}
        for d, auc, ap, rank in zip(
            DETECTORS, tables["auc"].mean(axis=0), tables["ap"].mean(axis=0), ranks, strict=True
        )
    }


def markdown(results):
    """The tables of docs/outliers.md."""
    lines, out = results["lines"], []
    groups = {"all sets": results["chosen_on"] + results["held_out"], "held out": results["held_out"]}
    for kind in ("contaminated", "clean"):
        found = {group: summary(lines, names, kind) for group, names in groups.items()}
        out += [f"\n{kind} fits: mean AUC / average precision (mean rank by AUC)\n"]
        out += ["| | " + " | ".join(DETECTORS) + " |", "|---|" + "---|" * len(DETECTORS)]
        for group, table in found.items():
            cells = [f"{table[d]['auc']:.3f} / {table[d]['ap']:.3f} ({table[d]['rank']:.1f})" for d in DETECTORS]
            out.append(f"| {group} | " + " | ".join(cells) + " |")
        for s in groups["all sets"]:
            table = summary(lines, [s], kind)
            cells = [f"{table[d]['auc']:.2f} / {table[d]['ap']:.2f}" for d in DETECTORS]
            out.append(f"| {s} | " + " | ".join(cells) + " |")
    out += ["\nby kind and share of outliers, contaminated fits, all sets\n"]
    out += ["| | " + " | ".join(DETECTORS) + " |", "|---|" + "---|" * len(DETECTORS)]
    for key, values in (("outliers", ("clustered", "scattered")), ("share", sorted({line["share"] for line in lines}))):
        for value in values:
            table = summary(lines, groups["all sets"], "contaminated", **{key: value})
            cells = [f"{table[d]['auc']:.3f} / {table[d]['ap']:.3f}" for d in DETECTORS]
            out.append(f"| {value if key == 'outliers' else f'{value:.0%}'} | " + " | ".join(cells) + " |")
    out += ["\nfit time of 2,000 rows, as a multiple of KNN's\n"]
    out += ["| | " + " | ".join(DETECTORS) + " |", "|---|" + "---|" * len(DETECTORS)]
    for source, times in results["fit_times"].items():
        out.append(f"| {source} | " + " | ".join(f"{times[d]['times_knn']:.1f}" for d in DETECTORS) + " |")
    return "\n".join(out)


def main():
    """Measure, save and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="one draw of four sets, nothing is saved")
    parser.add_argument("--print", action="store_true", help="print the tables of the last run")
    parser.add_argument("--draws", type=int, default=2)
    arguments = parser.parse_args()
    if arguments.print:
        print(markdown(json.loads(RESULTS.read_text())))
        return
    chosen_on, held_out = (CHOSEN_ON[:2], HELD_OUT[:2]) if arguments.quick else (CHOSEN_ON, HELD_OUT)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = {
            "machine": machine(),
            "chosen_on": [source.name for source in chosen_on],
            "held_out": [source.name for source in held_out],
            "fit_times": fit_times(2 if arguments.quick else 7),
            "lines": measure(
                (*chosen_on, *held_out),
                1 if arguments.quick else arguments.draws,
                SHARES[1:2] if arguments.quick else SHARES,
            ),
        }
    if not arguments.quick:
        RESULTS.write_text(json.dumps(results, indent=0) + "\n")
    print(markdown(results))


if __name__ == "__main__":
    main()
