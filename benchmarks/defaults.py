"""Measure the defaults on every real table: densities on held-out rows, and metrics by nearest neighbours.

    OMP_NUM_THREADS=1 PYTHONPATH=src python benchmarks/defaults.py densities    # LCA(), LCAGauss(), ManifoldParzen()
    OMP_NUM_THREADS=1 PYTHONPATH=src python benchmarks/defaults.py metrics      # NCA(), RCA()
    OMP_NUM_THREADS=1 PYTHONPATH=src python benchmarks/defaults.py plenty       # when a penalty no longer helps
    OMP_NUM_THREADS=1 PYTHONPATH=src python benchmarks/defaults.py cost         # fits with and without the search, in turn

The tables are the files of at most 100 columns in the folder that VICINAL_DATA names. Results are written to
benchmarks/results/defaults_<what>.json after each table, and all of them are printed as Markdown, including losses. ``--draws``,
``--tables`` and, for densities, ``--methods`` reduce the work. ``--first-draw`` takes other draws, whose results are kept in a
file of their own, and ``--jobs`` works on several draws at a time.
"""

import argparse
import json
import multiprocessing
import os
import time
import warnings
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
ROWS, TEST_ROWS = 500, 500
# A loss counts when it is larger than this many nats per row and than two paired standard errors.
MARGIN = 0.1


def data_folder():
    """Return the folder of the real tables."""
    named = os.environ.get("VICINAL_DATA")
    if not named or not Path(named).is_dir():
        raise SystemExit("Set VICINAL_DATA to the folder with the real tables.")
    return Path(named)


def tables(names=None):
    """Return the rows and labels (or None) of each table with at most 100 columns, or of these, by name."""
    found = {}
    for path in sorted(data_folder().glob("*.npz")):
        if names and path.stem.removeprefix("uci_") not in names:
            continue
        with np.load(path, allow_pickle=False) as file:
            parts = [name for name in ("X", "X_train", "X_test") if name in file.files]
            if not parts or file[parts[0]].shape[1] > 100:
                continue
            X = np.concatenate([file[name] for name in parts]).astype(np.float64)
            keys = [name.replace("X", "y") for name in parts]
            y = np.concatenate([file[key] for key in keys]) if all(key in file.files for key in keys) else None
        name = path.stem.removeprefix("uci_")
        found[name] = (X * 0.032 if name.startswith("glove") else X, y)
    return found


# -- densities ------------------------------------------------------------------------------------------------------


def ledoit_wolf_gaussian(train, test):
    """Return the scores of one Gaussian with the shrunk covariance of the standardised columns."""
    from scipy.stats import multivariate_normal
    from sklearn.covariance import LedoitWolf

    mean, scale = train.mean(axis=0), train.std(axis=0)
    shrunk = LedoitWolf().fit((train - mean) / scale)
    rows = (test - mean) / scale
    return multivariate_normal(shrunk.location_, shrunk.covariance_).logpdf(rows) - np.log(scale).sum()


def density_scores(train, test, only=None):
    """Return log-densities of the test rows in units of the standardised columns, by method; None where a fit is refused.

    Scott's rule, LCA and LCA-Gauss follow scalings of the columns, so that raw and standardised columns give the same
    scores; the isotropic kernels are fitted to both kinds of columns. ``only`` names some of the methods.
    """
    from vicinal import LCA, LCAGauss, ManifoldParzen, ParzenWindows

    moving = np.ptp(train, axis=0) > 0
    train, test = train[:, moving], test[:, moving]
    scale = train.std(axis=0)
    shift, (rows, asked) = np.log(scale).sum(), (part / scale for part in (train, test))
    methods = {
        "Scott": (ParzenWindows("scott"), rows, asked, 0.0),
        "leave-one-out": (ParzenWindows("loo"), rows, asked, 0.0),
        "leave-one-out, raw": (ParzenWindows("loo"), train, test, shift),
        "LCA(reg=0)": (LCA(reg=0.0), rows, asked, 0.0),
        "LCA()": (LCA(), train, test, shift),
        "LCAGauss()": (LCAGauss(), train, test, shift),
        "ManifoldParzen()": (ManifoldParzen(), rows, asked, 0.0),
        "ManifoldParzen(), raw": (ManifoldParzen(), train, test, shift),
    }
    scores, seconds = {"Gaussian": ledoit_wolf_gaussian(rows, asked)}, {}
    for name, (model, fitted_to, asked_of, jacobian) in methods.items():
        if only and name not in only:
            continue
        begin = time.perf_counter()
        try:
            scores[name] = model.fit(fitted_to).score_samples(asked_of) + jacobian
        except ValueError:
            scores[name] = None
        seconds[name] = time.perf_counter() - begin
    return scores, seconds


