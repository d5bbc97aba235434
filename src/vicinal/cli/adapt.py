"""`vicinal adapt`: learn an adapter from embeddings and pairs by `vicinal.retrieval.adapt`, save it and report on it."""

from argparse import Namespace
from typing import Any

import numpy as np

from vicinal._pages import page
from vicinal._words import one_line
from vicinal.cli.console import Console
from vicinal.cli.errors import DATA, FIT, USAGE, Failure
from vicinal.cli.models import make_engine, save_model
from vicinal.cli.outputs import write_json, write_lines, write_text
from vicinal.cli.pairs import as_row_numbers, read_pair_table
from vicinal.cli.vectors import read_column, read_vectors
from vicinal.cli.wording import name_options

_SECTIONS = {
    "before-after": "Before and after",
    "methods": "Methods",
    "examples": "Queries whose neighbours changed",
    "data": "How the pairs were used",
}


def adapt(arguments: Namespace, console: Console) -> None:
    """Run the command."""
    from vicinal import retrieval

    methods = [name.strip() for name in arguments.methods.split(",") if name.strip()]
    known = ("rca", "anchors")
    if not methods or set(methods) - set(known):
        raise Failure(USAGE, f"--methods: expected some of {', '.join(known)}, got {arguments.methods!r}.")
    if arguments.labels is not None and arguments.queries is not None:
        raise Failure(
            USAGE, "--labels refer to the rows of CORPUS and not to those of --queries. Pass --pairs with --queries."
        )
    if arguments.query_texts is not None and arguments.queries is None:
        raise Failure(USAGE, "--query-texts refer to --queries, which were not passed. Pass only --texts.")
    corpus = read_vectors(arguments.corpus, console, arguments.vector)
    queries = None if arguments.queries is None else read_vectors(arguments.queries, console, arguments.vector)
    if arguments.labels is not None:
        relevant: Any = read_column(arguments.labels, console, len(corpus), "--labels")
    else:
        relevant = as_row_numbers(read_pair_table(arguments.pairs, console), arguments.pairs)
    texts, query_texts = _read_texts(arguments, console, corpus, queries)
    doing = ""

    def progress(done: int, total: int, text: str) -> None:
        nonlocal doing
        doing = text
        console.progress(done, total, text)

    try:
        result = retrieval.adapt(
            corpus,
            relevant,
            queries=queries,
            methods=methods,
            side=arguments.side,
            engine=make_engine(arguments),
            random_state=arguments.seed,
            progress=progress,
        )
    except (ValueError, np.linalg.LinAlgError) as error:
        if doing.startswith("learning"):
            raise Failure(FIT, f"{doing.partition(' ')[2]}: {one_line(error)}") from error
        source = "--pairs" if arguments.labels is None else "--labels"
        raise Failure(DATA, name_options(one_line(error), relevant=source, queries="--queries")) from error
    summary = {**result.to_dict(), "model": None if result.model is None else arguments.output}
    if result.model is not None:
        save_model(result.model, arguments.output)
    if arguments.report is not None:
        examples = _examples(result, texts, query_texts, "row" if queries is None else "query")
        write_text(arguments.report, _page(result, examples, arguments.corpus))
        console.say(f"wrote {arguments.report}.")
    if arguments.json:
        write_json(summary)
    else:
        written = "no model was written." if result.model is None else f"wrote {arguments.output}."
        write_lines(f"{result}\n{written}")


def _read_texts(
    arguments: Namespace, console: Console, corpus: np.ndarray, queries: np.ndarray | None
) -> tuple[list[Any] | None, list[Any] | None]:
    """Return the texts of the rows of the corpus and of the queries, None if they were not given."""
    texts = query_texts = None
    if arguments.texts is not None:
        texts = read_column(arguments.texts, console, len(corpus), "--texts")
    if queries is None:
        return texts, texts
    if arguments.query_texts is not None:
        query_texts = read_column(arguments.query_texts, console, len(queries), "--query-texts", "the queries")
    return texts, query_texts


def _examples(
    result: Any, texts: list[Any] | None, query_texts: list[Any] | None, query_is: str
) -> list[dict[str, Any]]:
    """Return the queries whose neighbours changed most, with texts."""

    def text(position: int, texts: list[Any] | None, kind: str) -> str:
        return f"{kind} {position}" if texts is None or texts[position] is None else str(texts[position])

    return [
        {
            "query": text(changed["query"], query_texts, query_is),
            **{
                side: [{"text": text(row, texts, "row"), "relevant": hit} for row, hit in changed[side]]
                for side in ("before", "after")
            },
        }
        for changed in result.changed_queries()
    ]


def _page(result: Any, examples: list[dict[str, Any]], source: str) -> str:
    """Return the report: one HTML file without scripts that needs no network."""
    low = result.gain.intervals["nDCG@10"][0]
    state = "even" if result.best == "raw" or low <= 0 else "good"
    summary = result.to_dict()
    return page(
        "adapter.html",
        {key: name for key, name in _SECTIONS.items() if examples or key != "examples"},
        title=f"vicinal adapt: {source}",
        next=None,
        facts=[f"{summary['rows']:,} rows", f"{summary['columns']:,} columns"],
        examples=examples,
        **{**summary, "verdict": {"text": result.verdict, "state": state, "details": []}},
    )
