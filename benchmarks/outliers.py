"""Compare outlier detectors with default parameters on labelled sets, fitted to clean rows and to rows that contain outliers.

    VICINAL_DATA=folder python benchmarks/outliers.py              # everything; about 15 minutes on 2 cores
    VICINAL_DATA=folder python benchmarks/outliers.py wine --draws 0 1 2   # some sets, or more draws: they are added
    VICINAL_DATA=folder python benchmarks/outliers.py --detectors vicinal  # measure one detector again, and keep the other results
    VICINAL_DATA=folder python benchmarks/outliers.py --quick      # one draw of two sets, a minute
    VICINAL_DATA=folder python benchmarks/outliers.py --leads --draws 7    # the leads over KNN and IForest on other draws
    python benchmarks/outliers.py --print                          # the tables of the last full run, as Markdown

The script needs PyOD (``pip install pyod``). For each set, share of outliers (2, 5 and 10 %), kind of outliers (of one class, or of all
classes that are not normal) and draw, all detectors are given the same rows, one after the other. In a contaminated fit, the training
rows are ranked as each detector provides it (PyOD: ``decision_scores_``; vicinal: ``training_scores_``). In a clean fit, the other half of
the normal rows and the outliers are ranked as new rows. `outlier_sets.py` holds the sets: those on which the method was chosen, and those
that were measured only once, afterwards. Fit times are measured on 2,000 rows of three sets, with the detectors in turn, as ratios to the
time of KNN in the same round.

The script writes results/outliers.json after each set. Normal rows are drawn again for every share and kind of outliers, so a seed gives
three or six draws of a set.
"""

import argparse
import importlib
import json
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from outlier_sets import CHOSEN_ON, HELD_OUT, draw
from run import machine
from scipy.stats import rankdata
from sklearn.metrics import average_precision_score, roc_auc_score

from vicinal import DensityOutlierDetector

sys.path.append(str(Path(__file__).resolve().parents[1]))  # the loader of real sets stands in `papers`
from papers.real_sets import load

RESULTS = Path(__file__).parent / "results" / "outliers.json"
PYOD = {
    "KNN": "knn.KNN", "LOF": "lof.LOF", "IForest": "iforest.IForest", "ECOD": "ecod.ECOD", "COPOD": "copod.COPOD",
    "GMM": "gmm.GMM", "OCSVM": "ocsvm.OCSVM", "KDE": "kde.KDE",
}  # fmt: skip
TIMED_ON = ("covertype", "letter", "satimage")
GROUPS = {"chosen_on": CHOSEN_ON, "held_out": HELD_OUT}
SHARES = (0.02, 0.05, 0.1)
DETECTORS = ("vicinal", "plain density", *PYOD)
FOR_LEADS = ("vicinal", "KNN", "IForest")


def fit(name, rows):
    """Fit a detector with its defaults; IForest gets a seed, and the plain density ignores groups of outliers."""
    if name == "vicinal":
        return DensityOutlierDetector().fit(rows)
    if name == "plain density":
        return DensityOutlierDetector(largest_group=None).fit(rows)
    module, kind = PYOD[name].split(".")
    options = {"random_state": 0} if name == "IForest" else {}
    return getattr(importlib.import_module(f"pyod.models.{module}"), kind)(**options).fit(rows)


def outlier_scores(name, rows, new=None):
    """Return the outlier scores of the training rows or of new rows; larger scores are more unusual."""
    detector = fit(name, rows)
    if name in PYOD:
        return detector.decision_scores_ if new is None else detector.decision_function(new)
    return -detector.training_scores_ if new is None else -detector.score_samples(new)


def measure(source, seed, shares, detectors=DETECTORS):
    """Return one line per share, kind of outliers, kind of fit and detector, of one draw of a set."""
    lines = []
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
                    for name in detectors
                ]
    return lines


def judge(name, task, clean):
    """Return the AUC and average precision of one detector; one that refuses the rows counts as random."""
    try:
        found = outlier_scores(name, task.training, task.new if clean else None)
        failure = None if np.isfinite(found).all() else "not finite"
    except ValueError as error:
        failure = str(error).split(".")[0]
    truth = task.new_is_outlier
    if failure:
        return {"auc": 0.5, "ap": float(truth.mean()), "failure": failure}
    return {"auc": float(roc_auc_score(truth, found)), "ap": float(average_precision_score(truth, found))}