def compared(scores):
    """Return means, and mean differences to LCA() with their paired standard errors, over all test rows of all draws."""
    means, losses = {}, {}
    for name in scores[0]:
        kept = [draw for draw in scores if draw[name] is not None]
        means[name] = float(np.mean(np.concatenate([draw[name] for draw in kept]))) if kept else None
        ours = "LCAGauss()" if name == "Gaussian" else "LCA()"
        if kept and name != ours and ours in scores[0]:
            difference = np.concatenate([draw[ours] - draw[name] for draw in kept])
            losses[name] = [float(difference.mean()), float(difference.std() / np.sqrt(len(difference)))]
    return {"means": means, "difference": losses}


def one_draw_of_densities(only, name, draw):
    """Return the scores and seconds of each method on one draw of a table."""
    X, _ = TABLES[name]
    order = np.random.default_rng(draw).permutation(len(X))
    n_train = min(ROWS, int(0.75 * len(X)))
    return density_scores(X[order[:n_train]], X[order[n_train : n_train + TEST_ROWS]], only)


def densities(names, only=None):
    """Measure every table, with several draws; where only some methods are measured, the recorded results of the others stay."""
    found, recorded = {}, load("densities") if only else {}
    for name, draws in measured(partial(one_draw_of_densities, only), names):
        X, _ = TABLES[name]
        result = compared([scores for scores, _ in draws])
        result["seconds"] = {key: float(np.mean([s[key] for _, s in draws])) for key in draws[0][1]}
        known = recorded.get(name, {})
        found[name] = {"rows": min(ROWS, int(0.75 * len(X))), "columns": int((np.ptp(X, axis=0) > 0).sum())}
        found[name] |= {key: known.get(key, {}) | values for key, values in result.items()}
        print(name, {k: None if v is None else round(v, 2) for k, v in found[name]["means"].items()}, flush=True)
        save("densities", found)
    return found


JUDGES = ("Scott", "leave-one-out", "leave-one-out, raw", "LCA(reg=0)", "Gaussian")


def lost_to(result):
    """Return the methods that are ahead of our default by more than the margin."""
    return [
        name
        for name in JUDGES
        if name in result["difference"]
        and -result["difference"][name][0] > max(MARGIN, 2 * result["difference"][name][1])
    ]


def show_densities(found):
    """Print the table as Markdown."""
    methods = list(next(iter(found.values()))["means"])
    print("| table | rows x columns | " + " | ".join(methods) + " | behind by more than the margin |")
    print("|---" * (len(methods) + 3) + "|")
    for name, result in found.items():
        cells = ["refused" if result["means"][m] is None else f"{result['means'][m]:.2f}" for m in methods]
        lost = ", ".join(lost_to(result)) or "none"
        print(f"| {name} | {result['rows']} x {result['columns']} | " + " | ".join(cells) + f" | {lost} |")


# -- metrics --------------------------------------------------------------------------------------------------------


