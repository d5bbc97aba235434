"""The result of an evaluation: measures per query, their means, and bootstrap intervals."""

from dataclasses import dataclass, field
from html import escape
from typing import Any

import numpy as np

from vicinal._words import count


@dataclass(frozen=True)
class Evaluation:
    """The measures of a search.

    Attributes
    ----------
    per_query : dict of str to array of shape (n_queries,)
        Each measure of each query that has a relevant row, by names such as ``"recall@10"``.
    mean : dict of str to float
        Their means.
    intervals : dict of str to (low, high)
        Percentile bootstrap intervals of the means, over queries.
    queries : int array of shape (n_queries,)
        The numbers of these queries.
    n_without_relevant : int
        The number of queries without a relevant row in the corpus, which are not included in the measures.
    confidence : float
        The confidence of the intervals.
    """

    per_query: dict[str, np.ndarray] = field(repr=False)
    mean: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    queries: np.ndarray = field(repr=False)
    n_without_relevant: int
    confidence: float
    _draws: np.ndarray = field(repr=False)

    def difference(self, other: "Evaluation") -> "Evaluation":
        """Return the difference between this evaluation and another one of the same queries, with paired intervals.

        Parameters
        ----------
        other : Evaluation
            An evaluation of the same queries, usually with raw rows.

        Returns
        -------
        Evaluation
            The differences of the measures that both have. An interval above 0 means that this search is better.
        """
        if not np.array_equal(self.queries, other.queries):
            raise ValueError(
                f"a difference needs evaluations of the same queries, got {len(self.queries)} and {len(other.queries)} "
                "queries that are not the same. Evaluate both with the same queries and relevant rows."
            )
        shared = {
            name: self.per_query[name] - other.per_query[name] for name in self.per_query if name in other.per_query
        }
        return summarise(shared, self.queries, self.n_without_relevant, self.confidence, self._draws)

    def to_dict(self) -> dict[str, Any]:
        """Return the means and the intervals as plain numbers."""
        return {
            "queries": len(self.queries),
            "queries_without_relevant": self.n_without_relevant,
            "confidence": self.confidence,
            "measures": {name: {"mean": self.mean[name], "interval": list(self.intervals[name])} for name in self.mean},
        }

    def __str__(self) -> str:
        lines = [f"{count(len(self.queries), 'query')}, {100 * self.confidence:g} % intervals"]
        if self.n_without_relevant:
            lines[0] += f"; {self.n_without_relevant} queries without a relevant row are left out"
        for name, mean in self.mean.items():
            low, high = self.intervals[name]
            lines.append(f"{name:>14}  {mean:7.4f}  [{low:.4f}, {high:.4f}]")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        about, *_ = str(self).splitlines()
        cell = 'style="text-align:left;padding:2px 12px 2px 0"'
        rows = [
            f"<tr><td {cell}>{escape(name)}</td><td {cell}>{mean:.4f}</td><td {cell}>{low:.4f} to {high:.4f}</td></tr>"
            for (name, mean), (low, high) in zip(self.mean.items(), self.intervals.values(), strict=True)
        ]
        heads = "".join(f"<th {cell}>{text}</th>" for text in ("Measure", "Mean", "Interval"))
        return f"<div><p>{escape(about)}</p><table style='border-collapse:collapse'><tr>{heads}</tr>{''.join(rows)}</table></div>"


def summarise(
    per_query: dict[str, np.ndarray], queries: np.ndarray, n_without_relevant: int, confidence: float, draws: np.ndarray
) -> Evaluation:
    """Return means and percentile bootstrap intervals of measures per query.

    Parameters
    ----------
    draws : int array of shape (n_bootstrap, 2)
        Seeds of the resamples, so that evaluations with the same seeds are compared on the same ones.
    """
    names, values = list(per_query), np.column_stack(list(per_query.values()))
    means = values.mean(axis=0)
    resampled = np.array([values[_resample(seed, len(values))].mean(axis=0) for seed in draws])
    tail = 50.0 * (1.0 - confidence)
    low, high = np.percentile(resampled, [tail, 100.0 - tail], axis=0)
    return Evaluation(
        per_query,
        dict(zip(names, means.tolist(), strict=True)),
        {name: (float(a), float(b)) for name, a, b in zip(names, low, high, strict=True)},
        queries,
        n_without_relevant,
        confidence,
        draws,
    )


def _resample(seed: int, size: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(size, size=size)
