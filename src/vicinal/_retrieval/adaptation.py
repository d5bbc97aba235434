"""Adapters for embeddings: maps are fitted, one is chosen, and it is measured, each on another part of the pairs or labels."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import Normalizer, normalize

from vicinal._checks import check_choice, check_integer
from vicinal._engine import Engine
from vicinal._retrieval.evaluation import Evaluation, evaluate
from vicinal._retrieval.query_map import QueryMap, train_further
from vicinal._retrieval.search import as_table, search
from vicinal._search import paired_gain
from vicinal._supervision import check_length, chunklets_from_pairs, code_groups
from vicinal._words import count

METHODS = ("rca", "anchors")
SIDES = ("both", "query")
_BY = "nDCG@10"  # the measure by which a method is chosen
_LARGEST_RANK = 384
_MOST_QUERIES = 2000  # per evaluation
_SAMPLED_ROWS = 20_000  # without supervision, for the total covariance and as other candidates
_MANY_LABELS = 20  # from this number of labels on, whole labels are held out
_FEWEST = 10  # pairs or labelled rows
_SURE = 2.0  # the gain over the raw rows that an adapter needs, in standard errors
_MOST_COMPARED = 200  # queries whose neighbours before and after are compared
_N_COMPARED = 5  # neighbours of each of them


class _Parts(NamedTuple):
    """The vectors, and the rows that belong together in three parts that are not connected.

    corpus, queries : vectors; queries is None if the queries are rows of the corpus
    codes : the label of each row of the corpus (-1: none), or None for pairs
    units : a number for each row that may be a query: rows with the same number are not independent
    fit, choose, test : pairs of shape (p, 2), or labelled rows of shape (r,)
    """

    corpus: np.ndarray
    queries: np.ndarray | None
    codes: np.ndarray | None
    units: np.ndarray
    fit: np.ndarray
    choose: np.ndarray
    test: np.ndarray

    def queries_of(self, part: np.ndarray) -> np.ndarray:
        """Return the queries of a part: positions in the corpus, or in the table of queries."""
        return np.unique(part if self.queries is None else part[:, 0])

    def belong_together(self, query: int, row: int) -> bool:
        """Return whether the test part, or the labels, contain this pair."""
        if self.codes is not None:
            return bool(self.codes[query] == self.codes[row])
        same = (self.test == (query, row)).all(axis=1)
        if self.queries is None:
            same |= (self.test == (row, query)).all(axis=1)
        return bool(same.any())


@dataclass(frozen=True)
class Adaptation:
    """The result of `adapt`: an adapter, and what it changes on pairs or labels that were used for nothing else.

    Attributes
    ----------
    model : Pipeline, QueryMap or None
        The best adapter, with unit lengths before and after its map: a pipeline, or, with ``side="query"``, a :class:`QueryMap`. None
        if the raw rows are best.
    verdict : str
        Whether it helps, with the change and its interval.
    best : str
        The name of the best method: "raw", "rca" or "anchors"; with ``side="query"`` also "rca-fitted", "anchors-fitted" or "free".
    measured : str
        The method that was best on the part for choosing, to which `after` and `gain` belong: the raw rows, unless a method gains
        two standard errors of nDCG@10 over them. It is not `best` if it did worse than the raw rows on the part for measuring.
    models : dict of str to Pipeline
        All fitted adapters.
    chosen_by : dict of str to Evaluation
        The evaluations on the part for choosing.
    seconds : dict of str to float
        The time for fitting.
    before, after, gain : Evaluation
        The raw rows, the method that was measured, and their difference with paired intervals, on the part for measuring.
    sizes : dict of str to int
        The numbers of pairs (or labelled rows) in the parts "fit", "choose" and "test".
    side : {"both", "query"}
        What the adapter maps: queries and corpus, or the queries alone.
    """

    model: Any = field(repr=False)
    verdict: str
    best: str
    measured: str
    models: dict[str, Any] = field(repr=False)
    chosen_by: dict[str, Evaluation] = field(repr=False)
    seconds: dict[str, float] = field(repr=False)
    before: Evaluation = field(repr=False)
    after: Evaluation = field(repr=False)
    gain: Evaluation = field(repr=False)
    sizes: dict[str, int]
    side: str
    _parts: Any = field(repr=False)
    _engine: Any = field(repr=False)

    @property
    def unit(self) -> str:
        """What is counted: "pair", or "row" for labels."""
        return "pair" if self._parts.codes is None else "row"

    @property
    def raw_kept(self) -> float | None:
        """The share of the raw metric that RCA keeps, chosen by cross-validation; None without RCA."""
        if "rca" not in self.models:
            return None
        adapter = self.models["rca"]
        return float((adapter.metric if isinstance(adapter, QueryMap) else adapter)[1].shrinkage_)

    @property
    def variation(self) -> float | None:
        """How much the lengths of the learned images vary over the corpus, for the measured map of queries; None for other adapters.

        It is the coefficient of variation of ``|A(c - m)|``, or of ``|A c|`` for a fitted map.

        Where it is 0, the map of the queries gives the same order as that of both sides.
        """
        adapter = self.models.get(self.measured)
        return adapter.variation_ if isinstance(adapter, QueryMap) else None

    def changed_queries(self, most: int = 12) -> list[dict[str, Any]]:
        """Return the queries of the part for measuring whose five nearest rows changed most, with the rows before and after.

        Parameters
        ----------
        most : int, default=12
            The largest number of queries.

        Returns
        -------
        list of dict
            "query" is the position of the query; "before" and "after" are lists of (position, whether it belongs to the query).
            The list is empty if the raw rows are best.
        """
        if self.model is None:
            return []
        parts = self._parts
        positions = parts.queries_of(parts.test)[:_MOST_COMPARED]
        queries = positions if parts.queries is None else parts.queries[positions]
        k = min(_N_COMPARED, len(parts.corpus) - 1)
        before, after = (
            search(queries, parts.corpus, k, model=model, engine=self._engine).indices for model in (None, self.model)
        )
        moved = np.array([len(set(old) ^ set(new)) for old, new in zip(before, after, strict=True)])

        def listed(query: int, rows: np.ndarray) -> list[tuple[int, bool]]:
            return [(int(row), parts.belong_together(query, int(row))) for row in rows]

        order = [i for i in np.argsort(-moved, kind="stable")[:most] if moved[i]]
        return [
            {
                "query": int(positions[i]),
                "before": listed(positions[i], before[i]),
                "after": listed(positions[i], after[i]),
            }
            for i in order
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain values for JSON."""
        return {
            "best": self.best,
            "measured": self.measured,
            "verdict": self.verdict,
            "rows": len(self._parts.corpus),
            "columns": int(self._parts.corpus.shape[1]),
            "unit": self.unit,
            "pairs": self.sizes,
            "methods": {
                name: {
                    _BY: found.mean[_BY],
                    "recall@10": found.mean["recall@10"],
                    "seconds": round(self.seconds[name], 2),
                }
                for name, found in self.chosen_by.items()
            },
            "before": self.before.to_dict(),
            "after": self.after.to_dict(),
            "gain": self.gain.to_dict(),
            "raw_kept": self.raw_kept,
            "side": self.side,
            "variation": self.variation,
        }

    def __str__(self) -> str:
        lines = [
            self.verdict,
            "",
            f"{'':>14}  {'before':>8}  {'after':>8}   on {count(self.sizes['test'], 'unseen ' + self.unit)}",
            *(f"{name:>14}  {mean:8.4f}  {self.after.mean[name]:8.4f}" for name, mean in self.before.mean.items()),
        ]
        if self.raw_kept is not None:
            lines.append(f"rca keeps {100 * self.raw_kept:.0f} % of the raw metric, by cross-validation.")
        if self.variation is not None:
            lines.append(
                f"queries are mapped, the corpus is not: the lengths of its learned images vary by {100 * self.variation:.0f} % (0 %: the order "
                "of the map of both sides)."
            )
        return "\n".join(lines)


