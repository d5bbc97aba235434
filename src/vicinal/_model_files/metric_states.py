"""The states of metrics and clusterers from labels, groups and pairs in a model file, in the notation of `_model_files/kinds`."""

from vicinal._model_files.classes import fields_of
from vicinal._model_files.kinds import (
    ENGINE_USED,
    FLAG,
    LARGEST,
    NETWORK,
    PATH,
    RANDOM_STATE,
    ROWS,
    Fields,
    State,
    count,
    equal,
    estimator,
    field,
    floats,
    integers,
    labels,
    maybe,
    number,
    one_of,
    record,
)
from vicinal._supervision import ChunkletReport

_REPORT = record("ChunkletReport")

_MAYBE_REPORT = field(None, _REPORT)

_NCA: Fields = {
    **ROWS,
    **ENGINE_USED,
    **PATH,
    "n_passes_": count(),
    "components_": floats("k", "d", filled=True),
    "effective_neighbors_": floats("n", least=0),
    "random_state_": RANDOM_STATE,
    "solver_": maybe(one_of("lbfgs", "cg", "stochastic")),
    # If the last fit did not set these, they belong to a fit under other parameters and have their own sizes.
    "feature_relevance_": maybe(floats("r", least=0)),
}

_SOFT_NEIGHBORS: Fields = {
    **ROWS,
    **ENGINE_USED,
    "metric_": field(equal("k", "d"), floats("k", "d"), estimator(method="transform", outputs="k")),
    "points_": floats("m", "k", least=-LARGEST, most=LARGEST, filled=True),  # m training rows of positive weight
    "_log_weights": field(None, floats("m")),
    "_positions": integers("n", least=-1, below="m"),
    "bandwidth_": number(above=0),
}

METRIC_STATES: dict[str, State] = {
    "AnchorNCA": State(
        {
            **ROWS,
            **PATH,
            "components_": floats("k", "d", filled=True),
            "held_out_pairs_": integers("h"),
            "random_state_": RANDOM_STATE,
        },
    ),
    "BinnedTargetMetric": State(
        {
            **ROWS,
            "metric_": estimator(method="components_"),
            "components_": floats("k", "d", filled=True),
            "bin_edges_": floats("b"),
        },
    ),
    "ChunkletReport": State(dict.fromkeys(fields_of(ChunkletReport), count())),
    "ChunkletScatter": State(
        {
            "n_rows": count(least=1),
            "origin": floats("d"),
            "shift": floats("d"),
            "total": floats("d", "d"),
            "n_points": count(),
            "n_chunklets": count(),
            "within": floats("d", "d"),
            "fourth": floats("d", "d", least=0),
            "resolution": number(above=0),
        },
    ),
    "ConstrainedGaussianMixture": State(
        {
            **ROWS,
            **PATH,
            "weights_": floats("c", least=0),
            "means_": floats("c", "d"),
            "covariances_": field(floats("c", "d", "d"), floats("d", "d"), floats("c", "d"), floats("c")),
            "labels_": integers("n", below="c"),
            "chunklet_report_": _MAYBE_REPORT,
        },
    ),
    "ConstrainedKMeans": State(
        {
            **ROWS,
            "_kmeans": estimator("sklearn.KMeans"),
            "cluster_centers_": floats("c", "d"),
            "labels_": integers("n", below="c"),
            "inertia_": number(least=0),
            "n_iter_": count(),
            "converged_": FLAG,
            "chunklet_report_": _MAYBE_REPORT,
        },
    ),
    "MMC": State(
        {
            **ROWS,
            **PATH,
            "components_": floats("k", "d", filled=True),
            "gap_": number(least=0),
            "chunklet_report_": _REPORT,
        },
    ),
    "NCA": State(
        {
            **_NCA,
            "match_scale_": maybe(floats("t", least=0)),
            "evaluation_rows_": maybe(integers("e")),
        },
    ),
    "NeuralNCA": State(
        {
            **ROWS,
            **PATH,
            "mean_": floats("d"),
            "spread_": floats("d", above=0),
            "_n_outputs": count("k", least=1),
            "module_": NETWORK,
            "scale_": number(above=0),
            "best_epoch_": count(least=1),
        },
    ),
    "OnlineRCA": State(
        {
            **ROWS,
            "_state": field(None, record("OnlineRCA.state", W=("d", "d"))),
            "chunklet_report_": _REPORT,
            "components_": floats("d", "d"),
            "step_": number(above=0),
            "n_points_": count(),
            "n_chunklets_": count(),
        },
        early=["n_features_in_", "feature_names_in_", "_state", "chunklet_report_"],
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
    "PairNCA": State(_NCA),
    "RCA": State(
        {
            **ROWS,
            "_sums": record("ChunkletScatter", origin=("d",)),
            "chunklet_report_": _REPORT,
            "components_": floats("k", "d", filled=True),
            "_inverse": floats("d", "k"),
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
        early=["n_features_in_", "feature_names_in_", "_sums", "chunklet_report_"],
    ),
    "SoftNeighborsClassifier": State(
        {
            **_SOFT_NEIGHBORS,
            "classes_": labels("c"),
            "_codes": integers("m", below="c", increasing=True),
        },
    ),
    "SoftNeighborsRegressor": State(
        {
            **_SOFT_NEIGHBORS,
            "_one_output": FLAG,
            "_mean": floats("t"),
            "_unit": floats("t", above=0),
            "_targets": floats("m", "t"),  # about target_mean, in target_unit
        },
    ),
}
