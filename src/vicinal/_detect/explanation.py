"""Explanations of unusual rows: the columns that are unusual given the others, found one after the other.

The most surprising column of a row is replaced by its expectation, and the row is looked at again, until it is usual.  A wrong
value makes other columns surprising, too; after it is replaced, these are not.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from vicinal._checks import check_integer
from vicinal._density.mixture_density import HeldOutRows, MixtureDensityMixin
from vicinal._detect.numbers import ColumnLevels, ColumnNumbers
from vicinal._detect.steps import Steps, breaks_constants
from vicinal._detect.training_rows import held_out_rows
from vicinal._mixtures import known_patterns
from vicinal._notebook import table_html

if TYPE_CHECKING:
    import pandas as pd

# With more training rows, an evenly spaced sample is the reference; shares are then accurate to about one percentage point.
MOST_REFERENCE_ROWS = 4000
_FEWER_REFERENCE_ROWS = 500  # for each pattern of missing values
_INTERVAL = (0.05, 0.5, 0.95)
_MOST_REASONS = 4
_SHOWN_LEVELS = 3

# The surprises of a detector's training rows, which are neither pickled nor saved.
_references: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()


class Reason(NamedTuple):
    """One column that makes a row unusual.

    column : its position
    value : the value of the row
    low, high : the ends of the 90 % interval of the column given the others, of which those with earlier reasons are replaced by their
        expectations; within the range of the training rows. NaN for levels, and if the column is only part of an unusual combination
    share : the share of training rows whose value in this column is at least as surprising
    together : whether the column is only part of an unusual combination
    level : the level of the row; None for a column of numbers
    chance : its probability given the other columns
    likelier : the likeliest levels with their probabilities
    """

    column: int
    value: float
    low: float
    high: float
    share: float
    together: bool = False
    level: str | None = None
    chance: float = np.nan
    likelier: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class Explanation:
    """The result of `DensityOutlierDetector.explain`: arrays of shape (n_rows, n_features), and reasons.

    Attributes
    ----------
    names : list of str
        The columns.
    values : ndarray
        The rows themselves; NaN where a value is missing (or was filled in), which is never a reason. Levels are codes, whose texts
        are in `numbers`.
    shares : ndarray
        The share of training rows (excluding outliers, each left out of its own density) whose value in this column is at
        least as surprising given their other columns. It has no unit.
    surprises : ndarray
        ``-log p(x_k | the other columns)`` in nats, minus the median over the training rows in this column.
        It does not depend on units either. Infinite if the column is constant in the training rows and the row differs.
    medians, lows, highs : ndarray
        The median of the column given the others, and the ends of its 90 % interval, within the range of the training rows. For a
        column of levels, the code of the likeliest one, and NaN.
    constants : ndarray of bool, shape (n_features,)
        The columns that are constant in the training rows.
    rows : ndarray of int
        The positions of the rows: in X, or among the training rows.
    details : list of list of Reason
        The columns that make each row unusual. The value of a reason lies outside of its interval (a level, with all that are no
        likelier, has a probability of at most 10 %), unless no single value is out of range: then the reasons are the columns whose
        combination is unusual, without intervals. Empty if the row is usual.
    others : list of list of str
        Sentences about columns that the density does not see: their value is constant in the training rows, and another in this row.
    numbers : list
        How the numbers, or the levels, of each column are written.
    """

    names: list[str]
    values: np.ndarray
    shares: np.ndarray
    surprises: np.ndarray
    medians: np.ndarray
    lows: np.ndarray
    highs: np.ndarray
    constants: np.ndarray
    rows: np.ndarray
    details: list[list[Reason]]
    others: list[list[str]]
    numbers: list[ColumnNumbers | ColumnLevels]

    def ranking(self) -> np.ndarray:
        """Return the positions of the columns for each row, the most surprising first, shape (n_rows, n_features)."""
        return np.argsort(-self.surprises, axis=1, kind="stable")

    def reasons(self, row: int, most: int = 3) -> list[str]:
        """Return at most this many sentences about what makes one row unusual; none if the row is usual."""
        details, others = self.details[row], self.others[row]
        if not details or not details[0].together:
            return [*others, *(self._sentence(reason) for reason in details)][: check_integer(most, "most")]
        said = [
            f"{self._name(reason)} {self._shown(reason, reason.value)}"
            if reason.level is None
            else f"{self._name(reason)}={reason.level}"
            for reason in details
        ]
        return [
            f"unusual combination: {', '.join(said[:-1])} and {said[-1]}" if len(said) > 1 else f"unusual: {said[0]}"
        ]

    def _shown(self, reason: Reason, value: float) -> str:
        return self.numbers[reason.column].text(value)

    def _name(self, reason: Reason) -> str:
        return self.numbers[reason.column].name(self.names[reason.column])

    def _sentence(self, reason: Reason) -> str:
        name, value = self._name(reason), reason.level or self._shown(reason, reason.value)
        if reason.likelier:
            likelier = ", ".join(f"{level} {percent(chance)}" for level, chance in reason.likelier)
            return f"{name}={value}: {percent(reason.chance)} given the other columns (likelier: {likelier})"
        got = f"got {value}"
        low, high = self._shown(reason, reason.low), self._shown(reason, reason.high)
        if self.constants[reason.column]:
            return f"{name}: expected {low} as in all training rows, {got}"
        return f"{name}: expected {low if low == high else f'{low} to {high}'}, {got}"

    def to_frame(self) -> "pd.DataFrame":
        """Return a table with a line per reason.

        Returns
        -------
        DataFrame
            With the columns row (position), column, value, low, high (NaN for levels and for columns of an unusual combination), share
            and reason (a sentence).
        """
        import pandas as pd

        lines: list[tuple[Any, ...]] = []
        for i, details in enumerate(self.details):
            for reason in details:
                said = self.reasons(i)[0] if reason.together else self._sentence(reason)
                value = reason.value if reason.level is None else reason.level
                name, interval = self.names[reason.column], (reason.low, reason.high)
                lines.append((self.rows[i], name, value, *interval, reason.share, said))
        return pd.DataFrame(lines, columns=["row", "column", "value", "low", "high", "share", "reason"])

    def _repr_html_(self) -> str:
        lines = [(str(self.rows[i]), "; ".join(self.reasons(i)) or "usual") for i in range(len(self.rows))]
        return table_html(("row", "why"), [tuple(map(escape, line)) for line in lines])


def percent(share: float) -> str:
    """Return a probability in per cent: "71 %", "0.3 %", "below 0.1 %"."""
    if share < 0.001:
        return "below 0.1 %"
    return f"{100 * share:.{0 if share >= 0.01 else 1}f} %"


def explain(detector: Any, new: Any, flagged: np.ndarray, own: np.ndarray | None = None) -> Explanation:
    """Return the explanation of rows, or of the training rows, each left out.

    Parameters
    ----------
    detector : DensityOutlierDetector
        Fitted.
    new : NewRows or None
        The rows; for training rows, None or their cells, which may lie off the lattice of their column.
    flagged : array of shape (m,), or (1,) for all rows
        Which rows are outliers.
    own : integer array, optional
        The positions of the rows among the training rows; None for new rows.
    """
    steps = Steps(detector.density_)
    training_rows = _check_explains(steps)
    density, active = steps.density, steps.density.active_features_
    if own is None:
        rows, positions = new.known.astype(np.float64), np.arange(len(new.known))
    else:
        rows, positions = np.zeros((len(own), density.n_features_in_)), own
        rows[:, active] = training_rows[own]
        if detector._gaps is not None:
            rows[detector._gaps[own] == 1] = np.nan
    view = _View(detector, steps, rows[:, active], own, new)
    values = view.whole(steps.in_units(rows if new is None else new.known.astype(np.float64)))
    values = np.column_stack(
        [
            column.as_in_table(part) if new is None else column.of_cells(part)
            for column, part in zip(view.numbers, values.T, strict=True)
        ]
    )
    if new is None and own is not None and steps.noise is not None:
        values = steps.noise.training_cells(values, own)
    constants = detector._constant_values() if steps.encoder is None else np.full(len(values[0]), np.nan)
    fixed = ~np.isnan(constants)
    values[:, fixed] = constants[fixed] if own is not None else values[:, fixed]
    broken = breaks_constants(values, constants) & fixed
    others: list[list[str]] = [[] for _ in rows]
    if own is None and steps.encoder is not None:
        for name, differs in steps.encoder.broken_constants(new.passed).items():
            for i in np.flatnonzero(differs):
                expected = f"{name}: expected {steps.encoder.constants_[name]} as in all training rows"
                others[i].append(f"{expected}, got {new.passed[name].iloc[i]}")
    told = broken.any(axis=1) | np.array([bool(texts) for texts in others])  # such a row is no unusual combination
    first = view.look(rows[:, active], np.arange(len(rows)))
    details = _greedy(view, rows, values, first, flagged, told, fixed, detector.contamination)
    shares, surprises, low, median, high = (np.array(table) for table in first[:5])
    low[:, view.are_levels], high[:, view.are_levels] = np.nan, np.nan
    shares[:, fixed] = np.where(broken, 1.0 / (len(detector.training_scores_) + 1.0), 1.0)[:, fixed]
    surprises[:, fixed] = np.where(broken, np.inf, 0.0)[:, fixed]
    for table in (low, median, high):
        table[:, fixed] = constants[fixed]
    for i, k in zip(*np.nonzero(broken), strict=True):
        level = view.level(i, int(k), values[i, k])
        details[i].insert(0, Reason(int(k), values[i, k], constants[k], constants[k], shares[i, k], level=level))
    return Explanation(
        steps.names, values, shares, surprises, median, low, high, fixed, positions, details, others, view.numbers
    )


class _Look(NamedTuple):
    """What the density says of each column of rows given the others, each of shape (m, d), in the units of the table.

    expected : the medians in the coordinates of the density
    p_values : (m,), the share of the training rows whose log-density is not higher
    levels : by column, the probabilities (m, K + 1) of levels given the other columns
    """

    shares: np.ndarray
    surprises: np.ndarray
    lows: np.ndarray
    medians: np.ndarray
    highs: np.ndarray
    expected: np.ndarray
    p_values: np.ndarray
    levels: dict[int, np.ndarray]

    def take(self, some: np.ndarray) -> "_Look":
        """Return what is said of some of the rows."""
        levels = {k: probabilities[some] for k, probabilities in self.levels.items()}
        shares, surprises, lows, medians, highs, expected, p_values = (table[some] for table in self[:-1])
        return _Look(shares, surprises, lows, medians, highs, expected, p_values, levels)


class _Reference(NamedTuple):
    """The training rows that are not outliers, each left out: surprises (n, columns) and log-densities (n,) by some columns."""

    surprises: np.ndarray
    scores: np.ndarray


class _View:
    """The density without outliers, for new rows or for training rows, each left out.

    Parameters
    ----------
    detector, steps
    rows : array of shape (m, d)
        In the active columns, NaN where a value is missing.
    own : integer array or None
    new : NewRows or None
        The rows as they were passed, for levels that the training rows lack.
    """

    def __init__(self, detector: Any, steps: Steps, rows: np.ndarray, own: np.ndarray | None, new: Any) -> None:
        self._new = new
        self._steps, self._active, self._own = steps, steps.density.active_features_, own
        self._patterns = list(known_patterns(rows))
        self._references = _references_for(detector, steps.density, [columns for _, columns in self._patterns])
        density = steps.density
        self._parts = [_whole(detector, density, rows)] if own is None else list(_held_out(detector, density, own))
        known = detector._known_training_rows(steps)[detector.labels_ == 1]
        levels = steps.level_texts
        self.are_levels = np.array([k in levels for k in range(density.n_features_in_)])
        self.numbers = [
            ColumnLevels(levels[k]) if k in levels else ColumnNumbers(kind, part)
            for k, (kind, part) in enumerate(zip(steps.kinds, steps.in_units(self.whole(known)).T, strict=True))
        ]
        self._range = np.nanmin(known, axis=0), np.nanmax(known, axis=0)
        ends = steps.in_units(self.whole(np.array(self._range)))
        self._range_in_table = np.column_stack(
            [column.as_in_table(part) for column, part in zip(self.numbers, ends.T, strict=True)]
        )

    def whole(self, table: np.ndarray) -> np.ndarray:
        """Return a table of the active columns with all columns, NaN in the others; a table of all columns unchanged."""
        if table.shape[1] == self._steps.density.n_features_in_:
            return table
        wide = np.full((len(table), self._steps.density.n_features_in_), np.nan)
        wide[:, self._active] = table
        return wide

    def level(self, i: int, k: int, code: float) -> str | None:
        """Return the level of a row as it was passed; None for a column of numbers."""
        column = self.numbers[k]
        if not isinstance(column, ColumnLevels):
            return None
        unseen = self._own is None and code >= len(column.texts)
        return self._steps.passed_text(self._new.passed, i, k) if unseen else column.text(code)

    def look(self, rows: np.ndarray, places: np.ndarray) -> _Look:
        """Return what the density says of rows (in the active columns) that stand for those at some places."""
        shares, surprises, p_values = np.ones(rows.shape), np.zeros(rows.shape), np.ones(len(rows))
        quantiles = [rows.copy() for _ in _INTERVAL]
        levels: dict[int, np.ndarray] = {}
        for part in self._parts:
            for (members, columns), reference in zip(self._patterns, self._references, strict=True):
                mine = np.flatnonzero(np.isin(part.positions, places) & np.isin(part.positions, members))
                if not len(mine):
                    continue
                at = np.searchsorted(places, part.positions[mine])
                target, mine_rows = np.ix_(at, columns), rows[at]
                found = part.conditionals(mine_rows, mine, columns, _INTERVAL)
                for table, quantile in zip(quantiles, found.quantiles, strict=True):
                    table[target] = np.clip(quantile, self._range[0][columns], self._range[1][columns])
                for k, probabilities in found.levels.items():
                    column = int(self._active[columns[k]])
                    levels.setdefault(column, np.full((len(rows), probabilities.shape[1]), np.nan))[at] = probabilities
                n = len(reference.scores)
                above = np.stack(
                    [
                        n - np.searchsorted(np.sort(theirs), its, side="left")
                        for theirs, its in zip(reference.surprises.T, found.surprises.T, strict=True)
                    ],
                    axis=1,
                )
                shares[target] = (above + 1.0) / (n + 1.0) if self._own is None else np.maximum(above, 1) / n
                surprises[target] = found.surprises - np.median(reference.surprises, axis=0)
                scores = part.scores(mine_rows, mine, columns)
                p_values[at] = (1.0 + np.searchsorted(np.sort(reference.scores), scores, side="right")) / (n + 1.0)
        low, median, high = (
            np.clip(self._steps.in_units(self.whole(table)), *self._range_in_table) for table in quantiles
        )
        wide_shares, wide_surprises = np.ones(low.shape), np.zeros(low.shape)
        wide_shares[:, self._active], wide_surprises[:, self._active] = shares, surprises
        return _Look(wide_shares, wide_surprises, low, median, high, quantiles[1], p_values, levels)


def _greedy(
    view: _View,
    rows: np.ndarray,
    values: np.ndarray,
    first: _Look,
    flagged: np.ndarray,
    told: np.ndarray,
    fixed: np.ndarray,
    level: float,
) -> list[list[Reason]]:
    """Return the reasons of each row: replace its most surprising column by its expectation until the row is usual.

    Only values outside of their interval are reasons. If the first look at an unusual row finds none, the columns that
    have to be replaced are an unusual combination.
    """
    active, repaired = view._active, rows[:, view._active].copy()
    details: list[list[Reason]] = [[] for _ in rows]
    replaced = np.isnan(repaired) | fixed[active]
    pending, look, together = np.arange(len(rows)), first, np.zeros(len(rows), dtype=bool)
    for number in range(_MOST_REASONS):
        lows, highs, outside = _shown_intervals(view.numbers, values[pending], look)
        outside = outside[:, active] & ~replaced[pending]
        if number == 0:
            together = (flagged | (look.p_values <= level)) & ~told & ~outside.any(axis=1)
        candidates = np.where(together[pending, None], ~replaced[pending], outside)
        ranked = np.where(candidates, look.surprises[:, active], -np.inf)
        chosen = np.argmax(ranked, axis=1)
        for at, i in enumerate(pending):
            if not candidates[at].any():
                continue
            k = active[chosen[at]]
            low, high = (np.nan, np.nan) if together[i] else (lows[at, k], highs[at, k])
            reason = Reason(int(k), values[i, k], low, high, look.shares[at, k], bool(together[i]))
            details[i].append(_with_levels(reason, view, look, at, int(i)))
            replaced[i, chosen[at]] = True
            repaired[i, chosen[at]] = look.expected[at, chosen[at]]
        pending = pending[candidates.any(axis=1)]
        if not len(pending):
            break
        look = view.look(repaired[pending], pending)
        # One column is no combination.
        still = (look.p_values <= level) | (together[pending] & (number == 0))
        pending, look = pending[still], look.take(still)
    return details


def _with_levels(reason: Reason, view: _View, look: _Look, at: int, i: int) -> Reason:
    """Return the reason with what a column of levels says."""
    column = view.numbers[reason.column]
    if not isinstance(column, ColumnLevels):
        return reason
    probabilities = look.levels[reason.column][at]
    likely, chance = column.likely(probabilities, _SHOWN_LEVELS), float(probabilities[int(reason.value)])
    likelier = tuple((level, share) for level, share in likely if share > chance)
    level = view.level(i, reason.column, reason.value)
    return reason._replace(level=level, chance=chance, likelier=likelier, low=np.nan, high=np.nan)


def _shown_intervals(
    numbers: list[ColumnNumbers | ColumnLevels], values: np.ndarray, look: _Look
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return intervals with the decimals of their columns, and which values lie outside of them as they are shown."""
    lows, highs, outside = look.lows.copy(), look.highs.copy(), np.zeros(values.shape, dtype=bool)
    for k, column in enumerate(numbers):
        if isinstance(column, ColumnLevels):
            outside[:, k] = k in look.levels and _are_unlikely(look.levels[k], values[:, k])
            continue
        lows[:, k], highs[:, k] = column.interval(look.lows[:, k], look.medians[:, k], look.highs[:, k])
        shown = column.rounded(values[:, k])
        outside[:, k] = (shown < lows[:, k]) | (shown > highs[:, k])
    return lows, highs, outside