def adapt(
    corpus: ArrayLike,
    relevant: ArrayLike,
    *,
    queries: ArrayLike | None = None,
    methods: Sequence[str] = METHODS,
    side: str = "both",
    engine: Engine | str | None = None,
    random_state: int = 0,
    progress: Callable[[int, int, str], Any] | None = None,
) -> Adaptation:
    """Learn an adapter for embeddings from rows that belong together, and measure on other rows whether it helps.

    The pairs (or labels) are divided into three parts that are not connected, even by a chain of pairs: 60 % for fitting, 20 %
    for choosing between the raw rows and the methods, and 20 % for measuring the best one. An adapter is chosen only if it gains two
    standard errors of nDCG@10 over the raw rows. Rows are compared by their direction. ``vicinal adapt`` does the same with files.

    Parameters
    ----------
    corpus : array-like of shape (n, d)
        The rows to search in. A memory map is read block by block.
    relevant : array-like of shape (p, 2) or (n,)
        Pairs (query, row) of positions that belong together, or one label per row of the corpus: rows with the same label belong
        together; -1, None and NaN mean that there is no label.
    queries : array-like of shape (m, d), optional
        The rows of the queries, to which the first column of the pairs refers. By default, queries are rows of the corpus.
    methods : sequence of str, default=("rca", "anchors")
        The methods to compare with the raw rows: "rca" is :class:`vicinal.RCA` with ``shrinkage="cv"``, a closed form that
        keeps a part of the raw metric; "anchors" is :class:`vicinal.AnchorNCA`, in which each row learns to distinguish its partner
        from others.
    side : {"both", "query"}, default="both"
        "both" maps the queries and the corpus, so an index has to be built again. "query" maps only the queries, by a
        :class:`QueryMap` of each method and by a fitted one ("rca-fitted", "anchors-fitted"), and for "anchors" also by "free", an affine
        map that is trained further with the corpus as it is. If the queries are rows of the corpus, each of them is mapped when it is the query.
    engine : None, str or Engine, default=None
        The backend of the searches; see :class:`vicinal.Engine`.
    random_state : int, default=0
        The seed of the parts and of the methods.
    progress : callable, optional
        Called as ``progress(done, total, text)`` before each fit and each evaluation.

    Returns
    -------
    Adaptation
        Its ``model`` is the best adapter, or None if no adapter is better than the raw rows.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal import retrieval
    >>> rng = np.random.default_rng(0)
    >>> things = np.repeat(rng.normal(size=(100, 4)), 2, axis=0)  # two rows for each thing
    >>> corpus = np.hstack([things + 0.1 * rng.normal(size=(200, 4)), 3.0 * rng.normal(size=(200, 8))])
    >>> result = retrieval.adapt(corpus, np.arange(200).reshape(100, 2), methods=["rca"])
    >>> result.best, result.before.mean["recall@10"] < 0.3, result.after.mean["recall@10"] > 0.6
    ('rca', True, True)
    >>> result.model.transform(corpus).shape
    (200, 12)
    """
    names = [methods] if isinstance(methods, str) else list(methods)
    if not names or set(names) - set(METHODS):
        raise ValueError(f"methods must be some of {', '.join(METHODS)}, got {', '.join(map(str, names)) or 'none'}.")
    check_choice(side, "side", SIDES)
    seed = check_integer(random_state, "random_state", least=0)
    parts = _divided(corpus, relevant, queries, seed)
    n_adapters = len(names) if side == "both" else 2 * len(names) + ("anchors" in names)
    total = len(names) + n_adapters + 2  # fits, and evaluations of the raw rows, of each adapter and of the best one
    steps = iter(range(total))

    def step(text: str) -> None:
        if progress is not None:
            progress(next(steps), total, text)

    models: dict[str, Any] = {"raw": None}
    seconds = {"raw": 0.0}
    for name in names:
        step(f"learning {name}")
        start = time.perf_counter()
        models[name] = _fitted(name, parts, seed)
        if side == "query":
            metric = models[name]
            models[name], models[f"{name}-fitted"] = (QueryMap(metric, fitted).fit(corpus) for fitted in (False, True))
            seconds[f"{name}-fitted"] = time.perf_counter() - start
        seconds[name] = time.perf_counter() - start
        if side == "query" and name == "anchors":
            models["free"] = _trained_further(models[name], parts, seed)
            seconds["free"] = time.perf_counter() - start
    chosen_by = {}
    for name, model in models.items():
        step(f"evaluating {name}")
        chosen_by[name] = _evaluated(parts, parts.choose, model, engine)
    measured = _chosen(chosen_by, parts)
    step(f"measuring {measured}")
    before = _evaluated(parts, parts.test, None, engine)
    after = before if measured == "raw" else _evaluated(parts, parts.test, models[measured], engine)
    gain = after.difference(before)
    best = measured if gain.mean[_BY] > 0.0 else "raw"
    del models["raw"]
    return Adaptation(
        model=models.get(best),
        verdict=_verdict(best, measured, gain, "pairs" if parts.codes is None else "rows"),
        best=best,
        measured=measured,
        models=models,
        chosen_by=chosen_by,
        seconds=seconds,
        before=before,
        after=after,
        gain=gain,
        sizes={"fit": len(parts.fit), "choose": len(parts.choose), "test": len(parts.test)},
        side=side,
        _parts=parts,
        _engine=engine,
    )


