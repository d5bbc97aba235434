"""`vicinal transform`, `vicinal score` and `vicinal neighbors`: use a saved model."""

from functools import partial

import numpy as np

from vicinal._app.columns import check_columns, pick_features, split_names
from vicinal._app.console import count, one_line, shown
from vicinal._app.errors import DataFailure, FitFailure, ModelFailure, UsageFailure
from vicinal._app.models import load_model, make_engine
from vicinal._app.outputs import check_writable, write_json, write_table
from vicinal._app.tables import TableOptions, format_of, read_table
from vicinal._tables import dequantizer_of, draw_scores


def transform(arguments, console):
    """Run `vicinal transform`."""
    import pandas as pd

    model, table, picked = _open(arguments, console)
    images = _ask(_method(model, "transform", "a density without a metric"), picked.features)
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

    if (arguments.data is None) != arguments.training:
        raise UsageFailure("score needs either DATA or --training.")
    model, table, picked = _open(arguments, console, marginalise=True)
    _method(model, "score_samples", "a metric without a density")
    if np.isnan(model.log_scale):
        console.warn("the model changes the features before the density sees them: log_density is in those units.")
    detector = _detector(model, arguments.contamination)
    if arguments.training:
        scores, p_values = detector.training_scores_, detector.training_p_values_
        rows = np.arange(len(scores))
    else:
        scores, p_values = _scores(model, picked, detector, arguments, console)
        rows = picked.rows
    outliers = scores < detector.offset_
    console.say(f"{count(int(outliers.sum()), 'outlier')} in {count(len(scores), 'row')}.")
    log_density = scores - np.nan_to_num(model.log_scale)
    columns = {"row": rows, "log_density": log_density, "p_value": p_values, "outlier": outliers.astype(int)}
    noise = dequantizer_of(model.whole)
    if noise is not None and noise.steps_.all():
        columns["log_probability"] = log_density + np.log(noise.steps_).sum()
    result = pd.DataFrame(columns)
    if table is not None:
        result = pd.concat([_kept(arguments, table, rows), result], axis=1)
    _give(result, arguments, console, model)


def _scores(model, picked, detector, arguments, console):
    """Scores and p-values of rows: means over draws of the noise, or the training rows' own for rows that equal one."""
    incomplete = np.isnan(picked.numbers).any(axis=1)
    method = "score_incomplete" if incomplete.any() and arguments.missing == "marginalise" else "score_samples"
    draws = _ask(partial(draw_scores, model.whole, method=method), picked.features, model.whole)
    scores = draws.mean(axis=0)
    # The training rows' scores are of one draw each, so that the p-value of a draw is that of a training row.
    p_values = np.mean([detector.p_values_from_scores(draw) for draw in draws], axis=0)
    own = np.full(len(scores), -1) if arguments.as_new else _training_rows(model, picked)
    if (own >= 0).any():
        console.say(
            f"{count(int((own >= 0).sum()), 'row')} of {len(own):,} equal a training row exactly, and are scored under the model "
            "without that row (--as-new scores them as new)."
        )
        scores = np.where(own >= 0, detector.training_scores_[own], scores)
        p_values = np.where(own >= 0, detector.training_p_values_[own], p_values)
    return scores, p_values


def neighbors(arguments, console):
    """Run `vicinal neighbors`."""
    import pandas as pd
    from sklearn.neighbors import NearestNeighbors

    if arguments.query == "-" == arguments.data:
        raise UsageFailure("DATA and --query cannot both be stdin. Name a file for one of them.")
    model, table, picked = _open(arguments, console)
    map_rows = _method(model, "transform", "a density without a metric")
    images = _ask(map_rows, picked.features)
    names = _row_names(arguments, table, picked.rows, "DATA")
    if arguments.query is None:
        queries, query_names, available = None, names, len(images) - 1
    else:
        query_table = read_table(arguments.query, TableOptions.from_arguments(arguments)._replace(format=None), console)
        found = pick_features(query_table, model, console, _about_missing(arguments, model))
        queries, available = _ask(map_rows, found.features), len(images)
        query_names = _row_names(arguments, query_table, found.rows, "--query")
    if arguments.k > available:
        raise UsageFailure(
            f"-k {arguments.k} needs at least {arguments.k} other rows in DATA, got {available}. Lower -k."
        )
    # A common shift changes no distance, and keeps the digits of the search's matrix products.
    centre = images.mean(axis=0)
    search = NearestNeighbors(n_neighbors=arguments.k).fit(images - centre)
    distances, positions = search.kneighbors(None if queries is None else queries - centre)
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


