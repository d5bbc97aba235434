"""Table 2: the density of images of a "2".

5,400 of MNIST's training images of a "2" (784 pixels in [0, 1]) train, the 558 others choose the parameters, the 1,032 test
images test (sec. 4.2). Ordinary Parzen windows have a width; Manifold Parzen windows have k neighbours, d kept directions
and a noise.
"""

import numpy as np
from sklearn.model_selection import PredefinedSplit

from vicinal import ManifoldParzen, ParzenWindows, Selection
from vicinal.papers._drawing import curve, panels
from vicinal.papers._experiment import Claim, Summary, Table
from vicinal.papers.manifold_parzen._digits import STAND_IN, twos
from vicinal.quality import negative_log_likelihood

TITLE = 'Table 2: the density of images of a "2"'
COVERS = ("table 2",)
ORDER = 2
MINUTES = (0.2, 11.9)
NEEDS = ("mnist",)

# (mean, standard error) on validation and test rows
_PAPER = {"Parzen": ((-197.27, 4.18), (-197.19, 3.55)), "MParzen": ((-696.42, 5.94), (-695.15, 5.21))}


def _neighbors(setting):
    return (20, 50, 100) if setting.full else (4, 6, 10)


def units(setting):
    return [{"n_neighbors": 0}, *({"n_neighbors": k} for k in _neighbors(setting))]


def measure(setting, n_neighbors):
    """Parzen windows (no neighbours), or Manifold Parzen windows with the best d and noise for some k."""
    train, valid, test = twos(setting)
    noises = np.geomspace(0.002, 0.06, 12) if setting.full else np.geomspace(0.001, 0.1, 14)
    if n_neighbors == 0:
        model = max(
            (ParzenWindows(np.sqrt(noise)).fit(train) for noise in noises), key=lambda model: model.score(valid)
        )
        chosen = {"noise": float(np.asarray(model.bandwidth) ** 2)}
    else:
        split = PredefinedSplit(np.repeat([-1, 0], [len(train), len(valid)]))
        kept = [n_neighbors // 2, n_neighbors]
        selection = Selection(cv=split, n_components=kept, noise=noises.tolist(), max_rows=None)
        search = ManifoldParzen(n_neighbors=n_neighbors, selection=selection)
        model = search.selected(np.concatenate([train, valid])).fit(train)
        chosen = {name: float(getattr(model, name)) for name in ("n_components", "n_neighbors", "noise")}
    parts = {"valid": valid, "test": test}
    found = {name: list(map(float, negative_log_likelihood(model.score_samples(X)))) for name, X in parts.items()}
    return {**found, "chosen": chosen}


def summarise(setting, records):
    plain, *manifold = records
    best = min(manifold, key=lambda record: record["valid"][0])
    found = {"Parzen": plain, "MParzen": best}
    rows = [
        [
            name,
            *(f"{mean:.2f} ({error:.2f})" for mean, error in _PAPER[name]),
            *("{:.2f} ({:.2f})".format(*record[part]) for part in ("valid", "test")),
            _parameters(record["chosen"]),
        ]
        for name, record in found.items()
    ]
    gain = plain["test"][0] - best["test"][0]
    error = float(np.hypot(plain["test"][1], best["test"][1]))
    claims = [
        Claim(
            "the improvement over Parzen windows is extremely large and significant (ten standard errors and more)"
            if setting.full
            else "Manifold Parzen windows improve on Parzen windows (by 5 nats at least)",
            gain > (10 * error if setting.full else 5),
            f"{gain:.1f} nats a picture, standard error {error:.1f}",
        )
    ]
    if setting.full:
        claims += [_same_number(name, record) for name, record in found.items()]
    caption = "Average negative log-likelihood (standard errors in brackets)." + (
        "" if setting.full else f" {STAND_IN}"
    )
    columns = ["model", "paper: validation", "paper: test", "here: validation", "here: test", "here: parameters"]
    return Summary([Table(columns, rows, caption)], claims, _remarks(setting, manifold))


def _parameters(chosen):
    if "n_neighbors" not in chosen:
        return f"width {np.sqrt(chosen['noise']):.3f}"
    return f"k={chosen['n_neighbors']:.0f}, d={chosen['n_components']:.0f}, noise variance {chosen['noise']:.4f}"


def _same_number(name, record):
    """Whether the paper's number comes out; a better one is told as such."""
    paper, error = _PAPER[name][1]
    ours = record["test"][0]
    return Claim(
        f"{name} has the paper's number on the test rows (within two standard errors)",
        abs(ours - paper) < 2 * error,
        f"{ours:.2f} against {paper:.2f} ({error:.2f})",
        departs=f"It is {paper - ours:.0f} nats better here; see the remark on its parameters." if ours < paper else "",
    )


def _remarks(setting, manifold):
    each = "; ".join(f"{_parameters(r['chosen'])}: {r['test'][0]:.1f}" for r in manifold)
    remarks = [f"Test ANLL with the best d and noise for each k: {each}."]
    if setting.full:
        remarks.append(
            "The paper's parameters are not known. Its number for MParzen lies between ours for k=50 and for k=100, and the likelihood "
            "still grows at the largest k tried: that the paper stopped at fewer neighbours and directions would explain it, but is a "
            "guess. That the gain over Parzen windows is extremely large does not depend on it."
        )
    return remarks


def draw(setting, records):
    plain, *manifold = records
    figure, axes = panels(1, 1, size=(6.4, 4.4))
    k = [record["n_neighbors"] for record in manifold]
    for number, part in enumerate(("valid", "test")):
        values, errors = zip(*(record[part] for record in manifold), strict=True)
        curve(axes[0, 0], number, k, values, errors, label=f"MParzen, {'validation' if part == 'valid' else part} rows")
    axes[0, 0].axhline(plain["test"][0], color="black", linewidth=1, label="Parzen, test rows")
    if setting.full:
        axes[0, 0].axhline(
            _PAPER["MParzen"][1][0], color="0.4", linewidth=1.5, linestyle=":", label="paper's MParzen, test rows"
        )
    axes[0, 0].set(xlabel="k, neighbours of a row", ylabel="negative log-likelihood (nats)")
    axes[0, 0].margins(y=0.15)
    axes[0, 0].legend()
    return {"table-2": figure}