def _chosen(chosen_by: dict[str, Evaluation], parts: _Parts) -> str:
    """Return the best method of those that gain two standard errors over the raw rows; "raw" if there is none."""
    raw = chosen_by["raw"]
    units = np.unique(parts.units[_positions_of(parts, parts.choose)[raw.queries]], return_inverse=True)[1]
    gains = {
        name: paired_gain(evaluation.per_query[_BY], raw.per_query[_BY], None, units)
        for name, evaluation in chosen_by.items()
        if name != "raw"
    }
    sure = [name for name, (mean, error) in gains.items() if mean > _SURE * error]
    return max(sure, key=lambda name: gains[name][0]) if sure else "raw"


def _divided(corpus: ArrayLike, relevant: ArrayLike, queries: ArrayLike | None, seed: int) -> _Parts:
    """Return the vectors and the three parts of what belongs together; raise an error if these are not enough."""
    rows = as_table(corpus, "corpus")
    asking = None if queries is None else as_table(queries, "queries")
    if asking is not None and asking.shape[1] != rows.shape[1]:
        raise ValueError(
            f"queries must have the {rows.shape[1]} columns of the corpus, got {asking.shape[1]}. Embed both with the same model."
        )
    table = np.asarray(relevant)
    codes = None
    if table.ndim == 1:
        if asking is not None:
            raise ValueError("relevant must hold pairs if queries is given: labels belong to the rows of the corpus.")
        codes = code_groups(relevant, "relevant")
        check_length(codes, len(rows), "relevant", "Pass one label per row of the corpus.")
        units, masks = _parts_of_labels(codes, seed)
    else:
        table = _checked_pairs(table, len(rows if asking is None else asking), len(rows))
        units, masks = _parts_of_pairs(table, len(rows), None if asking is None else len(asking), seed)
    if min(map(len, masks)) < 1 or sum(map(len, masks)) < _FEWEST:
        raise ValueError(
            f"relevant: {count(sum(map(len, masks)), 'pair' if codes is None else 'row')} cannot be divided into parts for learning, "
            f"for choosing a method and for measuring it, because chains of pairs stay together. At least {_FEWEST} in several groups "
            "are needed."
        )
    return _Parts(rows, asking, codes, units, *masks)


