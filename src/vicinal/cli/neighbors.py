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
    positions, distances = retrieval.search(queries, images, arguments.k, similarity="euclidean")
    n, k = positions.shape
    result = pd.DataFrame(
        {
            "query": np.repeat(np.asarray(query_names), k),
            "rank": np.tile(np.arange(1, k + 1), n),
            "neighbor": np.asarray(names)[positions.ravel()],
            "distance": distances.ravel(),
        }
    )
    write_results([result], model.kind, arguments, console)


def _row_names(arguments: Namespace, table: "pd.DataFrame", rows: np.ndarray, what: str) -> np.ndarray:
    if arguments.id is None:
        return rows
    if arguments.id not in table.columns:
        raise Failure(DATA, f"--id: {what} has no column {arguments.id!r}. It has {shown(table.columns)}.")
    return table[arguments.id].to_numpy()[rows]