def _are_unlikely(probabilities: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Return whether each level, with all that are no likelier, has at most the probability that lies outside of an interval."""
    known = np.flatnonzero(~np.isnan(codes) & ~np.isnan(probabilities[:, 0]))
    own = probabilities[known, codes[known].astype(int)]
    no_likelier = np.where(probabilities[known] <= own[:, None], probabilities[known], 0.0).sum(axis=1)
    unlikely = np.zeros(len(codes), dtype=bool)
    unlikely[known] = no_likelier <= _INTERVAL[0] + 1.0 - _INTERVAL[2]
    return unlikely


def _whole(detector: Any, density: Any, rows: np.ndarray) -> HeldOutRows:
    """Return new rows with the density of all training rows."""
    explaining, mixture = _explaining_rows(detector), density._mixture()
    mixture = mixture if explaining is None else mixture.only(explaining)
    mixture.check_reach(rows)
    return HeldOutRows(np.arange(len(rows)), mixture)


def _held_out(detector: Any, density: Any, positions: np.ndarray) -> Iterator[HeldOutRows]:
    """Yield training rows, each with the density without it and without outliers."""
    explaining = _explaining_rows(detector)
    return (part.remaining(explaining) for part in held_out_rows(density, positions))


def _explaining_rows(detector: Any) -> np.ndarray | None:
    """Return which training rows explain others, if groups of outliers are considered; None if all do.

    An outlier is then not explained by other outliers of its group.
    """
    return None if detector.largest_group is None else detector._explaining()


def _references_for(detector: Any, density: Any, patterns: list[np.ndarray]) -> list[_Reference]:
    """Return for each set of columns what the training rows that count, each left out, say of these columns."""
    n_columns = density.mixture_.centres.shape[1]
    partial = [columns for columns in patterns if len(columns) < n_columns]
    found = iter(_training_references(detector, density, partial, _FEWER_REFERENCE_ROWS))
    if len(partial) < len(patterns) and detector not in _references:
        (_references[detector],) = _training_references(detector, density, [np.arange(n_columns)], MOST_REFERENCE_ROWS)
    return [next(found) if len(columns) < n_columns else _references[detector] for columns in patterns]


def _training_references(detector: Any, density: Any, patterns: list[np.ndarray], most: int) -> list[_Reference]:
    """Return the reference for each set of columns; if there are many rows, that of an evenly spaced sample."""
    if not patterns:
        return []
    explaining, counted = _explaining_rows(detector), density._mixture().log_weights > -np.inf
    counted = np.flatnonzero(counted if explaining is None else counted & explaining)
    sample = counted[np.unique(np.linspace(0, len(counted) - 1, min(len(counted), most)).astype(int))]
    rows = density._training_rows()[sample]
    tables = [_Reference(np.empty((len(sample), len(columns))), np.empty(len(sample))) for columns in patterns]
    for part in _held_out(detector, density, sample):
        everyone = np.arange(len(part.positions))
        for table, columns in zip(tables, patterns, strict=True):
            its = rows[part.positions]
            table.surprises[part.positions] = part.surprises(its, everyone, columns)
            table.scores[part.positions] = part.scores(its, everyone, columns)
    return tables


def _check_explains(steps: Steps) -> Any:
    """Return the training rows of a density that is a mixture; raise an error for other densities and steps."""
    if not steps.by_column:
        kinds = ", ".join(type(step).__name__ for step in steps.before)
        raise TypeError(
            f"explain refers to the columns of X, but the density is fitted to the output of {kinds}. Only TableEncoder, Dequantizer, "
            "imputers and scikit-learn's scalers may precede the density. Fit the detector to the output of the other steps instead."
        )
    if not isinstance(steps.density, MixtureDensityMixin):
        raise TypeError(
            "explain needs a density of vicinal (ParzenWindows, LCA, LCAGauss, LocalLCA or ManifoldParzen), got "
            f"{type(steps.density).__name__}. Explain with DensityOutlierDetector(LCA()).fit(X), for example."
        )
    return steps.density._training_rows()


def forget_reference(detector: Any) -> None:
    """Drop the cached surprises of a detector that is fitted again."""
    _references.pop(detector, None)
