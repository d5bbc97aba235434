"""Measure the defaults on every real table: densities on held-out rows, and metrics by nearest neighbours.

    OMP_NUM_THREADS=1 PYTHONPATH=src python benchmarks/defaults.py densities    # LCA(), LCAGauss(), ManifoldParzen()
    OMP_NUM_THREADS=1 PYTHONPATH=src python benchmarks/defaults.py metrics      # NCA(), RCA()
    OMP_NUM_THREADS=1 PYTHONPATH=src python benchmarks/defaults.py plenty       # when a penalty no longer helps
    OMP_NUM_THREADS=1 PYTHONPATH=src python benchmarks/defaults.py cost         # fits with and without the search, in turn

The tables are the files of at most 100 columns in the folder that VICINAL_DATA names. Results are written to
benchmarks/results/defaults_<what>.json after each table, and all of them are printed as Markdown, including losses. ``--draws``,
``--tables`` and, for densities, ``--methods`` reduce the work.
"""

import argparse
import json
import os
import time
import warnings
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
        "leave-one-out": (ParzenWindows(), rows, asked, 0.0),
        "leave-one-out, raw": (ParzenWindows(), train, test, shift),
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


def densities(names, n_draws, only=None):
    """Measure every table, with several draws; where only some methods are measured, the recorded results of the others stay."""
    found, recorded = {}, load("densities") if only else {}
    for name in names:
        X, _ = TABLES[name]
        draws = []
        for draw in range(n_draws):
            order = np.random.default_rng(draw).permutation(len(X))
            n_train = min(ROWS, int(0.75 * len(X)))
            train, test = X[order[:n_train]], X[order[n_train : n_train + TEST_ROWS]]
            draws.append(density_scores(train, test, only))
        result = compared([scores for scores, _ in draws])
        result["seconds"] = {key: float(np.mean([s[key] for _, s in draws])) for key in draws[0][1]}
        known = recorded.get(name, {})
        found[name] = {"rows": n_train, "columns": int((np.ptp(X, axis=0) > 0).sum())}
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


def metric_errors(X, y, seed):
    """Return the errors of three nearest neighbours in five stratified folds, by metric."""
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.model_selection import StratifiedKFold
    from sklearn.neighbors import KNeighborsClassifier, NeighborhoodComponentsAnalysis
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    from vicinal import NCA, RCA

    methods = {
        "standardised": StandardScaler(),
        "LDA": make_pipeline(StandardScaler(), LinearDiscriminantAnalysis()),
        "NCA of scikit-learn": make_pipeline(StandardScaler(), NeighborhoodComponentsAnalysis(random_state=seed)),
        "RCA()": RCA(),
        "NCA()": NCA(random_state=seed),
    }
    errors = dict.fromkeys(methods, 0.0)
    for train, test in StratifiedKFold(5, shuffle=True, random_state=seed).split(X, y):
        for name, metric in methods.items():
            metric.fit(X[train], y[train])
            nearest = KNeighborsClassifier(3).fit(metric.transform(X[train]), y[train])
            errors[name] += 0.2 * float(np.mean(nearest.predict(metric.transform(X[test])) != y[test]))
    return errors


def metrics(names, n_draws):
    """Measure every table with classes, with several seeds and at most 500 rows each."""
    found = {}
    for name in names:
        X, y = TABLES[name]
        if y is None or y.dtype.kind not in "iu":
            continue
        draws = []
        for seed in range(n_draws):
            order = np.random.default_rng(seed).permutation(len(X))[:ROWS]
            some, labels = X[order], y[order]
            common = np.isin(labels, [c for c in np.unique(labels) if (labels == c).sum() >= 5])
            draws.append(metric_errors(some[common], labels[common], seed))
        found[name] = {key: float(np.mean([draw[key] for draw in draws])) for key in draws[0]}
        print(name, {key: round(value, 3) for key, value in found[name].items()}, flush=True)
        save("metrics", found)
    return found


def show_metrics(found):
    """Print the table as Markdown, with the averages."""
    methods = list(next(iter(found.values())))
    print("| table | " + " | ".join(methods) + " |\n" + "|---" * (len(methods) + 1) + "|")
    mean = {m: float(np.mean([result[m] for result in found.values()])) for m in methods}
    for name, result in [*found.items(), ("**average**", mean)]:
        print(f"| {name} | " + " | ".join(f"{result[m]:.3f}" for m in methods) + " |")


# -- when to skip the search, and what it costs -----------------------------------------------------------------------


def plenty(names, n_draws):
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
            for draw in range(n_draws):
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


def cost(names, n_draws):
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
        for _ in range(n_draws):
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


def load(what):
    """Return all recorded results."""
    return json.loads((RESULTS / f"defaults_{what}.json").read_text())


def save(what, found):
    """Add the results so far to those of other tables."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"defaults_{what}.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(known | found, indent=1) + "\n")


def show_plain(found):
    """Print one line per result."""
    for name, value in found.items():
        cells = value.values() if isinstance(value, dict) else [value]
        print(f"| {name} | " + " | ".join(f"{cell:.3g}" for cell in cells) + " |")


RUN = {"densities": densities, "metrics": metrics, "plenty": plenty, "cost": cost}
SHOW = {"densities": show_densities, "metrics": show_metrics}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=RUN)
    parser.add_argument("--draws", type=int, default=2)
    parser.add_argument("--tables", nargs="*")
    parser.add_argument(
        "--methods", nargs="*", help="densities: measure these, and keep the recorded results of the others"
    )
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    TABLES = tables(options.tables)
    more = {"only": options.methods} if options.methods else {}
    RUN[options.what](options.tables or list(TABLES), options.draws, **more)
    SHOW.get(options.what, show_plain)(load(options.what))
