"""Whether two versions of the package give the same fits.

python benchmarks/same_fits.py OLD_PYTHON NEW_PYTHON [--only NAME ...]

Both arguments are interpreters in which a version is installed. Each version makes about 60 fits (all estimators, structures, weights,
missing values, rows in files, float32) in a process of its own. The fitted attributes, the scores of new rows and their images are compared;
every difference of more than 1e-8, relative to the largest entry, is printed, and the exit status is then 1. Only options that both
versions have are used. Attributes that one version alone has are listed at the end and do not count as differences.
"""

import argparse
import inspect
import pickle
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np

TOLERANCE = 1e-8
# What may differ between versions that give the same fits: names of backends and private caches.
SKIPPED = {"engine_", "certified_row_error_"}


# -- the fits, which run in the process of a version -------------------------------------------------------------------


def clusters(n=160, d=4, seed=0):
    """Rows of three stretched clusters, their labels, and new rows."""
    random = np.random.default_rng(seed)
    labels = random.integers(3, size=n + 40)
    rows = random.normal(size=(n + 40, d)) @ random.normal(size=(d, d)) + 4 * random.normal(size=(3, d))[labels]
    return rows[:n], labels[:n], rows[n:]


def spiral(n=200):
    """Rows along a noisy spiral."""
    random = np.random.default_rng(1)
    t = 3 + 12 * np.sqrt(random.uniform(size=n))
    return np.column_stack([0.04 * t * np.sin(t), 0.04 * t * np.cos(t)]) + 0.01 * random.normal(size=(n, 2))


def with_gaps(rows, share=0.08, seed=2):
    """The rows with some values missing, at most one in a row."""
    random = np.random.default_rng(seed)
    rows = rows.copy()
    places = random.permutation(len(rows))[: int(share * rows.size)]
    rows[places, random.integers(rows.shape[1], size=len(places))] = np.nan
    return rows


