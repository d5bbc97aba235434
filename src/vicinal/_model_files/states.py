"""The state of each class in a model file: its attributes, and what they hold, in the notation of `_model_files/kinds`.

There is one declaration per class of the closed set; records of options have none, because their constructors check them. Sizes are n
training rows, d features, a features that vary, k components, c classes or clusters and p passes, unless stated otherwise.
"""

from typing import Any

from vicinal._model_files.classes import MOST_THREADS, fields_of
from vicinal._model_files.kinds import (
    DIGEST,
    FLAG,
    MOST_COLUMNS,
    NETWORK,
    RANDOM_STATE,
    TEXT,
    Field,
    Fields,
    Kind,
    State,
    beside_levels,
    count,
    equal,
    estimator,
    estimators,
    field,
    floats,
    integers,
    labels,
    levels,
    mapping,
    maybe,
    names,
    nans,
    number,
    one_of,
    record,
    records,
    rows,
    table,
)
from vicinal._supervision import ChunkletReport

# -- what many classes have --------------------------------------------------------------------------------------------

_BACKENDS = ("cpu", "dask", "reference", "torch")
_OUTPUT: Fields = {"_sklearn_output_config": maybe(mapping(transform=one_of("default", "pandas", "polars")))}
_ROWS: Fields = {
    "n_features_in_": count("d", least=1, most=MOST_COLUMNS),
    "feature_names_in_": maybe(names("d")),
    **_OUTPUT,
}
_ENGINE_USED: Fields = {"engine_": maybe(one_of(*_BACKENDS)), "certified_row_error_": maybe(number())}
_PATH: Fields = {"objectives_": floats("p", finite=False), "n_iter_": count(), "converged_": FLAG}
_FITTED: Fields = {**_ROWS, **_ENGINE_USED, **_PATH}

# -- densities and their mixtures --------------------------------------------------------------------------------------

_ENGINE = (None, one_of("auto", *_BACKENDS), record("Engine"))
_MIXTURE: Fields = {
    "centres": rows("n", "d"),
    "log_weights": floats("n", finite=False),
    "engine": field(*_ENGINE),
    "feature_names": field(None, names("d")),
}
_BACKGROUND: Fields = {"background": field(None, record("Background", mean=("b",)))}  # of the numbers
_SHARED_MIXTURE = record("SharedMixture", centres=("n", "a"))
_LOCAL_MIXTURE = field(record("FrameMixture", centres=("n", "a")), _SHARED_MIXTURE)
# The values of constant columns, NaN in those that vary; the mixture is that of the latter.
_ACTIVE: Fields = {"_constants": field(equal("a", "d"), nans("d", "a"))}
# Of a fit to rows with missing values.
_GAPS: Fields = {"_left_out_scores": maybe(floats("n", finite=False)), "_incomplete_rows": maybe(floats("n", "d", nan=True))}  # fmt: skip
# The columns of levels, if there are any; sizes of the others are then their own.
_LEVELS: Fields = {
    "category_smoothing_": maybe(floats("q", least=0, most=1)),
    "_categories": maybe(record("Categories")),
}


def _of_numbers(whole: Field | Kind, *beside: Kind) -> Field:
    """Return a field that may be one of other kinds if there are columns of levels."""
    whole = whole if isinstance(whole, Field) else field(whole)
    return whole._replace(kinds=(*whole.kinds, *(beside_levels("q", each) for each in beside)))


_MIXED_MIXTURE = record("MixedMixture", centres=("n", "a"))
_LCA: Fields = {
    **_FITTED,
    **_ACTIVE,
    **_GAPS,
    "covariance_ precision_": floats("a", "a"),
    "reg_": maybe(floats("d", "d"), record("Shrinkage", target=("d", "d"))),
    "reg_search_": maybe(None, table("family", "factor", "mean_test_score")),
    "mixture_": field(_SHARED_MIXTURE, record("RowsLeftOut")),  # the latter if it was saved without its training rows
    "effective_neighbors_": floats("e"),  # those of some of the rows, if the fit drew them from a file
}
_LOCAL: Fields = {
    **_ROWS,
    **_ENGINE_USED,
    **_ACTIVE,
    "mixture_": _LOCAL_MIXTURE,
    "n_components_": count(),
    "n_neighbors_": count(least=1),
    "noise_": number(),
    "cv_results_": maybe(None, table("mean_test_score")),
    "best_score_": maybe(None, number(finite=False)),
    "_weight": field(None, floats("n")),
    "_neighbors": field(None, integers("n", "k", below="n")),
}

