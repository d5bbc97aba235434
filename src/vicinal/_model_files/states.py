"""The state of each class in a model file: names of fields, permitted values, and relations.

There is one declaration per class of the closed set, in the notation of `_model_files/fields`. The names of fields are those
of files and never change; if a private attribute is renamed, only this module needs a change. Sizes are
n training rows, d features, k components, c classes or clusters and p passes, unless stated otherwise.
"""

from vicinal._model_files.density_states import DENSITY_STATES
from vicinal._model_files.fields import State
from vicinal._model_files.metric_states import METRIC_STATES
from vicinal._model_files.option_states import OPTION_STATES
from vicinal._model_files.sklearn_states import SKLEARN_STATES
from vicinal._model_files.table_states import TABLE_STATES

STATES: dict[str, State] = {**DENSITY_STATES, **METRIC_STATES, **TABLE_STATES}


def state_of(class_name: str) -> State:
    """The declaration of a class of the closed set."""
    if class_name.startswith("sklearn."):
        return SKLEARN_STATES[class_name]
    return OPTION_STATES[class_name] if class_name in OPTION_STATES else STATES[class_name]
<<<<<<< HEAD
=======


# Squares of larger entries overflow, and estimators refuse to be fitted to them.
_LARGEST = 1e150
_COVARIANCE = "the covariance of mixture_"
_SYMMETRIC = "a symmetric matrix with a diagonal of at least 0"


def _is_cv_results(value, sizes, params=None):
    if not isinstance(value, dict) or not isinstance(value.get("params"), list) or "mean_test_score" not in value:
        return False
    params = _BEST_PARAMS if params is None else params
    size = sizes.setdefault("c", len(value["params"]))
    tables = [column for name, column in value.items() if name not in ("params", "param_center", "param_vicinity")]
    numbers = all(isinstance(column, np.ndarray) and column.dtype.kind in "if" for column in tables)
    sound = all(isinstance(name, str) for name in value) and all(map(params.is_satisfied_by, value["params"]))
    return numbers and sound and all(column.shape == (size,) for column in tables)


def _is_local_results(value, sizes):
    """Return the same for the members of the family of Local LCA, of which the centre and the vicinity are texts."""
    if not _is_cv_results(value, sizes, _LOCAL_MEMBER):
        return False
    texts = [value.get(f"param_{name}") for name in ("center", "vicinity")]
    return all(isinstance(t, np.ndarray) and t.dtype.kind == "U" and t.shape == (sizes["c"],) for t in texts)


def _is_reg_search(value):
    if not isinstance(value, dict) or not {"family", "factor", "mean_test_score"} <= set(value):
        return False
    columns = value.values()
    if not all(isinstance(column, np.ndarray) and column.dtype.kind in "fU" and column.ndim == 1 for column in columns):
        return False
    return all(isinstance(name, str) for name in value) and len({len(column) for column in columns}) == 1


# -- fields that several classes have ----------------------------------------------------------------------------------

