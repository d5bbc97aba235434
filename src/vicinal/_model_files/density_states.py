"""The states of densities, of estimators built on them and of their mixtures in a model file, in the notation of `_model_files/fields`."""

from typing import Any

import numpy as np

from vicinal._model_files.fields import (
    DIGEST,
    FLAG,
    Fields,
    Kind,
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
    private,
    record,
)
from vicinal._model_files.parameters import ENGINE
from vicinal._model_files.shared_fields import ENGINE_USED, LARGEST, PATH
from vicinal._model_files.sklearn_states import ROWS


def _is_cv_results(value: Any, sizes: dict[str, int], params: Kind | None = None) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("params"), list) or "mean_test_score" not in value:
        return False
    params = _BEST_PARAMS if params is None else params
    size = sizes.setdefault("c", len(value["params"]))
    tables = [column for name, column in value.items() if name not in ("params", "param_center")]
    numbers = all(isinstance(column, np.ndarray) and column.dtype.kind in "if" for column in tables)
    sound = all(isinstance(name, str) for name in value) and all(map(params.is_satisfied_by, value["params"]))
    return numbers and sound and all(column.shape == (size,) for column in tables)


def _is_local_results(value: Any, sizes: dict[str, int]) -> bool:
    """Return the same for the members of the family of Local LCA, whose centre is a string."""
    if not _is_cv_results(value, sizes, _LOCAL_MEMBER):
        return False
    centers = value.get("param_center")
    return isinstance(centers, np.ndarray) and centers.dtype.kind == "U" and centers.shape == (sizes["c"],)


def _is_reg_search(value: Any) -> bool:
    if not isinstance(value, dict) or not {"family", "factor", "mean_test_score"} <= set(value):
        return False
    columns = value.values()
    if not all(isinstance(column, np.ndarray) and column.dtype.kind in "fU" and column.ndim == 1 for column in columns):
        return False
    return all(isinstance(name, str) for name in value) and len({len(column) for column in columns}) == 1


_MIXTURE: Fields = {
    "centres": floats("n", "d", least=-LARGEST, most=LARGEST, filled=True),
    "log_weights": floats("n", finite=False, most=1e-6),
    "engine": field(*ENGINE),
    "feature_names": field(None, names("d")),
}

_SHARED_MIXTURE = record("SharedMixture", centres=("n", "a"))

# The values of constant columns, NaN in those that vary; the mixture is that of the latter.
_ACTIVE: Fields = {"constants": private("_constants", equal("a", "d"), nans("d", "a"))}

_REG_SEARCH = Kind("the table of a search for a penalty", _is_reg_search)

# A metric that was saved without its training rows.
_MIXTURE_OF_METRIC = field(_SHARED_MIXTURE, record("RowsLeftOut"))

# The fields of a fit to rows with missing values.
_INCOMPLETE_ROWS: Fields = {"incomplete_rows": maybe(floats("n", "d", nan=True), attribute="_incomplete_rows")}

_OF_GAPS: Fields = {
    "left_out_scores": maybe(floats("n", finite=False), attribute="_left_out_scores"),
    **_INCOMPLETE_ROWS,
}

_LOCAL_MEMBER = mapping(
    shared=number(least=0),
    noise=number(least=0),
    n_neighbors=count(least=1),
    n_components=count(),
    center=one_of("row", "mean"),
)

_BEST_PARAMS = mapping(n_components=count(), n_neighbors=count(least=1), noise=number(above=0))


DENSITY_STATES: dict[str, State] = {
    "DensityClassifier": State(
        {
            **ROWS,
            "classes_": labels("c"),
            "priors_": floats("c", least=0),
            "densities_": estimators("c", method="score_samples"),
            "constant_variances_": floats("c", "d", least=0),
        },
    ),
    "DensityImputer": State(
        {
            **ROWS,
            "density_": estimator("LCA", "LCAGauss", "ParzenWindows"),
            "mean_": floats("d"),
            "scale_": floats("d", above=0),
            "draw_scale_": maybe(number(above=0)),  # earlier files have none
        },
    ),
    "DensityOutlierDetector": State(
        {
            **ROWS,
            "density_": estimator(method="score_samples"),
            "training_scores_": floats("n", finite=False),
            "training_p_values_": floats("n", least=0),
            "sorted_scores": private("_sorted_scores", floats("complete", finite=False)),
            "cumulated_weights": private("_cumulated", floats("complete", least=0)),
            "gaps": private("_gaps", None, integers("n", "used", below=2)),
            "offset_": number(),
            "reference": private("_reference", None, integers("m", below="n")),
            "group": private("_group", number(least=0, most=0.5)),
            "spreads": private("_score_scales", None, floats(2, 2)),
            "constants": private("_constants", floats("d", nan=True)),
            "fingerprint": private("_fingerprint", None, DIGEST),
        },
    ),
    "FrameMixture": State(
        {
            **_MIXTURE,
            "frames": floats("q", "n", "d", least=-1.001, most=1.001),  # q directions per row, of length one
            "variances": floats("q", "n", least=0),
            "noise": number(above=0),
        },
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
            "penalty": private("_reg_form", None, record("LCA.penalty")),
            "stream": private("_stream", None, mapping(local=floats("a", "a"), seed=count())),
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
            "rows_": maybe(floats("n", "a", least=-LARGEST, most=LARGEST)),  # earlier files have none
            "effective_neighbors_": floats("e", least=0),  # those of some of the rows, if the fit drew them from a file
            "solver_": maybe(one_of("em", "stochastic")),  # earlier files have none
            **_OF_GAPS,
        },
    ),
    "LocalFrameMixture": State(
        {
            **_MIXTURE,
            "covariance": floats("d", "d"),
            "frames": floats("q", "n", "d", least=-1.001, most=1.001),  # q directions per row, of length one
            "variances": floats("q", "n", least=0),
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
                record("LocalFrameMixture", centres=("n", "a")),
                _SHARED_MIXTURE,
            ),
            "n_components_": count(),
            "n_neighbors_": count(least=1),
            "noise_": number(least=0),
            "shared_": number(least=0),
            "center_": one_of("row", "mean"),
            "cv_results_": maybe(
                None, Kind("cv_results_ of c members, as in GridSearchCV", _is_local_results, sized=True)
            ),
            "best_score_": maybe(None, number(finite=False)),
            "rows_": floats("n", "a", least=-LARGEST, most=LARGEST),
            "sample_weight": private("_weight", None, floats("n", least=0)),
            "neighbors": private("_neighbors", None, integers("n", "k", below="n")),
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
            "n_neighbors_used": private("n_neighbors_", count(least=1)),
            "cv_results_": maybe(
                None, Kind("cv_results_ of c combinations, as in GridSearchCV", _is_cv_results, sized=True)
            ),
            "best_score_": maybe(None, number(finite=False)),
            "sample_weight": private("_weight", None, floats("n", least=0)),
            # One more than n_neighbors_used, if there are enough rows.
            "neighbors": private("_neighbors", None, integers("n", "k", below="n")),
            "soft_rows": private("_soft_rows", None, floats("n", "q")),
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