def fit_times(n_rounds):
    """Return the seconds of a fit to 2,000 rows by set and detector, with the detectors in turn, after a warm-up round."""
    found = {}
    for source in TIMED_ON:
        X = load(source, return_X_y=True)[0]
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


def summary(lines, names, kind, detectors=DETECTORS, **only):
    """Return the mean AUC, average precision and rank (by AUC) of each detector, over draws and then over sets."""
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
                    for d in detectors
                ]
                for s in names
                if any(line["set"] == s for line in chosen)
            ]
        )
    ranks = rankdata(-tables["auc"], axis=1).mean(axis=0)
    return {
        d: {"auc": auc, "ap": ap, "rank": rank}
        for d, auc, ap, rank in zip(
            detectors, tables["auc"].mean(axis=0), tables["ap"].mean(axis=0), ranks, strict=True
        )
    }


def leads(lines, names, other, kind):
    """Return the lead of vicinal over another detector in AUC and average precision: means over the sets, standard errors."""
    tables = [summary(lines, [name], kind, ("vicinal", other)) for name in names]
    cells = []
    for key in ("auc", "ap"):
        found = [table["vicinal"][key] - table[other][key] for table in tables]
        cells.append(f"{np.mean(found):+.3f} ± {np.std(found, ddof=1) / len(found) ** 0.5:.3f}")
    return " | ".join(cells)


def show_leads(seeds):
    """Print the leads on other draws, and save nothing."""
    sources = (*CHOSEN_ON, *HELD_OUT)
    lines = [line for seed in seeds for source in sources for line in measure(source, seed, SHARES, FOR_LEADS)]
    print("| vicinal minus | fits | AUC | average precision |\n|---|---|---|---|")
    for other in FOR_LEADS[1:]:
        for kind in ("contaminated", "clean"):
            print(f"| {other} | {kind} | {leads(lines, [source.name for source in sources], other, kind)} |")


def markdown(results):
    """Return the tables of docs/outliers.md."""
    lines, out = results["lines"], []
    measured = {line["set"] for line in lines}
    groups = {
        "all sets": [name for name in results["chosen_on"] + results["held_out"] if name in measured],
        "held out": [name for name in results["held_out"] if name in measured],
    }
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
    out += ["\nvicinal minus KNN, contaminated fits: mean over the sets and its standard error\n"]
    out += ["| | AUC | average precision |", "|---|---|---|"]
    out += [f"| {group} | " + leads(lines, names, "KNN", "contaminated") + " |" for group, names in groups.items()]
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


def add_to_results(**parts):
    """Add to the file of results, so that an interrupted run loses at most one set."""
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"lines": []}
    lines = parts.pop("lines", [])
    done = {(line["set"], line["draw"], line["detector"]) for line in lines}
    kept = [line for line in results["lines"] if (line["set"], line["draw"], line["detector"]) not in done]
    results.update(machine=machine(), **parts, lines=kept + lines)
    RESULTS.write_text(json.dumps(results, indent=0) + "\n")
    return results


def main():
    """Measure the detectors, save the results and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", help="sets to measure, or 'times'; default: all of them")
    parser.add_argument("--quick", action="store_true", help="measure one draw of two sets, and save nothing")
    parser.add_argument("--print", action="store_true", help="print the tables of the last run")
    parser.add_argument("--leads", action="store_true", help="print leads over KNN and IForest, nothing is saved")
    parser.add_argument(
        "--detectors",
        nargs="*",
        default=list(DETECTORS),
        help="measure only these again, on the same draws; default: all",
    )
    parser.add_argument("--draws", type=int, nargs="*", default=[0], help="the seeds of the draws; default 0")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    groups = {name: [source.name for source in sources] for name, sources in GROUPS.items()}
    if arguments.leads:
        show_leads(arguments.draws)
        return
    if arguments.quick:
        some = [sources[0] for sources in GROUPS.values()]
        lines = [line for source in some for line in measure(source, 0, SHARES[1:2])]
        print(markdown({"lines": lines, "fit_times": fit_times(2), **{k: v[:1] for k, v in groups.items()}}))
        return
    if not arguments.print:
        if not arguments.names or "times" in arguments.names:
            add_to_results(fit_times=fit_times(7), **groups)
        for seed in arguments.draws:
            for source in (*CHOSEN_ON, *HELD_OUT):
                if not arguments.names or source.name in arguments.names:
                    add_to_results(lines=measure(source, seed, SHARES, arguments.detectors), **groups)
                    print(source.name, seed, flush=True)
    print(markdown(json.loads(RESULTS.read_text())))


if __name__ == "__main__":
    main()
