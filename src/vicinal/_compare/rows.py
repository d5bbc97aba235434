"""Rows of a comparison: classes, samples and folds."""

import warnings

import numpy as np
from sklearn.model_selection import RepeatedKFold, RepeatedStratifiedKFold, train_test_split

from vicinal._checks import check_integer


def read_classes(y, n_rows):
    """Class names as text, and a code for each row."""
    labels = np.asarray(y)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels.ravel()
    if labels.shape != (n_rows,):
        raise ValueError(f"y must hold one class a row: expected {n_rows}, got shape {labels.shape}.")
    if labels.dtype.kind == "f":
        if np.isnan(labels).any():
            raise ValueError(f"y must not hold missing classes, got {int(np.isnan(labels).sum())}. Drop those rows.")
        if (np.floor(labels) != labels).any():
            raise ValueError(
                "y must hold classes, got fractional numbers. Bin them first, as with numpy.digitize, or leave y out to compare "
                "densities."
            )
        labels = labels.astype(np.int64)
    missing = sum(label is None or label != label for label in labels) if labels.dtype == object else 0
    if missing:
        raise ValueError(f"y must not hold missing classes, got {missing}. Drop those rows.")
    if labels.dtype.kind in "iub":
        values, codes = np.unique(labels, return_inverse=True)
    else:
        values, codes = np.unique(labels.astype(str), return_inverse=True)
    if len(values) < 2:
        raise ValueError(
            f"y holds one class only, {str(values[0])!r}: nothing can be told apart. Leave y out to compare densities."
        )
    if np.bincount(codes).max() < 2:
        raise ValueError(
            f"y holds {len(values)} different values in {n_rows} rows, none of them twice: it looks like an identifier, not a class."
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
        notes.append(f"{most} folds instead of {n_splits}: no class has more rows.")
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
