"""`vicinal neighbors`: the nearest rows under a learned metric, by `vicinal.retrieval.search`."""

from argparse import Namespace
from typing import TYPE_CHECKING

import numpy as np

from vicinal._words import count, shown
from vicinal.cli.columns import pick_features
from vicinal.cli.console import Console
from vicinal.cli.errors import DATA, MODEL, USAGE, Failure, about_table
from vicinal.cli.models import check_method, how_to_treat_gaps, images_of_rows, open_model
from vicinal.cli.results import check_output, write_results
from vicinal.cli.tables import read_table, table_options

if TYPE_CHECKING:
    import pandas as pd


def neighbors(arguments: Namespace, console: Console) -> None:
    """Run the command."""
    import pandas as pd

    from vicinal import retrieval

    if arguments.query == "-" == arguments.data:
        raise Failure(USAGE, "DATA and --query cannot both be stdin. Name a file for one of them.")
    check_output(arguments)
    model, table, picked = open_model(arguments, console)
    check_method(model, "transform", "a density without a metric")
    images = images_of_rows(model, picked.features, console)
    if images.shape[1] == 0:
        raise Failure(
            MODEL,
            f"{arguments.model} has no metric: {model.kind} found that one Gaussian describes its "
            "training rows best. Learn a metric with --method lca, rca or nca instead.",
        )
    names = _row_names(arguments, table, picked.rows, "DATA")
    queries, query_names, available = None, names, len(images) - 1
    if arguments.query is not None:
        with about_table(arguments.query):
            options = table_options(arguments)._replace(format=None)
            query_table = read_table(arguments.query, options, console)
            picked = pick_features(query_table, model, console, how_to_treat_gaps(arguments, model))
        queries, available = images_of_rows(model, picked.features, console), len(images)
        query_names = _row_names(arguments, query_table, picked.rows, "--query")
    if arguments.k > available:
        raise Failure(
            USAGE,
            f"-k {arguments.k} needs at least {count(arguments.k, 'other row')} in DATA, got {available}. Lower -k or add rows.",
        )
    console.doing(f"searching the neighbours of {count(len(query_names), 'row')}")
    if arguments.duplicates is None:
        positions, distances = retrieval.search(queries, images, arguments.k, similarity="euclidean")
        n, k = positions.shape
        places, near = np.repeat(np.arange(n), k), positions.ravel()
        columns = {"rank": np.tile(np.arange(1, k + 1), n)}
        distances = distances.ravel()
    else:
        places, near, distances = _pairs_within(queries, images, arguments.duplicates, arguments.k)
        columns = {}
        console.say(f"{count(len(near), 'pair')} at distance {arguments.duplicates:g} or nearer.")
    result = pd.DataFrame(
        {
            "query": np.asarray(query_names)[places],
            **columns,
            "neighbor": np.asarray(names)[near],
            "distance": distances,
        }
    )
    write_results([result], model.kind, arguments, console)


def _pairs_within(
    queries: np.ndarray | None, images: np.ndarray, most: float, k: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return queries, rows and distances of all pairs at a distance of at most `most`, the nearest first.

    If the queries are the rows themselves, each pair counts once. Rows whose k nearest are all that near are searched again
    with a larger k.
    """
    from vicinal import retrieval

    n = len(images if queries is None else queries)
    available = len(images) - (queries is None)
    left, parts = np.arange(n), []
    while len(left):
        rows = left if queries is None else queries[left]
        found = retrieval.search(rows, images, min(k, available), similarity="euclidean")
        is_complete = (found.scores[:, -1] > most) | (k >= available)
        row, column = np.nonzero((found.scores <= most) & is_complete[:, None])
        parts.append((left[row], found.indices[row, column], found.scores[row, column]))
        left, k = left[~is_complete], 2 * k
    first, second, distances = map(np.concatenate, zip(*parts, strict=True))
    if queries is None:
        once = first < second
        first, second, distances = first[once], second[once], distances[once]
    order = np.lexsort((second, first, distances))
    return first[order], second[order], distances[order]


def _row_names(arguments: Namespace, table: "pd.DataFrame", rows: np.ndarray, what: str) -> np.ndarray:
    if arguments.id is None:
        return rows
    if arguments.id not in table.columns:
        raise Failure(DATA, f"--id: {what} has no column {arguments.id!r}. It has {shown(table.columns)}.")
    return table[arguments.id].to_numpy()[rows]
