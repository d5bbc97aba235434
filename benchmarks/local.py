"""Measure LocalLCA(): held-out log-densities, classification and outliers, on real and generated tables.

    OMP_NUM_THREADS=1 PYTHONPATH=src python benchmarks/local.py densities       # against LCA, Manifold Parzen, LCA-Gauss, Scott
    OMP_NUM_THREADS=1 PYTHONPATH=src python benchmarks/local.py uses            # errors of classifiers, areas for outliers
    OMP_NUM_THREADS=1 PYTHONPATH=src python benchmarks/local.py gaps            # rows with missing values
    PYTHONPATH=src python benchmarks/local.py cost                              # seconds of a fit, beside LCA() and ManifoldParzen()
    PYTHONPATH=src python benchmarks/local.py show                              # the tables as Markdown, from the results

The tables are those of `defaults.py` (VICINAL_DATA names their folder), USPS and MNIST in 30 components, spirals, and three
Gaussians of different orientation. Results are written to benchmarks/results/local_<what>.json after each table. A table that
is already there is not measured again unless it is named. ``--tables`` and ``--draws`` reduce the work. Runs at the same time
need a folder of results each, which ``--results`` names.
"""

import argparse
import json
import time
import warnings
from pathlib import Path

import defaults
import numpy as np
from sklearn.decomposition import PCA
from sklearn.metrics import roc_auc_score
from sklearn.mixture import GaussianMixture

from vicinal import (
    LCA,
    DensityClassifier,
    DensityImputer,
    LCAGauss,
    LocalLCA,
    ManifoldParzen,
    ParzenWindows,
    datasets,
)

ROWS, TEST_ROWS = 300, 500
MOST_COLUMNS = 64
MARGIN = 0.1
RIVALS = ("Scott", "LCA()", "LCAGauss()", "ManifoldParzen()")
RIVALS_RAW = ("Scott", "LCA()", "LCAGauss()", "ManifoldParzen(), raw")
MADE = ("spirals", "three_gaussians")
PICTURES = ("usps", "mnist")
FOLDER = [defaults.RESULTS]  # of the results


# -- the tables -------------------------------------------------------------------------------------------------------


def three_gaussians(n, seed):
    """Return rows of three Gaussians of different orientation in five dimensions, and the true log-density as a function."""
    made = np.random.default_rng(0)
    roots = np.array([np.diag([2, 1, 0.5, 0.2, 0.1]) @ np.linalg.qr(made.normal(size=(5, 5)))[0] for _ in range(3)])
    means = 2.0 * made.normal(size=(3, 5))
    rng = np.random.default_rng(seed)
    which = rng.integers(3, size=n)
    return np.einsum("ni,nij->nj", rng.normal(size=(n, 5)), roots[which]) + means[which]


def pictures(name):
    """Return all rows of pictures, as numbers from 0 to 1."""
    with np.load(defaults.data_folder() / f"{name}.npz", allow_pickle=False) as file:
        key = "X" if "X" in file.files else "X_train"
        X = file[key].reshape(len(file[key]), -1).astype(np.float64)
    return X / np.abs(X).max()


def draw_of(name, draw, tables):
    """Return training and test rows."""
    if name == "spirals":
        rows = datasets.make_spiral(300 + 2000, random_state=draw)[0]
        return rows[:300], rows[300:]
    if name == "three_gaussians":
        rows = three_gaussians(2000 + 1000, draw)
        return rows[:2000], rows[2000:]
    if name in PICTURES:
        X = pictures(name)
        order = np.random.default_rng(draw).permutation(len(X))[: 1000 + TEST_ROWS]
        images = PCA(30, random_state=0).fit(X[order[:1000]]).transform(X[order])
        return images[:1000], images[1000:]
    X = tables[name][0]
    order = np.random.default_rng(draw).permutation(len(X))
    n_train = min(ROWS, int(0.75 * len(X)))
    return X[order[:n_train]], X[order[n_train : n_train + TEST_ROWS]]


# -- densities --------------------------------------------------------------------------------------------------------


class Mixture:
    """A Gaussian mixture of one to six components, chosen by BIC."""

    def fit(self, X):
        """Fit all mixtures, and keep the best one."""
        found = (GaussianMixture(m, reg_covar=1e-3, random_state=0).fit(X) for m in range(1, 7))
        self.best = min(found, key=lambda mixture: mixture.bic(X))
        return self

    def score_samples(self, X):
        """Return log-densities."""
        return self.best.score_samples(X)


