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


def check(case: Case) -> str:
    """Compare all methods on one table without structure."""
    kinds = {
        "permuted": _permuted,
        "independent": _independent,
        "ties": _ties,
        "roundings": _roundings,
        "few values": _few_values,
        "flags": _flags,
        "dates": _dates,
        "skew": _skew,
        "duplicates": _duplicates,
        "gaps": _gaps,
    }
    case.what = list(kinds)[case.number % len(kinds)]
    n = int(case.rng.integers(60, 260))
    table, structure = kinds[case.what](case, n)
    target = structure
    if target is None:
        numbers = case.rng.normal(size=len(table))
        target = numbers if case.chance(0.3) else np.digitize(numbers, case.choice([[0.0], [1.0], [-0.5, 0.5]]))
    missing = str(case.choice(["impute", "marginalise"])) if table.isna().any(axis=None) else "refuse"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        prepared = prepare(table, missing=missing)
        found = vicinal.compare(
            prepared.X,
            target,
            types=prepared.feature_types,
            missing=missing,
            # Clusters and turned columns have a density that can be learned.
            densities=[] if case.what in ("permuted", "duplicates") else None,
            n_repeats=1,
            random_state=case.number,
        )
    case.text = f"{len(table)} rows, {table.dtypes.astype(str).to_dict()}, {missing}"
    helped = [kind for kind, state in found.helped.items() if state == "helped"]
    if helped:
        raise Bad(f"a {' and a '.join(helped)} helped: {found.verdict}")
    return ", ".join(f"{kind} {state}" for kind, state in found.helped.items())


def _frame(columns: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame(columns, columns=[f"c{j}" for j in range(columns.shape[1])])


def _several(case: Case) -> int:
    return int(case.rng.integers(2, 7))


def _column(case: Case, n: int) -> np.ndarray:
    """Return one continuous column of a random shape."""
    rng = case.rng
    shapes = {
        "normal": lambda: rng.normal(size=n),
        "uniform": lambda: rng.uniform(size=n),
        "exponential": lambda: rng.exponential(size=n),
        "lognormal": lambda: rng.lognormal(0.0, rng.uniform(0.3, 1.5), n),
        "student": lambda: rng.standard_t(3, n),
        "two modes": lambda: rng.normal(size=n) + 6.0 * rng.integers(0, 2, n),
    }
    return 10.0 ** rng.uniform(-2, 4) * shapes[str(case.choice(list(shapes)))]()


def _permuted(case: Case, n: int) -> tuple[pd.DataFrame, None]:
    d = _several(case)
    centres = case.rng.normal(size=(3, d)) * 4.0
    rows = centres[case.rng.integers(3, size=n)] + case.rng.normal(size=(n, d)) @ case.rng.normal(size=(d, d))
    return _frame(rows), None


def _independent(case: Case, n: int) -> tuple[pd.DataFrame, None]:
    return _frame(np.column_stack([_column(case, n) for _ in range(_several(case))])), None


def _ties(case: Case, n: int) -> tuple[pd.DataFrame, None]:
    table = _frame(case.rng.normal(size=(n, 2)))
    values = np.log1p(np.arange(case.rng.integers(3, 9))).round(int(case.rng.integers(3, 9)))
    table["tied"] = case.rng.choice(values, n)
    if case.chance(0.5):
        table["zeros"] = np.where(case.rng.random(n) < 0.4, 0.0, case.rng.exponential(size=n))
    return table, None


def _roundings(case: Case, n: int) -> tuple[pd.DataFrame, None]:
    columns = [_column(case, n) for _ in range(_several(case))]
    rounded = [np.round(values, int(case.rng.integers(0, 4)) - int(np.log10(np.std(values)))) for values in columns]
    rows = np.column_stack(rounded)
    return _frame(rows.astype(np.float32).astype(np.float64) if case.chance(0.3) else rows), None


def _few_values(case: Case, n: int) -> tuple[pd.DataFrame, None]:
    scales = [[1, 2, 3, 4, 5], [1, 2, 5, 10, 20], [0, 1, 2], [0.5, 1.0, 2.0], list(range(12)), [0, 250, 1_000, 9_999]]
    columns = [case.rng.choice(case.choice(scales), n) for _ in range(_several(case))]
    return _frame(np.column_stack([*columns, case.rng.poisson(case.rng.uniform(0.3, 20.0), n)])), None


def _decided_by_two(table: pd.DataFrame) -> np.ndarray:
    return np.where(table["c0"] * table["c1"] > 0, "same", "other")


def _flags(case: Case, n: int) -> tuple[pd.DataFrame, np.ndarray | None]:
    table = _frame(case.rng.normal(size=(n, 2)))
    for j in range(int(case.rng.integers(1, 6))):
        table[f"flag{j}"] = case.rng.integers(0, 2, n)
    return table, _decided_by_two(table) if case.chance(0.7) else None


def _dates(case: Case, n: int) -> tuple[pd.DataFrame, np.ndarray | None]:
    table = _frame(case.rng.normal(size=(n, 2)))
    unit = str(case.choice(["D", "h", "s"]))
    longest = pd.Timedelta(days=1_000) // pd.Timedelta(1, unit)
    table["day"] = pd.Timestamp("2021-01-01") + pd.to_timedelta(case.rng.integers(0, longest, n), unit=unit)
    return table, _decided_by_two(table) if case.chance(0.5) else None


def _skew(case: Case, n: int) -> tuple[pd.DataFrame, None]:
    columns = [np.exp(case.rng.normal(0.0, case.rng.uniform(0.5, 2.0), n)) for _ in range(_several(case))]
    rows = np.column_stack(columns)
    return _frame(rows.round(2) if case.chance(0.5) else rows), None


def _duplicates(case: Case, n: int) -> tuple[pd.DataFrame, None]:
    table = _independent(case, n)[0]
    again = case.rng.integers(len(table), size=int(case.rng.integers(1, n)))
    return pd.concat([table, table.iloc[again]], ignore_index=True), None


def _gaps(case: Case, n: int) -> tuple[pd.DataFrame, None]:
    table = _roundings(case, n)[0] if case.chance(0.5) else _independent(case, n)[0]
    return table.mask(case.rng.random(table.shape) < 0.1), None
