"""`vicinal transform`, `vicinal score` and `vicinal neighbors`: use a saved model."""

import numpy as np

from vicinal._app.columns import pick_features
from vicinal._app.console import count, shown
from vicinal._app.errors import DataFailure, ModelFailure, UsageFailure
from vicinal._app.judging import (
    ask,
    detector_of,
    in_blocks_of,
    judged_rows,
    mention_training_rows,
    reasons_of,
    training_rows_of,
    versions_of,
)
from vicinal._app.models import load_model, make_engine, read_key
from vicinal._app.outputs import output_format, write_json, write_table
from vicinal._app.tables import TableOptions, check_columns, read_table, split_names


def transform(arguments, console):
    """Run `vicinal transform`."""
    import pandas as pd

    _check_output(arguments)
    model, table, picked = open_model(arguments, console)
    images = ask(_method(model, "transform", "a density without a metric"), picked.features)
    rows = picked.rows
    kept = _kept(arguments, table, rows)
    names = _output_names(model, images.shape[1])
    parts = [kept, pd.DataFrame(images, columns=names)]
    if arguments.missing == "drop":
        parts.insert(0, pd.DataFrame({"row": rows}))
    _give(pd.concat(parts, axis=1), arguments, console, model)


def score(arguments, console):
    """Run `vicinal score`."""
    import pandas as pd
    from scipy.stats import false_discovery_control

    if (arguments.data is None) != arguments.training:
        raise UsageFailure("score needs either DATA or --training.")
    _check_output(arguments)
    model, table, picked = open_model(arguments, console, marginalise=True)
    _method(model, "score_samples", "a metric without a density")
    if np.isnan(model.log_scale):
        console.warn("the model changes the features before the density sees them: log_density is in those units.")
    if arguments.fdr is not None and arguments.training:
        raise UsageFailure(
            "--fdr is for new rows: the p-values of training rows are their ranks, among which no rate can be held. Leave "
            "--fdr or --training out."
        )
    detector = detector_of(model, arguments.contamination)
    features = None if picked is None else picked.features
    own = np.full(0 if features is None else len(features), -1)
    if arguments.training:
        own = rows = np.arange(len(detector.training_scores_))
    else:
        rows = picked.rows
    versions = versions_of(model, features)
    if not arguments.training and not arguments.as_new:
        own = training_rows_of(model, versions[0])
        mention_training_rows(own, console)
    judged = judged_rows(model, detector, versions, own, in_blocks_of(arguments, console))
    outliers = judged["score"] < detector.offset_
    if arguments.fdr is not None:
        outliers = false_discovery_control(judged["p_value"]) <= arguments.fdr
    broken = {} if picked is None else picked.broken
    if broken:
        outliers |= _mark_broken(judged, detector, broken, console)
    console.say(f"{count(int(outliers.sum()), 'outlier')} in {count(len(outliers), 'row')}.")
    result = pd.DataFrame(
        {
            "row": rows,
            "log_density": judged["log_density"] - np.nan_to_num(model.log_scale),
            "p_value": judged["p_value"],
            "outlier": outliers.astype(int),
        }
    )
    if model.noise is not None and model.noise.steps_.all():
        result["log_probability"] = result["log_density"] + np.log(model.noise.steps_).sum()
    if arguments.explain:
        result["why"] = ["; ".join(texts) for texts in reasons_of(model, detector, features, own, outliers)]
        for name, differs in broken.items():
            reason = f"{name}: expected {picked.constants[name]} as in all training rows, got "
            values = table[name].iloc[rows].astype(str).to_numpy()
            result["why"] = [
                "; ".join(filter(None, [f"{reason}{value}", why])) if differ else why
                for value, differ, why in zip(values, differs, result["why"], strict=True)
            ]
    if table is not None:
        result = pd.concat([_kept(arguments, table, rows), result], axis=1)
    _give(result, arguments, console, model)


def _mark_broken(judged, detector, broken, console):
    """Give rows that break a constant of the training rows the smallest p-value, and return which they are."""
    rows = np.any(list(broken.values()), axis=0)
    judged["p_value"] = np.where(rows, 1.0 / (len(detector.training_scores_) + 1.0), judged["p_value"])
    console.warn(
        f"{count(int(rows.sum()), 'row')} of {len(rows):,} have another value than all training rows had in {shown(broken)}. "
        "The density ignores these columns; the rows are called outliers."
    )
    return rows