def _open(arguments, console, *, marginalise=False):
    """The model, the table and the model's columns of it (None for ``score --training``)."""
    if arguments.output not in (None, "-"):
        format_of(arguments.output, what="output")
        check_writable(arguments.output)
    model = load_model(arguments.model, make_engine(arguments))
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


def _ask(method, features, owner=None):
    """Call a method on rows; what it refuses is the data's fault, what it lacks the model's."""
    from sklearn.exceptions import NotFittedError

    owner = method.__self__ if owner is None else owner
    rows = features if getattr(owner, "feature_names_in_", None) is not None else features.to_numpy()
    try:
        return np.asarray(method(rows))
    except NotFittedError as error:
        raise ModelFailure(one_line(error)) from error
    except (ValueError, TypeError) as error:
        raise DataFailure(one_line(error)) from error


def _detector(model, contamination):
    """The detector that was saved, or one of the density as it was fitted: nothing is fitted again."""
    from sklearn.exceptions import NotFittedError

    from vicinal import DensityOutlierDetector

    if isinstance(model.estimator, DensityOutlierDetector):  # saved from Python
        if contamination not in ("auto", model.estimator.contamination):
            raise UsageFailure(
                "--contamination: the model is a DensityOutlierDetector, whose threshold was chosen when it was fitted. Leave "
                "--contamination out."
            )
        return model.estimator
    try:
        return DensityOutlierDetector.from_density(model.whole, contamination=contamination)
    except NotFittedError as error:
        raise ModelFailure(one_line(error)) from error
    except (ValueError, TypeError) as error:
        raise FitFailure(f"the training rows cannot be scored without themselves: {one_line(error)}") from error


def _training_rows(model, picked):
    """For each row the position of an equal training row, or -1."""
    from scipy.spatial import cKDTree
    from sklearn.pipeline import Pipeline

    from vicinal import DensityOutlierDetector

    density, rows = model.whole, picked.features
    if model.encoder is not None:
        density, rows, noise = density[1:], picked.numbers, dequantizer_of(model.whole)
        # The first draw of the noise is that of the first of equal training rows.
        rows = rows if noise is None else noise.transform(rows)
    while isinstance(density, (Pipeline, DensityOutlierDetector)):
        if isinstance(density, Pipeline):
            for _, step in density.steps[:-1]:
                rows = step.transform(rows)
            density = density[-1]
        else:
            density = density.density_
    centres = getattr(getattr(density, "mixture_", None), "centres", None)
    if centres is None:
        return np.full(len(rows), -1)
    rows = np.ascontiguousarray(rows, dtype=centres.dtype) + 0.0  # + 0.0 turns -0.0 into 0.0
    if hasattr(density, "gaussian_components_"):
        # LCA-Gauss moves its centres along the Gaussian directions; what it keeps of the rows are their images.
        if not len(density.components_):
            return np.full(len(rows), -1)
        images = cKDTree(centres @ density.components_.T)
        gaps, nearest = images.query(rows @ density.components_.T, distance_upper_bound=1e-9)
        return np.where(np.isfinite(gaps), nearest, -1)
    position = {row.tobytes(): i for i, row in enumerate(np.ascontiguousarray(centres) + 0.0)}
    return np.array([position.get(row.tobytes(), -1) for row in rows])


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
