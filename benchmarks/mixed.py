"""Measure densities of numbers and categories together, on tables that a rule chooses (`mixed_tables.py`).

::

    python benchmarks/mixed.py densities --json benchmarks/results/mixed_densities.json
    python benchmarks/mixed.py outliers --json benchmarks/results/mixed_outliers.json
    python benchmarks/mixed.py imputation --json benchmarks/results/mixed_imputation.json
    python benchmarks/mixed.py statsmodels --json benchmarks/results/mixed_statsmodels.json
    python benchmarks/mixed.py cost --json benchmarks/results/mixed_cost.json
    python benchmarks/mixed.py p-values

Five random halves of each table (seeds 0 to 4), at most 1,000 rows each. Numbers that repeat get noise within the smallest step of their
column, the same for every method, and are standardised by the training half.

densities
    The mean log-density of the other half, in nats per row. "independent" is LCA on the numbers times the shares of the levels, with
    the share of levels that the training rows lack; "numbers" is that of the numbers alone, which is shown and never compared.
outliers
    In half of the test rows, each category column is permuted over these rows. The area under the ROC curve of the scores.
imputation
    A fifth of the entries of the test rows is hidden, of numbers and categories. The share of hidden categories that are filled in rightly;
    IterativeImputer with forests for the first half of each table alone, because it takes minutes.
statsmodels
    `KDEMultivariate(bw="cv_ml")` on one draw of 300 rows, in a process with three minutes, and LCA on the same rows. NaN counts as such.
cost
    CPU time of a pass of LCA with c levels beside a pass with d + c numbers, and of the whole fit beside that of the numbers alone.
p-values
    300 rows of ten columns of 60 levels each, and 300 fresh ones: the shares of p-values of at most 0.05 and 0.01, over 200 draws.
"""

import argparse
import json
import multiprocessing
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parent))
from mixed_tables import load_tables

MOST_ROWS, SEEDS = 1_000, range(5)


