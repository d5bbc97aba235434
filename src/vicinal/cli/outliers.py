"""`vicinal outliers`: from a table to its unusual rows and the reasons, in one command."""

from argparse import Namespace

import numpy as np
from sklearn.utils import get_tags

from vicinal._detect.outliers import DensityOutlierDetector
from vicinal._detect.steps import fit_prepared, takes_levels
from vicinal.cli.columns import learnable, levels_text, note_dependence, prepare
from vicinal.cli.console import Console
from vicinal.cli.models import engine_for, fit_failure, make_engine, make_estimator, set_engine
from vicinal.cli.results import check_output, columns_to_keep, write_results
from vicinal.cli.score import output_rows, shown_rows
from vicinal.cli.tables import chosen_columns, read_table, table_options

_MOST_ROWS = 20_000


def outliers(arguments: Namespace, console: Console) -> None:
    """Run the command."""
    check_output(arguments)
    # Round kernels of one width, the default of the detector, rank rows best.
    settings = ["bandwidth=loo"] if arguments.method == "parzen" else []
    estimator = make_estimator(arguments.method, settings, arguments.seed)
    table = read_table(arguments.data, table_options(arguments), console, chosen_columns(arguments.columns))
    if arguments.missing is None:
        arguments.missing = "marginalise" if get_tags(estimator).input_tags.allow_nan else "drop"
    levels = takes_levels(estimator)
    prepared = prepare(table, console, arguments, categories="codes" if levels else "omit", for_density=True)
    prepared = learnable(prepared, console, arguments.method, levels=levels)
    sample = prepared
    if len(prepared.X) > _MOST_ROWS:
        rows = np.sort(np.random.default_rng(arguments.seed).choice(len(prepared.X), _MOST_ROWS, replace=False))
        console.say(f"the density is learned from a random sample of {_MOST_ROWS:,} of {len(prepared.X):,} rows.")
        sample = prepared.take(rows)
    sample, _ = note_dependence(sample, console)
    set_engine(estimator, engine_for(make_engine(arguments), len(sample.X)))
    console.doing(f"fitting {arguments.method}")
    try:
        pipeline = fit_prepared(estimator, sample)
    except (ValueError, TypeError, np.linalg.LinAlgError) as error:
        raise fit_failure(estimator, error) from error
    if prepared.encoder.levels_:
        console.say(levels_text(estimator, prepared))
    arguments.explain, arguments.as_new, arguments.fdr, arguments.sort = True, False, None, True
    arguments.only_outliers = not arguments.all and arguments.top is None
    console.doing("scoring rows")
    detector = DensityOutlierDetector.from_density(
        pipeline, contamination=arguments.level or 0.01, largest_group=None if arguments.values else "auto"
    )
    # Rows of the sample are scored without themselves; those that are left out of it are new.
    rows, kept = table.iloc[prepared.rows].reset_index(drop=True), columns_to_keep(arguments, table, prepared.rows)
    frame = output_rows(detector, rows, prepared.rows, kept, arguments, console)
    write_results(shown_rows([frame], detector, arguments, console), type(estimator).__name__, arguments, console)