DENSITIES: dict[str, State] = {
    "Background": State(
        {
            "mean": floats("d"),
            "spread": floats("d", "d"),
            "widths": floats(2, least=1),
            "log_shares": floats(3, most=0),
        }
    ),
    "Categories": State(
        {"columns": records("q", "Category"), "n_features": count("d", least=1), "names": field(None, names("d"))}
    ),
    # K levels of a column.
    "Category": State(
        {
            "position": count(),
            "name": TEXT,
            "levels": levels("k"),
            "counts rows": floats("k", least=0),
            "group": integers("k", below="k"),
            "kind": one_of("category", "text", "bool", "number", "code"),
            "categories": levels("c"),
            "texts": names("k"),
        }
    ),
    "DensityClassifier": State(
        {
            **_ROWS,
            "classes_": labels("c"),
            "priors_": floats("c"),
            "densities_": estimators("c", estimator(method="score_samples")),
            "constant_variances_": floats("c", "d"),
        },
    ),
    "DensityImputer": State(
        {
            **_ROWS,
            "density_": estimator("LCA", "LCAGauss", "ParzenWindows"),
            "mean_ scale_": floats("d"),
            "draw_scale_": maybe(number()),
        },
    ),
    "DensityOutlierDetector": State(
        {
            **_ROWS,
            "density_": estimator(method="score_samples"),
            "training_scores_ _log_densities": floats("n", finite=False),
            "training_p_values_": floats("n"),
            "_sorted_scores": floats("complete", finite=False),
            "_cumulated": floats("complete"),
            "_gaps": field(None, integers("n", "used", below=2)),
            "offset_ _group _lowest": number(),
            "_group_rows": field(None, floats("m", "u")),
            "_group_units": field(None, floats("u", "u"), floats("u")),
            "_group_scales": field(None, floats(2, 2)),
            "_constants": floats("d", nan=True),
            "_fingerprint": field(None, DIGEST),
        },
    ),
    "FrameMixture": State(
        {
            **_MIXTURE,
            "frames": floats("q", "n", "d", most=1.001),  # q directions per row, of length one
            "variances": floats("q", "n", least=0),
            "covariance": field(number(), floats("d", "d")),
        },
        derived=["_lower"],
    ),
    "LCA": State(
        {
            **_LEVELS,
            **_LCA,
            "covariance_ precision_": _of_numbers(floats("a", "a"), floats("b", "b")),
            "reg_": _of_numbers(_LCA["reg_"], floats("m", "m"), record("Shrinkage", target=("m", "m"))),
            "mixture_": _of_numbers(_LCA["mixture_"], _MIXED_MIXTURE),
            "components_": _of_numbers(floats("a", "d"), floats("b", "m")),
            "solver_": one_of("em", "accelerated", "stochastic", "stream"),
            "n_samples_seen_": maybe(count()),
            "_reg_form": field(None, record("LCA.penalty")),
            "_stream": field(None, mapping(local=floats("a", "a"), seed=count())),
        },
    ),
    "LCA.penalty": State(
        {"family": one_of("diagonal", "shrunk", "sample"), "factor": number(), "weight": field(None, number())}
    ),
    "LCAGauss": State(
        {
            **_LCA,
            "mean_": floats("d"),
            "n_components_": count(),
            "components_": floats("k", "d"),
            "gaussian_components_": floats("g", "d"),
            "reg_gauss_": maybe(floats("d", "d")),
            "rows_": maybe(rows("n", "a")),
            "solver_": maybe(one_of("em", "stochastic")),
        },
    ),
    "LocalLCA": State(
        {
            **_LOCAL,
            "converged_": FLAG,
            "base_": field(None, estimator("LCA", inputs="a")),
            "shared_": number(),
            "center_": one_of("row", "mean"),
            "rows_": rows("n", "a"),
        },
    ),
    "ManifoldParzen": State(
        {
            **_LOCAL,
            "_soft_rows": field(None, floats("n", "q")),
            "noise_candidates_": maybe(floats("c")),
            "noise_scores_": maybe(floats("c", finite=False)),
        },
    ),
    "MixedMixture": State(
        {
            **_MIXTURE,
            **_BACKGROUND,
            "centres": floats("n", "d", nan=True, filled=True),
            "covariance": floats("m", "m"),
            "smoothing": floats("q", least=0, most=1),
            "categories": record("Categories"),
            "_left_out_as": one_of("training", "compared"),
        },
        derived=["of_numbers"],
    ),
    "ParzenMeanShift": State(
        {
            **_ROWS,
            **_ENGINE_USED,
            "density_": estimator("ParzenWindows", "LCA", "LCAGauss", "LocalLCA", "ManifoldParzen"),
            "cluster_centers_": floats("c", "d", filled=True),
            "mode_log_densities_": floats("c"),
            "labels_": integers("n", below="c"),
            "n_iter_": count(),
            "converged_": FLAG,
        },
    ),
    "ParzenWindows": State(
        {
            **_LEVELS,
            **_FITTED,
            **_ACTIVE,
            **_GAPS,
            "covariance_": _of_numbers(floats("a", "a"), floats("b", "b")),
            "mixture_": _of_numbers(_SHARED_MIXTURE, _MIXED_MIXTURE),
        }
    ),
    # An engine is set before the density is used.
    "RowsLeftOut": State({"owner": one_of("LCA", "LCAGauss"), "engine": maybe(*_ENGINE)}),
    "SharedMixture": State({**_MIXTURE, **_BACKGROUND, "covariance": floats("d", "d")}, derived=["_lower"]),
}