def halves(frame, seed, most=MOST_ROWS):
    """Return a training and a test half; numbers without ties, standardised by the training half."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(frame))
    parts = [order[: len(frame) // 2][:most], order[len(frame) // 2 :][:most]]
    whole = frame.copy()
    for name in whole:
        if whole[name].dtype.kind == "f":
            steps = np.diff(np.unique(whole[name]))
            if whole[name].nunique() < len(whole):
                whole[name] += rng.uniform(-0.5, 0.5, len(whole)) * steps.min()
            train = whole[name].iloc[parts[0]]
            whole[name] = (whole[name] - train.mean()) / (train.std() or 1.0)
        else:
            whole[name] = whole[name].astype("category")
    return [whole.iloc[part].reset_index(drop=True) for part in parts]


def split(frame):
    """Return the numbers and the categories."""
    are_numbers = [frame[name].dtype.kind == "f" for name in frame]
    return frame.loc[:, are_numbers], frame.loc[:, ~np.array(are_numbers)]


def log_shares(train, test):
    """Return the log-probability of the categories of each test row, if they are independent; one cell for unseen levels."""
    scores = np.zeros(len(test))
    for name in train:
        counts = train[name].astype(str).value_counts()
        scores += np.log(test[name].astype(str).map(counts).fillna(1.0).astype(float).to_numpy() / (len(train) + 1.0))
    return scores


def one_hot(train, test):
    """Return numbers and 0/1 columns."""
    both = pd.get_dummies(pd.concat([train, test])).astype(float).to_numpy()
    return both[: len(train)], both[len(train) :]


def densities(frame, seed):
    """Return the mean test log-densities, and the smoothing of LCA."""
    from vicinal import LCA, ParzenWindows

    train, test = halves(frame, seed)
    numbers, levels = zip(split(train), split(test), strict=True)
    constant = [name for name in numbers[0] if numbers[0][name].std() == 0]
    numbers = [part.drop(columns=constant) for part in numbers]
    train, test = (part.drop(columns=constant) for part in (train, test))
    alone = LCA().fit(numbers[0]).score_samples(numbers[1])
    start = time.process_time()
    lca = LCA().fit(train)
    seconds = time.process_time() - start
    scores = lca.score_samples(test)
    return {
        "numbers": alone.mean(),
        "independent": (alone + log_shares(*levels)).mean(),
        "LCA": scores.mean(),
        "ParzenWindows": ParzenWindows().fit(train).score_samples(test).mean(),
        "gain": (scores - alone - log_shares(*levels)).mean(),
        "seconds": seconds,
        "passes": lca.n_iter_,
        "smoothing": [round(float(l), 4) for l in lca.category_smoothing_],
    }


def outliers(frame, seed):
    """Return the areas under the ROC curves."""
    from sklearn.ensemble import IsolationForest
    from sklearn.metrics import roc_auc_score
    from sklearn.neighbors import NearestNeighbors

    from vicinal import LCA

    train, test = halves(frame, seed)
    rng, n = np.random.default_rng(seed), len(test)
    chosen = rng.permutation(n)[: n // 2]
    for name in split(test)[1]:
        codes = test[name].cat.codes.to_numpy().copy()
        codes[chosen] = codes[rng.permutation(chosen)]
        test[name] = pd.Categorical.from_codes(codes, test[name].cat.categories)
    wrong = np.isin(np.arange(n), chosen)
    numbers, levels = zip(split(train), split(test), strict=True)
    points, queries = one_hot(train, test)
    near = NearestNeighbors(n_neighbors=5).fit(points).kneighbors(queries)[0][:, -1]
    scores = {
        "LCA": -LCA().fit(train).score_samples(test),
        "independent": -LCA().fit(numbers[0]).score_samples(numbers[1]) - log_shares(*levels),
        "KNN": near,
        "IForest": -IsolationForest(random_state=seed).fit(points).score_samples(queries),
    }
    return {name: roc_auc_score(wrong, values) for name, values in scores.items()}


def imputation(frame, seed):
    """Return which hidden categories are filled in rightly, by column and method."""
    from vicinal import DensityImputer

    train, test = halves(frame, seed)
    hidden = np.random.default_rng(seed).random(test.shape) < 0.2
    holed = test.mask(pd.DataFrame(hidden, columns=test.columns))
    filled = DensityImputer().fit(train).transform(holed)
    theirs, columns_of = _filled_by_forests(train, holed) if seed == 0 else (None, {})
    rights = {}
    for k, name in enumerate(test):
        rows = np.flatnonzero(hidden[:, k])
        if test[name].dtype.kind == "f" or not len(rows):
            continue
        truth = test[name].astype(str).to_numpy()[rows]
        rights[name] = {
            "DensityImputer": (filled[name].astype(str).to_numpy()[rows] == truth).astype(float).tolist(),
            "mode": (train[name].astype(str).mode()[0] == truth).astype(float).tolist(),
        }
        if theirs is not None:
            columns = columns_of[name]
            levels = np.array([column[len(name) + 1 :] for column in columns])
            guess = levels[theirs[columns].to_numpy()[rows].argmax(axis=1)]
            rights[name]["forests"] = (guess == truth).astype(float).tolist()
    return rights


def _filled_by_forests(train, holed):
    """Return 0/1 columns of the test rows as IterativeImputer fills them in, and those of each category."""
    from sklearn.ensemble import RandomForestRegressor
    from sklearn.experimental import enable_iterative_imputer  # noqa: F401
    from sklearn.impute import IterativeImputer

    both = pd.concat([train, holed], ignore_index=True)
    shown = pd.get_dummies(both, dummy_na=False).astype(float)
    columns_of = {
        name: [f"{name}_{level}" for level in train[name].cat.categories if f"{name}_{level}" in shown]
        for name in split(train)[1]
    }
    for name, columns in columns_of.items():
        shown.loc[both[name].isna(), columns] = np.nan
    shown = shown.loc[:, shown.notna().any() & (shown.std() > 0)]
    columns_of = {name: [column for column in columns if column in shown] for name, columns in columns_of.items()}
    forest = IterativeImputer(
        RandomForestRegressor(n_estimators=20, n_jobs=1, random_state=0), max_iter=3, random_state=0
    )
    filled = pd.DataFrame(forest.fit_transform(shown), columns=shown.columns).iloc[len(train) :]
    return filled, columns_of


def _statsmodels(train, test, kinds, connection):
    from statsmodels.nonparametric.kernel_density import KDEMultivariate

    warnings.simplefilter("ignore")
    density = KDEMultivariate(train, kinds, bw="cv_ml")
    connection.send(np.log(density.pdf(test)))


def statsmodels(frame, seed):
    """Return the mean test log-density of LCA and of statsmodels on 300 rows; None if it does not end."""
    from vicinal import LCA

    train, test = halves(frame, seed, 300)
    constant = [name for name in train if train[name].nunique() == 1]
    train, test = (part.drop(columns=constant) for part in (train, test))
    for name in split(train)[1]:  # statsmodels has no density for levels that it has not seen
        test = test[test[name].isin(train[name].unique())]
    numbers, levels = zip(split(train), split(test), strict=True)
    tables = [np.column_stack([a, *(b[name].cat.codes for name in b)]) for a, b in zip(numbers, levels, strict=True)]
    ours, theirs = multiprocessing.Pipe(False)
    process = multiprocessing.Process(
        target=_statsmodels, args=(*tables, "c" * numbers[0].shape[1] + "u" * levels[0].shape[1], theirs)
    )
    process.start()
    found = ours.recv() if ours.poll(180) else None
    process.kill()
    return {
        "LCA": LCA().fit(train).score_samples(test).mean(),
        "statsmodels": None if found is None else float(found.mean()),
        "not numbers": None if found is None else int((~np.isfinite(found)).sum()),
        "rows": len(test),
    }


def cost(frame, seed):
    """Return the CPU time of a pass with levels beside one with as many more numbers, and of fits."""
    from vicinal import LCA

    train = halves(frame, seed)[0]
    numbers, levels = split(train)
    n_more = sum(min(levels[name].nunique(), 32) for name in levels)
    more = np.hstack([numbers, np.random.default_rng(0).normal(size=(len(train), n_more))])

    def seconds(table, **options):
        model = LCA(**options)
        start = time.process_time()
        model.fit(table)
        return time.process_time() - start

    def of_passes(table):  # without what a fit does once
        few, many = (seconds(table, reg=0.1, solver="em", max_iter=n, tol=0.0) for n in (10, 40))
        return many - few

    seconds(train, reg=0.1)
    passes = [[of_passes(table) for table in (train, more)] for _ in range(5)]
    fits = [[seconds(table) for table in (train, numbers)] for _ in range(3)]
    (levels_pass, numbers_pass), (whole, alone) = np.median(passes, axis=0), np.min(fits, axis=0)
    return {"pass": levels_pass / numbers_pass, "fit": whole / alone, "seconds": whole, "levels": n_more}


def fresh_rows(draws=200):
    """Print the shares of small p-values of fresh rows of independent categories."""
    from vicinal import DensityOutlierDetector, ParzenWindows

    rng = np.random.default_rng(0)

    def drawn():
        return pd.DataFrame({f"c{k}": pd.Categorical(rng.integers(60, size=300).astype(str)) for k in range(10)})

    shares = []
    for _ in range(draws):
        detector = DensityOutlierDetector.from_density(ParzenWindows().fit(drawn()))
        p = detector.p_values(drawn())
        shares.append([(p <= 0.05).mean(), (p <= 0.01).mean()])
    mean, error = np.mean(shares, axis=0), np.std(shares, axis=0, ddof=1) / np.sqrt(draws)
    print(f"p <= 0.05: {mean[0]:.4f} +- {error[0]:.4f}; p <= 0.01: {mean[1]:.4f} +- {error[1]:.4f}; {draws} draws")


def _report(part, found):
    """Print the figures over all tables."""
    if part == "densities":
        gains = {name: np.array([run["gain"] for run in runs]) for name, runs in found.items()}
        means = {name: of.mean() for name, of in gains.items()}
        lost = {
            name: round(float(of.mean()), 3)
            for name, of in gains.items()
            if of.mean() < -max(0.05, 2 * of.std(ddof=1) / np.sqrt(len(of)))
        }
        print(f"ahead on {sum(mean > 0 for mean in means.values())} of {len(means)}; clearly behind: {lost or 'none'}")
    if part == "outliers":
        table = pd.DataFrame({name: pd.DataFrame(runs).mean() for name, runs in found.items()}).T
        for other in table.columns.drop("LCA"):
            away = table["LCA"] - table[other]
            print(
                f"LCA {table['LCA'].mean():.3f}, {other} {table[other].mean():.3f}: {away.mean():.3f} +- {away.sem():.3f}"
            )
    if part == "imputation":
        sums = {}
        for name, runs in found.items():
            for column in {column for run in runs for column in run}:
                rights = [run[column] for run in runs if column in run]
                away = np.concatenate([np.subtract(of["DensityImputer"], of["mode"]) for of in rights])
                error = away.std(ddof=1) / np.sqrt(len(away)) if len(away) > 1 else 0.0
                if away.mean() < -2 * error:
                    print(f"behind the mode: {name}.{column} {away.mean():.3f} +- {error:.3f}")
                for method in rights[0]:
                    sums.setdefault(method, []).append(
                        np.mean(np.concatenate([of[method] for of in rights if method in of]))
                    )
                if "forests" in rights[0]:
                    sums.setdefault("DensityImputer, first half", []).append(np.mean(rights[0]["DensityImputer"]))
        print({method: round(float(np.mean(of)), 4) for method, of in sums.items()}, len(sums["mode"]), "columns")
    if part == "statsmodels":
        ends = [run for runs in found.values() for run in runs if run["statsmodels"] is not None]
        ahead = [not np.isfinite(run["statsmodels"]) or run["LCA"] > run["statsmodels"] for run in ends]
        print(f"ended on {len(ends)} of {len(found)}; LCA ahead on {sum(ahead)} of these")
    if part == "cost":
        for what in ("pass", "fit"):
            print(what, {name: round(runs[0][what], 2) for name, runs in found.items()})


def main():
    """Measure one part on all tables; write the results after each table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=("densities", "outliers", "imputation", "statsmodels", "cost", "p-values"))
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--tables", help="names, separated by commas; the default is all")
    arguments = parser.parse_args()
    if arguments.part == "p-values":
        fresh_rows()
        return
    measure, found = globals()[arguments.part], {}
    seeds = SEEDS if arguments.part in ("densities", "outliers", "imputation") else [0]
    for name, frame in load_tables():
        if arguments.tables is not None and name not in arguments.tables.split(","):
            continue
        found[name] = [measure(frame, seed) for seed in seeds]
        shown = pd.DataFrame(found[name]).select_dtypes("number").mean().round(3).to_dict()
        print(f"{name:20}", shown, flush=True)
        if arguments.json:
            Path(arguments.json).write_text(json.dumps(found, indent=1, default=float) + "\n")
    _report(arguments.part, found)


if __name__ == "__main__":
    main()