def metrics_to_compare(seed):
    """Return the metrics of the table of metrics in docs/benchmarks.md."""
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.neighbors import NeighborhoodComponentsAnalysis
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    from vicinal import NCA, RCA

    return {
        "standardised": StandardScaler(),
        "LDA": make_pipeline(StandardScaler(), LinearDiscriminantAnalysis()),
        SKLEARN: make_pipeline(StandardScaler(), NeighborhoodComponentsAnalysis(random_state=seed)),
        "RCA()": RCA(),
        "NCA()": NCA(random_state=seed),
    }


SKLEARN = "NCA of scikit-learn"


def one_draw_of_metrics(name, seed):
    """Return which rows, of at most 500, three nearest neighbours misclassify in five stratified folds, by metric."""
    from sklearn.model_selection import StratifiedKFold
    from sklearn.neighbors import KNeighborsClassifier

    X, y = TABLES[name]
    rows = np.random.default_rng(seed).permutation(len(X))[:ROWS]
    rows = rows[np.isin(y[rows], [c for c in np.unique(y[rows]) if (y[rows] == c).sum() >= 5])]
    wrong = {}
    for train, test in StratifiedKFold(5, shuffle=True, random_state=seed).split(rows, y[rows]):
        train, test = rows[train], rows[test]
        for method, metric in metrics_to_compare(seed).items():
            metric.fit(X[train], y[train])
            nearest = KNeighborsClassifier(3).fit(metric.transform(X[train]), y[train])
            found = wrong.setdefault(method, np.full(len(X), np.nan))
            found[test] = nearest.predict(metric.transform(X[test])) != y[test]
    return wrong


def metrics(names):
    """Measure every table with classes, with several seeds.

    The standard error of the difference between NCA() and another method is that of the mean over rows: seeds only change the
    folds, so that a row's results with several seeds are averaged first.
    """
    found = {}
    with_classes = [name for name in names if TABLES[name][1] is not None and TABLES[name][1].dtype.kind in "iu"]
    for name, draws in measured(one_draw_of_metrics, with_classes):
        found[name] = {key: float(np.mean([np.nanmean(draw[key]) for draw in draws])) for key in draws[0]}
        difference = np.array([draw["NCA()"] - draw[SKLEARN] for draw in draws])
        difference = np.nanmean(difference[:, ~np.isnan(difference).all(axis=0)], axis=0)
        found[name]["difference"] = [float(difference.mean()), float(difference.std() / np.sqrt(len(difference)))]
        print(name, {key: np.round(value, 4).tolist() for key, value in found[name].items()}, flush=True)
        save("metrics", found)
    return found


def show_metrics(found):
    """Print the table as Markdown, with the averages."""
    methods = [key for key in next(iter(found.values())) if key != "difference"]
    heads = ["table", *methods, f"NCA() less {SKLEARN}, and its standard error"]
    print("| " + " | ".join(heads) + " |\n" + "|---" * len(heads) + "|")
    for name, result in found.items():
        gain, error = result["difference"]
        print(f"| {name} | " + " | ".join(f"{result[m]:.3f}" for m in methods) + f" | {gain:+.3f} ({error:.3f}) |")
    mean = {m: float(np.mean([result[m] for result in found.values()])) for m in methods}
    gain = float(np.mean([result["difference"][0] for result in found.values()]))
    print("| **average** | " + " | ".join(f"{mean[m]:.4f}" for m in methods) + f" | {gain:+.4f} |")


# -- when to skip the search, and what it costs -----------------------------------------------------------------------


