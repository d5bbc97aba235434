"""`vicinal adapt`: learn an adapter from embeddings and pairs, measure it, save it and report on it."""

import time
import warnings
from argparse import Namespace
from typing import Any, NamedTuple

import numpy as np

from vicinal.cli.adapt_report import adapt_page
from vicinal.cli.console import Console, count, one_line
from vicinal.cli.errors import DATA, FIT, USAGE, Failure
from vicinal.cli.models import make_engine, save_model
from vicinal.cli.outputs import write_json, write_lines, write_text
from vicinal.cli.tables import TableOptions
from vicinal.cli.vectors import read_column, read_pairs, read_vectors

METHODS = ("rca", "anchors")
_LARGEST_RANK = 128
_MOST_ASKED = 2000  # queries per evaluation
_SAMPLED = 20_000  # rows without supervision, for the total covariance and as other candidates
_MANY_LABELS = 20  # from this number of labels on, whole labels are held out
_LEAST_PAIRS = 10
_BY = "nDCG@10"


class Known(NamedTuple):
    """The supervision, divided into three parts.

    corpus, queries : vectors; queries is None if the queries are rows of the corpus
    codes : the label of each row of the corpus (-1: none), or None if pairs were given
    fit, choose, test : pairs of shape (p, 2), or rows of shape (r,) if labels were given
    """

    corpus: np.ndarray
    queries: np.ndarray | None
    codes: np.ndarray | None
    fit: np.ndarray
    choose: np.ndarray
    test: np.ndarray


class Texts(NamedTuple):
    """The texts to show for the rows of the corpus and for the queries, or None."""

    corpus: list[Any] | None
    queries: list[Any] | None


def adapt(arguments: Namespace, console: Console) -> None:
    """Run the command."""
    names = [name.strip() for name in arguments.methods.split(",") if name.strip()]
    if not names or set(names) - set(METHODS):
        raise Failure(USAGE, f"--methods: expected some of {', '.join(METHODS)}, got {arguments.methods!r}.")
    if arguments.labels is not None and arguments.queries is not None:
        raise Failure(
            USAGE, "--labels refer to the rows of CORPUS and not to those of --queries. Pass --pairs with --queries."
        )
    if arguments.query_texts is not None and arguments.queries is None:
        raise Failure(USAGE, "--query-texts refer to --queries, which were not passed. Pass only --texts.")
    engine = make_engine(arguments)
    options = TableOptions()
    known = _read(arguments, console, options)
    texts = _texts(arguments, console, options, known)
    models, seconds = {"raw": None}, {"raw": 0.0}
    for done, name in enumerate(names, 1):
        arguments.check_interrupted()
        console.progress(done, len(names), f"learning {name}")
        began = time.perf_counter()
        models[name] = _fitted(name, known, arguments.seed, console)
        seconds[name] = time.perf_counter() - began
    summary, best = _compared(known, models, seconds, engine, arguments)
    summary["model"] = None if best == "raw" else arguments.output
    if best != "raw":
        save_model(models[best], arguments.output)
    if arguments.report is not None:
        changed = [] if best == "raw" else _changed(known, models[best], texts, engine)
        write_text(arguments.report, adapt_page(summary, changed, arguments.corpus))
        console.say(f"wrote {arguments.report}.")
    if arguments.json:
        write_json(summary)
    else:
        write_lines(_as_text(summary))


def _texts(arguments: Namespace, console: Console, options: TableOptions, known: Known) -> Texts:
    """Return the texts of the rows of the corpus and of the queries, None if they were not given."""
    corpus = None
    if arguments.texts is not None:
        corpus = read_column(arguments.texts, console, options, len(known.corpus), "--texts")
    if known.queries is None:
        return Texts(corpus, corpus)
    if arguments.query_texts is None:
        return Texts(corpus, None)
    n_queries = len(known.queries)
    return Texts(
        corpus, read_column(arguments.query_texts, console, options, n_queries, "--query-texts", "the queries")
    )


def _read(arguments: Namespace, console: Console, options: TableOptions) -> Known:
    corpus = read_vectors(arguments.corpus, console, options, arguments.vector)
    queries = None if arguments.queries is None else read_vectors(arguments.queries, console, options, arguments.vector)
    if queries is not None and queries.shape[1] != corpus.shape[1]:
        raise Failure(
            DATA,
            f"--queries {arguments.queries}: expected {corpus.shape[1]} columns, as in the corpus, got {queries.shape[1]}.",
        )
    codes = None
    if arguments.labels is not None:
        labels = read_column(arguments.labels, console, options, len(corpus), "--labels")
        codes, parts = _parts_of_labels(labels, arguments.seed)
    else:
        pairs = read_pairs(
            arguments.pairs, console, options, (len(corpus if queries is None else queries), len(corpus))
        )
        parts = _parts_of_pairs(pairs, len(corpus), queries, arguments.seed)
    if min(map(len, parts)) < 1 or sum(map(len, parts)) < _LEAST_PAIRS:
        raise Failure(
            DATA,
            f"{count(sum(map(len, parts)), 'pair' if codes is None else 'row')} cannot be divided into parts for learning, for choosing a "
            f"method and for measuring it, because chains of pairs stay together. At least {_LEAST_PAIRS} in several groups are needed.",
        )
    return Known(corpus, queries, codes, *parts)