# -- metrics and clusterers from labels, groups and pairs --------------------------------------------------------------

_REPORT: Fields = {"chunklet_report_": field(None, record("ChunkletReport"))}
_COMPONENTS: Fields = {"components_": floats("k", "d", filled=True)}
_COVARIANCES = field(floats("c", "d", "d"), floats("d", "d"), floats("c", "d"), floats("c"))
_NCA: Fields = {
    **_FITTED,
    **_COMPONENTS,
    "n_passes_": count(),
    "effective_neighbors_": floats("n"),
    "random_state_": RANDOM_STATE,
    "solver_": maybe(one_of("lbfgs", "cg", "stochastic")),
    # If the last fit did not set these, they belong to a fit under other parameters and have their own sizes.
    "feature_relevance_": maybe(floats("r")),
}
_SOFT_NEIGHBORS: Fields = {
    **_ROWS,
    **_ENGINE_USED,
    "metric_": field(equal("k", "d"), floats("k", "d"), estimator(method="transform", outputs="k")),
    "points_": rows("m", "k"),  # m training rows of positive weight
    "_log_weights": field(None, floats("m")),
    "_positions": integers("n", least=-1, below="m"),
    "bandwidth_": number(),
}

METRICS: dict[str, State] = {
    "AnchorNCA": State(
        {
            **_ROWS,
            **_PATH,
            **_COMPONENTS,
            "chosen_": one_of("anchors", "init", "raw"),
            "held_out_gain_": field(None, floats(2, finite=False)),
            "held_out_pairs_": integers("h"),
            "random_state_": RANDOM_STATE,
        }
    ),
    "BinnedTargetMetric": State(
        {**_ROWS, **_COMPONENTS, "metric_": estimator(method="components_"), "bin_edges_": floats("b")}
    ),
    "ChunkletReport": State(dict.fromkeys(fields_of(ChunkletReport), count())),
    "ChunkletScatter": State(
        {
            "n_rows": count(least=1),
            "n_points n_chunklets": count(),
            "origin shift": floats("d"),
            "total within fourth": floats("d", "d"),
            "resolution": number(),
        },
    ),
    "ConstrainedGaussianMixture": State(
        {
            **_ROWS,
            **_PATH,
            **_REPORT,
            "weights_": floats("c"),
            "means_": floats("c", "d"),
            "covariances_": _COVARIANCES,
            "labels_": integers("n", below="c"),
        },
    ),
    "ConstrainedKMeans": State(
        {
            **_ROWS,
            **_REPORT,
            "_kmeans": estimator("sklearn.KMeans"),
            "cluster_centers_": floats("c", "d"),
            "labels_": integers("n", below="c"),
            "inertia_": number(),
            "n_iter_": count(),
            "converged_": FLAG,
        },
    ),
    "MMC": State({**_ROWS, **_PATH, **_COMPONENTS, **_REPORT, "gap_": number()}),
    "NCA": State({**_NCA, "match_scale_": maybe(floats("t")), "evaluation_rows_": maybe(integers("e"))}),
    "NeuralNCA": State(
        {
            **_ROWS,
            **_PATH,
            "mean_ spread_": floats("d"),
            "_n_outputs": count("k", least=1),
            "module_": NETWORK,
            "scale_": number(),
            "best_epoch_": count(least=1),
        },
    ),
    "OnlineRCA": State(
        {
            **_ROWS,
            **_REPORT,
            "_state": field(None, record("OnlineRCA.state", W=("d", "d"))),
            "components_": floats("d", "d"),
            "step_": number(),
            "n_points_ n_chunklets_": count(),
        },
        early=["n_features_in_", "feature_names_in_", "_state", "chunklet_report_"],
    ),
    "OnlineRCA.state": State(
        {
            "W": floats("d", "d"),
            "limit": number(),
            "n_points n_chunklets": count(),
            "step": field(None, number()),
        }
    ),
    "QueryMap": State({**_ROWS, "matrix_": floats("d", "d"), "offset_": floats("d"), "variation_": number()}),
    "PairNCA": State(_NCA),
    "RCA": State(
        {
            **_ROWS,
            **_COMPONENTS,
            **_REPORT,
            "_sums": record("ChunkletScatter", origin=("d",)),
            "_inverse": floats("d", "k"),
            "ratios_": floats("k"),
            "covariance_ total_covariance_": floats("d", "d"),
            "mean_": floats("d"),
            "shrinkage_": number(),
            "shrinkage_path_": maybe(floats("g", 3)),
            "rank_ n_chunklets_ n_points_ n_contrasts_": count(),
        },
        early=["n_features_in_", "feature_names_in_", "_sums", "chunklet_report_"],
    ),
    "SoftNeighborsClassifier": State(
        {**_SOFT_NEIGHBORS, "classes_": labels("c"), "_codes": integers("m", below="c", increasing=True)}
    ),
    "SoftNeighborsRegressor": State(
        {
            **_SOFT_NEIGHBORS,
            "_one_output": FLAG,
            "_mean _unit": floats("t"),
            "_targets": floats("m", "t"),  # about target_mean, in target_unit
        },
    ),
}

