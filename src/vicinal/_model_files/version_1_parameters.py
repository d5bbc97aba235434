"""The parameters of model files of version 1, under the names that they have now.

A file describes each parameter by a tree (a plain value, or a dict that describes one). Trees are moved, not read: the
reader checks the values under their new names.
"""

from collections.abc import Callable
from typing import Any

Trees = dict[str, Any]

_RENAMED: dict[str, dict[str, str]] = {
    "ConstrainedGaussianMixture": {"priors": "count_by"},
    "ConstrainedKMeans": {"tol": "center_tol"},
    "LCA": {"covariance": "covariance_type"},
    "LCAGauss": {"search": "reduce"},
    "MMC": {"tol": "gap_tol"},
    "ManifoldParzen": {"neighborhood": "vicinity", "search": "neighbor_search"},
    "ParzenMeanShift": {"tol": "step_tol"},
}


def renamed_parameters(class_name: str, trees: Trees) -> Trees:
    """Return the parameters of a class of version 1 under their present names."""
    names = _RENAMED.get(class_name, {})
    found = {names.get(name, name): tree for name, tree in trees.items()}
    if len(found) < len(trees):
        raise ValueError("a parameter is described twice.")
    return _REGROUPED.get(class_name, dict)(found)


def searched_parameters(trees: Any) -> Trees:
    """Return the parameters of the ManifoldParzen that replaces a ManifoldParzenCV."""
    if not isinstance(trees, dict):
        raise ValueError("values by name are missing.")
    grids = ("n_components", "n_neighbors", "noise")
    fields = {name: trees.get(name, "auto") for name in grids}
    fields |= {"criterion": trees.get("criterion", "log_likelihood"), "cv": trees.get("cv", 5), "max_rows": None}
    kept = {name: trees[name] for name in ("metric", "engine") if name in trees}
    kept["neighbor_search"] = trees.get("search", "exact")
    return {
        **kept,
        **dict.fromkeys(grids, "auto"),
        "selection": {"is": "record", "class": "Selection", "fields": fields},
    }


def _options(trees: Trees, record: str, defaults: Trees, names: dict[str, str] | None = None) -> Any:
    """Take options out of the parameters; return the tree of a record, or None if all have their defaults."""
    names = names or {}
    taken = {names.get(name, name): trees.pop(name, default) for name, default in defaults.items()}
    plain = {names.get(name, name): default for name, default in defaults.items()}
    return None if taken == plain else {"is": "record", "class": record, "fields": taken}


def _lca(trees: Trees) -> Trees:
    defaults = {"batch_size": 100, "neighborhood": None, "discount": 0.6}
    options = _options(trees, "StochasticEM", defaults, {"neighborhood": "n_candidates"})
    if options is not None and trees.get("solver") in ("auto", "stochastic"):
        trees["solver"] = options
    return trees


def _lca_gauss(trees: Trees) -> Trees:
    """Replace the limits that were defaults by None, because they depend on the solver now."""
    defaults = {"max_iter": 500, "tol": 1e-7}
    return {name: None if tree == defaults.get(name) else tree for name, tree in trees.items()}


def _local_lca(trees: Trees) -> Trees:
    """Drop the parameters of the free covariances of version 1, which no longer exist; a new fit chooses its kernels."""
    return {name: trees[name] for name in ("reg", "engine", "verbose") if name in trees}


def _detector(trees: Trees) -> Trees:
    """Set the parameters of detectors of version 1, which scored by the density alone."""
    return {**trees, "largest_group": None}


def _structure(trees: Trees) -> Trees:
    """Replace ``diagonal=True`` by ``structure="diag"``."""
    if "diagonal" in trees:
        diagonal = trees.pop("diagonal")
        # A Boolean of NumPy is described by its bits.
        is_true = diagonal is True or (isinstance(diagonal, dict) and diagonal.get("bits") == "01")
        trees["structure"] = "diag" if is_true else "full"
    return trees


def _objective(trees: Trees, kind: str) -> Trees:
    """Return the objective with its soft targets and its penalty."""
    kind = trees.get("objective", kind)
    defaults = {"match": "class", "match_scale": None, "reg": 0.0}
    options = _options(trees, "Objective", defaults, {"reg": "penalty"})
    if options is not None:
        options["fields"]["kind"] = kind
        trees["objective"] = options
    return trees


def _starts(trees: Trees) -> Trees:
    n_starts = trees.pop("n_init", 1)
    if n_starts != 1:
        fields = {"first": trees.get("init", "auto"), "n_starts": n_starts}
        trees["init"] = {"is": "record", "class": "MultiStart", "fields": fields}
    return trees


def _nca(trees: Trees) -> Trees:
    defaults = {"batch_size": None, "neighbors": None}
    options = _options(trees, "StochasticGradient", defaults, {"neighbors": "n_neighbors"})
    if options is not None:
        trees["solver"] = options
    return _starts(_objective(_structure(trees), "accuracy"))


def _pair_nca(trees: Trees) -> Trees:
    return _starts(_objective(_structure(trees), "pairs"))


def _neural_nca(trees: Trees) -> Trees:
    module, hidden = trees.pop("module", None), trees.pop("hidden", 100)
    trees["network"] = module if module is not None else (None if hidden == 100 else hidden)
    defaults = {
        "batch_size": 512,
        "learning_rate": 0.01,
        "reg": 0.0,
        "early_stopping": False,
        "validation_fraction": 0.1,
        "n_iter_no_change": 10,
    }
    trees["solver"] = _options(trees, "Adam", defaults, {"reg": "weight_decay"}) or "adam"
    return _objective(trees, "accuracy")


_REGROUPED: dict[str, Callable[[Trees], Trees]] = {
    "DensityOutlierDetector": _detector,
    "LCA": _lca,
    "LCAGauss": _lca_gauss,
    "LocalLCA": _local_lca,
    "MMC": _structure,
    "NCA": _nca,
    "NeuralNCA": _neural_nca,
    "PairNCA": _pair_nca,
}