def fits(folder):
    """Return the fits by name: functions without arguments that return a fitted estimator and new rows (or None)."""
    from sklearn.base import clone
    from sklearn.datasets import load_iris, load_wine

    import vicinal as v

    companions = getattr(v, "companions", v)  # earlier versions have all names at the top level
    X, y, new = clusters()
    wide, wide_y, wide_new = clusters(60, 12, seed=3)
    many, many_y, many_new = clusters(1500, 5, seed=4)
    weight = np.random.default_rng(5).uniform(0.2, 3.0, size=len(X))
    zeros = np.where(np.arange(len(X)) % 7 == 0, 0.0, weight)
    constant = np.column_stack([X, np.full(len(X), 2.5)])
    gaps, curve = with_gaps(X), spiral()
    iris, iris_y = load_iris(return_X_y=True)
    wine, wine_y = load_wine(return_X_y=True)
    chunklets = np.where(np.arange(len(X)) % 3 == 0, -1, y * 40 + np.arange(len(X)) // 4)
    pairs = np.random.default_rng(6).integers(len(X), size=(120, 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    same = (y[pairs[:, 0]] == y[pairs[:, 1]]).astype(int)
    np.save(Path(folder) / "rows.npy", many)
    mapped = np.load(Path(folder) / "rows.npy", mmap_mode="r")
    large = clusters(8000, 5, seed=7)
    np.save(Path(folder) / "large.npy", large[0])
    file, small = np.load(Path(folder) / "large.npy", mmap_mode="r"), v.Engine(memory="1 MB")  # too small for the file
    # The adaptation passes that earlier versions of LocalLCA could choose are not compared.
    plain = {"max_iter": 0} if "max_iter" in inspect.signature(v.LocalLCA).parameters else {}
    stochastic = v.StochasticEM(batch_size=80)
    result = {}

    def add(name, estimator, *args, new=new, **kwargs):
        result[name] = (clone(estimator), args, kwargs, new)

    # LCA: structures, penalties, solvers, weights, gaps, kinds of rows
    add("LCA reg=0", v.LCA(reg=0.0), X)
    add("LCA auto", v.LCA(), X)
    add("LCA auto, iris", v.LCA(), iris, new=None)
    add("LCA auto, wine", v.LCA(), wine, new=None)
    add("LCA auto, wide", v.LCA(), wide, new=wide_new)
    add("LCA auto, weights", v.LCA(), X, sample_weight=weight)
    add("LCA auto, zero weights", v.LCA(), X, sample_weight=zeros)
    add("LCA auto, float32", v.LCA(), X.astype(np.float32))
    add("LCA constant column", v.LCA(reg=0.01), constant, new=np.column_stack([new, np.full(len(new), 2.5)]))
    add("LCA diag", v.LCA("diag"), X)
    add("LCA spherical", v.LCA("spherical"), X)
    add("LCA low rank", v.LCA("low_rank", rank=2), X)
    add("LCA low rank, reg=0.1", v.LCA("low_rank", rank=1, reg=0.1), X)
    add("LCA em", v.LCA(reg=0.05, solver="em", max_iter=60), X)
    add("LCA reg vector", v.LCA(reg=[0.1, 0.2, 0.3, 0.4], init=2.0), X)
    add("LCA reg matrix", v.LCA(reg=0.05 * np.cov(X.T), init=np.cov(X.T)), X)
    add("LCA shrinkage", v.LCA(reg=v.Shrinkage(0.5, 0.3)), X, sample_weight=weight)
    add("LCA gaps", v.LCA(), gaps)
    add("LCA gaps, weights", v.LCA("diag", reg=0.1), gaps, sample_weight=weight)
    add("LCA stochastic", v.LCA(reg=0.01, solver=stochastic, random_state=0, max_iter=6), many, new=many_new)
    add("LCA stochastic, auto", v.LCA(solver=stochastic, random_state=0, max_iter=4), many, new=many_new)
    add("LCA stochastic, candidates",
        v.LCA(reg=0.01, solver=v.StochasticEM(n_candidates=300), random_state=0, max_iter=4), many, new=many_new)  # fmt: skip
    add("LCA file", v.LCA(reg=0.01), mapped, new=many_new)
    add(
        "LCA file, stochastic", v.LCA(solver="stochastic", random_state=0, max_iter=4, engine=small), file, new=many_new
    )
    result["LCA partial_fit"] = (
        v.LCA(random_state=0).partial_fit(many[:500]),
        (many[500:],),
        {"partial": True},
        many_new,
    )
    # LCA-Gauss
    add("LCAGauss", v.LCAGauss(), X)
    add("LCAGauss reduce", v.LCAGauss(reduce=True), wide, new=wide_new)
    add("LCAGauss given", v.LCAGauss(reg=0.05, reg_gauss=0.01), X, sample_weight=weight)
    add("LCAGauss shrinkage", v.LCAGauss(reg=v.Shrinkage(0.5, 0.3)), X)
    add("LCAGauss float32", v.LCAGauss(), X.astype(np.float32))
    add("LCAGauss gaps", v.LCAGauss(reg=0.05), gaps)
    add("LCAGauss gaps, reduce", v.LCAGauss(reduce=True), gaps, sample_weight=weight)
    add("LCAGauss stochastic", v.LCAGauss(solver=stochastic, random_state=0, max_iter=4), many, new=many_new)
    add(
        "LCAGauss file, stochastic",
        v.LCAGauss(reg=0.01, solver="stochastic", random_state=0, max_iter=3, engine=small),
        file,
        new=many_new,
    )
    # the local family
    row, fast = {"center": "row", **plain}, v.Selection(n_components=[0, 1], n_neighbors=[5, 10], noise=[1e-4, 1e-3])
    add("LocalLCA row", v.LocalLCA(**row), curve, new=curve[:20] + 0.01)
    add("LocalLCA mean", v.LocalLCA(center="mean", **plain), X)
    add("LocalLCA weights", v.LocalLCA(2, 12, shared=0.5, **row), X, sample_weight=weight)
    add("LocalLCA given", v.LocalLCA(1, 8, 1e-3, shared=0.3, reg=0.01, **row), X)
    add("LocalLCA no LCA", v.LocalLCA(1, 8, 1e-3, shared=0, **row), curve, new=curve[:20] + 0.01)
    add("LocalLCA selection", v.LocalLCA(selection=fast, **row), curve, new=curve[:20] + 0.01)
    add("ManifoldParzen", v.ManifoldParzen(), curve, new=curve[:20] + 0.01)
    add("ManifoldParzen given", v.ManifoldParzen(1, 8, 1e-4), curve, new=curve[:20] + 0.01)
    add("ManifoldParzen weights", v.ManifoldParzen(2, 10), X, sample_weight=weight)
    add("ManifoldParzen float32", v.ManifoldParzen(1, 8), curve.astype(np.float32), new=curve[:20] + 0.01)
    add("ManifoldParzen selection", v.ManifoldParzen(selection=fast), curve, new=curve[:20] + 0.01)
    add("ManifoldParzen kernel", v.ManifoldParzen(1, vicinity="kernel", bandwidth=0.05), curve, new=None)
    # Parzen windows and what uses densities
    add("ParzenWindows", v.ParzenWindows(), X)
    add("ParzenWindows scott, weights", v.ParzenWindows("scott"), X, sample_weight=weight)
    add("ParzenWindows gaps", v.ParzenWindows(), gaps)
    add("DensityClassifier", v.DensityClassifier(v.LCA(reg=0.05)), X, y)
    add("DensityImputer", v.DensityImputer(), gaps, new=gaps[:20])
    # RCA
    add("RCA", v.RCA(), X, chunklets)
    add("RCA reduced", v.RCA(2, shrinkage=0.2), X, chunklets)
    add("RCA cv", v.RCA(shrinkage="cv"), X, chunklets)
    add("RCA weights", v.RCA(shrinkage="auto"), wide, wide_y, new=wide_new)
    add("OnlineRCA", v.OnlineRCA(), X, chunklets)
    add("ConstrainedKMeans", companions.ConstrainedKMeans(3, random_state=0), X, chunklets)
    add("ConstrainedGaussianMixture", companions.ConstrainedGaussianMixture(3, random_state=0), X, chunklets)
    # NCA
    add("NCA", v.NCA(random_state=0), iris, iris_y, new=None)
    add("NCA low rank", v.NCA(2, random_state=0, max_iter=20), wine, wine_y, new=None)
    add("NCA likelihood", v.NCA(objective="likelihood", random_state=0, max_iter=20), X, y)
    add("NCA diagonal", v.NCA(structure="diag", random_state=0, max_iter=20), X, y)
    add(
        "NCA numbers",
        v.NCA(2, objective=v.Objective(match="gaussian"), random_state=0, max_iter=20),
        X,
        X[:, 0] + 0.1 * X[:, 1],
    )
    add("NCA weights", v.NCA(init="pca", random_state=0, max_iter=15), X, y, sample_weight=weight)
    add("NCA float32", v.NCA(2, init="lda", random_state=0, max_iter=15), X.astype(np.float32), y)
    add("NCA stochastic", v.NCA(2, solver="stochastic", random_state=0, max_iter=4), many, many_y, new=many_new)
    add(
        "NCA file, stochastic",
        v.NCA(2, solver="stochastic", random_state=0, max_iter=3, engine=small),
        file,
        large[1],
        new=many_new,
    )
    add("PairNCA", v.PairNCA(2, random_state=0, max_iter=20), X, chunklets)
    add("AnchorNCA", v.AnchorNCA(2, solver=v.Adam(batch_size=8), random_state=0, max_iter=5), X, pairs=pairs[same == 1])
    add("PairNCA diagonal, pairs", v.PairNCA(structure="diag", random_state=0, max_iter=20), X, pairs=pairs[same == 1])
    add("SoftNeighborsClassifier", v.SoftNeighborsClassifier(v.NCA(2, random_state=0, max_iter=10)), X, y)
    return result


def values(thing, depth=0):
    """Return what a fitted object holds, as numbers, arrays, strings, lists and dictionaries."""
    if thing is None or isinstance(thing, (bool, int, float, str, np.generic)):
        return thing
    if isinstance(thing, np.ndarray):
        return thing if thing.dtype.kind in "biufUS" else [values(item, depth) for item in thing.ravel()]
    if isinstance(thing, dict):
        return {str(key): values(value, depth) for key, value in thing.items()}
    if isinstance(thing, (list, tuple)):
        return [values(value, depth) for value in thing]
    if depth > 2 or not hasattr(thing, "__dict__"):
        return None
    public = {key: value for key, value in vars(thing).items() if not key.startswith("_")}
    if hasattr(thing, "get_params"):
        public = {key: value for key, value in public.items() if key.endswith("_")}
    public.pop("engine", None)
    if "n_passes_" in public:  # earlier versions of NCA counted passes as iterations
        public["n_iter_"] = public.pop("n_passes_")
    return {key: values(value, depth + 1) for key, value in public.items()}


def fit_all(target, only):
    """Make the fits with the version of this process, and write what they hold to a file."""
    results = {}
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, (estimator, args, kwargs, new) in fits(folder).items():
            if only and not any(name.startswith(start) for start in only):
                continue
            try:
                (estimator.partial_fit if kwargs.pop("partial", False) else estimator.fit)(*args, **kwargs)
            except Exception as error:  # a version may refuse what the other one fits
                results[name] = {"error": f"{type(error).__name__}: {error}"}
                continue
            results[name] = values(estimator)
            for method in ("score_samples", "transform", "predict_proba"):
                if new is not None and hasattr(estimator, method):
                    results[name][f"{method}(new)"] = np.asarray(getattr(estimator, method)(new))
            if hasattr(estimator, "score_samples") and hasattr(estimator, "mixture_"):
                results[name]["score_samples(None)"] = estimator.score_samples(None)
    Path(target).write_bytes(pickle.dumps(results))


# -- the comparison ----------------------------------------------------------------------------------------------------


def differences(old, new, name=""):
    """Yield the path and the relative size of each difference; the size is None for what only one version has."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            path = f"{name}.{key}" if name else key
            if key in SKIPPED:
                continue
            if key not in old or key not in new:
                yield path, None
            else:
                yield from differences(old[key], new[key], path)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for place, pair in enumerate(zip(old, new, strict=True)):
            yield from differences(*pair, f"{name}[{place}]")
    else:
        size = difference(old, new)
        if not size <= TOLERANCE:
            yield name, size


def difference(old, new):
    """Return the largest difference relative to the largest entry; infinity if the values cannot be compared."""
    old, new = np.asarray(old), np.asarray(new)
    if old.shape != new.shape:
        return np.inf
    if old.dtype.kind not in "biuf" or new.dtype.kind not in "biuf":
        return 0.0 if np.array_equal(old, new) else np.inf
    old, new = old.astype(np.float64), new.astype(np.float64)
    finite = np.isfinite(old)
    if not np.array_equal(finite, np.isfinite(new)) or not np.array_equal(old[~finite], new[~finite], equal_nan=True):
        return np.inf
    if not finite.any():
        return 0.0
    scale = max(np.abs(old[finite]).max(), 1e-300)
    return float(np.abs(old[finite] - new[finite]).max() / scale)


def main():
    """Run both versions and print where they differ."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old")
    parser.add_argument("new", nargs="?")
    parser.add_argument("--write", help=argparse.SUPPRESS)
    parser.add_argument("--only", nargs="*", help="fits whose names begin so")
    options = parser.parse_args()
    if options.write:
        fit_all(options.write, options.only)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        results = []
        for version in ("old", "new"):
            target = Path(folder) / version
            only = ["--only", *options.only] if options.only else []
            command = [getattr(options, version), __file__, version, "--write", str(target), *only]
            subprocess.run(command, check=True)
            results.append(pickle.loads(target.read_bytes()))
    old, new = results
    different, alone = 0, set()
    for name in old:
        lines = []
        for path, size in differences(old[name], new[name]):
            if size is None and path != "error":
                alone.add(f"{path.split('.')[-1]} ({'old' if has(old[name], path) else 'new'})")
            else:
                lines.append(f"    {path}: {'the versions differ' if size is None else f'{size:.1e}'}")
        if "error" in old[name]:
            lines.append(f"    error (old): {old[name]['error'][:150]}")
        if "error" in new[name]:
            lines.append(f"    error (new): {new[name]['error'][:150]}")
        if lines:
            different += 1
            print(name, *lines, sep="\n")
    print(f"{len(old)} fits, {different} of them differ by more than {TOLERANCE:g}.")
    if alone:
        print("Only one version has:", ", ".join(sorted(alone)))
    return 1 if different else 0


def has(values, path):
    """Return whether a path of keys exists."""
    for key in path.split("."):
        if not isinstance(values, dict) or key not in values:
            return False
        values = values[key]
    return True


if __name__ == "__main__":
    sys.exit(main())