def density_scores(train, test):
    """Return log-densities of the test rows in units of the standardised columns, by method, and seconds; None where refused.

    Scott's rule, LCA and LCA-Gauss follow scalings of the columns; the others are fitted to raw columns, too.
    """
    moving = np.ptp(train, axis=0) > 0
    train, test = train[:, moving], test[:, moving]
    scale = train.std(axis=0)
    shift, rows, asked = np.log(scale).sum(), train / scale, test / scale
    methods = {
        "Scott": (ParzenWindows("scott"), rows, asked, 0.0),
        "LCA()": (LCA(), rows, asked, 0.0),
        "LCAGauss()": (LCAGauss(), rows, asked, 0.0),
        "mixture by BIC": (Mixture(), rows, asked, 0.0),
        "ManifoldParzen()": (ManifoldParzen(), rows, asked, 0.0),
        "ManifoldParzen(), raw": (ManifoldParzen(), train, test, shift),
        "LocalLCA()": (LocalLCA(), rows, asked, 0.0),
        "LocalLCA(), raw": (LocalLCA(), train, test, shift),
    }
    scores, seconds, chosen = {}, {}, None
    for name, (model, fitted_to, asked_of, jacobian) in methods.items():
        begin = time.perf_counter()
        try:
            scores[name] = model.fit(fitted_to).score_samples(asked_of) + jacobian
            if name == "LocalLCA()":
                chosen = [
                    model.shared_,
                    model.noise_,
                    model.n_neighbors_,
                    model.n_components_,
                    model.center_,
                ]
        except ValueError:
            scores[name] = None
        seconds[name] = time.perf_counter() - begin
    return scores, seconds, chosen


def compared(draws):
    """Return means, and mean differences of LocalLCA() to each method with their paired standard errors."""
    means, differences = {}, {}
    for name in draws[0]:
        kept = [draw for draw in draws if draw[name] is not None]
        means[name] = float(np.mean(np.concatenate([draw[name] for draw in kept]))) if kept else None
        ours = "LocalLCA(), raw" if name.endswith("raw") else "LocalLCA()"
        if kept and name != ours:
            apart = np.concatenate([draw[ours] - draw[name] for draw in kept])
            differences[name] = [float(apart.mean()), float(apart.std() / np.sqrt(len(apart)))]
    for name in RIVALS[:3]:  # methods that do not depend on scales are also compared with the fit to raw columns
        kept = [draw for draw in draws if draw[name] is not None]
        if kept:
            apart = np.concatenate([draw["LocalLCA(), raw"] - draw[name] for draw in kept])
            differences[f"{name} against raw"] = [float(apart.mean()), float(apart.std() / np.sqrt(len(apart)))]
    return {"means": means, "difference": differences}


def densities(names, n_draws, tables, found):
    """Measure every table, with several draws."""
    for name in names:
        scores, seconds, chosen = zip(*(density_scores(*draw_of(name, d, tables)) for d in range(n_draws)), strict=True)
        train, _ = draw_of(name, 0, tables)
        found[name] = {
            "rows": len(train),
            "columns": int((np.ptp(train, axis=0) > 0).sum()),
            "draws": n_draws,
            **compared(scores),
            "seconds": {key: float(np.mean([s[key] for s in seconds])) for key in seconds[0]},
            "chosen": chosen,
        }
        print(
            name, {k: None if v is None else round(v, 2) for k, v in found[name]["means"].items()}, chosen, flush=True
        )
        save("densities", found)
    return found


def losses(result, raw=False):
    """Return the rivals that LocalLCA() is behind by more than the margin, and whether it is above all of them."""
    keys = [f"{name} against raw" for name in RIVALS[:3]] + ["ManifoldParzen(), raw"] if raw else list(RIVALS)
    present = {key: result["difference"][key] for key in keys if key in result["difference"]}
    behind = [key for key, (apart, error) in present.items() if -apart > max(MARGIN, 2 * error)]
    return behind, all(apart > 1e-9 for apart, _ in present.values())  # a member that is the rival itself ties


def show_densities(found):
    """Print the table as Markdown, with the losses."""
    methods = list(next(iter(found.values()))["means"])
    print("| table | rows x columns | " + " | ".join(methods) + " | behind | behind, raw |")
    print("|---" * (len(methods) + 4) + "|")
    counts = np.zeros(4, dtype=int)
    for name, result in found.items():
        cells = ["refused" if result["means"][m] is None else f"{result['means'][m]:.2f}" for m in methods]
        told = []
        for r, raw in enumerate((False, True)):
            behind, above = losses(result, raw)
            counts[2 * r] += not behind
            counts[2 * r + 1] += above
            told.append(", ".join(b.removesuffix(" against raw") for b in behind) or ("above all" if above else "none"))
        print(f"| {name} | {result['rows']} x {result['columns']} | " + " | ".join(cells) + f" | {' | '.join(told)} |")
    print(
        f"\nOf {len(found)} tables LocalLCA() is behind none of {', '.join(RIVALS)} by more than the margin on {counts[0]} "
        f"(raw columns: {counts[2]}), and above all of them on {counts[1]} ({counts[3]})."
    )


