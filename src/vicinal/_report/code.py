"""The Python code that reproduces a report's figures."""

from vicinal._compare.methods import FALLBACK_REG, N_GROUPS, PLS_DIRECTIONS

_METRIC_STEPS = {
    "euclidean": ([], []),
    "z-scored": (["StandardScaler()"], []),
    "pca-whitened": (["StandardScaler()", "PCA(whiten=True)"], ["from sklearn.decomposition import PCA"]),
    "lda": (
        ["LinearDiscriminantAnalysis()"],
        ["from sklearn.discriminant_analysis import LinearDiscriminantAnalysis"],
    ),
    "pls": (["PLSRegression({directions})"], ["from sklearn.cross_decomposition import PLSRegression"]),
    "rca": (["StandardScaler()", "vicinal.RCA()"], []),
    "lca": (["StandardScaler()", "vicinal.LCA({reg})"], []),
    "lca-gauss": (["StandardScaler()", "vicinal.LCAGauss({both})"], []),
    "nca": (["StandardScaler()", "vicinal.NCA({match}random_state={seed})"], []),
}
_DENSITY_STEPS = {
    "lca": "vicinal.LCA({reg})",
    "lca-gauss": "vicinal.LCAGauss({both})",
    "manifold-parzen": "vicinal.ManifoldParzen(n_components=min(X.shape[1], 3))",
}


def reproducing_code(comparison, loading, has_labels):
    """A script that prints the verdict again, and makes the best metric and density ready for use."""
    settings = dict(comparison.settings)
    if not has_labels:
        settings.pop("metrics")
    arguments = "".join(f"    {name}={value!r},\n" for name, value in settings.items())
    lines = [
        "import vicinal",
        "from sklearn.pipeline import make_pipeline",
        "from sklearn.preprocessing import StandardScaler",
        "",
        loading or ("# X: the table of features, y: the target" if has_labels else "# X: the table of features"),
        "",
        "# the figures of this report",
        f"comparison = vicinal.compare(\n    X,\n{'    y,' + chr(10) if has_labels else ''}{arguments})",
        "print(comparison)",
    ]
    best = comparison.best["metric"]
    if best in _METRIC_STEPS:
        steps, imports = _METRIC_STEPS[best]
        numbers = comparison.task == "numbers"
        kind, name = ("KNeighborsRegressor", "regressor") if numbers else ("KNeighborsClassifier", "classifier")
        lines[1:1] = [f"from sklearn.neighbors import {kind}", *imports]
        blanks = _blanks(comparison.result("metric", best), settings)
        inside = ", ".join([*steps, f"{kind}({comparison.n_neighbors})"]).format(**blanks)
        lines += ["", f"# the best learned metric, {best}, in a {name}"]
        if numbers and best == "rca":  # RCA learns from groups: the numbers are cut into ranges of equal size
            lines.insert(1, "import numpy as np")
            lines += [
                f"ranges = np.digitize(y, np.unique(np.quantile(y, np.arange(1, {N_GROUPS}) / {N_GROUPS})))",
                "metric = make_pipeline(StandardScaler(), vicinal.RCA()).fit(X, ranges)",
                f"{name} = {kind}({comparison.n_neighbors}).fit(metric.transform(X), y)  # predict(metric.transform(new rows))",
            ]
        else:
            lines.append(f"{name} = make_pipeline({inside}).fit(X, y)")
    density = comparison.best["density"]
    if density in _DENSITY_STEPS:
        fitted = _DENSITY_STEPS[density].format(**_blanks(comparison.result("density", density), settings))
        lines += [
            "",
            f"# the best learned density, {density}, for new rows",
            f"density = make_pipeline(StandardScaler(), {fitted}).fit(X)",
        ]
    return "\n".join(lines) + "\n"


def _blanks(result, settings):
    """What the comparison filled into an estimator's call."""
    reg = f"reg={FALLBACK_REG}" if result.penalised else ""
    both = f"{reg}, reg_gauss={FALLBACK_REG}" if result.penalised else ""
    match = 'match="gaussian", ' if settings.get("task") == "numbers" else ""
    return {
        "seed": settings["random_state"],
        "reg": reg,
        "both": both,
        "match": match,
        "directions": f"min(X.shape[1], {PLS_DIRECTIONS})",
    }