# -- tables, and scikit-learn's estimators as of its versions 1.6 to 1.9: fields that are not in all of these are optional ------

_COLUMN = floats("d", nan=True)  # a scaler may have been fitted to columns that contain only NaN
_SEEN: Fields = {"n_samples_seen_": field(count(), number(), integers("d"), floats("d"))}

OTHERS: dict[str, State] = {
    "Dequantizer": State(
        {
            **_ROWS,
            "steps_ offsets_": floats("d"),
            "seed_": count(),
            "_unrounded_rows": integers("u"),
            "_unrounded_columns": integers("u", below="d"),
            "_unrounded_values": floats("u"),
        }
    ),
    # The fields of the raw columns, and of the m columns of numbers that are made from them.
    "TableEncoder": State(
        {
            **_ROWS,
            "_columns _column_types": names("d"),
            "_sources": integers("m", below="d"),
            "_parts _feature_types": names("m"),
            "_constant_names _constant_texts": names("k"),
        },
    ),
    "sklearn.GaussianMixture": State(
        {
            **_ROWS,
            "weights_": floats("c"),
            "means_": floats("c", "d"),
            "covariances_ precisions_ precisions_cholesky_": _COVARIANCES,
            "converged_": FLAG,
            "n_iter_": count(),
            "lower_bound_": number(finite=False),
            "lower_bounds_": maybe(Kind("a list", lambda value, sizes: isinstance(value, list))),
        }
    ),
    "sklearn.KMeans": State(
        {
            **_ROWS,
            "cluster_centers_": floats("c", "d"),
            "labels_": integers("n", below="c"),
            "inertia_ _tol": number(),
            "n_iter_ _n_init": count(),
            "_algorithm": one_of("lloyd", "elkan"),
            # Predict starts this many threads, or one per 256 rows if those are fewer.
            "_n_threads": count(least=1, most=MOST_THREADS),
            "_n_features_out": count("c", least=1),
        }
    ),
    "sklearn.MaxAbsScaler": State({**_ROWS, **_SEEN, "max_abs_ scale_": _COLUMN}),
    "sklearn.MinMaxScaler": State({**_ROWS, **_SEEN, "scale_ min_ data_min_ data_max_ data_range_": _COLUMN}),
    "sklearn.Normalizer": State(_ROWS),
    "sklearn.PCA": State(
        {
            **_ROWS,
            "components_": floats("k", "d"),
            "mean_": floats("d"),
            "n_components_": count("k"),
            "n_samples_": count(least=1),
            "noise_variance_": number(),
            "explained_variance_ singular_values_": floats("k"),
            "explained_variance_ratio_": floats("k", nan=True),
            "_fit_svd_solver": maybe(one_of("full", "covariance_eigh", "arpack", "randomized")),
        }
    ),
    "sklearn.Pipeline": State(_OUTPUT),
    "sklearn.RobustScaler": State({**_ROWS, "center_ scale_": field(None, _COLUMN)}),
    "sklearn.StandardScaler": State({**_ROWS, **_SEEN, "mean_ var_ scale_": field(None, _COLUMN)}),
}

STATES: dict[str, State] = {**DENSITIES, **METRICS, **OTHERS}


def state_of(class_name: str) -> Any:
    """Return the declaration of a class of the closed set; None for records of options."""
    return STATES.get(class_name)
