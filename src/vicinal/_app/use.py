"""`vicinal transform`, `vicinal score` and `vicinal neighbors`: use a saved model."""

import numpy as np

from vicinal._app.columns import check_columns, pick_features, split_names
from vicinal._app.console import count, one_line, shown
from vicinal._app.errors import DataFailure, FitFailure, ModelFailure, UsageFailure
from vicinal._app.models import load_model, make_engine
from vicinal._app.outputs import check_writable, write_json, write_table
from vicinal._app.tables import TableOptions, format_of, read_table


def transform(arguments, console):
    """Run `vicinal transform`."""
    import pandas as pd

    model, table, features, rows = _open(arguments, console)
    images = _ask(_method(model, "transform", "a density without a metric"), features)
    kept = _kept(arguments, table, rows)
    names = _output_names(model, images.shape[1])
    parts = [kept, pd.DataFrame(images, columns=names)]
    if arguments.drop_missing:
        parts.insert(0, pd.DataFrame({"row": rows}))
    _give(pd.concat(parts, axis=1), arguments, console, model)


def score(arguments, console):
    """Run `vicinal score`."""
    import pandas as pd
    from scipy.stats import false_discovery_control

    if (arguments.data is None) != arguments.training:
        raise UsageFailure("score needs either DATA or --training.")
    model, table, features, rows = _open(arguments, console)
    _method(model, "score_samples", "a metric without a density")
    if np.isnan(model.log_scale):
        console.warn("the model changes the features before the density sees them: log_density is in those units.")
    if arguments.fdr is not None and arguments.training:
        raise UsageFailure(
            "--fdr is for new rows: the p-values of training rows are their ranks, among which no rate can be held. Leave "
            "--fdr or --training out."
        )
    detector = _detector(model, arguments.contamination)
    own = np.full(0 if features is None else len(features), -1)
    if arguments.training:
        own = rows = np.arange(len(detector.training_scores_))
    elif not arguments.as_new:
        own = _training_rows(model, features)
    judged = _judged(model, detector, features, own, console)
    outliers = judged["score"] < detector.offset_
    if arguments.fdr is not None:
        outliers = false_discovery_control(judged["p_value"]) <= arguments.fdr
    console.say(f"{count(int(outliers.sum()), 'outlier')} in {count(len(outliers), 'row')}.")
    result = pd.DataFrame(
        {
            "row": rows,
            "log_density": judged["log_density"] - np.nan_to_num(model.log_scale),
            "p_value": judged["p_value"],
            "outlier": outliers.astype(int),
        }
    )
    if arguments.explain:
        result["why"] = _reasons(model, detector, features, own, outliers)
    if table is not None:
        result = pd.concat([_kept(arguments, table, rows), result], axis=1)
    _give(result, arguments, console, model)


def neighbors(arguments, console):
    """Run `vicinal neighbors`."""
    import pandas as pd

    from vicinal._engine import prepare

    if arguments.query == "-" == arguments.data:
        raise UsageFailure("DATA and --query cannot both be stdin. Name a file for one of them.")
    model, table, features, rows = _open(arguments, console)
    map_rows = _method(model, "transform", "a density without a metric")
    images = _ask(map_rows, features)
    names = _row_names(arguments, table, rows, "DATA")
    if arguments.query is None:
        queries, query_names, available = None, names, len(images) - 1
    else:
        query_table = read_table(arguments.query, TableOptions.from_arguments(arguments)._replace(format=None), console)
        query_features, query_rows = pick_features(
            query_table, model.names, model.n_features, console, drop_missing=arguments.drop_missing
        )
        queries, available = _ask(map_rows, query_features), len(images)
        query_names = _row_names(arguments, query_table, query_rows, "--query")
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


def _open(arguments, console):
    """The model, the table and the model's columns of it (None for ``score --training``)."""
    if arguments.output not in (None, "-"):
        format_of(arguments.output, what="output")
        check_writable(arguments.output)
    model = load_model(arguments.model, make_engine(arguments))
    if arguments.data is None:
        return model, None, None, None
    table = read_table(arguments.data, TableOptions.from_arguments(arguments), console)
    features, rows = pick_features(table, model.names, model.n_features, console, drop_missing=arguments.drop_missing)
    return model, table, features, rows


def _method(model, name, otherwise):
    """A method of the model, or a failure that says what it is instead."""
    if not hasattr(model.whole, name):
        raise ModelFailure(f"the model is a {model.kind}: {otherwise}. It has no {name}.")
    return getattr(model.whole, name)


