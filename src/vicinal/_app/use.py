"""`vicinal transform`, `vicinal score` and `vicinal neighbors`: use a saved model."""

import numpy as np

from vicinal._app.columns import check_columns, pick_features, split_names
from vicinal._app.console import count, one_line, shown
from vicinal._app.errors import DataFailure, FitFailure, ModelFailure, UsageFailure
from vicinal._app.models import load_model, make_engine, read_key
from vicinal._app.outputs import check_writable, write_json, write_table
from vicinal._app.tables import TableOptions, format_of, read_table
from vicinal._tables import N_DRAWS


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
    from scipy.stats import false_discovery_control

    if (arguments.data is None) != arguments.training:
        raise UsageFailure("score needs either DATA or --training.")
    model, table, picked = _open(arguments, console, marginalise=True)
    _method(model, "score_samples", "a metric without a density")
    if np.isnan(model.log_scale):
        console.warn("the model changes the features before the density sees them: log_density is in those units.")
    if arguments.fdr is not None and arguments.training:
        raise UsageFailure(
            "--fdr is for new rows: the p-values of training rows are their ranks, among which no rate can be held. Leave "
            "--fdr or --training out."
        )
    detector = _detector(model, arguments.contamination)
    features = None if picked is None else picked.features
    own = np.full(0 if features is None else len(features), -1)
    if arguments.training:
        own = rows = np.arange(len(detector.training_scores_))
    else:
        rows = picked.rows
    versions = _versions(model, features)
    if not arguments.training and not arguments.as_new:
        own = _training_rows(model, versions[0])
        _mention_training_rows(own, console)
    judged = _judged(model, detector, versions, own)
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
    if model.noise is not None and model.noise.steps_.all():
        result["log_probability"] = result["log_density"] + np.log(model.noise.steps_).sum()
    if arguments.explain:
        result["why"] = _reasons(model, detector, features, own, outliers)
    if table is not None:
        result = pd.concat([_kept(arguments, table, rows), result], axis=1)
    _give(result, arguments, console, model)


def _versions(model, features):
    """The rows under each draw of the noise on rounded columns; the rows themselves where there is none."""
    import pandas as pd

    if features is None or model.noise is None:
        return [features]
    numbers = features.to_numpy()
    return [
        pd.DataFrame(model.noise.draw(numbers, draw), columns=features.columns, index=features.index)
        for draw in range(N_DRAWS)
    ]


def _mention_training_rows(own, console):
    if (own >= 0).any():
        console.say(
            f"{count(int((own >= 0).sum()), 'row')} of {len(own):,} equal a training row exactly, and are scored under the model "
            "without that row (--as-new scores them as new)."
        )


def neighbors(arguments, console):
    """Run `vicinal neighbors`."""
    import pandas as pd

    from vicinal._engine import prepare

    if arguments.query == "-" == arguments.data:
        raise UsageFailure("DATA and --query cannot both be stdin. Name a file for one of them.")
    model, table, picked = _open(arguments, console)
    map_rows = _method(model, "transform", "a density without a metric")
    images = _ask(map_rows, picked.features)
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
        queries, available = _ask(map_rows, found.features), len(images)
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


def _open(arguments, console, *, marginalise=False):
    """The model, the table and the model's columns of it (None for ``score --training``)."""
    if arguments.output not in (None, "-"):
        format_of(arguments.output, what="output")
        check_writable(arguments.output)
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


def _judged(model, detector, versions, own):
    """Scores, p-values and log-densities: of training rows (``own >= 0``) without themselves, of others as new rows.

    Those of new rows are means over the draws of the noise on rounded columns. The training rows' scores are of one draw
    each, so that the p-value of a draw is that of a training row.
    """
    from vicinal._density.training_rows import last_step, left_out_scores

    known = own >= 0
    if versions[0] is None:
        judged = {name: np.empty(len(own)) for name in ("score", "p_value", "log_density")}
    else:
        found = [_judged_as_new(model, detector, features) for features in versions]
        judged = {name: np.mean([one[name] for one in found], axis=0) for name in found[0]}
    if known.any():
        plain = left_out_scores(last_step(detector.density_))
        of_training = {
            "score": detector.training_scores_,
            "p_value": detector.training_p_values_,
            "log_density": detector.training_scores_ if plain is None else plain,  # None: they come from folds
        }
        judged = {name: np.where(known, of_training[name][own], values) for name, values in judged.items()}
    return judged


def _judged_as_new(model, detector, features):
    """The same of rows that are all new; of what is known of them, where they have missing values."""
    if features.isna().to_numpy().any() and hasattr(model.estimator, "score_incomplete"):
        rows = features.to_numpy()
        for _, step in getattr(model.whole, "steps", [])[:-1]:
            rows = step.transform(rows)
        scores = np.asarray(model.estimator.score_incomplete(rows))
        return {"score": scores, "p_value": detector.p_values_from_scores(scores), "log_density": scores}
    scores = _ask(model.whole.score_samples if _is_detector(model) else detector.score_samples, features)
    return {
        "score": scores,
        "p_value": detector.p_values_from_scores(scores),
        "log_density": _ask(detector.density_.score_samples, _as_detector_sees(model, features)),
    }


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
    """For each row the position of an equal training row, or -1.

    The first draw of the noise on rounded columns is that of the first of equal training rows.
    """
    from sklearn.pipeline import Pipeline

    from vicinal import DensityOutlierDetector
    from vicinal._engine import prepare

    density, rows = model.whole, features
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
