"""The states of densities, of estimators built on them and of their mixtures in a model file, in the notation of `_model_files/kinds`."""

from vicinal._model_files.kinds import (
    DIGEST,
    ENGINE,
    ENGINE_USED,
    FLAG,
    LARGEST,
    PATH,
    ROWS,
    Fields,
    State,
    count,
    equal,
    estimator,
    estimators,
    field,
    floats,
    integers,
    labels,
    mapping,
    maybe,
    names,
    nans,
    number,
    one_of,
    record,
    table,
)

_MIXTURE: Fields = {
    "centres": floats("n", "d", least=-LARGEST, most=LARGEST, filled=True),
    "log_weights": floats("n", finite=False, most=1e-6),
    "engine": field(*ENGINE),
    "feature_names": field(None, names("d")),
}

_SHARED_MIXTURE = record("SharedMixture", centres=("n", "a"))

# The values of constant columns, NaN in those that vary; the mixture is that of the latter.
_ACTIVE: Fields = {"_constants": field(equal("a", "d"), nans("d", "a"))}

_REG_SEARCH = table("family", "factor", "mean_test_score")

# A metric that was saved without its training rows.
_MIXTURE_OF_METRIC = field(_SHARED_MIXTURE, record("RowsLeftOut"))

# The fields of a fit to rows with missing values.
_OF_GAPS: Fields = {
    "_left_out_scores": maybe(floats("n", finite=False)),
    "_incomplete_rows": maybe(floats("n", "d", nan=True)),
}

_SEARCH = table("mean_test_score")


DENSITY_STATES: dict[str, State] = {
    "DensityClassifier": State(
        {
            **ROWS,
            "classes_": labels("c"),
            "priors_": floats("c", least=0),
            "densities_": estimators("c", estimator(method="score_samples")),
            "constant_variances_": floats("c", "d", least=0),
        },
    ),
    "DensityImputer": State(
        {
            **ROWS,
            "density_": estimator("LCA", "LCAGauss", "ParzenWindows"),
            "mean_": floats("d"),
            "scale_": floats("d", above=0),
            "draw_scale_": maybe(number(above=0)),
        },
    ),
    "DensityOutlierDetector": State(
        {
            **ROWS,
            "density_": estimator(method="score_samples"),
            "training_scores_": floats("n", finite=False),
            "training_p_values_": floats("n", least=0),
            "_sorted_scores": floats("complete", finite=False),
            "_cumulated": floats("complete", least=0),
            "_gaps": field(None, integers("n", "used", below=2)),
            "offset_": number(),
            "_log_densities": floats("n", finite=False),
            "_group": number(least=0, most=0.5),
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
            "frames": floats("q", "n", "d", least=-1.001, most=1.001),  # q directions per row, of length one
            "variances": floats("q", "n", least=0),
            "covariance": field(number(above=0), floats("d", "d")),
        },
        derived=["_lower"],
    ),
    "LCA": State(
        {
            **ROWS,
            **ENGINE_USED,
            **PATH,
            **_ACTIVE,
            "components_": floats("a", "d"),
            "covariance_": floats("a", "a"),
            "precision_": floats("a", "a"),
            "reg_": maybe(floats("d", "d"), record("Shrinkage", target=("d", "d"))),
            "reg_search_": maybe(None, _REG_SEARCH),
            "mixture_": _MIXTURE_OF_METRIC,
            "effective_neighbors_": floats("e", least=0),  # those of some of the rows, if the fit drew them from a file
            "solver_": one_of("em", "accelerated", "stochastic", "stream"),
            "n_samples_seen_": maybe(count()),
            "_reg_form": field(None, record("LCA.penalty")),
            "_stream": field(None, mapping(local=floats("a", "a"), seed=count())),
            **_OF_GAPS,
        },
    ),
    "LCA.penalty": State(
        {
            "family": one_of("diagonal", "shrunk", "sample"),
            "factor": number(least=0),
            "weight": field(None, number(above=0)),
        }
    ),
    "LCAGauss": State(
        {
            **ROWS,
            **ENGINE_USED,
            **PATH,
            **_ACTIVE,
            "mean_": floats("d"),
            "n_components_": count("k"),
            "components_": floats("k", "d"),
            "gaussian_components_": floats("g", "d"),
            "covariance_": floats("a", "a"),
            "precision_": floats("a", "a"),
            "reg_": maybe(floats("d", "d"), record("Shrinkage", target=("d", "d"))),
            "reg_gauss_": maybe(floats("d", "d")),
            "reg_search_": maybe(None, _REG_SEARCH),
            "mixture_": _MIXTURE_OF_METRIC,
            "rows_": maybe(floats("n", "a", least=-LARGEST, most=LARGEST)),
            "effective_neighbors_": floats("e", least=0),  # those of some of the rows, if the fit drew them from a file
            "solver_": maybe(one_of("em", "stochastic")),
            **_OF_GAPS,
        },
    ),
    "LocalLCA": State(
        {
            **ROWS,
            **ENGINE_USED,
            "converged_": FLAG,
            **_ACTIVE,
            "base_": field(None, estimator("LCA", inputs="a")),
            "mixture_": field(
                record("FrameMixture", centres=("n", "a")),
                _SHARED_MIXTURE,
            ),
            "n_components_": count(),
            "n_neighbors_": count(least=1),
            "noise_": number(least=0),
            "shared_": number(least=0),
            "center_": one_of("row", "mean"),
            "cv_results_": maybe(None, _SEARCH),
            "best_score_": maybe(None, number(finite=False)),
            "rows_": floats("n", "a", least=-LARGEST, most=LARGEST),
            "_weight": field(None, floats("n", least=0)),
            "_neighbors": field(None, integers("n", "k", below="n")),
        },
    ),
    "ManifoldParzen": State(
        {
            **ROWS,
            **ENGINE_USED,
            **_ACTIVE,
            "mixture_": field(record("FrameMixture", centres=("n", "a")), _SHARED_MIXTURE),
            "noise_": number(above=0),
            "n_components_": count(),
            "n_neighbors_": count(least=1),
            "cv_results_": maybe(None, _SEARCH),
            "best_score_": maybe(None, number(finite=False)),
            "_weight": field(None, floats("n", least=0)),
            # One more than n_neighbors_used, if there are enough rows.
            "_neighbors": field(None, integers("n", "k", below="n")),
            "_soft_rows": field(None, floats("n", "q")),
            "noise_candidates_": maybe(floats("c", above=0)),
            "noise_scores_": maybe(floats("c", finite=False)),
        },
    ),
    "ParzenMeanShift": State(
        {
            **ROWS,
            **ENGINE_USED,
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
            **ROWS,
            **ENGINE_USED,
            **PATH,
            **_ACTIVE,
            "covariance_": floats("a", "a"),
            "mixture_": _SHARED_MIXTURE,
            **_OF_GAPS,
        },
    ),
    # An engine is set before the density is used.
    "RowsLeftOut": State({"owner": one_of("LCA", "LCAGauss"), "engine": maybe(*ENGINE)}),
    "SharedMixture": State({**_MIXTURE, "covariance": floats("d", "d")}, derived=["_lower"]),
}
