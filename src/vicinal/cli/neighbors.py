"""`vicinal neighbors`: the nearest rows under a learned metric, by `vicinal.retrieval.search`."""

from argparse import Namespace
from typing import TYPE_CHECKING

import numpy as np
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import normalize

from vicinal._words import count, one_line, shown
from vicinal.cli.columns import pick_features
from vicinal.cli.console import Console
from vicinal.cli.errors import DATA, USAGE, Failure, about_table
from vicinal.cli.models import Model, check_method, how_to_treat_gaps, images_of_rows, open_model
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
    by_kernel = getattr(model.estimator, "_has_levels", False) and arguments.duplicates is None
    maps_queries = isinstance(model.estimator, retrieval.QueryMap)
    if maps_queries and arguments.query is None:
        raise Failure(USAGE, "the model maps queries and not the rows of DATA. Pass the queries with --query.")
    place = _places_under_kernel if by_kernel else _places_of_queries if maps_queries else _places
    images, as_queries, offsets = place(model, picked.features, console)
    names = _row_names(arguments, table, picked.rows, "DATA")
    queries, query_names, available = None, names, len(images) - 1
    if by_kernel:
        console.say("rows are ranked by the kernel; a level that differs counts by how unlikely the kernel makes it.")
    if arguments.query is not None:
        with about_table(arguments.query):
            options = table_options(arguments)._replace(format=None)
            query_table = read_table(arguments.query, options, console)
            picked = pick_features(query_table, model, console, how_to_treat_gaps(arguments, model))
        (_, queries, offsets), available = place(model, picked.features, console), len(images)
        query_names = _row_names(arguments, query_table, picked.rows, "--query")
    if arguments.k > available:
        raise Failure(
            USAGE,
            f"-k {arguments.k} needs at least {count(arguments.k, 'other row')} in DATA, got {available}. Lower -k or add rows.",
        )
    console.doing(f"searching the neighbours of {count(len(query_names), 'row')}")
    if arguments.duplicates is None:
        if by_kernel:
            positions, distances = _ranked_by_kernel(queries, as_queries, images, offsets, arguments.k)
        else:
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


def _places(model: Model, features: "pd.DataFrame", console: Console) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return rows under the metric as points and as queries, and what squared distances from the latter have too much: nothing."""
    images = images_of_rows(model, features, console)
    return images, images, np.zeros(len(images))


def _places_of_queries(
    model: Model, features: "pd.DataFrame", console: Console
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the same for a map of queries alone: points are rows of unit length."""
    return normalize(features.to_numpy()), images_of_rows(model, features, console), np.zeros(len(features))


def _places_under_kernel(
    model: Model, features: "pd.DataFrame", console: Console
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the same for rows of numbers and levels, whose kernel depends on the level of the query."""
    rows = (
        model.whole[:-1].transform(features) if isinstance(model.whole, Pipeline) and len(model.whole) > 1 else features
    )
    try:
        return model.estimator.kernel_images(rows)
    except ValueError as error:
        raise Failure(DATA, one_line(error)) from error


def _ranked_by_kernel(
    queries: np.ndarray | None, as_queries: np.ndarray, images: np.ndarray, offsets: np.ndarray, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the nearest rows of queries, or of the rows themselves without them, and distances under the kernel."""
    from vicinal import retrieval

    if queries is not None:
        positions, distances = retrieval.search(queries, images, k, similarity="euclidean")
    else:  # a row is the nearest to itself, or as near as others
        found, every = retrieval.search(as_queries, images, k + 1, similarity="euclidean")
        itself = found == np.arange(len(found))[:, None]
        itself[~itself.any(axis=1), -1] = True
        positions, distances = found[~itself].reshape(-1, k), every[~itself].reshape(-1, k)
    return positions, np.sqrt(np.maximum(np.square(distances) - offsets[:, None], 0.0))


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
