"""Rows of a comparison: targets, samples and folds."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.model_selection import RepeatedKFold, RepeatedStratifiedKFold, train_test_split

from vicinal._checks import check_choice, check_integer
from vicinal._rows import is_frame, without_numbers
from vicinal._supervision import code_labels, read_numbers, read_values, refuse_missing
from vicinal._tables import ColumnType, prepare
from vicinal._words import similar_columns

TASKS = ("auto", "classes", "numbers")
# Whole numbers with more values than this are treated as quantities, unless they are the codes of classes: values that occur about
# equally often, each in that many rows on average and none in that many times more or fewer.
_MANY_VALUES, _FEW_ROWS_EACH, _UNEQUAL = 20, 10, 3


class ComparedTable(NamedTuple):
    """The rows that are compared, and what is said of their preparation.

    X : array-like or DataFrame of numbers
    y : array-like or None
    kinds : of the columns, if the table was prepared; otherwise None
    notes : sentences about the preparation
    """

    X: Any
    y: Any
    kinds: list[ColumnType] | None
    notes: list[str]


def open_table(
    X: Any,
    y: Any,
    types: Mapping[Any, Any] | None = None,
    log: Sequence[str] = (),
    missing: str | None = None,
) -> ComparedTable:
    """Return the rows as `compare` and `report` take them: a DataFrame with columns that are not numbers is prepared."""
    if isinstance(y, str) and is_frame(X):
        if y not in X.columns:
            raise ValueError(f"y: there is no column {y!r}.{similar_columns([y], map(str, X.columns))}")
        X, y = X.drop(columns=y), X[y].to_numpy()
    if not is_frame(X) and len(log):
        raise ValueError(
            "log needs the names of columns, so it is for a DataFrame. Pass the logarithms themselves in X."
        )
    if not is_frame(X) or not (without_numbers(X) or len(log)):
        return ComparedTable(X, y, None, [])
    prepared = prepare(X, types=types, log=log, categories="codes", missing=missing or "marginalise")
    return ComparedTable(prepared.X, y, list(prepared.encoder.feature_types_), [note.text for note in prepared.notes])


class ComparedTargets(NamedTuple):
    """The targets that are predicted from the neighbours.

    task : "classes" or "numbers"
    classes : names of the classes as text; None for numbers
    codes : the class of each row; None for numbers
    values : the number of each row; None for classes
    """

    task: str
    classes: list[str] | None
    codes: np.ndarray | None
    values: np.ndarray | None

    @property
    def y(self) -> np.ndarray:
        """The target to which a metric is fitted."""
        found = self.values if self.codes is None else self.codes
        assert found is not None
        return found

    def take(self, rows: np.ndarray) -> Self:
        """Return the targets of some rows."""
        return self._replace(
            codes=None if self.codes is None else self.codes[rows],
            values=None if self.values is None else self.values[rows],
        )


def read_targets(y: ArrayLike, n_rows: int, task: str = "auto", notes: list[str] | None = None) -> ComparedTargets:
    """Return classes or numbers, by `task` or, for "auto", by the values of y."""
    check_choice(task, "task", TASKS)
    values, missing = read_values(y, "y")
    refuse_missing(missing, "y")
    if task == "auto":
        task = _guess(values, [] if notes is None else notes)
    if task == "numbers":
        return ComparedTargets("numbers", None, None, _read_numbers(y, values, n_rows))
    classes, codes = _read_classes(y, n_rows)
    return ComparedTargets("classes", classes, codes, None)


def _guess(labels: np.ndarray, notes: list[str]) -> str:
    """Return "numbers" for numbers with fractions and for whole numbers that rarely repeat, otherwise "classes"."""
    labels = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    if labels.dtype.kind not in "iuf" or labels.ndim != 1 or not np.isfinite(labels).all():
        return "classes"
    if labels.dtype.kind == "f" and (np.floor(labels) != labels).any():
        return "numbers"
    counts = np.unique(labels, return_counts=True)[1]
    n_values = len(counts)
    counts_rows = n_values == len(labels) and np.ptp(labels) == n_values - 1
    if counts_rows or n_values <= _MANY_VALUES:
        return "classes"
    mean = counts.mean()
    codes = mean >= _FEW_ROWS_EACH and counts.max() <= _UNEQUAL * mean and counts.min() >= mean / _UNEQUAL
    task, done, other = (
        ("classes", "as classes", "numbers") if codes else ("numbers", "as a number to predict", "classes")
    )
    notes.append(
        f"The target holds {n_values:,} different whole numbers in {len(labels):,} rows and is treated {done} "
        f"(task={other!r} or --task {other} treats it as {other})."
    )
    return task


def _read_numbers(y: ArrayLike, values: np.ndarray, n_rows: int) -> np.ndarray:
    try:
        values.astype(np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            f"task='numbers' needs numbers in y, got {values.dtype}. Leave task out to compare by classes."
        ) from None
    values = read_numbers(y, n_rows, name="y")
    if values.size != n_rows:
        raise ValueError(f"y must hold one number per row: expected {n_rows}, got shape {values.shape}.")
    if np.ptp(values) == 0:
        raise ValueError(f"y is {values.flat[0]:g} in every row, so there is nothing to predict. Leave y out.")
    return values.ravel()


def _read_classes(y: ArrayLike, n_rows: int) -> tuple[list[str], np.ndarray]:
    """Return class names as text, and a code for each row."""
    classes, codes = code_labels(
        y,
        "y",
        n_rows=n_rows,
        instead="Leave task out to predict them as numbers, or leave y out to compare densities.",
    )
    names = _texts(classes)
    if len(names) < 2:
        raise ValueError(f"y holds only one class, {names[0]!r}, so there is nothing to distinguish. Leave y out.")
    if np.bincount(codes).max() < 2:
        raise ValueError(
            f"y holds {len(names)} different values in {n_rows} rows, none of them twice: it looks like an identifier, not a "
            "class. Pass task='numbers' if it holds numbers to predict."
        )
    return names, codes


def _texts(classes: np.ndarray) -> list[str]:
    """Return the names of classes as strings that differ."""
    if classes.dtype.kind == "f":
        classes = classes.astype(np.int64)
    names = [str(name) for name in (classes if classes.dtype == object else classes.astype(str))]
    return names if len(set(names)) == len(names) else [repr(name) for name in classes.tolist()]


def sample_rows(n: int, codes: np.ndarray | None, max_rows: int, seed: int, notes: list[str]) -> np.ndarray:
    """Return positions of at most `max_rows` rows, classes in proportion."""
    if n <= max_rows:
        return np.arange(n)
    notes.append(f"Compared on a random sample of {max_rows:,} of the {n:,} rows.")
    rows = np.arange(n)
    if codes is None or np.bincount(codes).min() < 2 or len(np.unique(codes)) > min(max_rows, n - max_rows):
        return np.sort(np.random.default_rng(seed).choice(n, max_rows, replace=False))
    return np.sort(train_test_split(rows, train_size=max_rows, stratify=codes, random_state=seed)[0])


def note_twins(X: np.ndarray, notes: list[str]) -> None:
    twins = len(X) - len(np.unique(X, axis=0))
    if twins:
        notes.append(
            f"{twins:,} of the {len(X):,} rows repeat another row exactly. A held-out row may have its twin among the training rows, "
            "so the scores of nearest neighbours and of narrow densities are optimistically biased."
        )


def make_folds(
    X: np.ndarray, codes: np.ndarray | None, n_splits: int, n_repeats: int | None, seed: int, notes: list[str]
) -> tuple[list[tuple[np.ndarray, np.ndarray]], int, int]:
    n = len(X)
    if n_repeats is None:
        n_repeats = 3 if n <= 1_000 else 2 if n <= 3_000 else 1
    check_integer(n_repeats, "n_repeats")
    most = n // 2 if codes is None else int(np.bincount(codes).max())
    if n_splits > most:
        why = f"a fold needs two of the {n} rows" if codes is None else "no class has more rows"
        notes.append(f"{most} folds instead of {n_splits}: {why}.")
        n_splits = most
    if codes is None:
        return (
            list(RepeatedKFold(n_splits=n_splits, n_repeats=n_repeats, random_state=seed).split(X)),
            n_splits,
            n_repeats,
        )
    small = int((np.bincount(codes) < n_splits).sum())
    if small:
        notes.append(
            f"{small} {'class has' if small == 1 else 'classes have'} fewer rows than there are folds, and are missing from some of them."
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a note above mentions this
        folds = RepeatedStratifiedKFold(n_splits=n_splits, n_repeats=n_repeats, random_state=seed)
        return list(folds.split(X, codes)), n_splits, n_repeats
