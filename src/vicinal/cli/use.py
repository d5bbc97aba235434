"""`vicinal transform`, `vicinal score` and `vicinal neighbors`: use a saved model."""

from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from vicinal._dask import rows_on_cluster
from vicinal.cli.blocks import NeededColumns, TableBlocks, open_table
from vicinal.cli.columns import Picked, note_order, pick_features
from vicinal.cli.console import Console, Messages, count, shown
from vicinal.cli.errors import DATA, MODEL, USAGE, Failure, about_table
from vicinal.cli.models import Model, load_model, make_engine, steps_of
from vicinal.cli.outputs import output_format, write_json
from vicinal.cli.row_scores import (
    apply_to_rows,
    detector_of,
    explain_rows,
    level_text,
    parts_of,
    rows_to_score,
    score_table,
)
from vicinal.cli.sharing import Silent, each_block, each_part, plain_options
from vicinal.cli.table_writer import TableWriter
from vicinal.cli.tables import TableOptions, check_columns, read_table, split_names

if TYPE_CHECKING:
    import pandas as pd

    from vicinal._detect.outliers import DensityOutlierDetector


_QUERIES_IN_PART = 1024  # of a search by workers


def transform(arguments: Namespace, console: Console) -> None:
    """Run `vicinal transform`."""
    check_output(arguments)
    model, blocks = open_model_and_blocks(arguments, console)
    missing = _about_missing(arguments, model)
    _method(model, "transform", "a density without a metric")
    with Results(arguments, console, model.kind) as results:
        for frame, _ in each_block(_Mapper(model, arguments, missing), blocks, console, "transforming rows"):
            results.write(frame)


class _Mapper:
    """The output rows of `vicinal transform`, for one block of rows at a time."""

    def __init__(self, model: Model, arguments: Namespace, missing: str) -> None:
        self._model, self._arguments, self._missing = model, plain_options(arguments), missing

    def __call__(self, first: int, table: "pd.DataFrame", messages: Messages, whole: bool) -> "pd.DataFrame | None":
        import pandas as pd

        model = self._model
        picked = pick_features(table, model, messages, self._missing, whole=whole)
        if not len(picked.rows):
            return None
        images = _mapped(model.whole.transform, picked.features, messages)
        kept = _kept(self._arguments, table, picked.rows)
        parts = [kept, pd.DataFrame(images, columns=_output_names(model, images.shape[1]))]
        if self._arguments.missing == "drop":
            parts.insert(0, pd.DataFrame({"row": first + picked.rows}))
        return pd.concat(parts, axis=1)


def score(arguments: Namespace, console: Console) -> None:
    """Run `vicinal score`."""
    if (arguments.data is None) != arguments.training:
        raise Failure(USAGE, "score needs either DATA or --training.")
    check_output(arguments)
    model, blocks = open_model_and_blocks(arguments, console)
    missing = _about_missing(arguments, model, marginalise=True)
    _method(model, "score_samples", "a metric without a density")
    if np.isnan(model.log_scale):
        console.warn(
            "the model transforms the features before the density, so log_density is in the transformed units."
        )
    if arguments.fdr is not None and arguments.training:
        raise Failure(
            USAGE,
            "--fdr is for new rows: the p-values of training rows are ranks, for which no false discovery rate can be controlled. "
            "Omit --fdr or --training.",
        )
    scorer = Scorer(model, arguments, missing, console)
    if rows_on_cluster():
        _ = scorer.detector  # computed by all workers together, and then sent to each of them
    most = None
    if arguments.fdr is not None and not isinstance(blocks, list):
        # All rows are considered together, so they are read twice.
        p_values = [
            values for values, _ in each_block(scorer.p_values, blocks, console, "scoring rows for the first time")
        ]
        most = _largest_discovery(np.concatenate([np.empty(0), *p_values]), arguments.fdr)
    if blocks is None:
        frames = iter([scorer.training_rows(console)])
    else:
        frames = (frame for frame, _ in each_block(partial(scorer, most), blocks, console, "scoring rows"))
    write_scores(frames, scorer, arguments, console)


