"""Tables 3 and 4: classifying USPS digits.

A density for each class and Bayes' rule, with ordinary and with Manifold Parzen windows, against a support vector
machine with a Gaussian kernel (sec. 4.3). 6,291 digits train (blurred as for the LCA paper's Fig. 4), the last 1,000 of the
training file choose the parameters, by their error for Table 3 and by their conditional log-likelihood for Table 4; 2,007 test.
"""

import numpy as np
from sklearn.model_selection import PredefinedSplit
from sklearn.svm import SVC

from vicinal import DensityClassifier, ManifoldParzen, Selection
from vicinal.papers._drawing import bars, panels
from vicinal.papers._experiment import Claim, Summary, Table
from vicinal.papers.manifold_parzen._digits import STAND_IN, ten_digits

TITLE = "Tables 3 and 4: classifying digits"
COVERS = ("table 3", "table 4")
ORDER = 3
MINUTES = (0.2, 1.2)
NEEDS = ("usps",)

_ERROR, _ANCLL = "error", "conditional_log_likelihood"
# (validation, test), in per cent for Table 3
_PAPER = {
    ("SVM", _ERROR): (1.2, 4.68),
    ("Parzen", _ERROR): (1.8, 5.08),
    ("MParzen", _ERROR): (0.9, 4.08),
    ("Parzen", _ANCLL): (0.1022, 0.3478),
    ("MParzen", _ANCLL): (0.0658, 0.3384),
}
_PUBLISHED = {"n_neighbors": 11, "n_components": 11, "noise": 0.1}  # Table 3's MParzen


def units(setting):
    models = [{"model": model, "criterion": criterion} for model, criterion in _PAPER]
    return [*models, {"model": "MParzen, published parameters", "criterion": _ERROR}]


def measure(setting, model, criterion):
    (train, y), (valid, v), (test, labels) = ten_digits(setting)
    if model == "SVM":
        best = _best_svm(setting, train, y, valid, v)
        chosen = {"C": best.C, "gamma": best.gamma}
    else:
        if model == "MParzen, published parameters":
            chosen = _PUBLISHED
        else:
            grid = _grid(setting) if model == "MParzen" else {**_grid(setting), "n_neighbors": [1], "n_components": [0]}
            split = PredefinedSplit(np.repeat([-1, 0], [len(train), len(valid)]))
            both = np.concatenate([train, valid]), np.concatenate([y, v])
            selection = Selection(criterion, cv=split, max_rows=None, **grid)
            selected = ManifoldParzen(selection=selection).selected(*both)
            chosen = {name: getattr(selected, name) for name in grid}
        best = DensityClassifier(ManifoldParzen(**chosen)).fit(train, y)
    parts = {"valid": (valid, v), "test": (test, labels)}
    found = {name: _scores(best, X, c) for name, (X, c) in parts.items()}
    return {**found, "chosen": {name: float(value) for name, value in chosen.items()}}


def _grid(setting):
    noises = np.geomspace(0.02, 3.0, 24).tolist()
    if setting.full:
        return {"n_neighbors": [11, 17, 25, 35], "n_components": [5, 8, 11], "noise": noises}
    return {"n_neighbors": [6, 9, 12, 18], "n_components": [2, 4, 6], "noise": noises}


def _best_svm(setting, train, y, valid, v):
    gammas = (0.005, 0.01, 0.02) if setting.full else (0.01, 0.03, 0.1)
    models = [SVC(C=C, gamma=gamma).fit(train, y) for C in (3.0, 30.0) for gamma in gammas]
    return max(models, key=lambda model: model.score(valid, v))


def _scores(model, X, y):
    found = {"error": 100 * (1 - float(model.score(X, y)))}
    if isinstance(model, DensityClassifier):
        log_proba = model.predict_log_proba(X)[np.arange(len(y)), np.searchsorted(model.classes_, y)]
        found["ancll"] = -float(log_proba.mean())
    return found


def summarise(setting, records):
    found = {(record["model"], record["criterion"]): record for record in records}
    rows: dict[str, list] = {_ERROR: [], _ANCLL: []}
    for (model, criterion), record in found.items():
        paper = _PAPER.get((model, criterion), _PAPER["MParzen", _ERROR])
        ours = [record[part]["error" if criterion == _ERROR else "ancll"] for part in ("valid", "test")]
        text = "{:.2f}" if criterion == _ERROR else "{:.4f}"
        rows[criterion].append([model, *paper, *map(text.format, ours), _parameters(record["chosen"])])
    columns = ["model", "paper: validation", "paper: test", "here: validation", "here: test", "here: parameters"]
    stand_in = "" if setting.full else f" {STAND_IN}"
    tables = [
        Table(columns, rows[_ERROR], f"Table 3: error in per cent, parameters by the validation error.{stand_in}"),
        Table(columns, rows[_ANCLL], f"Table 4: ANCLL, parameters by the validation ANCLL.{stand_in}"),
    ]
    return Summary(tables, _claims(setting, found), _remarks(setting, found))


