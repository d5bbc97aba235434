"""Tables 3 and 4: classifying USPS digits.

A density for each class and Bayes' rule, with ordinary and with Manifold Parzen windows, against a support vector
machine with a Gaussian kernel (sec. 4.3). 6,291 digits train (blurred as for the LCA paper's Fig. 4), the last 1,000 of the
training file choose the parameters, by their error for Table 3 and by their conditional log-likelihood for Table 4; 2,007 test. The
grid of Manifold Parzen windows goes to 280 neighbours and 32 directions.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.model_selection import PredefinedSplit
from sklearn.svm import SVC

from papers.drawing import bars, curve, panels
from papers.experiment import Claim, Records, Setting, Summary, Table, at_the_end
from papers.manifold_parzen._digits import STAND_IN, ten_digits
from vicinal import DensityClassifier, ManifoldParzen, Selection

if TYPE_CHECKING:
    from matplotlib.figure import Figure


TITLE = "Tables 3 and 4: classifying digits"
COVERS = ("table 3", "table 4")
ORDER = 3
NEEDS = ("usps",)
MINUTES = (0.3, 15)

_ERROR, _ANCLL = "error", "conditional_log_likelihood"
_KEYS = {_ERROR: "error", _ANCLL: "ancll"}
# (validation, test), in per cent for Table 3
_PAPER = {
    ("SVM", _ERROR): (1.2, 4.68),
    ("Parzen", _ERROR): (1.8, 5.08),
    ("MParzen", _ERROR): (0.9, 4.08),
    ("Parzen", _ANCLL): (0.1022, 0.3478),
    ("MParzen", _ANCLL): (0.0658, 0.3384),
}
_PUBLISHED = {"n_neighbors": 11, "n_components": 11, "noise": 0.1}  # Table 3's MParzen
_WIDTH_ONE = 1.0
_NOISES = np.geomspace(0.0025, 4.0, 28).tolist()


def _neighbors(setting: Setting) -> tuple[int, ...]:
    return (280, 200, 140, 100, 70, 50, 35, 25, 17, 11, 7) if setting.full else (6, 9, 12, 18, 27, 40)


def _directions(setting: Setting, n_neighbors: int) -> list[int]:
    tried = (3, 5, 8, 11, 16, 22, 32) if setting.full else (1, 2, 4, 6, 9)
    return [d for d in tried if d <= n_neighbors]


def units(setting: Setting) -> list[dict[str, Any]]:
    models = ("SVM", "Parzen", "Parzen of width one", "MParzen, published parameters")
    each = [{"model": "MParzen", "n_neighbors": k} for k in _neighbors(setting)]
    return [*each, *({"model": model, "n_neighbors": 0} for model in models)]


def measure(setting: Setting, model: str, n_neighbors: int) -> dict[str, Any]:
    """Measure the parameters that the validation rows choose (for MParzen: for a given k), and the scores, by criterion."""
    parts = ten_digits(setting)
    (train, y), (valid, v), _ = parts
    if model == "SVM":
        best = _best_svm(setting, train, y, valid, v)
        return {_ERROR: _found(best, parts, {"C": best.C, "gamma": best.gamma})}
    fixed = {
        "Parzen of width one": {"n_neighbors": 1, "n_components": 0, "noise": _WIDTH_ONE**2},
        "MParzen, published parameters": _PUBLISHED,
    }
    if model in fixed:
        return {_ERROR: _fitted(fixed[model], parts)}
    grid = {"n_neighbors": [max(n_neighbors, 1)], "n_components": [0], "noise": _NOISES}
    if model == "MParzen":
        grid["n_components"] = _directions(setting, n_neighbors)
    split = PredefinedSplit(np.repeat([-1, 0], [len(train), len(valid)]))
    both = np.concatenate([train, valid]), np.concatenate([y, v])
    found = {}
    for criterion in (_ERROR, _ANCLL):
        selection = Selection(criterion, cv=split, max_rows=None, **grid)
        selected = ManifoldParzen(selection=selection).selected(*both)
        found[criterion] = _fitted({name: getattr(selected, name) for name in grid}, parts)
    return found


def _fitted(chosen: dict[str, Any], parts: list[tuple[np.ndarray, np.ndarray]]) -> dict[str, dict[str, Any]]:
    return _found(DensityClassifier(ManifoldParzen(**chosen)).fit(*parts[0]), parts, chosen)


def _found(model: Any, parts: list[tuple[np.ndarray, np.ndarray]], chosen: dict[str, Any]) -> dict[str, dict[str, Any]]:
    scores = {name: _scores(model, *part) for name, part in zip(("valid", "test"), parts[1:], strict=True)}
    return {**scores, "chosen": {name: float(value) for name, value in chosen.items()}}


def _svm_grid(setting: Setting) -> tuple[tuple[float, ...], tuple[float, ...]]:
    return (1.0, 3.0, 10.0, 30.0), (0.005, 0.01, 0.02, 0.03, 0.05) if setting.full else (0.01, 0.03, 0.1)


def _best_svm(setting: Setting, train: np.ndarray, y: np.ndarray, valid: np.ndarray, v: np.ndarray) -> Any:
    boxes, gammas = _svm_grid(setting)
    models = [SVC(C=C, gamma=gamma).fit(train, y) for C in boxes for gamma in gammas]
    return max(models, key=lambda model: model.score(valid, v))


def _scores(model: Any, X: np.ndarray, y: np.ndarray) -> dict[str, float]:
    found = {"error": 100 * (1 - float(model.score(X, y)))}
    if isinstance(model, DensityClassifier):
        log_proba = model.predict_log_proba(X)[np.arange(len(y)), np.searchsorted(model.classes_, y)]
        found["ancll"] = -float(log_proba.mean())
    return found


def _chosen(setting: Setting, records: Records) -> dict[tuple[Any, ...], dict[str, dict[str, Any]]]:
    """Return what the validation rows choose over all k, by (model, criterion)."""
    found = {(r["model"], c): r[c] for r in records for c in (_ERROR, _ANCLL) if c in r and r["model"] != "MParzen"}
    by_k = setting.part(sorted((r for r in records if r["model"] == "MParzen"), key=lambda r: r["n_neighbors"]))
    for criterion, key in _KEYS.items():
        # On equal errors the fewest neighbours.
        found["MParzen", criterion] = min((r[criterion] for r in by_k), key=lambda one: one["valid"][key])
    return found


def summarise(setting: Setting, records: Records) -> Summary:
    found = _chosen(setting, records)
    rows: dict[str, list] = {_ERROR: [], _ANCLL: []}
    for model, criterion in (*_PAPER, ("MParzen, published parameters", _ERROR)):
        record = found[model, criterion]
        paper = _PAPER.get((model, criterion), _PAPER["MParzen", _ERROR])
        text = "{:.2f}" if criterion == _ERROR else "{:.4f}"
        ours = [text.format(record[part][_KEYS[criterion]]) for part in ("valid", "test")]
        rows[criterion].append([model, *paper, *ours, _parameters(record["chosen"])])
    columns = ["model", "paper: validation", "paper: test", "here: validation", "here: test", "here: parameters"]
    stand_in = "" if setting.full else f" {STAND_IN}"
    tables = [
        Table(columns, rows[_ERROR], f"Table 3: error in per cent, parameters by the validation error.{stand_in}"),
        Table(columns, rows[_ANCLL], f"Table 4: ANCLL, parameters by the validation ANCLL.{stand_in}"),
        _by_neighbors(records),
    ]
    return Summary(tables, _claims(setting, found, records), _remarks(setting, found, records))


def _by_neighbors(records: Records) -> Table:
    own = sorted((r for r in records if r["model"] == "MParzen"), key=lambda r: r["n_neighbors"])
    rows = [
        [
            r["n_neighbors"],
            *(f"{r[_ERROR][part]['error']:.2f}" for part in ("valid", "test")),
            _parameters(r[_ERROR]["chosen"]).partition(", ")[2],
            *(f"{r[_ANCLL][part]['ancll']:.4f}" for part in ("valid", "test")),
            _parameters(r[_ANCLL]["chosen"]).partition(", ")[2],
        ]
        for r in own
    ]
    columns = [
        "k",
        "error: validation",
        "error: test",
        "d and noise",
        "ANCLL: validation",
        "ANCLL: test",
        "d and noise",
    ]
    return Table(columns, rows, "MParzen by the number of neighbours, d and noise by the validation rows:")


def _parameters(chosen: dict[str, Any]) -> str:
    if "C" in chosen:
        return f"C={chosen['C']:g}, gamma={chosen['gamma']:g}"
    if chosen["n_components"] == 0:
        return f"width {np.sqrt(chosen['noise']):.3f}"
    return f"k={chosen['n_neighbors']:.0f}, d={chosen['n_components']:.0f}, noise variance {chosen['noise']:.3g}"


def _claims(setting: Setting, found: dict[tuple[Any, ...], dict[str, dict[str, Any]]], records: Records) -> list[Claim]:
    error = {model: found[model, _ERROR]["test"]["error"] for model in ("SVM", "Parzen", "MParzen")}
    ancll = {
        part: {model: found[model, _ANCLL][part]["ancll"] for model in ("Parzen", "MParzen")}
        for part in ("valid", "test")
    }
    ends = {c: _at_the_ends(setting, found["MParzen", c]["chosen"]) for c in _KEYS}
    claims = [
        Claim(
            "MParzen errs less than Parzen (by 0.3% at least)",
            error["Parzen"] - error["MParzen"] > 0.3,
            f"{error['MParzen']:.2f}% against {error['Parzen']:.2f}%{ends[_ERROR]}",
        ),
        Claim(
            "MParzen errs no more than an SVM",
            error["MParzen"] <= error["SVM"],
            f"{error['MParzen']:.2f}% against {error['SVM']:.2f}%",
        ),
        Claim(
            "MParzen has the lower ANCLL on the validation rows (by 0.005 at least)",
            ancll["valid"]["Parzen"] - ancll["valid"]["MParzen"] > 0.005,
            f"{ancll['valid']['MParzen']:.4f} against {ancll['valid']['Parzen']:.4f}{ends[_ANCLL]}",
        ),
        Claim(
            "MParzen has the lower ANCLL on the test rows",
            ancll["test"]["MParzen"] < ancll["test"]["Parzen"],
            f"{ancll['test']['MParzen']:.4f} against {ancll['test']['Parzen']:.4f}",
        ),
    ]
    return claims + (_claims_of_numbers(found, records, error, ancll["test"]) if setting.full else [])


def _at_the_ends(setting: Setting, chosen: dict[str, Any]) -> str:
    k, d = int(chosen["n_neighbors"]), int(chosen["n_components"])
    texts = {"k": at_the_end(_neighbors(setting), k), "d": at_the_end(_directions(setting, k), d)}
    texts["noise"] = at_the_end(_NOISES, chosen["noise"])
    found = "; ".join(f"its {name}{text}" for name, text in texts.items() if text)
    return f"; {found}" if found else ""


_CLOSE = 0.005  # nats of the best on the validation rows


def _close(records: Records) -> list[dict[str, dict[str, Any]]]:
    """Return the records of MParzen, one per k, whose validation ANCLL is close to the best."""
    own = [r[_ANCLL] for r in records if r["model"] == "MParzen"]
    best = min(one["valid"]["ancll"] for one in own)
    return [one for one in own if one["valid"]["ancll"] < best + _CLOSE]


def _claims_of_numbers(
    found: dict[tuple[Any, ...], dict[str, dict[str, Any]]],
    records: Records,
    error: dict[str, float],
    ancll: dict[str, float],
) -> list[Claim]:
    """Return what only USPS can show."""
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
    ]  # fmt: skip


def _remarks(setting: Setting, found: dict[tuple[Any, ...], dict[str, dict[str, Any]]], records: Records) -> list[str]:
    if not setting.full:
        return []
    tests = [close["test"]["ancll"] for close in _close(records)]
    narrow = found["Parzen of width one", _ERROR]
    wide = found["Parzen", _ANCLL]
    paper = _PAPER["Parzen", _ANCLL]
    boxes, gammas = _svm_grid(setting)
    svm = found["SVM", _ERROR]["chosen"]
    ends = {
        "the SVM's box": at_the_end(boxes, svm["C"]),
        "the SVM's gamma": at_the_end(gammas, svm["gamma"]),
        "Parzen's width by the error": at_the_end(_NOISES, found["Parzen", _ERROR]["chosen"]["noise"]),
        "Parzen's width by the ANCLL": at_the_end(_NOISES, wide["chosen"]["noise"]),
    }
    reached = [f"{name}{text}" for name, text in ends.items() if text]
    return [
        "The validation rows, which come from the training file, hardly distinguish settings of MParzen: those "
        f"within {_CLOSE} nats of the best have from {min(tests):.4f} to {max(tests):.4f} on the test rows.",
        f"For Parzen windows the ANCLL is better than published because the grid goes to wider kernels here: windows of width one have "
        f"{narrow['valid']['ancll']:.4f} on the validation and {narrow['test']['ancll']:.4f} on the test rows; the paper has {paper[0]} and {paper[1]}.",
        "Chosen at the end of a grid: "
        + ("; ".join(reached) if reached else "none of the SVM's and Parzen's parameters")
        + ".",
    ]


def draw(setting: Setting, records: Records) -> "dict[str, Figure]":
    found = _chosen(setting, records)
    figure, axes = panels(1, 3, size=(5.0, 4.6))
    for ax, criterion in zip(axes[0], (_ERROR, _ANCLL), strict=False):
        models = [model for model, c in _PAPER if c == criterion]
        series, values = ["here"], [[found[model, criterion]["test"][_KEYS[criterion]] for model in models]]
        if setting.full:
            series, values = ["paper", "here"], [[_PAPER[model, criterion][1] for model in models], *values]
        bars(ax, models, series, values)
    own = sorted((r for r in records if r["model"] == "MParzen"), key=lambda r: r["n_neighbors"])
    k = [r["n_neighbors"] for r in own]
    for number, part in enumerate(("valid", "test")):
        name = "validation" if part == "valid" else part
        curve(axes[0, 2], number, k, [r[_ANCLL][part]["ancll"] for r in own], label=f"MParzen, {name} rows")
        parzen = found["Parzen", _ANCLL][part]["ancll"]
        axes[0, 2].axhline(parzen, color="0.4", linestyle=("-", ":")[number], label=f"Parzen, {name} rows")
    axes[0, 0].set(title="Table 3", ylabel="test error (%)")
    axes[0, 1].set(title="Table 4", ylabel="test ANCLL (nats)")
    axes[0, 2].set(title="Table 4 by neighbours", xlabel="k", ylabel="ANCLL (nats)", xscale="log")
    axes[0, 2].set_xticks(k[::2], map(str, k[::2]))
    axes[0, 2].minorticks_off()
    axes[0, 2].legend(fontsize=10, loc="center right")
    if setting.full:
        axes[0, 0].margins(y=0.2)
        axes[0, 0].legend(loc="upper right")
    return {"tables-3-4": figure}