# -- gaps: fits to rows with missing values ----------------------------------------------------------------------------


GAPS_TABLES = ("spirals", "three_gaussians", "iris", "wine", "vehicle", "pendigits")
GAPS = {
    "rows dropped": lambda rows: rows[~np.isnan(rows).any(axis=1)],
    "filled by means": lambda rows: DensityImputer().fit_transform(rows),
    "filled by draws": lambda rows: DensityImputer(sample=True, random_state=0).fit_transform(rows),
    "filled by draws, LCA(reg=1e-3)": lambda rows: DensityImputer(
        LCA(reg=1e-3), sample=True, random_state=0
    ).fit_transform(rows),
}


def gaps(names, n_draws, tables, found):
    """Measure LocalLCA() after a tenth of the values was removed at random, in standardised columns, with complete test rows."""
    for name in names:
        draws = []
        for draw in range(n_draws):
            train, test = draw_of(name, draw, tables)
            scale = train.std(axis=0)
            X, asked = train[:600] / scale, test / scale
            holed = np.where(np.random.default_rng(draw).random(X.shape) < 0.1, np.nan, X)
            holed[np.isnan(holed).all(axis=1)] = X[np.isnan(holed).all(axis=1)]
            scores = {"complete rows": LocalLCA().fit(X).score(asked)}
            scores |= {way: LocalLCA().fit(complete(holed)).score(asked) for way, complete in GAPS.items()}
            draws.append({**scores, "n_complete": int((~np.isnan(holed).any(axis=1)).sum()), "n": len(X)})
        found[name] = {key: float(np.mean([one[key] for one in draws])) for key in draws[0]}
        print(name, found[name], flush=True)
        save("gaps", found)
    return found


def show_gaps(found):
    """Print the table as Markdown."""
    ways = ["complete rows", *GAPS]
    print("| table | rows | rows without gaps | " + " | ".join(ways) + " |\n" + "|---" * (len(ways) + 3) + "|")
    for name, result in found.items():
        cells = [f"{result[way]:.2f}" for way in ways]
        print(f"| {name} | {result['n']:.0f} | {result['n_complete']:.0f} | " + " | ".join(cells) + " |")


# -- uses: classification and outliers ------------------------------------------------------------------------------


MODELS = {"LCA()": LCA, "ManifoldParzen()": ManifoldParzen, "LocalLCA()": LocalLCA}


def errors(X, y, seed):
    """Return the share of wrong classes among held-out rows, by the density of each class."""
    rng = np.random.default_rng(seed)
    common = np.isin(y, [c for c in np.unique(y) if (y == c).sum() >= 40])
    X, y = X[common], y[common]
    order = rng.permutation(len(X))
    n = min(ROWS, int(0.75 * len(X)))
    train, test = order[:n], order[n : n + TEST_ROWS]
    found = {}
    for name, model in MODELS.items():
        try:
            classifier = DensityClassifier(model()).fit(X[train], y[train])
            found[name] = float(np.mean(classifier.predict(X[test]) != y[test]))
        except ValueError:
            found[name] = None
    return found


