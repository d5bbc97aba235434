"""`compare` seldom says that a learned metric or density helped on a table from which nothing can be learned.

The targets are independent of the columns, or follow from two columns that every plain metric has as well; the columns are independent of
each other where densities are compared. A verdict "helped" is therefore false, and at most one in twenty may be.
"""

import warnings

import numpy as np
import pandas as pd

import vicinal
from fuzz.harness import Bad, Case
from vicinal.tables import prepare

CASES = 300
MOST_BAD = 0.05
KINDS = ("clusters", "independent", "ties", "roundings", "few values", "flags", "dates", "skew", "duplicates", "gaps")


def check(case: Case) -> str:
    """Compare all methods on one table without structure."""
    case.what = KINDS[case.number % len(KINDS)]
    table = _table(case, int(case.rng.integers(60, 260)))
    numbers = case.rng.normal(size=len(table))
    target = numbers if case.chance(0.3) else np.digitize(numbers, case.choice([[0.0], [1.0], [-0.5, 0.5]]))
    if case.what in ("flags", "dates") and case.chance(0.6):
        target = np.where(table["c0"] * table["c1"] > 0, "same", "other")
    missing = str(case.choice(["impute", "marginalise"])) if table.isna().any(axis=None) else "refuse"
    case.text = f"{len(table)} rows, {table.dtypes.astype(str).to_dict()}, {missing}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        prepared = prepare(table, missing=missing)
        # Clusters and repeated rows have a density that can be learned.
        densities = [] if case.what in ("clusters", "duplicates") else None
        options = {"densities": densities, "n_repeats": 1, "random_state": case.number}
        found = vicinal.compare(prepared.X, target, types=prepared.feature_types, missing=missing, **options)
    helped = [kind for kind, state in found.helped.items() if state == "helped"]
    if helped:
        raise Bad(f"a {' and a '.join(helped)} helped: {found.verdict}")
    return ", ".join(f"{kind} {state}" for kind, state in found.helped.items())


def _table(case: Case, n: int) -> pd.DataFrame:
    """Return two to six columns of a kind."""
    rng, d = case.rng, int(case.rng.integers(2, 7))
    columns = np.column_stack([_column(case, n) for _ in range(d)])
    if case.what == "clusters":
        columns = 4.0 * rng.normal(size=(3, d))[rng.integers(3, size=n)] + rng.normal(size=(n, d)) @ rng.normal(
            size=(d, d)
        )
    elif case.what == "few values":
        scales = [
            [1, 2, 3, 4, 5],
            [1, 2, 5, 10, 20],
            [0, 1, 2],
            [0.5, 1.0, 2.0],
            [0, 250, 1_000, 9_999],
            rng.poisson(9.0, n),
        ]
        columns = np.column_stack([rng.choice(case.choice(scales), n) for _ in range(d)])
    elif case.what == "skew":
        columns = np.exp(rng.normal(0.0, rng.uniform(0.5, 2.0, size=d), size=(n, d))).round(int(case.choice([2, 15])))
    elif case.what == "roundings" or (case.what == "gaps" and case.chance(0.5)):
        columns = np.round(columns / columns.std(axis=0), int(rng.integers(0, 4)))
    elif case.what in ("ties", "flags", "dates"):
        columns = rng.normal(size=(n, 2))
    table = pd.DataFrame(columns).add_prefix("c")
    if case.what == "ties":
        table["tied"] = rng.choice(np.log1p(np.arange(rng.integers(3, 9))).round(int(rng.integers(3, 9))), n)
        table["zeros"] = np.where(rng.random(n) < 0.4, 0.0, rng.exponential(size=n))
    elif case.what == "flags":
        table = table.assign(**{f"flag{j}": rng.integers(0, 2, n) for j in range(int(rng.integers(1, 6)))})
    elif case.what == "dates":
        table["day"] = pd.Timestamp("2021-01-01") + pd.to_timedelta(
            rng.integers(0, 1000, n), unit=str(case.choice(["D", "h"]))
        )
    elif case.what == "duplicates":
        return pd.concat([table, table.iloc[rng.integers(n, size=int(rng.integers(1, n)))]], ignore_index=True)
    return table.mask(rng.random(table.shape) < 0.1) if case.what == "gaps" else table


def _column(case: Case, n: int) -> np.ndarray:
    """Return one continuous column of a random shape and unit."""
    rng = case.rng
    shapes = [
        rng.normal(size=n),
        rng.uniform(size=n),
        rng.exponential(size=n),
        rng.lognormal(0.0, rng.uniform(0.3, 1.5), n),
        rng.standard_t(3, n),
        rng.normal(size=n) + 6.0 * rng.integers(0, 2, n),
    ]
    return 10.0 ** rng.uniform(-2, 4) * case.choice(shapes)
