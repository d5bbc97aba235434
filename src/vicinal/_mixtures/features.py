"""The columns of a mixture, by position or by name, and rows that have them."""

from __future__ import annotations

import numbers
from collections.abc import Hashable, Iterable, Iterator, Mapping

import numpy as np
from numpy.typing import ArrayLike, DTypeLike
from sklearn.utils.validation import _get_feature_names, check_array

from vicinal._rows import check_magnitude

Feature = Hashable  # a column, by position or by name
Features = Feature | Iterable[Feature] | np.ndarray


def check_queries(
    X: ArrayLike | None, n_features: int, names: np.ndarray | None = None, *, gaps: bool = False
) -> np.ndarray:
    """Return rows to score: finite (or NaN, with ``gaps``), with the right columns, by name if both sides have names."""
    if X is None:
        raise ValueError(
            "X must be a table of rows, got None. Only a fitted estimator has training rows to leave out; a marginal "
            "or conditional has none."
        )
    passed = _get_feature_names(X)
    rows: np.ndarray = check_array(
        X, dtype=[np.float64, np.float32], input_name="X", ensure_all_finite="allow-nan" if gaps else True
    )
    if rows.shape[1] != n_features:
        raise ValueError(f"X must have {n_features} columns, got {rows.shape[1]}.")
    if names is not None and passed is not None and list(passed) != list(names):
        raise ValueError(
            f"X must have the columns {', '.join(map(str, names))} in this order, got {', '.join(passed)}. Select them "
            "by name."
        )
    check_magnitude(rows)
    return rows


def known_patterns(rows: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the positions of rows that lack the same columns, and the columns that they have; rows without values are skipped."""
    patterns, pattern_of = np.unique(np.isnan(rows), axis=0, return_inverse=True)
    pattern_of = pattern_of.reshape(-1)
    for p, missing in enumerate(patterns):
        if not missing.all():
            yield np.flatnonzero(pattern_of == p), np.flatnonzero(~missing)


def feature_positions(features: Features, n_features: int, names: np.ndarray | None = None) -> np.ndarray:
    """Return column positions of features given by position or by name, without repetition, in the order given."""
    if isinstance(features, (str, numbers.Integral)):
        features = [features]
    if not isinstance(features, Iterable):
        raise TypeError(f"features must be a list of columns, got {type(features).__name__}.")
    columns: list[Feature] = list(features)
    positions = [_position(column, n_features, names) for column in columns]
    if not positions:
        raise ValueError("features must name at least one column, got none.")
    if len(set(positions)) < len(positions):
        raise ValueError(f"features must not repeat a column, got {columns!r}.")
    return np.array(positions)


def split_features(
    given: Mapping[Feature, float],
    n_features: int,
    names: np.ndarray | None = None,
    dtype: DTypeLike = np.float64,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return positions and values of the given features, and positions of the rest; `dtype` is the density's precision."""
    if not isinstance(given, dict):
        raise TypeError(f"given must be a dict of feature: value, got {type(given).__name__}.")
    fixed = feature_positions(list(given), n_features, names)
    try:
        values = np.array([float(value) for value in given.values()])
    except (TypeError, ValueError) as error:
        raise TypeError(f"given must hold one number for each feature, got {list(given.values())!r}.") from error
    if not np.all(np.isfinite(values)):
        raise ValueError(f"given must hold finite values, got {list(given.values())!r}.")
    with np.errstate(over="ignore"):
        check_magnitude(values.astype(dtype), "given")
    rest = np.setdiff1d(np.arange(n_features), fixed)
    if len(rest) == 0:
        raise ValueError(f"given fixes all {n_features} features; leave at least one free, or use score_samples.")
    return fixed, values, rest


def _position(feature: Feature, n_features: int, names: np.ndarray | None) -> int:
    if isinstance(feature, numbers.Integral) and not isinstance(feature, bool):
        if not -n_features <= feature < n_features:
            raise ValueError(f"feature {feature} is out of range: the density has {n_features} columns.")
        return int(feature) % n_features
    if names is None:
        raise ValueError(
            f"feature {feature!r} is a name, but the density was fitted on columns without names. Use positions."
        )
    matches = np.flatnonzero(np.asarray(names, dtype=object) == feature)
    if len(matches) == 0:
        raise ValueError(
            f"feature {feature!r} is not a column of the fitted data, which are {', '.join(map(str, names))}."
        )
    return int(matches[0])
