"""The values of a column as its table shows them: numbers with their decimals and thousands, and levels."""

from typing import Any

import numpy as np

_MOST_DECIMALS = 9
_LARGEST = 1e15  # from here on, a float has not all digits of a whole number
_GRID_DECIMALS = 4  # values that need more are measurements, which are shown with three digits of their spread


class ColumnNumbers:
    """How the numbers of a column are written.

    Parameters
    ----------
    kind : ColumnType or None
        A lattice has the decimals of its step; the noise that a density was fitted with is rounded away. Logarithms are written as
        the numbers of the table, and days as dates.
    values : array of shape (n,)
        Values of the column, from which the decimals of other columns are found.
    """

    def __init__(self, kind: Any, values: np.ndarray) -> None:
        self._are_days = kind is not None and kind.are_days
        self._raw = ColumnNumbers(kind._replace(log=False), np.exp(values)) if kind is not None and kind.log else None
        self.kind = kind if kind is not None and kind.kind == "lattice" and not kind.log else None
        values = values[np.isfinite(values)]
        self._largest = float(np.abs(values).max(initial=0.0))
        grid = np.array([self.kind.step, self.kind.offset or 0.0]) if self.kind is not None else values
        decimals = next((k for k in range(_GRID_DECIMALS + 1) if _on_grid(grid, k)), None)
        self.on_grid = decimals is not None
        if decimals is None:
            low, high = np.quantile(values, (0.05, 0.95)) if len(values) else (0.0, 1.0)
            spread = high - low or abs(high) or 1.0
            decimals = int(np.clip(2 - np.floor(np.log10(spread)), 0, 300))
        self.decimals = decimals

    @property
    def is_plain(self) -> bool:
        """Whether the values are those of the table, and neither days nor logarithms."""
        return not self._are_days and self._raw is None

    def as_in_table(self, values: np.ndarray) -> np.ndarray:
        """Return training values without the noise of a lattice."""
        if self._raw is not None:
            return np.log(self._raw.as_in_table(np.exp(values)))
        if self.kind is None:
            return values
        offset = self.kind.offset or 0.0
        on_lattice = offset + self.kind.step * np.rint((values - offset) / self.kind.step)
        return np.round(on_lattice, self.decimals) if self.on_grid else on_lattice

    def of_cells(self, values: np.ndarray) -> np.ndarray:
        """Return values of rows without noise; those on the lattice up to the resolution of float32 are exactly on it."""
        nearest = self.as_in_table(values)
        return np.where(np.abs(values - nearest) <= 1e-6 * np.abs(nearest), nearest, values)

    def rounded(self, values: np.ndarray) -> np.ndarray:
        """Return values of rows as they are shown: exactly on a grid, and otherwise with the decimals of the column."""
        return values if self.decimals > 15 else np.round(values, self.decimals + 6 * self.on_grid)

    def interval(self, low: np.ndarray, median: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the ends of intervals, rounded inwards; twice the rounded median if nothing is left."""
        if self.decimals > 15:
            return low, high
        unit = 10.0**self.decimals
        first, last = np.ceil(low * unit - 1e-6) / unit, np.floor(high * unit + 1e-6) / unit
        empty = first > last
        middle = np.round(median, self.decimals)
        return np.where(empty, middle, first) + 0.0, np.where(empty, middle, last) + 0.0

    def name(self, name: str) -> str:
        """Return the name of the column in the table."""
        return name if self._raw is None else name.removeprefix("log(").removesuffix(")")

    def text(self, value: float) -> str:
        """Return a number as the table shows it; a column that reaches 10,000 has separators of thousands."""
        if self._raw is not None:
            return self._raw.text(float(self._raw.as_in_table(np.exp(value))))
        if not np.isfinite(value) or self.decimals > _MOST_DECIMALS or abs(value) >= _LARGEST:
            return f"{value:.4g}"
        if self._are_days:
            moment = np.datetime64(round(value * 1440.0), "m")
            return str(moment.astype("datetime64[D]") if value == np.floor(value) else moment).replace("T", " ")
        decimals = self.decimals
        if self.on_grid:  # a value may have more decimals than the others of its column
            decimals = next(
                (k for k in range(decimals, _MOST_DECIMALS) if _on_grid(np.array([value]), k)), _MOST_DECIMALS
            )
        return f"{value + 0.0:{',' if max(self._largest, abs(value)) >= 10_000 else ''}.{decimals}f}"


class ColumnLevels:
    """The levels of a column, whose values are codes.

    Parameters
    ----------
    texts : list of str
        By code.
    """

    is_plain = False

    def __init__(self, texts: list[str]) -> None:
        self.texts = texts

    def as_in_table(self, values: np.ndarray) -> np.ndarray:
        """Return codes as they are."""
        return values

    of_cells = as_in_table

    def name(self, name: str) -> str:
        """Return the name of the column."""
        return name

    def text(self, value: float) -> str:
        """Return the level of a code."""
        return self.texts[int(value)] if value < len(self.texts) else "a value that no training row has"

    def likely(self, probabilities: np.ndarray, most: int) -> tuple[tuple[str, float], ...]:
        """Return the likeliest levels with their probabilities."""
        order = np.argsort(-probabilities[: len(self.texts)], kind="stable")[:most]
        return tuple((self.texts[k], float(probabilities[k])) for k in order.tolist())


def _on_grid(values: np.ndarray, decimals: int) -> bool:
    """Return whether nearly all values are written with so many decimals."""
    scaled = values * 10.0**decimals
    close = np.abs(scaled - np.rint(scaled)) <= 1e-9 * np.maximum(np.abs(scaled), 1.0)
    return bool(close.mean() >= 0.95) if len(values) else True