# Files of version 1 have no engine_, nor certified_row_error_, and its NCA no solver_.
_ENGINE_USED = {"engine_": maybe(one_of(*BACKENDS)), "certified_row_error_": maybe(number(least=0))}
_PATH = {"objectives_": floats("p", finite=False), "n_iter_": count(), "converged_": FLAG}
# A last entry may be that of the best pass again.
_PATH_OF_PASSES = relation("n_iter_, objectives_", "at most the length of objectives_", lambda n, path: n <= len(path))
_PATH_WITH_AN_END = relation("objectives_", "at least one entry", lambda path: len(path) > 0)
_MIXTURE = {
    "centres": floats("n", "d", least=-_LARGEST, most=_LARGEST),
    "log_weights": floats("n", finite=False, most=1e-6),
    "engine": field(*ENGINE),
    "feature_names": field(None, names("d")),
}
_MIXTURE_HOLDS = [
    relation("centres", "at least one row and one column", has_rows),
    relation("log_weights", "logarithms of weights of sum one", lambda logs: sums_to_one(np.exp(logs))),
]
_FRAMES_HAVE_LENGTH_ONE = relation("frames", "directions of length one", are_directions)
_SHARED_MIXTURE = record("SharedMixture", centres=("n", "a"))
# The values of constant columns, NaN in those that vary; the mixture is that of the latter.
_ACTIVE = {"constants": private("_constants", None, floats("d", nan=True))}
_ACTIVE_HOLD = relation("mixture_, constants, n_features_in_", "a mixture of the columns that vary", is_of_active)
_REG_SEARCH = Kind("the table of a search for a penalty", _is_reg_search)
# A metric that was saved without its training rows.
_MIXTURE_OF_METRIC = field(_SHARED_MIXTURE, record("RowsLeftOut"))
# Of a fit to rows with missing values.
_INCOMPLETE_ROWS = {"incomplete_rows": maybe(floats("n", "d", nan=True), attribute="_incomplete_rows")}
_OF_GAPS = {"left_out_scores": maybe(floats("n", finite=False), attribute="_left_out_scores"), **_INCOMPLETE_ROWS}
_REPORT = record("ChunkletReport")
_MAYBE_REPORT = field(None, _REPORT)
_NCA = {
    **ROWS,
    **_ENGINE_USED,
    **_PATH,
    "components_": floats("k", "d"),
    "effective_neighbors_": floats("n", least=0),
    "random_state_": RANDOM_STATE,
    "solver_": maybe(one_of("lbfgs", "cg", "stochastic")),
    # These tell of a fit under other parameters where the last fit did not set them: they have sizes of their own.
    "feature_relevance_": maybe(floats("r", least=0)),
}
_SOFT_NEIGHBORS = {
    **ROWS,
    **_ENGINE_USED,
    "metric_": field(None, floats("k", "d"), estimator(method="transform", outputs="k")),
    "points_": floats("m", "k", least=-_LARGEST, most=_LARGEST),  # m training rows of positive weight
    "log_weights": private("_log_weights", None, floats("m")),
    "positions": private("_positions", integers("n", least=-1, below="m")),
    "bandwidth_": number(above=0),
}
_SOFT_NEIGHBORS_HOLD = [
    relation("points_", "at least one row and one column", has_rows),
    relation(
        "points_, metric_, n_features_in_",
        "as many columns as there are features, where metric_ is None",
        lambda points, metric, d: metric is not None or points.shape[1] == d,
    ),
    relation(
        "positions, points_",
        "the position of every row of points_, once",
        lambda positions, points: np.array_equal(np.sort(positions[positions >= 0]), np.arange(len(points))),
    ),
]
_LOCAL_MEMBER = mapping(
    shared=number(least=0),
    noise=number(least=0),
    n_neighbors=count(least=1),
    n_components=count(),
    center=one_of("row", "mean"),
    vicinity=one_of("nearest", "kernel"),
)
_BEST_PARAMS = mapping(n_components=count(), n_neighbors=count(least=1), noise=number(above=0))

# -- the classes -------------------------------------------------------------------------------------------------------