def areas(X, y, seed):
    """Return areas under the ROC curve of clean and contaminated fits; one class is normal, the others are outliers."""
    rng = np.random.default_rng(seed)
    usual = np.unique(y)[np.argmax(np.unique(y, return_counts=True)[1])]
    own, other = rng.permutation(np.flatnonzero(y == usual)), rng.permutation(np.flatnonzero(y != usual))
    n = min(ROWS, len(own) // 2)
    train, test = own[:n], own[n : 2 * n]
    mixed = np.concatenate([train, other[: max(n // 20, 3)]])
    found = {}
    for name, model in MODELS.items():
        try:
            clean = model().fit(X[train])
            asked = np.concatenate([test, other[: len(test)]])
            scores = -clean.score_samples(X[asked])
            found[f"{name} clean"] = float(roc_auc_score(np.arange(len(asked)) >= len(test), scores))
            dirty = model().fit(X[mixed])
            held_out = getattr(dirty, "held_out_score_samples", lambda fitted=dirty: fitted.score_samples(None))
            found[f"{name} contaminated"] = float(roc_auc_score(np.arange(len(mixed)) >= len(train), -held_out()))
        except ValueError:
            found[f"{name} clean"] = found[f"{name} contaminated"] = None
    return found


def uses(names, n_draws, tables, found):
    """Measure errors and areas on every table with classes."""
    for name in names:
        if name in MADE or name in PICTURES or tables[name][1] is None or tables[name][1].dtype.kind not in "iu":
            continue
        X, y = tables[name]
        moving = np.ptp(X, axis=0) > 0
        X = X[:, moving] / X[:, moving].std(axis=0)
        found[name] = {
            "errors": [errors(X, y, draw) for draw in range(n_draws)],
            "areas": [areas(X, y, draw) for draw in range(n_draws)],
        }
        print(name, found[name], flush=True)
        save("uses", found)
    return found


def show_uses(found):
    """Print the table as Markdown."""
    keys = [*(f"{m} error" for m in MODELS), *(f"{m} {kind}" for kind in ("clean", "contaminated") for m in MODELS)]
    print("| table | " + " | ".join(keys) + " |\n" + "|---" * (len(keys) + 1) + "|")
    for name, result in found.items():
        merged = [
            {**{f"{m} error": e[m] for m in MODELS}, **a}
            for e, a in zip(result["errors"], result["areas"], strict=True)
        ]
        cells = []
        for key in keys:
            values = [one[key] for one in merged]
            cells.append("refused" if None in values else f"{np.mean(values):.3f}")
        print(f"| {name} | " + " | ".join(cells) + " |")


# -- cost ---------------------------------------------------------------------------------------------------------------


SIZES = {"2000 x 5": (2000, 5), "20000 x 10": (20_000, 10)}


def cost(names, n_draws, tables, found):
    """Measure the wall and CPU seconds of a fit, after a first fit that compiles, with the methods in turn."""
    for name in names:
        n, d = SIZES[name]
        X = np.random.default_rng(0).normal(size=(n, d)) @ np.random.default_rng(1).normal(size=(d, d))
        X[: n // 2] += 3.0
        times = {key: [] for key in MODELS}
        for model in MODELS.values():
            model().fit(X[:1600])
        for _ in range(n_draws):
            for key, model in MODELS.items():
                begin, busy = time.perf_counter(), time.process_time()
                model().fit(X)
                times[key].append((time.perf_counter() - begin, time.process_time() - busy))
                print(name, key, times[key][-1], flush=True)
        found[name] = {key: np.median(pairs, axis=0).tolist() for key, pairs in times.items()}
        save("cost", found)
    return found


def show_cost(found):
    """Print the table as Markdown."""
    print("| rows x columns | " + " | ".join(MODELS) + " |\n" + "|---" * (len(MODELS) + 1) + "|")
    for name, result in found.items():
        print(f"| {name} | " + " | ".join("{:.1f} s ({:.1f} s of CPU)".format(*result[m]) for m in MODELS) + " |")


WHAT = {
    "densities": (densities, show_densities),
    "gaps": (gaps, show_gaps),
    "uses": (uses, show_uses),
    "cost": (cost, show_cost),
}


def path_of(what):
    """Return the path of a file of results."""
    return FOLDER[0] / f"local_{what}.json"


def save(what, found):
    """Write all results to a second file and rename it."""
    path_of(what).with_suffix(".part").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    path_of(what).with_suffix(".part").replace(path_of(what))


def main():
    """Run one part of the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=[*WHAT, "show"])
    parser.add_argument("--tables", nargs="*", help="the names of the tables; default: all that are not in the results")
    parser.add_argument("--draws", type=int, default=1)
    parser.add_argument("--results", type=Path, default=defaults.RESULTS, help="the folder of the results")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    FOLDER[0] = arguments.results
    known = {
        what: json.loads(path_of(what).read_text(encoding="utf-8")) if path_of(what).exists() else {} for what in WHAT
    }
    if arguments.what == "show":
        for what, (_, show) in WHAT.items():
            if known[what]:
                print(f"\n{what}\n")
                show(known[what])
        return
    run, show = WHAT[arguments.what]
    tables = (
        {}
        if arguments.what == "cost"
        else {n: t for n, t in defaults.tables(arguments.tables).items() if t[0].shape[1] <= MOST_COLUMNS}
    )
    everything = {"cost": SIZES, "gaps": GAPS_TABLES}.get(arguments.what, (*tables, *MADE, *PICTURES))
    names = arguments.tables or [n for n in everything if n not in known[arguments.what]]
    show(run(names, arguments.draws, tables, known[arguments.what]))


if __name__ == "__main__":
    main()