def write_scores(frames: "Iterable[pd.DataFrame]", scorer: "Scorer", arguments: Namespace, console: Console) -> None:
    """Write scored rows: all of them, the outliers or the most unusual ones; in the order of the table or of the scores."""
    import pandas as pd

    n_rows = n_outliers = 0

    def counted() -> "Iterator[pd.DataFrame]":
        nonlocal n_rows, n_outliers
        for frame in frames:
            n_rows, n_outliers = n_rows + len(frame), n_outliers + int(frame["outlier"].sum())
            yield frame[frame["outlier"] == 1] if arguments.only_outliers else frame

    with Results(arguments, console, scorer.model.kind) as results:
        if arguments.sort or arguments.top is not None:
            whole = pd.concat(list(counted())).sort_values(["score", "p_value"], kind="stable")
            results.write(whole if arguments.top is None else whole.iloc[: arguments.top])
        else:
            for frame in counted():
                results.write(frame)
        how = (
            f"at a false discovery rate of {arguments.fdr:g}" if arguments.fdr else f"at {level_text(scorer.detector)}"
        )
        console.say(f"{count(n_outliers, 'outlier')} in {count(n_rows, 'row')}, flagged {how}.")


def _largest_discovery(p_values: np.ndarray, rate: float) -> float:
    """Return the largest p-value that is a discovery at a false discovery rate, or -1 if there is none."""
    from scipy.stats import false_discovery_control

    if not len(p_values):
        return -1.0
    return p_values[false_discovery_control(p_values) <= rate].max(initial=-1.0)


class Scorer:
    """The scores and the output rows of `vicinal score`, for one block of rows at a time."""

    def __init__(self, model: Model, arguments: Namespace, missing: str, console: Messages | None = None) -> None:
        self.model, self._arguments, self._missing = model, plain_options(arguments), missing
        self._console = None if rows_on_cluster() else console  # workers get the detector, and print nothing

    @cached_property
    def detector(self) -> "DensityOutlierDetector":
        """The detector of the model, which is computed when the first row is scored."""
        return detector_of(self.model, self._arguments.level, self._console)

    def __call__(
        self, most: float | None, first: int, table: "pd.DataFrame", messages: Messages, whole: bool
    ) -> "pd.DataFrame | None":
        """Return the rows of the output; `most` is the largest p-value of an outlier, if ``--fdr`` determined it before."""
        picked = pick_features(table, self.model, messages, self._missing, whole=whole)
        if not len(picked.rows):
            return None
        rows = rows_to_score(self.model, table, picked)
        note_broken(picked.broken, messages)
        incomplete = int(picked.features.isna().any(axis=1).sum())
        if incomplete:
            messages.say(f"{count(incomplete, 'row')} with missing values, scored by the known values.")
        kept = _kept(self._arguments, table, picked.rows)
        return self.frame(rows, first + picked.rows, kept, messages, most)

    def p_values(self, first: int, table: "pd.DataFrame", messages: Messages, whole: bool) -> np.ndarray | None:
        """Return the p-values of the rows, without messages, which are printed when the rows are scored again."""
        picked = pick_features(table, self.model, Silent(), self._missing, whole=whole)
        if not len(picked.rows):
            return None
        rows = rows_to_score(self.model, table, picked)
        return score_table(self.detector, rows, self._arguments.as_new, Silent())[0]["p_value"].to_numpy()

    def training_rows(self, console: Console) -> "pd.DataFrame":
        """Return the rows of the output for the training rows."""
        return self.frame(None, np.arange(len(self.detector.training_scores_)), None, console)

    def frame(
        self, rows: Any, numbers: np.ndarray, kept: Any, console: Messages, most: float | None = None
    ) -> "pd.DataFrame":
        """Return the output for some rows (None for the training rows), with their numbers and the columns of ``--keep``."""
        import pandas as pd

        arguments = self._arguments
        scores, own = score_table(self.detector, rows, arguments.as_new, console)
        scores = scores.reset_index(drop=True)
        if arguments.fdr is not None:
            most = _largest_discovery(scores["p_value"].to_numpy(), arguments.fdr) if most is None else most
            scores["outlier"] = (scores["p_value"] <= most).astype(int)
        if arguments.explain:
            chosen = np.flatnonzero(scores["outlier"])
            if arguments.top is not None:
                chosen = np.argsort(scores["score"].to_numpy(), kind="stable")[: arguments.top]
            scores["why"] = explain_rows(self.detector, rows, own, chosen)
        return pd.concat([*([] if kept is None else [kept]), pd.DataFrame({"row": numbers}), scores], axis=1)


def note_broken(broken: dict[str, np.ndarray], console: Messages) -> None:
    """Print how many rows differ from a value that all training rows share."""
    if broken:
        rows = np.any(list(broken.values()), axis=0)
        console.warn(
            f"{count(int(rows.sum()), 'row')} of {len(rows):,} differ from the constant value of all training rows in {shown(broken)}. "
            "The density ignores these columns; the rows are flagged as outliers."
        )


