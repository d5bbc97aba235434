"""Rows of a comparison: targets, samples and folds."""

import warnings
from typing import NamedTuple

import numpy as np
from sklearn.model_selection import RepeatedKFold, RepeatedStratifiedKFold, train_test_split

from vicinal._checks import check_choice, check_integer

TASKS = ("auto", "classes", "numbers")
# Whole numbers with more values than this, and fewer rows than that for each, are taken as quantities, not as codes of classes.
_MANY_VALUES, _FEW_ROWS_EACH = 20, 10


class TargetError(ValueError):
    """The target cannot be used.

    Parameters
    ----------
    template : str
        What is wrong and what to do, with ``{y}`` and ``{task}`` where these arguments are named.
    values : dict
        What else stands in the template.
    """

    def __init__(self, template, values=()):
        super().__init__(template, values)

    def __str__(self):
        return self.worded()

    def worded(self, y="y", task="task"):
        """The message, with the names under which the caller knows the two arguments."""
        template, values = self.args
        return template.format(y=y, task=task, **dict(values))


class Targets(NamedTuple):
    """What is to be told from the neighbours.

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
    def y(self):
        """What a metric is fitted to."""
        return self.values if self.codes is None else self.codes

    def take(self, rows):
        """The targets of some rows."""
        return self._replace(
            codes=None if self.codes is None else self.codes[rows],
            values=None if self.values is None else self.values[rows],
        )


def read_targets(y, n_rows, task="auto", notes=None):
    """Classes or numbers: as `task` says or, for "auto", as y looks."""
    check_choice(task, "task", TASKS)
    labels = np.asarray(y)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels.ravel()
    if task == "auto":
        task = _guess(labels, [] if notes is None else notes)
    if task == "numbers":
        return Targets("numbers", None, None, _read_numbers(labels, n_rows))
    classes, codes = read_classes(labels, n_rows)
    return Targets("classes", classes, codes, None)


def _guess(labels, notes):
    """Numbers with fractions are quantities, and so are whole ones that hardly ever repeat; all else names classes."""
    if labels.dtype.kind not in "iuf" or labels.ndim != 1 or not np.isfinite(labels).all():
        return "classes"
    if labels.dtype.kind == "f" and (np.floor(labels) != labels).any():
        return "numbers"
    n_values = len(np.unique(labels))
    counts_rows = n_values == len(labels) and np.ptp(labels) == n_values - 1
    if counts_rows or n_values <= _MANY_VALUES or len(labels) >= _FEW_ROWS_EACH * n_values:
        return "classes"
    notes.append(
        f"The target holds {n_values:,} different whole numbers in {len(labels):,} rows, and is taken as a number to predict "
        "(task='classes' takes it as classes)."
    )
    return "numbers"


def _read_numbers(labels, n_rows):
    try:
        values = labels.astype(np.float64)
    except (TypeError, ValueError):
        raise TargetError(
            "{task}='numbers' needs numbers in {y}, got {dtype}. Leave {task} out to compare by classes.",
            {"dtype": labels.dtype},
        ) from None
    if values.shape != (n_rows,):
        raise TargetError(
            "{y} must hold one number per row: expected {n_rows}, got shape {shape}.",
            {"n_rows": n_rows, "shape": values.shape},
        )
    odd = int((~np.isfinite(values)).sum())
    if odd:
        raise TargetError("{y} must hold finite numbers, got {odd} missing or infinite. Drop those rows.", {"odd": odd})
    if np.ptp(values) == 0:
        raise TargetError(
            "{y} is {value:g} in every row: there is nothing to predict. Leave {y} out to compare densities.",
            {"value": values[0]},
        )
    return values


def read_classes(y, n_rows):
    """Class names as text, and a code for each row."""
    labels = np.asarray(y)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels.ravel()
    if labels.shape != (n_rows,):
        raise TargetError(
            "{y} must hold one class per row: expected {n_rows}, got shape {shape}.",
            {"n_rows": n_rows, "shape": labels.shape},
        )
    missing = sum(label is None or label != label for label in labels) if labels.dtype.kind in "fO" else 0
    if missing:
        raise TargetError("{y} must not hold missing classes, got {missing}. Drop those rows.", {"missing": missing})
    if labels.dtype.kind == "f":
        if (np.floor(labels) != labels).any():
            raise TargetError(
                "{y} must hold classes, got fractional numbers. Leave {task} out to predict them as numbers, bin them, as "
                "with numpy.digitize, or leave {y} out to compare densities."
            )
        labels = labels.astype(np.int64)
    if labels.dtype.kind in "iub":
        values, codes = np.unique(labels, return_inverse=True)
    else:
        values, codes = np.unique(labels.astype(str), return_inverse=True)
    if len(values) < 2:
        raise TargetError(
            "{y} holds one class only, {name!r}: nothing can be told apart. Leave {y} out to compare densities.",
            {"name": str(values[0])},
        )
    if np.bincount(codes).max() < 2:
        raise TargetError(
            "{y} holds {n_values} different values in {n_rows} rows, none of them twice: it looks like an identifier, not a "
            "class.",
            {"n_values": len(values), "n_rows": n_rows},
        )
    return [str(value) for value in values], codes


def sample_rows(n, codes, max_rows, seed, notes):
    """Positions of at most `max_rows` rows, classes in proportion."""
    if n <= max_rows:
        return np.arange(n)
    notes.append(f"Compared on a random sample of {max_rows:,} of the {n:,} rows.")
    rows = np.arange(n)
    if codes is None or np.bincount(codes).min() < 2 or len(np.unique(codes)) > min(max_rows, n - max_rows):
        return np.sort(np.random.default_rng(seed).choice(n, max_rows, replace=False))
    return np.sort(train_test_split(rows, train_size=max_rows, stratify=codes, random_state=seed)[0])


def note_twins(X, notes):
    twins = len(X) - len(np.unique(X, axis=0))
    if twins:
        notes.append(
            f"{twins:,} of the {len(X):,} rows repeat another row exactly: a held-out row may have its twin among the training rows, "
            "which flatters nearest neighbours, and densities of repeated values can be made as high as one likes."
        )


def make_folds(X, codes, n_splits, n_repeats, seed, notes):
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
        warnings.simplefilter("ignore", UserWarning)  # said above
        folds = RepeatedStratifiedKFold(n_splits=n_splits, n_repeats=n_repeats, random_state=seed)
        return list(folds.split(X, codes)), n_splits, n_repeats