def _parts_of_labels(labels: list[Any], seed: int) -> tuple[np.ndarray, list[np.ndarray]]:
    """Divide the rows whose label occurs more than once into three parts: by label if there are many, otherwise by row."""
    from vicinal._supervision import code_groups

    codes, rng = code_groups(labels, "--labels"), np.random.default_rng(seed)
    sizes = np.bincount(codes[codes >= 0], minlength=1)
    rows = np.flatnonzero((codes >= 0) & (np.append(sizes, 0)[codes] > 1))
    if (sizes > 1).sum() >= _MANY_LABELS:
        return codes, [rows[part] for part in _thirds(rng.permutation(len(sizes))[codes[rows]], len(sizes))]
    return codes, [rows[part] for part in _thirds(rng.permutation(len(rows)), len(rows))]


def _parts_of_pairs(pairs: np.ndarray, n_rows: int, queries: Any, seed: int) -> list[np.ndarray]:
    """Return three parts of the pairs that share no row by any chain of pairs."""
    from vicinal import chunklets_from_pairs

    if queries is None:
        pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    moved = pairs + np.array([0 if queries is None else n_rows, 0])
    component = chunklets_from_pairs(moved, n_rows + (0 if queries is None else len(queries)))[moved[:, 1]]
    n_components = component.max(initial=-1) + 1
    return [
        pairs[part] for part in _thirds(np.random.default_rng(seed).permutation(n_components)[component], n_components)
    ]


def _thirds(numbers: np.ndarray, size: int) -> list[np.ndarray]:
    """Return three masks: which of some shuffled numbers below `size` are in the first 60 %, the next 20 % and the last 20 %."""
    place = (numbers + 0.5) / max(size, 1)
    return [(place >= low) & (place < high) for low, high in ((0.0, 0.6), (0.6, 0.8), (0.8, 1.0))]


def _fitted(name: str, known: Known, seed: int, console: Console) -> Any:
    """Return a pipeline with unit lengths before and after the map."""
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import Normalizer

    from vicinal import RCA, AnchorNCA

    unit = Normalizer()
    try:
        with warnings.catch_warnings():
            warnings.showwarning = console.show_warning
            rows, alike = _stacked(known)
            rows = unit.fit_transform(rows)
            if name == "rca":
                method = RCA(shrinkage="cv").fit(rows, alike)
            else:
                method = AnchorNCA(min(_LARGEST_RANK, rows.shape[1]), random_state=seed)
                method.fit(rows, **{"pairs" if known.codes is None else "y": alike})
    except (ValueError, np.linalg.LinAlgError) as error:
        raise Failure(FIT, f"{name}: {one_line(error)}") from error
    return make_pipeline(unit, method, Normalizer().fit(method.transform(rows[:1])))


def _stacked(known: Known) -> tuple[np.ndarray, np.ndarray]:
    """Return rows to learn from and a sample of rows without supervision as one table, and its pairs or labels."""
    corpus, queries, fit = known.corpus, known.queries, known.fit
    held_out = np.concatenate([known.choose, known.test])
    of_corpus = slice(None) if queries is None or known.codes is not None else np.s_[:, 1]
    others = np.setdiff1d(np.random.default_rng(0).permutation(len(corpus))[:_SAMPLED], held_out[of_corpus].ravel())
    mine = np.union1d(fit[of_corpus].ravel(), others)
    rows = np.asarray(corpus[mine])
    if known.codes is not None:
        return rows, np.where(np.isin(mine, fit), known.codes[mine], -1)
    second = np.searchsorted(mine, fit[:, 1])
    if queries is None:
        return rows, np.column_stack([np.searchsorted(mine, fit[:, 0]), second])
    asked = np.unique(fit[:, 0])
    both = np.concatenate([rows, np.asarray(queries[asked], dtype=rows.dtype)])
    return both, np.column_stack([len(mine) + np.searchsorted(asked, fit[:, 0]), second])


def _queries_of(known: Known, part: np.ndarray) -> np.ndarray:
    """Return the queries of a part: rows of the corpus, or of the table of queries."""
    return np.unique(part if known.queries is None else part[:, 0])


def _evaluated(known: Known, part: np.ndarray, model: Any, engine: Any) -> Any:
    from vicinal import retrieval

    asked = np.random.default_rng(0).permutation(_queries_of(known, part))[:_MOST_ASKED]
    if known.queries is None:
        return retrieval.evaluate(
            asked, known.corpus, part if known.codes is None else known.codes, model=model, engine=engine
        )
    number = np.full(len(known.queries), -1)
    number[asked] = np.arange(len(asked))
    kept = part[number[part[:, 0]] >= 0]
    renamed = np.column_stack([number[kept[:, 0]], kept[:, 1]])
    return retrieval.evaluate(known.queries[asked], known.corpus, renamed, model=model, engine=engine)