def _parameters(chosen):
    if "C" in chosen:
        return f"C={chosen['C']:g}, gamma={chosen['gamma']:g}"
    if chosen["n_components"] == 0:
        return f"width {np.sqrt(chosen['noise']):.3f}"
    return f"k={chosen['n_neighbors']:.0f}, d={chosen['n_components']:.0f}, noise variance {chosen['noise']:.3g}"


def _claims(setting, found):
    error = {model: found[model, _ERROR]["test"]["error"] for model in ("SVM", "Parzen", "MParzen")}
    ancll = {
        part: {model: found[model, _ANCLL][part]["ancll"] for model in ("Parzen", "MParzen")}
        for part in ("valid", "test")
    }
    claims = [
        Claim(
            "MParzen errs less than Parzen (by 0.3% at least)",
            error["Parzen"] - error["MParzen"] > 0.3,
            f"{error['MParzen']:.2f}% against {error['Parzen']:.2f}%",
        ),
        Claim(
            "MParzen errs no more than an SVM",
            error["MParzen"] <= error["SVM"],
            f"{error['MParzen']:.2f}% against {error['SVM']:.2f}%",
        ),
        Claim(
            "MParzen has the lower ANCLL on the validation rows (by 0.005 at least)",
            ancll["valid"]["Parzen"] - ancll["valid"]["MParzen"] > 0.005,
            f"{ancll['valid']['MParzen']:.4f} against {ancll['valid']['Parzen']:.4f}",
        ),
        Claim(
            "MParzen has the lower ANCLL on the test rows",
            ancll["test"]["MParzen"] < ancll["test"]["Parzen"],
            f"{ancll['test']['MParzen']:.4f} against {ancll['test']['Parzen']:.4f}",
            departs="It depends on how wide the windows may be, and on small differences in validation. On USPS the grid here lets Parzen "
            "windows be wider than 1, which validation and test rows both prefer; at width 1 they have 0.3503 on the test rows, "
            "and MParzen is ahead. And the validation rows hardly tell settings of MParzen apart: k=25, d=8 with noise variance 1 has "
            "0.0612 on them and 0.2843 on the test rows, ahead of Parzen; the one chosen has 0.0610 and 0.3177.",
        ),
    ]
    return claims + (_claims_of_numbers(found, error, ancll["test"]) if setting.full else [])


def _claims_of_numbers(found, error, ancll):
    """What only USPS can show."""
    published = found["MParzen, published parameters", _ERROR]
    away = {model: error[model] - _PAPER[model, _ERROR][1] for model in error}
    return [
        Claim(
            "with the paper's parameters (k=11, d=11, noise variance 0.1) MParzen errs as published: 0.9% and 4.08% (within 0.05%)",
            abs(published["valid"]["error"] - 0.9) < 0.05 and abs(published["test"]["error"] - 4.08) < 0.05,
            f"{published['valid']['error']:.2f}% and {published['test']['error']:.2f}%",
        ),
        Claim(
            "the test errors are the paper's (within 0.3%; one standard error is 0.5%)",
            max(map(abs, away.values())) < 0.3,
            ", ".join(f"{model} {value:+.2f}%" for model, value in away.items()),
        ),
        Claim(
            "the test ANCLL is no worse than the paper's, 0.3478 (Parzen) and 0.3384 (MParzen)",
            ancll["Parzen"] < 0.3478 and ancll["MParzen"] < 0.3384,
            f"{ancll['Parzen']:.4f} and {ancll['MParzen']:.4f}",
        ),
    ]


def _remarks(setting, found):
    if not setting.full:
        return []
    return [
        "Both ANCLLs are better than published. For Parzen the reason is the grid, which goes to wider kernels here: windows of "
        "width 1 have 0.1022 on the validation and 0.3503 on the test rows; the paper has 0.1022 and 0.3478. MParzen's parameters in "
        "Table 4 are not known; at its k=11 and d=11 of Table 3 a noise variance of 0.6 has 0.0748 and 0.4234: more neighbours help, and the "
        "most that were tried (k=35) are chosen here.",
        "Parameters chosen by the error lie at the end of their grid, and nothing is behind it: an SVM with gamma 0.03 errs more (1.5% and "
        "4.8%), Parzen with a quarter of the noise variance and MParzen with half of it err the same.",
    ]


def draw(setting, records):
    found = {(record["model"], record["criterion"]): record for record in records}
    figure, axes = panels(1, 2, size=(5.4, 4.6))
    for ax, criterion, key in ((axes[0, 0], _ERROR, "error"), (axes[0, 1], _ANCLL, "ancll")):
        models = [model for model, c in _PAPER if c == criterion]
        series, values = ["here"], [[found[model, criterion]["test"][key] for model in models]]
        if setting.full:
            series, values = ["paper", "here"], [[_PAPER[model, criterion][1] for model in models], *values]
        bars(ax, models, series, values)
    axes[0, 0].set(title="Table 3", ylabel="test error (%)")
    axes[0, 1].set(title="Table 4", ylabel="test ANCLL (nats)")
    if setting.full:
        axes[0, 0].margins(y=0.2)
        axes[0, 0].legend(loc="upper right")
    return {"tables-3-4": figure}