def neighbors(arguments: Namespace, console: Console) -> None:
    """Run `vicinal neighbors`."""
    import pandas as pd

    if arguments.query == "-" == arguments.data:
        raise Failure(USAGE, "DATA and --query cannot both be stdin. Name a file for one of them.")
    check_output(arguments)
    model, table, picked = open_model(arguments, console)
    map_rows = _method(model, "transform", "a density without a metric")
    images = _mapped(map_rows, picked.features, console)
    if images.shape[1] == 0:
        raise Failure(
            MODEL,
            f"{arguments.model} has no metric: {model.kind} found that one Gaussian describes its "
            "training rows best. Learn a metric with --method lca, rca or nca instead.",
        )
    names = _row_names(arguments, table, picked.rows, "DATA")
    if arguments.query is None:
        queries, query_names, available = None, names, len(images) - 1
    else:
        with about_table(arguments.query):
            options = TableOptions.from_arguments(arguments)._replace(format=None)
            query_table = read_table(arguments.query, options, console)
            found = pick_features(query_table, model, console, _about_missing(arguments, model))
        queries, available = _mapped(map_rows, found.features, console), len(images)
        query_names = _row_names(arguments, query_table, found.rows, "--query")
    if arguments.k > available:
        raise Failure(
            USAGE,
            f"-k {arguments.k} needs at least {count(arguments.k, 'other row')} in DATA, got {available}. Lower -k or add rows.",
        )
    positions, distances = _nearest(images, queries, arguments.k, console)
    n, k = positions.shape
    result = pd.DataFrame(
        {
            "query": np.repeat(np.asarray(query_names), k),
            "rank": np.tile(np.arange(1, k + 1), n),
            "neighbor": np.asarray(names)[positions.ravel()],
            "distance": distances.ravel(),
        }
    )
    with Results(arguments, console, model.kind) as results:
        results.write(result)


def _mapped(map_rows: Callable[..., Any], features: "pd.DataFrame", messages: Messages) -> np.ndarray:
    """Return the images of rows, part by part."""
    doing = f"transforming {count(len(features), 'row')}"
    return np.concatenate(each_part(partial(apply_to_rows, map_rows), parts_of(features), messages, doing))


def _nearest(images: np.ndarray, queries: np.ndarray | None, k: int, console: Console) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions of the k nearest images of each query, and their distances; without queries, those of each image."""
    n_queries = len(images if queries is None else queries)
    # Without workers, one call visits each pair of images only once.
    step = _QUERIES_IN_PART if rows_on_cluster() else n_queries
    parts = [slice(start, start + step) for start in range(0, n_queries, step)]
    found = each_part(
        _Search(images, queries, k), parts, console, f"searching the neighbours of {count(n_queries, 'row')}"
    )
    return np.concatenate([one.indices for one in found]), np.sqrt(np.concatenate([one.scores for one in found]))


class _Search:
    """The nearest images of some of the queries."""

    def __init__(self, images: np.ndarray, queries: np.ndarray | None, k: int) -> None:
        self._images, self._queries, self._k = images, queries, k

    @cached_property
    def _placed(self) -> Any:
        from vicinal._engine import prepare

        # All CPU backends find the same neighbours; "reference" is the one that loads no compiler.
        return prepare("reference", self._images, leave_one_out=self._queries is None).at()

    def __call__(self, part: slice) -> Any:
        if self._queries is not None:
            return self._placed.nearest(self._k, self._queries[part])
        every = range(len(self._images))[part]
        return self._placed.nearest(self._k, None if len(every) == len(self._images) else np.array(every))


def check_output(arguments: Namespace) -> None:
    """Raise an error before any work if no table can be written under this name."""
    if arguments.output not in (None, "-"):
        output_format(arguments.output)


def open_model(arguments: Namespace, console: Console) -> "tuple[Model, pd.DataFrame, Picked]":
    """Return the model, the table and the model's columns of it."""
    model = load_model(arguments.model, make_engine(arguments))
    missing = _about_missing(arguments, model)
    table = read_table(arguments.data, TableOptions.from_arguments(arguments), console)
    note_order(model, console)
    return model, table, pick_features(table, model, console, missing)


def open_model_and_blocks(
    arguments: Namespace, console: Console
) -> "tuple[Model, TableBlocks | list[pd.DataFrame] | None]":
    """Return the model, and the blocks of the table (None for ``score --training``)."""
    model = load_model(arguments.model, make_engine(arguments))
    if arguments.data is None:
        return model, None
    needed = None if model.encoder is None else frozenset(model.encoder.used_columns)
    also = {
        *split_names(arguments.keep, ()),
        *(arguments.keep or ()),
        *([] if needed is None else model.encoder.constants_),
    }
    columns = NeededColumns(needed, frozenset(also))
    note_order(model, console)
    return model, open_table(arguments.data, TableOptions.from_arguments(arguments), console, in_blocks=columns)


