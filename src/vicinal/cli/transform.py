"""`vicinal transform`: map rows by a learned metric."""

from argparse import Namespace
from typing import TYPE_CHECKING

from vicinal.cli.columns import pick_features
from vicinal.cli.console import Console, Messages
from vicinal.cli.models import Model, check_method, how_to_treat_gaps, images_of_rows, open_model_and_blocks
from vicinal.cli.results import Results, check_output, columns_to_keep
from vicinal.cli.sharing import each_block, plain_options

if TYPE_CHECKING:
    import pandas as pd


def transform(arguments: Namespace, console: Console) -> None:
    """Run the command."""
    check_output(arguments)
    model, blocks = open_model_and_blocks(arguments, console)
    missing = how_to_treat_gaps(arguments, model)
    check_method(model, "transform", "a density without a metric")
    with Results(arguments, console, model.kind) as results:
        for frame, _ in each_block(_Mapper(model, arguments, missing), blocks, console, "transforming rows"):
            results.write(frame)


class _Mapper:
    """The output rows of the command, for one block of rows at a time."""

    def __init__(self, model: Model, arguments: Namespace, missing: str) -> None:
        self._model, self._arguments, self._missing = model, plain_options(arguments), missing

    def __call__(self, first: int, table: "pd.DataFrame", messages: Messages, whole: bool) -> "pd.DataFrame | None":
        import pandas as pd

        picked = pick_features(table, self._model, messages, self._missing, whole=whole)
        if not len(picked.rows):
            return None
        images = images_of_rows(self._model, picked.features, messages)
        names = [f"{self._model.kind.lower()}{i}" for i in range(images.shape[1])]
        parts = [columns_to_keep(self._arguments, table, picked.rows), pd.DataFrame(images, columns=names)]
        if self._arguments.missing == "drop":
            parts.insert(0, pd.DataFrame({"row": first + picked.rows}))
        return pd.concat(parts, axis=1)
