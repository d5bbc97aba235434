"""`vicinal transform`: map rows by a learned metric."""

from argparse import Namespace
from collections.abc import Iterator

import pandas as pd

from vicinal.cli.columns import pick_features
from vicinal.cli.console import Console
from vicinal.cli.models import blocks_for, check_method, how_to_treat_gaps, images_of_rows, load_model, make_engine
from vicinal.cli.results import check_output, columns_to_keep, write_results


def transform(arguments: Namespace, console: Console) -> None:
    """Run the command."""
    check_output(arguments)
    model = load_model(arguments.model, make_engine(arguments))
    model.note_order(console)
    missing = how_to_treat_gaps(arguments, model)
    check_method(model, "transform", "a density without a metric")

    def frames() -> "Iterator[pd.DataFrame]":
        for first, table, whole in blocks_for(model, arguments, console):
            picked = pick_features(table, model, console, missing, whole=whole)
            if len(picked.rows):
                images = images_of_rows(model, picked.features, console)
                names = [f"{model.kind.lower()}{i}" for i in range(images.shape[1])]
                if getattr(model.estimator, "_has_levels", False):
                    names = list(model.estimator.get_feature_names_out())
                rows = [pd.DataFrame({"row": first + picked.rows})] if arguments.missing == "drop" else []
                kept = columns_to_keep(arguments, table, picked.rows)
                yield pd.concat([*rows, kept, pd.DataFrame(images, columns=names)], axis=1)

    write_results(frames(), model.kind, arguments, console)