def neighbors(arguments, console):
    """Run `vicinal neighbors`."""
    import pandas as pd

    from vicinal._engine import prepare

    if arguments.query == "-" == arguments.data:
        raise UsageFailure("DATA and --query cannot both be stdin. Name a file for one of them.")
    _check_output(arguments)
    model, table, picked = open_model(arguments, console)
    map_rows = _method(model, "transform", "a density without a metric")
    images = ask(map_rows, picked.features)
    if images.shape[1] == 0:
        raise ModelFailure(
            f"{arguments.model} has no directions in which rows differ: {model.kind} found that one Gaussian describes its "
            "training rows best. Learn a metric with --method lca, rca or nca instead."
        )
    names = _row_names(arguments, table, picked.rows, "DATA")
    if arguments.query is None:
        queries, query_names, available = None, names, len(images) - 1
    else:
        query_table = read_table(arguments.query, TableOptions.from_arguments(arguments)._replace(format=None), console)
        found = pick_features(query_table, model, console, _about_missing(arguments, model))
        queries, available = ask(map_rows, found.features), len(images)
        query_names = _row_names(arguments, query_table, found.rows, "--query")
    if arguments.k > available:
        raise UsageFailure(
            f"-k {arguments.k} needs at least {arguments.k} other rows in DATA, got {available}. Lower -k."
        )
    # All CPU backends find the same neighbours; "reference" is the one that loads no compiler.
    found = prepare("reference", images, leave_one_out=queries is None).at().nearest(arguments.k, queries)
    positions, distances = found.indices, np.sqrt(found.scores)
    n, k = positions.shape
    result = pd.DataFrame(
        {
            "query": np.repeat(np.asarray(query_names), k),
            "rank": np.tile(np.arange(1, k + 1), n),
            "neighbor": np.asarray(names)[positions.ravel()],
            "distance": distances.ravel(),
        }
    )
    _give(result, arguments, console, model)


def _check_output(arguments):
    """Find out before the work that no table can be written under this name."""
    if arguments.output not in (None, "-"):
        output_format(arguments.output)


def open_model(arguments, console, *, marginalise=False):
    """The model, the table and the model's columns of it (None for ``score --training``)."""
    model = load_model(arguments.model, make_engine(arguments), read_key(arguments.key_file))
    missing = _about_missing(arguments, model, marginalise=marginalise)
    if arguments.data is None:
        return model, None, None
    table = read_table(arguments.data, TableOptions.from_arguments(arguments), console)
    return model, table, pick_features(table, model, console, missing)


def _about_missing(arguments, model, *, marginalise=False):
    """What is done about missing values: "refuse", "drop", or "keep" where the model can use such rows."""
    from vicinal import DensityImputer

    steps = getattr(model.whole, "steps", [])
    imputes = any(isinstance(step, DensityImputer) for _, step in steps)
    if arguments.missing == "impute" and not imputes:
        raise UsageFailure("--missing impute: the model has no imputer. Learn it with --missing impute.")
    if arguments.missing in ("refuse", "impute") and imputes:
        return "keep"
    if arguments.missing != "marginalise":
        return arguments.missing
    if not marginalise or imputes or not hasattr(model.estimator, "score_incomplete"):
        raise UsageFailure(
            f"--missing marginalise is for the scores of densities; {model.kind} cannot use what is known of a row"
            f"{' here' if marginalise else ' to map it'}. Pass --missing drop."
        )
    return "keep"


def _method(model, name, otherwise):
    """A method of the model, or a failure that says what it is instead."""
    if not hasattr(model.whole, name):
        raise ModelFailure(f"the model is a {model.kind}: {otherwise}. It has no {name}.")
    return getattr(model.whole, name)


def _kept(arguments, table, rows):
    """The columns of ``--keep``."""
    names = split_names(arguments.keep, table.columns)
    check_columns(names, table.columns, "--keep")
    return table[names].iloc[rows].reset_index(drop=True)


def _row_names(arguments, table, rows, what):
    if arguments.id is None:
        return rows
    if arguments.id not in table.columns:
        raise DataFailure(f"--id: {what} has no column {arguments.id!r}. It has {shown(table.columns)}.")
    return table[arguments.id].to_numpy()[rows]


def _output_names(model, n_columns):
    stem = model.kind.lower()
    return [f"{stem}{i}" for i in range(n_columns)]


def _give(result, arguments, console, model):
    arguments.check_interrupted()
    if result.columns.has_duplicates:
        name = result.columns[result.columns.duplicated()][0]
        raise UsageFailure(f"--keep {name}: the output has a column of that name already. Rename it in the table.")
    if arguments.json and arguments.output in (None, "-"):
        write_json(_records(result))
        return
    write_table(result, arguments.output)
    if arguments.output not in (None, "-"):
        console.say(f"wrote {count(len(result), 'row')} to {arguments.output}.")
        if arguments.json:
            write_json(
                {"model": model.kind, "output": arguments.output, "rows": len(result), "columns": list(result.columns)}
            )


def _records(frame):
    """Rows as JSON objects with all digits; missing and infinite values as null, times as text."""
    columns = [[_plain(value) for value in frame[name].tolist()] for name in frame]
    return [dict(zip(frame.columns, row, strict=True)) for row in zip(*columns, strict=True)]


def _plain(value):
    import pandas as pd

    if isinstance(value, float):
        return value if np.isfinite(value) else None
    if isinstance(value, (str, bool, int)) or value is None:
        return value
    return None if pd.isna(value) else str(value)