def _ask(method, features):
    """Call a method on rows; what it refuses is the data's fault, what it lacks the model's."""
    from sklearn.exceptions import NotFittedError

    rows = features if getattr(method.__self__, "feature_names_in_", None) is not None else features.to_numpy()
    try:
        return np.asarray(method(rows))
    except NotFittedError as error:
        raise ModelFailure(one_line(error)) from error
    except (ValueError, TypeError) as error:
        raise DataFailure(one_line(error)) from error


def _judged(model, detector, features, own, console):
    """Scores, p-values and log-densities: of training rows (``own >= 0``) without themselves, of others as new rows."""
    from vicinal._density.training_rows import last_step, left_out_scores

    known = own >= 0
    if features is None:
        judged = {name: np.empty(len(own)) for name in ("score", "p_value", "log_density")}
    else:
        scores = _ask(model.whole.score_samples if _is_detector(model) else detector.score_samples, features)
        judged = {
            "score": scores,
            "p_value": detector.p_values_from_scores(scores),
            "log_density": _ask(detector.density_.score_samples, _as_detector_sees(model, features)),
        }
        if known.any():
            console.say(
                f"{count(int(known.sum()), 'row')} of {len(own):,} equal a training row exactly, and are scored under the model "
                "without that row (--as-new scores them as new)."
            )
    if known.any():
        plain = left_out_scores(last_step(detector.density_))
        of_training = {
            "score": detector.training_scores_,
            "p_value": detector.training_p_values_,
            "log_density": detector.training_scores_ if plain is None else plain,  # None: they come from folds
        }
        judged = {name: np.where(known, of_training[name][own], values) for name, values in judged.items()}
    return judged


def _reasons(model, detector, features, own, outliers):
    """Why the outliers are outliers, a text per row; empty for the others."""
    flagged = np.flatnonzero(outliers)
    why = [""] * len(outliers)
    new, known = flagged[own[flagged] < 0], flagged[own[flagged] >= 0]
    try:
        if len(new):
            rows = _as_detector_sees(model, features).iloc[new]
            found = detector.explain(rows if hasattr(detector, "feature_names_in_") else rows.to_numpy())
            for place, i in enumerate(new):
                why[i] = "; ".join(found.reasons(place))
        if len(known):
            found = detector.explain(None, rows=own[known])
            for place, i in enumerate(known):
                why[i] = "; ".join(found.reasons(place))
    except TypeError as error:
        raise ModelFailure(f"--explain: {one_line(error)}") from error
    return why


def _is_detector(model):
    from vicinal import DensityOutlierDetector

    return isinstance(model.estimator, DensityOutlierDetector)


def _as_detector_sees(model, features):
    """Rows as the detector takes them: after the steps before it, where it was saved as the end of a pipeline."""
    import pandas as pd
    from sklearn.pipeline import Pipeline

    if not _is_detector(model) or not isinstance(model.whole, Pipeline) or len(model.whole) == 1:
        return features
    return pd.DataFrame(np.asarray(model.whole[:-1].transform(features)), index=features.index)


def _detector(model, contamination):
    """The detector that was saved, or one of the density as it was fitted: nothing is fitted again."""
    from sklearn.exceptions import NotFittedError

    from vicinal import DensityOutlierDetector

    if _is_detector(model):  # saved from Python
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


def _training_rows(model, features):
    """For each row the position of an equal training row, or -1."""
    from sklearn.pipeline import Pipeline

    from vicinal import DensityOutlierDetector
    from vicinal._engine import prepare

    density, rows = model.whole, features
    while isinstance(density, (Pipeline, DensityOutlierDetector)):
        if isinstance(density, Pipeline):
            rows = density[:-1].transform(rows) if len(density) > 1 else rows
            density = density[-1]
        else:
            density = density.density_
    centres = getattr(getattr(density, "mixture_", None), "centres", None)
    if centres is None:
        return np.full(len(features), -1)
    rows = np.ascontiguousarray(rows, dtype=centres.dtype) + 0.0  # + 0.0 turns -0.0 into 0.0
    if hasattr(density, "gaussian_components_"):
        # LCA-Gauss moves its centres along the Gaussian directions; what it keeps of the rows are their images.
        if not len(density.components_):
            return np.full(len(rows), -1)
        images = prepare("reference", centres @ density.components_.T, n_queries=len(rows)).at()
        found = images.nearest(1, rows @ density.components_.T)
        return np.where(np.sqrt(found.scores[:, 0]) < 1e-9, found.indices[:, 0], -1)
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