def plenty(names):
    """Return what the search gains over no penalty in held-out nats per row, at the number of rows from which on it is skipped.

    That number is 25 per free parameter of the covariance, and at least 2,000; a fifth of it is measured as well. Besides the
    tables there are lognormal columns, on which a few rows shape the kernel.
    """
    from vicinal import LCA
    from vicinal._lca import penalty

    penalty._PLENTY_IN_ALL = np.inf  # always search
    rng = np.random.default_rng(0)
    sources = {f"lognormal, {d} columns": np.exp(rng.normal(size=(4000, d))) for d in (1, 2, 3)}
    sources |= {name: TABLES[name][0][:, np.ptp(TABLES[name][0], axis=0) > 0] for name in names}
    found = {}
    for name, X in sources.items():
        d = X.shape[1]
        enough = max(2000, penalty.PLENTY * d * (d + 1) // 2)
        for n in (enough // 5, enough):
            if n > 4000 or n + 200 > len(X):
                continue
            gains = []
            for draw in options.which:
                order = np.random.default_rng(draw).permutation(len(X))
                train, test = X[order[:n]], X[order[n : n + TEST_ROWS]]
                try:
                    plain = LCA(reg=0.0).fit(train)
                except ValueError:
                    break
                gains.append(LCA().fit(train).score(test) - plain.score(test))
            if gains:
                found[f"{name} | {n} x {d}"] = float(np.mean(gains))
                print(name, d, n, gains, flush=True)
                save("plenty", found)
    return found


def cost(names):
    """Measure the processor time of the default fit and of the plain fit, in turn, and their ratio."""
    from vicinal import LCA

    found = {}
    skipped = np.random.default_rng(0).normal(size=(2000, 4))  # so many rows that the search is skipped
    for name in (*names, "normal rows, no search"):
        X = TABLES[name][0][:ROWS] if name in TABLES else skipped
        X = X[:, np.ptp(X, axis=0) > 0]
        times = []
        try:
            LCA(reg=0.0).fit(X)
        except ValueError:
            continue
        for _ in options.which:
            begin = time.process_time()
            LCA(reg=0.0).fit(X)
            middle = time.process_time()
            LCA().fit(X)
            times.append((middle - begin, time.process_time() - middle))
        plain, searched = np.min(times, axis=0)
        found[f"{name} | {len(X)} x {X.shape[1]}"] = {
            "plain": float(plain),
            "default": float(searched),
            "ratio": float(searched / plain),
        }
        print(name, X.shape, plain, searched, flush=True)
        save("cost", found)
    return found


def measured(measure, names):
    """Yield each name with ``measure(name, draw)`` of each draw."""
    tasks = [(name, draw) for name in names for draw in options.which]
    with multiprocessing.get_context("fork").Pool(options.jobs) as pool:
        results = pool.imap(partial(call, measure), tasks)
        for name in names:
            yield name, list(islice(results, len(options.which)))


def call(measure, task):
    """Return the result of one task."""
    return measure(*task)


def results_of(what):
    """Return the file of results; draws other than the usual ones have one of their own."""
    return RESULTS / f"defaults_{what}{f'_from_{options.first_draw}' if options.first_draw else ''}.json"


def load(what):
    """Return all recorded results."""
    return json.loads(results_of(what).read_text())


def save(what, found):
    """Add the results so far to those of other tables."""
    RESULTS.mkdir(exist_ok=True)
    path = results_of(what)
    known = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(known | found, indent=1) + "\n")


def show_plain(found):
    """Print one line per result."""
    for name, value in found.items():
        cells = value.values() if isinstance(value, dict) else [value]
        print(f"| {name} | " + " | ".join(f"{cell:.3g}" for cell in cells) + " |")


RUN = {
    "densities": densities,
    "metrics": metrics,
    "plenty": plenty,
    "cost": cost,
}
SHOW = {"densities": show_densities, "metrics": show_metrics}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=RUN)
    parser.add_argument("--draws", type=int, default=2)
    parser.add_argument("--first-draw", type=int, default=0, help="the seed of the first draw")
    parser.add_argument("--jobs", type=int, default=1, help="the number of processes; not for plenty and cost")
    parser.add_argument("--tables", nargs="*")
    parser.add_argument(
        "--methods", nargs="*", help="densities: measure these, and keep the recorded results of the others"
    )
    options = parser.parse_args()
    options.which = range(options.first_draw, options.first_draw + options.draws)
    warnings.simplefilter("ignore")
    TABLES = tables(options.tables)
    more = {"only": options.methods} if options.methods else {}
    RUN[options.what](options.tables or list(TABLES), **more)
    SHOW.get(options.what, show_plain)(load(options.what))