STATES: dict[str, State] = {
    "AnchorNCA": State(
        {
            **ROWS,
            **_PATH,
            "components_": floats("k", "d"),
            "held_out_pairs_": integers("h"),
            "random_state_": RANDOM_STATE,
        },
        [_PATH_WITH_AN_END],
    ),
    "BinnedTargetMetric": State(
        {
            **ROWS,
            "metric_": estimator(method="components_"),
            "components_": floats("k", "d"),
            "bin_edges_": floats("b"),
        },
        [
            relation("bin_edges_", "numbers in increasing order", is_increasing),
            relation(
                "components_, metric_",
                "those of metric_",
                lambda components, metric: np.array_equal(components, metric.components_),
            ),
        ],
    ),
    "ChunkletReport": State(
        {
            name: count()
            for name in (
                "n_samples",
                "n_chunklets",
                "n_points",
                "n_leftover",
                "n_singletons",
                "n_self_pairs",
                "n_shared",
                "n_conflicts",
            )
        }
    ),
    "ChunkletScatter": State(
        {
            "n_rows": count(least=1),
            "origin": floats("d"),
            "shift": floats("d"),
            "total": floats("d", "d"),
            "n_points": count(),
            "n_chunklets": count(),
            "within": floats("d", "d"),
            "fourth": field(floats("d", "d", least=0), number(least=0)),  # a number in version 1
            "resolution": number(above=0),
        },
        [
            relation("total", _SYMMETRIC, is_symmetric),
            relation("within", _SYMMETRIC, is_symmetric),
            relation("n_points, n_chunklets", "at least n_chunklets", lambda points, chunklets: points >= chunklets),
        ],
    ),
    "ConstrainedGaussianMixture": State(
        {
            **ROWS,
            **_PATH,
            "weights_": floats("c", least=0),
            "means_": floats("c", "d"),
            "covariances_": field(floats("c", "d", "d"), floats("d", "d"), floats("c", "d"), floats("c")),
            "labels_": integers("n", below="c"),
            "chunklet_report_": _MAYBE_REPORT,
        },
        [
            _PATH_OF_PASSES,
            relation("weights_", "weights of sum one", sums_to_one),
            relation(
                "covariances_, covariance_type, means_",
                "positive definite covariances of the shape that covariance_type says",
                lambda covariances, kind, means: (
                    fits_type(covariances, kind, means) and is_positive_definite(covariances, kind)
                ),
            ),
        ],
    ),
    "ConstrainedKMeans": State(
        {
            **ROWS,
            "kmeans": private("_kmeans", estimator("sklearn.KMeans")),
            "cluster_centers_": floats("c", "d"),
            "labels_": integers("n", below="c"),
            "inertia_": number(least=0),
            "n_iter_": count(),
            "converged_": FLAG,
            "chunklet_report_": _MAYBE_REPORT,
        },
        [
            relation(
                "cluster_centers_, kmeans",
                "those of kmeans",
                lambda centres, kmeans: np.array_equal(centres, kmeans.cluster_centers_),
            )
        ],
    ),
    "DensityClassifier": State(
        {
            **ROWS,
            "classes_": labels("c"),
            "priors_": floats("c", least=0),
            "densities_": estimators("c", method="score_samples"),
            "constant_variances_": maybe(floats("c", "d", least=0)),  # files of version 1 have none
        },
        [
            relation("priors_", "probabilities of sum one", sums_to_one),
            relation(
                "constant_variances_, densities_",
                "0 but for the columns that were constant in the training rows of a class",
                are_of_constants,
            ),
        ],
    ),
    "DensityImputer": State(
        {
            **ROWS,
            "density_": estimator("LCA", "LCAGauss", "ParzenWindows"),
            "mean_": floats("d"),
            "scale_": floats("d", above=0),
            "draw_scale_": maybe(number(above=0)),  # earlier files have none
        },
        [
            relation(
                "density_", "a density that kept its training rows", lambda found: hasattr(found.mixture_, "centres")
            )
        ],
    ),
    "DensityOutlierDetector": State(
        {
            **ROWS,
            "density_": estimator(method="score_samples"),
            "training_scores_": floats("n", finite=False),
            "training_p_values_": floats("n", least=0),
            "sorted_scores": private("_sorted_scores", floats("n", finite=False)),
            "cumulated_weights": private("_cumulated", floats("n", least=0)),
            "offset_": number(),
            # Files of version 1 have none of these.
            "reference": maybe(None, integers("m", below="n"), attribute="_reference"),
            "group": maybe(number(least=0, most=0.5), attribute="_group"),
            "spreads": maybe(None, floats(2, 2), attribute="_score_scales"),
            "constants": maybe(floats("d", nan=True), attribute="_constants"),
            "fingerprint": maybe(None, DIGEST, attribute="_fingerprint"),
        },
        [
            relation(
                "reference?, spreads?",
                "given where spreads is given, and only there",
                lambda reference, spreads: (reference is None) == (spreads is None),
            ),
            relation("spreads", "two medians, each with a width greater than 0", has_widths),
            relation(
                "sorted_scores, training_scores_",
                "training_scores_ in increasing order",
                lambda in_order, scores: np.array_equal(in_order, np.sort(scores)),
            ),
            relation("cumulated_weights", "numbers in increasing order", is_increasing),
        ],
    ),
    "Dequantizer": State({**ROWS, "steps_": floats("d", least=0), "seed_": count()}),
    "FrameMixture": State(
        {
            **_MIXTURE,
            "frames": floats("q", "n", "d"),  # q directions per row
            "variances": floats("q", "n", least=0),
            "noise": number(above=0),
        },
        [
            *_MIXTURE_HOLDS,
            relation(
                "frames, centres",
                "from one to d directions per row, in the precision of centres",
                lambda frames, centres: 0 < len(frames) <= centres.shape[1] and frames.dtype == centres.dtype,
            ),
            _FRAMES_HAVE_LENGTH_ONE,
        ],
    ),
    "LCA": State(
        {
            **ROWS,
            **_ENGINE_USED,
            **_PATH,
            **_ACTIVE,
            "components_": floats("a", "d"),
            "covariance_": floats("a", "a"),
            "precision_": floats("a", "a"),
            "reg_": maybe(floats("d", "d")),  # files of version 1 have none
            "reg_search_": maybe(None, _REG_SEARCH),
            "mixture_": _MIXTURE_OF_METRIC,
            "effective_neighbors_": floats("e", least=0),  # of some of the rows, where a fit drew them from a file
            "solver_": one_of("em", "accelerated", "stochastic", "stream"),
            "n_samples_seen_": maybe(count()),
            "stream": private("_stream", None, mapping(local=floats("a", "a"), seed=count())),
            **_OF_GAPS,
        },
        [
            _PATH_OF_PASSES,
            _ACTIVE_HOLD,
            relation("precision_, constants, components_", "components_' components_", is_gram),
            relation("covariance_", "a positive definite matrix", is_positive_definite),
            relation("covariance_, mixture_", _COVARIANCE, is_of_mixture),
        ],
    ),
    "LCAGauss": State(
        {
            **ROWS,
            **_ENGINE_USED,
            **_PATH,
            **_ACTIVE,
            "mean_": floats("d"),
            "n_components_": count("k"),
            "components_": floats("k", "d"),
            "gaussian_components_": floats("g", "d"),
            "covariance_": floats("a", "a"),
            "precision_": floats("a", "a"),
            "reg_": maybe(floats("d", "d")),  # files of version 1 have none
            "reg_gauss_": maybe(floats("d", "d")),
            "reg_search_": maybe(None, _REG_SEARCH),
            "mixture_": _MIXTURE_OF_METRIC,
            "effective_neighbors_": floats("n", least=0),
            "left_out_scores": private("_left_out_scores", floats("n", finite=False)),
            **_INCOMPLETE_ROWS,
        },
        [
            _PATH_WITH_AN_END,
            _ACTIVE_HOLD,
            relation(
                "gaussian_components_, components_, precision_",
                "a row for each direction that components_ does not have",
                lambda gaussian, local, precision: len(gaussian) + len(local) == len(precision),
            ),
            relation(
                "precision_, constants, gaussian_components_, components_",
                "that of both kinds of components_ together",
                is_gram,
            ),
            relation("covariance_", "a positive definite matrix", is_positive_definite),
            relation("covariance_, mixture_", _COVARIANCE, is_of_mixture),
        ],
    ),
    "LocalFrameMixture": State(
        {
            **_MIXTURE,
            "covariance": floats("d", "d"),
            "frames": floats("q", "n", "d"),  # q directions per row
            "variances": floats("q", "n", least=0),
        },
        [
            *_MIXTURE_HOLDS,
            relation("covariance", "a positive definite matrix", is_positive_definite),
            relation("frames", "at most d directions per row", lambda frames: len(frames) <= frames.shape[2]),
            _FRAMES_HAVE_LENGTH_ONE,
        ],
    ),
    "LocalLCA": State(
        {
            **ROWS,
            **_ENGINE_USED,
            **_PATH,
            **_ACTIVE,
            "base_": field(None, estimator("LCA", inputs="a")),
            "mixture_": field(
                record("LocalFrameMixture", centres=("n", "a")),
                _SHARED_MIXTURE,
                record("LocalMixture", centres=("n", "a")),
            ),
            # Files of version 1 have none of the following: their mixture has free covariances.
            "n_components_": maybe(count()),
            "n_neighbors_": maybe(count(least=1)),
            "noise_": maybe(number(least=0)),
            "shared_": maybe(number(least=0)),
            "center_": maybe(one_of("row", "mean")),
            "vicinity_": maybe(one_of("nearest", "kernel")),
            "cv_results_": maybe(
                None, Kind("cv_results_ of c members, as in GridSearchCV", _is_local_results, sized=True)
            ),
            "best_score_": maybe(None, number(finite=False)),
            "rows_": field(None, floats("n", "a", least=-_LARGEST, most=_LARGEST)),
            "sample_weight": private("_weight", None, floats("n", least=0)),
            "neighbors": private("_neighbors", None, integers("n", "k", below="n")),
        },
        [
            _ACTIVE_HOLD,
            relation(
                "mixture_, rows_, neighbors, base_, n_components_?, n_neighbors_?, noise_?, shared_?, center_?, vicinity_?",
                "a mixture with all that its kernels were made from, or one of version 1",
                is_local_mixture,
            ),
        ],
    ),
    "LocalMixture": State(
        {**_MIXTURE, "covariances": floats("n", "d", "d")},
        [*_MIXTURE_HOLDS, relation("covariances", "positive definite matrices", is_positive_definite)],
    ),
    "MMC": State(
        {
            **ROWS,
            **_PATH,
            "components_": floats("k", "d"),
            "gap_": number(least=0),
            "chunklet_report_": _REPORT,
        },
        [_PATH_OF_PASSES],
    ),
    "ManifoldParzen": State(
        {
            **ROWS,
            **_ENGINE_USED,
            **_ACTIVE,
            "mixture_": field(record("FrameMixture", centres=("n", "a")), _SHARED_MIXTURE),
            "noise_": number(above=0),
            "n_components_": maybe(count()),  # files of version 1 have none
            "n_neighbors_used": private("n_neighbors_", count(least=1)),
            "cv_results_": maybe(
                None, Kind("cv_results_ of c combinations, as in GridSearchCV", _is_cv_results, sized=True)
            ),
            "best_score_": maybe(None, number(finite=False)),
            "sample_weight": private("_weight", None, floats("n", least=0)),
            # One more than n_neighbors_used, where there are so many rows.
            "neighbors": private("_neighbors", None, integers("n", "k", below="n")),
            "soft_rows": private("_soft_rows", None, floats("n", "q")),
            "noise_candidates_": maybe(floats("c", above=0)),
            "noise_scores_": maybe(floats("c", finite=False)),
        },
        [
            _ACTIVE_HOLD,
            relation(
                "mixture_, neighbors, soft_rows, n_neighbors_used",
                "a FrameMixture with neighbors for n_neighbors_used or with soft_rows, or a SharedMixture without them",
                has_neighbors,
            ),
        ],
    ),
    "NCA": State(
        {
            **_NCA,
            "match_scale_": maybe(floats("t", least=0)),
            "evaluation_rows_": maybe(integers("e")),
            "dropped_mass_": maybe(number(least=0)),
        },
        [_PATH_WITH_AN_END],
    ),
    "NeuralNCA": State(
        {
            **ROWS,
            **_PATH,
            "mean_": floats("d"),
            "spread_": floats("d", above=0),
            "n_outputs": private("_n_outputs", count("k", least=1)),
            "module_": network("d", "k"),
            "scale_": number(above=0),
            "best_epoch_": count(least=1),
        },
        [
            _PATH_OF_PASSES,
            relation("best_epoch_, n_iter_", "at most n_iter_", lambda epoch, n_iter: epoch <= n_iter),
        ],
    ),
    "OnlineRCA": State(
        {
            **ROWS,
            "state": private("_state", None, record("OnlineRCA.state", W=("d", "d"))),
            "chunklet_report_": _REPORT,
            "components_": floats("d", "d"),
            "step_": number(above=0),
            "n_points_": count(),
            "n_chunklets_": count(),
        },
        [
            relation(
                "state, components_",
                "the state of components_",
                lambda state, components: np.array_equal(state.W, components),
            )
        ],
        early=["n_features_in_", "feature_names_in_", "state", "chunklet_report_"],
    ),
    "OnlineRCA.state": State(
        {
            "W": floats("d", "d"),
            "limit": number(above=0),
            "n_points": count(),
            "n_chunklets": count(),
            "step": field(None, number(above=0)),
        }
    ),
    "PairNCA": State(_NCA, [_PATH_WITH_AN_END]),
    "ParzenMeanShift": State(
        {
            **ROWS,
            **_ENGINE_USED,
            "density_": estimator("ParzenWindows", "LCA", "LCAGauss", "LocalLCA", "ManifoldParzen"),
            "cluster_centers_": floats("c", "d"),
            "mode_log_densities_": floats("c"),
            "labels_": integers("n", below="c"),
            "n_iter_": count(),
            "converged_": FLAG,
        },
        [
            relation("cluster_centers_", "at least one mode", has_rows),
            relation(
                "density_",
                "a density that kept its training rows",
                lambda density: hasattr(density.mixture_, "centres"),
            ),
        ],
    ),
    "ParzenWindows": State(
        {
            **ROWS,
            **_ENGINE_USED,
            **_PATH,
            **_ACTIVE,
            "covariance_": floats("a", "a"),
            "mixture_": _SHARED_MIXTURE,
            **_OF_GAPS,
        },
        [_PATH_OF_PASSES, _ACTIVE_HOLD, relation("covariance_, mixture_", _COVARIANCE, is_of_mixture)],
    ),
    "RCA": State(
        {
            **ROWS,
            "sums": private("_sums", record("ChunkletScatter", origin=("d",))),
            "chunklet_report_": _REPORT,
            "components_": floats("k", "d"),
            "inverse_components": private("_inverse", floats("d", "k")),
            "ratios_": floats("k", least=0),
            "covariance_": floats("d", "d"),
            "total_covariance_": floats("d", "d"),
            "mean_": floats("d"),
            "shrinkage_": number(least=0, most=1),
            "shrinkage_path_": maybe(floats("g", 3, least=0)),
            "rank_": count(least=1),
            "n_chunklets_": count(),
            "n_points_": count(),
            "n_contrasts_": count(),
        },
        [
            relation("covariance_", _SYMMETRIC, is_symmetric),
            relation("total_covariance_", _SYMMETRIC, is_symmetric),
            relation(
                "n_contrasts_, n_points_, n_chunklets_",
                "n_points_ - n_chunklets_",
                lambda contrasts, points, chunklets: contrasts == points - chunklets,
            ),
        ],
        early=["n_features_in_", "feature_names_in_", "sums", "chunklet_report_"],
    ),
    # Whoever asks for the density gives it an engine first.
    "RowsLeftOut": State({"owner": one_of("LCA", "LCAGauss"), "engine": maybe(*ENGINE)}),
    "SharedMixture": State(
        {**_MIXTURE, "covariance": floats("d", "d"), "cholesky": private("_lower", floats("d", "d"))},
        [
            *_MIXTURE_HOLDS,
            relation("covariance", _SYMMETRIC, is_symmetric),
            relation("cholesky, covariance", "the Cholesky factor of covariance", is_cholesky),
        ],
    ),
    "SoftNeighborsClassifier": State(
        {**_SOFT_NEIGHBORS, "classes_": labels("c"), "codes": private("_codes", integers("m", below="c"))},
        [*_SOFT_NEIGHBORS_HOLD, relation("codes", "numbers of classes in increasing order", is_increasing)],
    ),
    "SoftNeighborsRegressor": State(
        {
            **_SOFT_NEIGHBORS,
            "one_output": private("_one_output", FLAG),
            "target_mean": private("_mean", floats("t")),
            "target_unit": private("_unit", floats("t", above=0)),
            "targets": private("_targets", floats("m", "t")),  # about target_mean, in target_unit
        },
        [
            *_SOFT_NEIGHBORS_HOLD,
            relation(
                "one_output, targets",
                "False, or targets of one column",
                lambda one, targets: targets.shape[1] == 1 if one else targets.shape[1] > 0,
            ),
        ],
    ),
    # Of the raw columns, and of the m numbers that are made of them. A lattice has a step, an offset and a share of ties.
    "TableEncoder": State(
        {
            **ROWS,
            "columns": private("_columns", names("d")),
            "column_kinds": private("_column_kinds", names("d")),
            "column_lattices": private("_column_lattices", floats("d", 3, nan=True)),
            "formats": private("_formats", names("d")),
            "sources": private("_sources", integers("m", below="d")),
            "parts": private("_parts", names("m")),
            "feature_kinds": private("_feature_kinds", names("m")),
            "feature_lattices": private("_feature_lattices", floats("m", 3, nan=True)),
            "constant_names": maybe(names("k"), attribute="_constant_names"),
            "constant_texts": maybe(names("k"), attribute="_constant_texts"),
        },
        [
            relation("column_kinds", "kinds of columns", are_kinds),
            relation("feature_kinds", "kinds of columns", are_kinds),
            relation("feature_lattices, feature_kinds", "a step greater than 0 for each lattice", have_steps),
            relation("parts", "'number', 'days', a value after '=', or a part of a date", are_parts),
        ],
    ),
}
>>>>>>> refs/heads/language
