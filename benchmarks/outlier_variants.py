"""Compare variants of the default outlier detector with the distance to the fifth nearest row (KNN), on the sets of `outliers.py`.

    OMP_NUM_THREADS=1 VICINAL_DATA=folder python benchmarks/outlier_variants.py first 101 102    # half of the sets, these seeds
    OMP_NUM_THREADS=1 VICINAL_DATA=folder python benchmarks/outlier_variants.py second 201       # the other half
    python benchmarks/outlier_variants.py show                                                   # the tables of the last runs

A variant is chosen on the first half of the sets (every other one, by name) and evaluated on the second. All variants combine the
log-density ("d"), the distance to a row outside small groups ("g") and the distance to the fifth nearest row ("k"), each in units
of its own spread; the most unusual of them is the score. In one or two rounds, the most unusual rows may be removed from the neighbours:
a given share of the rows, or only those of them that lie beyond the fence of a box plot. Everything is computed from tables of all
distances, so a set takes seconds. Results are written to results/outlier_variants.json.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np
from outlier_sets import CHOSEN_ON, HELD_OUT, draw
from sklearn.metrics import average_precision_score, roc_auc_score

from vicinal import ParzenWindows

RESULTS = Path(__file__).parent / "results" / "outlier_variants.json"
SETS = sorted([*CHOSEN_ON, *HELD_OUT], key=lambda source: source.name)
HALVES = {"first": SETS[::2], "second": SETS[1::2]}
GROUP = 0.1
VIEWS = {"dg": (0, 1), "dgk": (0, 1, 2)}


def squared_distances(A, B):
    """Return the squared distances of all pairs of rows."""
    return np.maximum(np.square(A).sum(axis=1)[:, None] + np.square(B).sum(axis=1) - 2 * A @ B.T, 0)


def views(squares, variance, kept):
    """Return minus the log-density (up to a constant) and half of two squared distances, in kernel units, of shape (3, m)."""
    near = squares[:, kept]
    k = min(max(int(np.ceil(GROUP * squares.shape[1])), 3), near.shape[1] - 1)
    in_order = np.partition(near, [4, k - 1], axis=1)
    top = near.min(axis=1)
    density = 0.5 * top / variance - np.log(np.exp(-0.5 * (near - top[:, None]) / variance).sum(axis=1))
    return np.array([density, 0.5 * in_order[:, k - 1] / variance, 0.5 * in_order[:, 4] / variance])


def scales(found):
    """Return the median and the interquartile range of each view."""
    low, median, high = np.quantile(found, [0.25, 0.5, 0.75], axis=1)
    return median[:, None], np.maximum(high - low, 1e-12)[:, None]


def combined(found, scale, use):
    """Return the largest of some views, in units of their spread."""
    return ((found - scale[0]) / scale[1])[list(use)].max(axis=0)


def fence(scores):
    """Return the upper fence of a box plot."""
    low, high = np.quantile(scores, [0.25, 0.75])
    return high + 1.5 * (high - low)


def variants(rows, new=None):
    """Return the outlier scores of the training rows, each left out, or of new rows, by variant."""
    own = squared_distances(rows, rows)
    np.fill_diagonal(own, np.inf)
    asked = own if new is None else squared_distances(new, rows)
    rows_that_vary = rows[:, np.ptp(rows, axis=0) > 0]  # constant columns, of pixels, have a warning
    width = ParzenWindows().fit(rows_that_vary).covariance_[0, 0]
    everyone = np.ones(len(rows), dtype=bool)
    first, of_asked = views(own, width, everyone), views(asked, width, everyone)
    found = {"KNN": np.partition(asked, 4, axis=1)[:, 4]}
    for name, use in VIEWS.items():
        found[name] = combined(of_asked, scales(first), use)
        for share in (0.05, 0.1):
            for fenced in (False, True):
                scores = combined(first, scales(first), use)
                for rounds in (1, 2):
                    line = np.quantile(scores, 1 - share)
                    kept = scores <= (max(line, fence(scores)) if fenced else line)
                    again = views(own, width, kept)
                    scores = combined(again, scales(again), use)
                    who = f"at most {share:.0%} beyond the fence" if fenced else f"{share:.0%}"
                    label = f"{name}, {who} out, {rounds} round{'s' if rounds > 1 else ''}"
                    found[label] = combined(views(asked, width, kept), scales(again), use)
    return found


def measure(source, seeds):
    """Return the mean AUC and average precision of each variant on the draws of a set, for contaminated and clean fits."""
    found = {}
    for kind in ("contaminated", "clean"):
        scores = {}
        for seed in seeds:
            for share in (0.02, 0.05, 0.1):
                for clustered in (True, False) if source.classes > 1 else (True,):
                    task = draw(source, share=share, clustered=clustered, clean=kind == "clean", seed=seed)
                    truth = task.new_is_outlier
                    for name, values in variants(task.training, task.new if kind == "clean" else None).items():
                        both = roc_auc_score(truth, values), average_precision_score(truth, values)
                        scores.setdefault(name, []).append(both)
        found[kind] = {name: np.mean(values, axis=0).tolist() for name, values in scores.items()}
    return found


def show(results):
    """Print the tables as Markdown."""
    for half, sets in results.items():
        for kind in ("contaminated", "clean"):
            names = list(next(iter(sets.values()))[kind])
            table = np.array([[found[kind][name] for name in names] for found in sets.values()])
            leads = table - table[:, [names.index("KNN")]]
            print(
                f"\n{kind} fits, {half} half of the sets ({len(sets)})\n\n| variant | AUC | average precision | less KNN's |"
            )
            print("|---|---|---|---|")
            for i in np.argsort(-table[:, :, 1].mean(axis=0)):
                error = leads[:, i, 1].std(ddof=1) / len(sets) ** 0.5
                auc, precision = table[:, i].mean(axis=0)
                print(f"| {names[i]} | {auc:.3f} | {precision:.3f} | {leads[:, i, 1].mean():+.3f} ± {error:.3f} |")


def main():
    """Measure one half of the sets, or print the results so far."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("half", choices=[*HALVES, "show"])
    parser.add_argument("seeds", type=int, nargs="*", default=[101])
    arguments = parser.parse_args()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if arguments.half != "show":
        results[arguments.half] = {}
        for source in HALVES[arguments.half]:
            results[arguments.half][source.name] = measure(source, arguments.seeds)
            print(source.name, file=sys.stderr, flush=True)
        RESULTS.write_text(json.dumps(results, indent=0) + "\n")
    show(results)


if __name__ == "__main__":
    main()
