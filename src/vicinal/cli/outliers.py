"""`vicinal outliers`: from a table to its unusual rows and the reasons, in one command."""

from argparse import Namespace

import numpy as np
from sklearn.utils import get_tags

from vicinal._detect.outliers import DensityOutlierDetector
from vicinal._detect.steps import Steps, fit_prepared
from vicinal.cli.columns import measured, note_dependence, prepare
from vicinal.cli.console import Console
from vicinal.cli.models import Model, engine_for, fit_failure, make_engine, make_estimator, set_engine
from vicinal.cli.tables import ColumnChoice, TableOptions, check_columns, read_table, split_names
from vicinal.cli.use import Scorer, check_output, write_scores

_MOST_ROWS = 20_000


def outliers(arguments: Namespace, console: Console) -> None:
    """Run the command."""
    check_output(arguments)
    estimator = make_estimator(arguments.method, [], arguments.seed)
    table = read_table(
        arguments.data, TableOptions.from_arguments(arguments), console, ColumnChoice(arguments.columns, ())
    )
    if arguments.missing is None:
        arguments.missing = "marginalise" if get_tags(estimator).input_tags.allow_nan else "drop"
    prepared = measured(prepare(table, console, arguments, measured_only=True), console, arguments.method)
    if len(prepared.X) > _MOST_ROWS:
        some = np.sort(np.random.default_rng(arguments.seed).choice(len(prepared.X), _MOST_ROWS, replace=False))
        console.say(f"the density is learned from a random sample of {_MOST_ROWS:,} of {len(prepared.X):,} rows.")
        sample = prepared.take(some)
    else:
        sample = prepared
    sample, _ = note_dependence(sample, console)
    set_engine(estimator, engine_for(make_engine(arguments), len(sample.X)))
    try:
        pipeline = fit_prepared(estimator, sample)
    except (ValueError, TypeError, np.linalg.LinAlgError) as error:
        raise fit_failure(estimator, error) from error
    encoder = sample.encoder
    model = Model(
        pipeline,
        pipeline[1:],
        estimator,
        encoder,
        encoder.get_feature_names_out(),
        len(sample.X.columns),
        Steps(pipeline).log_volume(),
    )
    arguments.explain, arguments.as_new, arguments.fdr, arguments.sort = True, False, None, True
    arguments.only_outliers = not arguments.all and arguments.top is None
    keep = split_names(arguments.keep, table.columns)
    check_columns(keep, table.columns, "--keep")
    scorer = Scorer(model, arguments, "keep")
    scorer.detector = DensityOutlierDetector.from_density(
        pipeline, contamination=arguments.level or 0.01, largest_group=0.1 if arguments.groups else None
    )
    # Rows of the sample are scored without themselves; those that are left out of it are new.
    rows = table.iloc[prepared.rows].reset_index(drop=True)
    frame = scorer.frame(rows, prepared.rows, rows[keep], Quiet(console))
    write_scores([frame], scorer, arguments, console)


class Quiet:
    """Messages of a command in which every row is a training row, which need not be said."""

    def __init__(self, console: Console) -> None:
        self.warn, self.progress = console.warn, console.progress

    def say(self, text: str) -> None:
        """Print nothing."""