def _checked_pairs(pairs: np.ndarray, n_queries: int, n_rows: int) -> np.ndarray:
    if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.dtype.kind not in "iu":
        raise ValueError(
            f"relevant must hold pairs of positions (whole numbers) of shape (p, 2), or one label per row, got {pairs.dtype} of "
            f"shape {pairs.shape}."
        )
    for column, size, which in zip(pairs.T, (n_queries, n_rows), ("first", "second"), strict=True):
        if len(column) and (column.min() < 0 or column.max() >= size):
            raise ValueError(
                f"relevant: the {which} column must hold row numbers from 0 to {size - 1}, got {column.min()} to {column.max()}."
            )
    return pairs.astype(np.int64)


def _parts_of_labels(codes: np.ndarray, seed: int) -> tuple[np.ndarray, list[np.ndarray]]:
    """Divide the rows whose label occurs more than once into three parts: by label if there are many, otherwise by row.

    Return these units, and the parts.
    """
    rng = np.random.default_rng(seed)
    sizes = np.bincount(codes[codes >= 0], minlength=1)
    rows = np.flatnonzero((codes >= 0) & (np.append(sizes, 0)[codes] > 1))
    if (sizes > 1).sum() >= _MANY_LABELS:
        return codes, [rows[part] for part in _thirds(rng.permutation(len(sizes))[codes[rows]], len(sizes))]
    return np.arange(len(codes)), [rows[part] for part in _thirds(rng.permutation(len(rows)), len(rows))]