def _about_missing(arguments: Namespace, model: Model, *, marginalise: bool = False) -> str:
    """Return what is done about missing values: "refuse", "drop", or "keep" if the model can use such rows."""
    from vicinal import DensityImputer

    imputes = any(isinstance(step, DensityImputer) for step in steps_of(model.whole))
    if arguments.missing == "impute" and not imputes:
        raise Failure(USAGE, "--missing impute: the model has no imputer. Learn it with --missing impute.")
    known_values = marginalise and (hasattr(model.estimator, "marginal") or hasattr(model.estimator, "p_values"))
    if arguments.missing in ("refuse", "impute") and (imputes or known_values):
        return "keep"
    if arguments.missing != "marginalise":
        return arguments.missing
    if not known_values:
        raise Failure(
            USAGE,
            f"--missing marginalise is for the scores of densities; {model.kind} cannot use the known values of a row"
            f"{' here' if marginalise else ' to map it'}. Pass --missing drop.",
        )
    return "keep"


def _method(model: Model, name: str, otherwise: str) -> Callable[..., Any]:
    """Return a method of the model, or raise an error that states what the model is instead."""
    if not hasattr(model.whole, name):
        raise Failure(MODEL, f"the model is a {model.kind}: {otherwise}. It has no {name}.")
    return getattr(model.whole, name)


def _kept(arguments: Namespace, table: "pd.DataFrame", rows: np.ndarray) -> "pd.DataFrame":
    """Return the columns of ``--keep``."""
    names = split_names(arguments.keep, table.columns)
    check_columns(names, table.columns, "--keep")
    return table[names].iloc[rows].reset_index(drop=True)


def _row_names(arguments: Namespace, table: "pd.DataFrame", rows: np.ndarray, what: str) -> np.ndarray:
    if arguments.id is None:
        return rows
    if arguments.id not in table.columns:
        raise Failure(DATA, f"--id: {what} has no column {arguments.id!r}. It has {shown(table.columns)}.")
    return table[arguments.id].to_numpy()[rows]


def _output_names(model: Model, n_columns: int) -> list[str]:
    stem = model.kind.lower()
    return [f"{stem}{i}" for i in range(n_columns)]


class Results:
    """The output of a command that makes a table: rows in a file or on stdout, or JSON."""

    def __init__(self, arguments: Namespace, console: Console, kind: str) -> None:
        self._arguments, self._console, self._kind = arguments, console, kind
        self._as_json = arguments.json and arguments.output in (None, "-")
        self._frames: list[pd.DataFrame] = []
        self._written = False
        self._writer = TableWriter(arguments.output, spreadsheet=arguments.spreadsheet)

    @property
    def n_rows(self) -> int:
        """The number of rows so far."""
        return sum(map(len, self._frames)) if self._as_json else self._writer.n_rows

    def __enter__(self) -> Self:
        self._writer.__enter__()
        return self

    def write(self, frame: "pd.DataFrame") -> None:
        """Add a block of the table."""
        self._arguments.check_interrupted()
        self._written = True
        if frame.columns.has_duplicates:
            name = frame.columns[frame.columns.duplicated()][0]
            raise Failure(
                USAGE, f"--keep {name}: the output already has a column of that name. Rename it in the table."
            )
        self._frames.append(frame) if self._as_json else self._writer.write(frame)

    def __exit__(self, *error: Any) -> None:
        import pandas as pd

        if error[0] is None and not self._written:
            failure = Failure(DATA, "no row is complete, so --missing drop leaves none.")
            self._writer.__exit__(Failure, failure, None)
            raise failure
        self._writer.__exit__(*error)
        if error[0] is not None:
            return
        output = self._arguments.output
        if self._as_json:
            write_json(_records(pd.concat(self._frames, ignore_index=True)))
        elif output not in (None, "-"):
            self._console.say(f"wrote {count(self.n_rows, 'row')} to {output}.")
            if self._arguments.json:
                columns = self._writer.columns
                write_json({"model": self._kind, "output": output, "rows": self.n_rows, "columns": columns})


def _records(frame: "pd.DataFrame") -> list[dict[str, Any]]:
    """Return rows as JSON objects with all digits; missing and infinite values as null, times as text."""
    columns = [[_plain(value) for value in frame[name].tolist()] for name in frame]
    return [dict(zip(frame.columns, row, strict=True)) for row in zip(*columns, strict=True)]


def _plain(value: Any) -> Any:
    import pandas as pd

    if isinstance(value, float):
        return value if np.isfinite(value) else None
    if isinstance(value, (str, bool, int)) or value is None:
        return value
    return None if pd.isna(value) else str(value)