def _compared(
    known: Known, models: dict[str, Any], seconds: dict[str, float], engine: Any, arguments: Namespace
) -> tuple[dict[str, Any], str]:
    """Return the measures of all methods on the pairs for choosing, and those of the best method on the unseen pairs."""
    chosen = {}
    for name, model in models.items():
        arguments.check_interrupted()
        chosen[name] = _evaluated(known, known.choose, model, engine)
    candidate = max(chosen, key=lambda name: chosen[name].mean[_BY])  # raw comes first and so wins ties
    raw = _evaluated(known, known.test, None, engine)
    after = raw if candidate == "raw" else _evaluated(known, known.test, models[candidate], engine)
    gain = after.difference(raw)
    best = candidate if gain.mean[_BY] > 0.0 else "raw"
    summary = {
        "best": best,
        "measured": candidate,
        "verdict": _verdict(best, candidate, gain, "pairs" if known.codes is None else "rows"),
        "rows": len(known.corpus),
        "columns": int(known.corpus.shape[1]),
        "unit": "pair" if known.codes is None else "row",
        "pairs": {"fit": len(known.fit), "choose": len(known.choose), "test": len(known.test)},
        "methods": {
            name: {_BY: found.mean[_BY], "recall@10": found.mean["recall@10"], "seconds": round(seconds[name], 2)}
            for name, found in chosen.items()
        },
        "before": raw.to_dict(),
        "after": after.to_dict(),
        "gain": gain.to_dict(),
        "raw_kept": float(models["rca"][1].shrinkage_) if "rca" in models else None,
    }
    return summary, best


def _verdict(best: str, candidate: str, gain: Any, units: str) -> str:
    low, high = gain.intervals[_BY]
    changes = f"{_BY} changes by {gain.mean[_BY]:+.3f} on unseen {units} (95 % interval {low:+.3f} to {high:+.3f}"
    if candidate == "raw":
        return f"The raw embeddings are best: no adapter helps on these {units}, and none was written."
    if best == "raw":
        return (
            f"The raw embeddings are best: the adapter {candidate} was better on the {units} for choosing the method, but "
            f"{changes}). No model was written."
        )
    if low <= 0.0:
        return f"The adapter {best} is best, but the gain may be due to chance: {changes})."
    return f"The adapter {best} helps: {changes})."


def _changed(known: Known, model: Any, texts: Texts, engine: Any, most: int = 12) -> list[dict[str, Any]]:
    """Return queries whose neighbours changed most, with what they found before and after."""
    from vicinal import retrieval

    asked = _queries_of(known, known.test)[:200]
    own = known.queries is None
    given = asked if own else known.queries[asked]  # type: ignore[index]
    before, after = (
        retrieval.search(given, known.corpus, min(5, len(known.corpus) - 1), model=m, engine=engine).indices
        for m in (None, model)
    )

    def relevant(query: int, row: int) -> bool:
        if known.codes is not None:
            return bool(known.codes[query] == known.codes[row])
        pairs = known.test
        return bool(((pairs == (query, row)).all(axis=1) | (own & (pairs == (row, query)).all(axis=1))).any())

    moved = np.array([len(set(b) ^ set(a)) for b, a in zip(before, after, strict=True)])

    def name(number: int, known_as: list[Any] | None, kind: str) -> str:
        return f"{kind} {number}" if known_as is None or known_as[number] is None else str(known_as[number])

    def listed(rows: Any, query: int) -> list[dict[str, Any]]:
        return [{"text": name(int(row), texts.corpus, "row"), "relevant": relevant(query, int(row))} for row in rows]

    return [
        {
            "query": name(int(asked[i]), texts.queries, "row" if own else "query"),
            "before": listed(before[i], int(asked[i])),
            "after": listed(after[i], int(asked[i])),
        }
        for i in np.argsort(-moved, kind="stable")[:most]
        if moved[i]
    ]


def _as_text(summary: dict[str, Any]) -> str:
    lines = [
        summary["verdict"],
        "",
        f"{'':>14}  {'before':>8}  {'after':>8}   on {count(summary['pairs']['test'], 'unseen ' + summary['unit'])}",
    ]
    for name, before in summary["before"]["measures"].items():
        lines.append(f"{name:>14}  {before['mean']:8.4f}  {summary['after']['measures'][name]['mean']:8.4f}")
    if summary["raw_kept"] is not None:
        lines.append(f"rca keeps {100 * summary['raw_kept']:.0f} % of the raw metric, by cross-validation.")
    if summary["model"]:
        lines.append(f"wrote {summary['model']}.")
    return "\n".join(lines)
