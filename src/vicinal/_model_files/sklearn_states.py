"""The states of scikit-learn's estimators in a model file, as of its versions 1.6 to 1.9.

Fields that are not in all of these versions are optional. A scaler may have been fitted to columns that contain only NaN.
"""

from typing import Any

from vicinal._model_files.classes import MOST_THREADS
from vicinal._model_files.kinds import (
    FLAG,
    MOST_COLUMNS,
    RANDOM_STATE,
    ROWS,
    Fields,
    Kind,
    State,
    count,
    field,
    floats,
    integers,
    labels,
    maybe,
    number,
    one_of,
)


def _column(**options: Any) -> Kind:
    return floats("d", nan=True, **options)


_SEEN: Fields = {"n_samples_seen_": field(count(), number(least=0), integers("d"), floats("d", least=0))}
_GAUSSIAN_MIXTURE: Fields = {
    **ROWS,
    "weights_": floats("c", least=0),
    "means_": floats("c", "d"),
    **{
        name: field(floats("c", "d", "d"), floats("d", "d"), floats("c", "d"), floats("c"))
        for name in ("covariances_", "precisions_", "precisions_cholesky_")
    },
    "converged_": FLAG,
    "n_iter_": count(),
    "lower_bound_": number(finite=False),
    "lower_bounds_": maybe(Kind("a list", lambda value, sizes: isinstance(value, list))),
}
_SPLITTER: Fields = {
    "n_splits": count(least=2),
    "shuffle": FLAG,
    "random_state": field(None, count(most=2**32 - 1), RANDOM_STATE),
}

SKLEARN_STATES: dict[str, State] = {
    "sklearn.GaussianMixture": State(_GAUSSIAN_MIXTURE),
    "sklearn.KFold": State(_SPLITTER),
    "sklearn.KMeans": State(
        {
            **ROWS,
            "cluster_centers_": floats("c", "d"),
            "labels_": integers("n", below="c"),
            "inertia_": number(least=0),
            "n_iter_": count(),
            "_tol": number(least=0),
            "_n_init": count(least=1),
            "_algorithm": one_of("lloyd", "elkan"),
            # Predict starts this many threads, or one per 256 rows if those are fewer.
            "_n_threads": count(least=1, most=MOST_THREADS),
            "_n_features_out": count("c", least=1),
        }
    ),
    "sklearn.LabelEncoder": State({"classes_": labels("c"), "_sklearn_output_config": ROWS["_sklearn_output_config"]}),
    "sklearn.LinearDiscriminantAnalysis": State(
        {
            **ROWS,
            "classes_": labels("c"),
            "priors_": floats("c", least=0),
            "means_": floats("c", "d"),
            "coef_": floats("q", "d"),  # one row for two classes
            "intercept_": floats("q"),
            "_max_components": count(least=1, most=MOST_COLUMNS),
            "_n_features_out": count(least=1, most=MOST_COLUMNS),
            "covariance_": maybe(floats("d", "d")),
            "explained_variance_ratio_": maybe(floats("r")),
            "scalings_": maybe(floats("d", "s")),
            "xbar_": maybe(floats("d")),
        },
    ),
    "sklearn.MaxAbsScaler": State({**ROWS, **_SEEN, "max_abs_": _column(), "scale_": _column(above=0)}),
    "sklearn.MinMaxScaler": State(
        {**ROWS, **_SEEN, **{name: _column() for name in ("scale_", "min_", "data_min_", "data_max_", "data_range_")}}
    ),
    "sklearn.Normalizer": State(ROWS),
    "sklearn.PCA": State(
        {
            **ROWS,
            "components_": floats("k", "d"),
            "mean_": floats("d"),
            "n_components_": count("k"),
            "n_samples_": count(least=1),
            "noise_variance_": number(),
            "explained_variance_": floats("k", least=0),
            "explained_variance_ratio_": floats("k", nan=True),
            "singular_values_": floats("k", least=0),
            "_fit_svd_solver": maybe(one_of("full", "covariance_eigh", "arpack", "randomized")),
        }
    ),
    "sklearn.Pipeline": State(
        {"_sklearn_output_config": ROWS["_sklearn_output_config"]},
    ),
    "sklearn.RobustScaler": State(
        {**ROWS, "center_": field(None, _column()), "scale_": field(None, _column(above=0))},
    ),
    "sklearn.StandardScaler": State(
        {
            **ROWS,
            **_SEEN,
            "mean_": field(None, _column()),
            "var_": field(None, _column()),
            "scale_": field(None, _column(above=0)),
        },
    ),
    "sklearn.StratifiedKFold": State(_SPLITTER),
    "sklearn.VarianceThreshold": State({**ROWS, "variances_": _column()}),
}