def _parts_of_pairs(
    pairs: np.ndarray, n_rows: int, n_queries: int | None, seed: int
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return the connected component of each possible query, and three parts of the pairs that share none."""
    if n_queries is None:
        pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    first_query = 0 if n_queries is None else n_rows
    components = chunklets_from_pairs(pairs + np.array([first_query, 0]), n_rows + (n_queries or 0))
    component = components[pairs[:, 1]]
    n_components = component.max(initial=-1) + 1
    place = np.random.default_rng(seed).permutation(n_components)[component]
    return components[first_query:], [pairs[part] for part in _thirds(place, n_components)]


def _thirds(numbers: np.ndarray, size: int) -> list[np.ndarray]:
    """Return three masks: which of some shuffled numbers below `size` are in the first 60 %, the next 20 % and the last 20 %."""
    place = (numbers + 0.5) / max(size, 1)
    return [(place >= low) & (place < high) for low, high in ((0.0, 0.6), (0.6, 0.8), (0.8, 1.0))]


def _fitted(name: str, parts: _Parts, seed: int) -> Pipeline:
    """Return a pipeline with unit lengths before and after the map."""
    from vicinal import RCA, AnchorNCA

    unit = Normalizer()
    rows, alike = _stacked(parts)
    rows = unit.fit_transform(rows)
    if name == "rca":
        method = RCA(shrinkage="cv").fit(rows, alike)
    else:
        method = AnchorNCA(min(_LARGEST_RANK, rows.shape[1]), random_state=seed)
        with warnings.catch_warnings():
            # The raw rows are one of the choices, and the part for choosing decides.
            warnings.filterwarnings("ignore", "AnchorNCA keeps the raw rows", UserWarning)
            method.fit(rows, **{"pairs" if parts.codes is None else "y": alike})
    return make_pipeline(unit, method, Normalizer().fit(method.transform(rows[:1])))


def _trained_further(start: QueryMap, parts: _Parts, seed: int) -> QueryMap:
    """Return a map of the queries that is trained further with the corpus as it is."""
    rows, alike = _stacked(parts)
    rows = normalize(rows)
    if parts.codes is not None:
        return train_further(start, rows, None, None, alike, seed)
    if parts.queries is None:
        return train_further(start, rows, None, alike, None, seed)
    first = alike[:, 0].min()  # the queries follow the rows of the corpus
    return train_further(start, rows[:first], rows[first:], alike - [first, 0], None, seed)


def _stacked(parts: _Parts) -> tuple[np.ndarray, np.ndarray]:
    """Return rows to learn from and a sample of rows without supervision as one table, and its pairs or labels."""
    corpus, queries, fit = parts.corpus, parts.queries, parts.fit
    held_out = np.concatenate([parts.choose, parts.test])
    of_corpus = slice(None) if queries is None or parts.codes is not None else np.s_[:, 1]
    drawn = np.random.default_rng(0).permutation(len(corpus))[:_SAMPLED_ROWS]
    positions = np.union1d(fit[of_corpus].ravel(), np.setdiff1d(drawn, held_out[of_corpus].ravel()))
    rows = np.asarray(corpus[positions])
    if parts.codes is not None:
        return rows, np.where(np.isin(positions, fit), parts.codes[positions], -1)
    second = np.searchsorted(positions, fit[:, 1])
    if queries is None:
        return rows, np.column_stack([np.searchsorted(positions, fit[:, 0]), second])
    asking = np.unique(fit[:, 0])
    both = np.concatenate([rows, np.asarray(queries[asking], dtype=rows.dtype)])
    return both, np.column_stack([len(positions) + np.searchsorted(asking, fit[:, 0]), second])


def _positions_of(parts: _Parts, part: np.ndarray) -> np.ndarray:
    """Return the queries of a part that are searched for, at most 2,000 of them."""
    return np.random.default_rng(0).permutation(parts.queries_of(part))[:_MOST_QUERIES]


def _evaluated(parts: _Parts, part: np.ndarray, model: Any, engine: Any) -> Evaluation:
    """Return the measures of the queries of a part."""
    positions = _positions_of(parts, part)
    if parts.queries is None:
        relevant = part if parts.codes is None else parts.codes
        return evaluate(positions, parts.corpus, relevant, model=model, engine=engine)
    number = np.full(len(parts.queries), -1)
    number[positions] = np.arange(len(positions))
    pairs = part[number[part[:, 0]] >= 0]
    relevant = np.column_stack([number[pairs[:, 0]], pairs[:, 1]])
    return evaluate(parts.queries[positions], parts.corpus, relevant, model=model, engine=engine)


def _verdict(best: str, measured: str, gain: Evaluation, units: str) -> str:
    low, high = gain.intervals[_BY]
    changes = f"{_BY} changes by {gain.mean[_BY]:+.3f} on unseen {units} (95 % interval {low:+.3f} to {high:+.3f})."
    if measured == "raw":
        return f"The raw embeddings are best: no adapter helps on these {units} (by two standard errors of {_BY})."
    if best == "raw":
        return f"The raw embeddings are best: the adapter {measured} was better on the {units} for choosing the method, but {changes}"
    if low <= 0.0:
        return f"The adapter {best} is best, but the gain may be due to chance: {changes}"
    return f"The adapter {best} helps: {changes}"
