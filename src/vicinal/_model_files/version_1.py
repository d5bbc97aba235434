"""Model files of format version 1, which held all attributes of an object under their Python names.

Their descriptions are converted to those of version 2, by the names of attributes and parameters in version 1.
These names never change, even if attributes and parameters are renamed.
"""

from typing import Any

from vicinal._model_files.version_1_parameters import renamed_parameters, searched_parameters

_FIELDS: dict[str, dict[str, str]] = {
    "ConstrainedKMeans": {"_kmeans": "kmeans"},
    "DensityOutlierDetector": {"_sorted_scores": "sorted_scores", "_cumulated": "cumulated_weights"},
    "LCA": {"_stream": "stream"},
    "LCAGauss": {"_left_out_scores": "left_out_scores"},
    "ManifoldParzen": {
        "_k": "n_neighbors_used",
        "_weight": "sample_weight",
        "_neighbors": "neighbors",
        "_soft_rows": "soft_rows",
    },
    "NeuralNCA": {"_n_outputs": "n_outputs"},
    "OnlineRCA": {"_state": "state"},
    "RCA": {"_sums": "sums", "_inverse": "inverse_components"},
    "SharedMixture": {"_lower": "cholesky"},
    "SoftNeighborsClassifier": {"_log_weights": "log_weights", "_positions": "positions", "_codes": "codes"},
    "SoftNeighborsRegressor": {
        "_log_weights": "log_weights",
        "_positions": "positions",
        "_one_output": "one_output",
        "_mean": "target_mean",
        "_unit": "target_unit",
        "_targets": "targets",
    },
    "sklearn.KMeans": {
        "_tol": "tolerance",
        "_n_init": "n_init_used",
        "_algorithm": "algorithm_used",
        "_n_threads": "n_threads",
        "_n_features_out": "n_outputs",
    },
    "sklearn.LinearDiscriminantAnalysis": {"_max_components": "max_components", "_n_features_out": "n_outputs"},
    "sklearn.PCA": {"_fit_svd_solver": "solver_used"},
}
# Fields that were added later, with their values for a file of version 1.
_ADDED: dict[str, dict[str, None]] = {
    name: {"constants": None} for name in ("LCA", "LCAGauss", "LocalLCA", "ManifoldParzen", "ParzenWindows")
}
_ADDED["LocalLCA"] |= {"rows_": None, "sample_weight": None, "neighbors": None}
# Fields that are now computed from others.
_MADE: dict[str, tuple[str, ...]] = {"LocalLCA": ("local_covariances_",)}
_OF_EVERY_CLASS = {"_sklearn_output_config": "set_output"}


def as_version_2(tree: Any) -> Any:
    """Convert a description of version 1 to one of version 2, at any depth.

    The latter is overwritten.
    """
    if not isinstance(tree, (dict, list)):
        return tree
    for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
        tree[key] = as_version_2(value)
    if isinstance(tree, list):
        return tree
    if tree.get("class") == "ManifoldParzenCV" and isinstance(tree.get("attributes"), dict):
        return _searched(tree)
    name, kind = tree.get("class"), tree.get("is")
    part = {"estimator": "attributes", "record": "fields"}.get(kind) if isinstance(kind, str) else None
    if part == "attributes" and isinstance(name, str) and isinstance(tree.get("parameters"), dict):
        tree["parameters"] = renamed_parameters(name, tree["parameters"])
    if part is not None and isinstance(name, str) and isinstance(tree.get(part), dict):
        tree[part] = _renamed(tree[part], {**_OF_EVERY_CLASS, **_FIELDS.get(name, {})})
        for made in _MADE.get(name, ()):
            tree[part].pop(made, None)
        if "mixture_" in tree[part]:  # it is fitted
            tree[part] = {**_ADDED.get(name, {}), **tree[part]}
    return tree


def _searched(tree: dict[str, Any]) -> dict[str, Any]:
    """Return the present equivalent of a ManifoldParzenCV: its best estimator, or an unfitted ManifoldParzen with a selection."""
    best = tree["attributes"].get("best_estimator_")
    if isinstance(best, dict):
        return best
    return {**tree, "class": "ManifoldParzen", "parameters": searched_parameters(tree.get("parameters"))}


def _renamed(values: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    found = {names.get(name, name): value for name, value in values.items()}
    if len(found) < len(values):
        raise ValueError("an attribute is described twice.")
    return found
