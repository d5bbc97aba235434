"""Section 6: classes of several parts.

RCA "is implicitly assuming a Gaussian distribution for each class", the method of Xing et al. "that classes form a single compact
connected set", so that "for highly multimodal class distributions this cost function will be severely penalized"; NCA makes no such
assumption. Three classes of {_ROWS} rows, each of one to eight round parts of unit spread, in the plane: all parts have random centres in a
square, at least {_APART} apart; {_NOISE} columns of noise with a standard deviation of {_SPREAD} hide the plane. One neighbour classifies as many new rows. RCA has the
classes as chunklets, the method of Xing et al. (`MMC`, solved to a proven gap) all pairs of a class and {_DIFFERENT:,} pairs of rows of two classes.
"""

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from papers.drawing import curve, mean_and_error, panels, plus_minus
from papers.experiment import Claim, Records, Setting, Summary, Table
from papers.nca._neighbours import fitted_nca, one_neighbour
from vicinal import RCA
from vicinal.companions import MMC

if TYPE_CHECKING:
    from matplotlib.figure import Figure


TITLE = "Section 6: classes of several parts"
COVERS = ("section 6",)
ORDER = 4
MINUTES = (0.1, 1)

_CLASSES, _ROWS, _NOISE, _SPREAD, _APART, _DIFFERENT = 3, 120, 8, 4.0, 4.0, 2000
_PARTS = (1, 2, 4, 8)
_METHODS = ("NCA", "RCA", "Xing et al.", "Euclidean", "the plane alone")


def units(setting: Setting) -> list[dict[str, Any]]:
    return [{"parts": parts, "run": run} for parts in _PARTS for run in range(5 if setting.full else 2)]


def measure(setting: Setting, parts: int, run: int) -> dict[str, Any]:
    rng = np.random.RandomState(run)
    centers = _centers(_CLASSES * parts, rng)
    train, test = _rows(centers, rng), _rows(centers, rng)
    X, y = train
    left, right = rng.randint(len(y), size=(2, 4 * _DIFFERENT))
    differ = np.stack([left, right], axis=1)[y[left] != y[right]][:_DIFFERENT]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        xing = MMC(max_iter=100, gap_tol=0.01).fit(X, y, differ)
    maps = {
        "NCA": fitted_nca(X, y, random_state=run, max_iter=200)[0],
        "RCA": RCA(shrinkage=0).fit(X, y).components_,
        "Xing et al.": xing.components_,
        "Euclidean": np.eye(X.shape[1]),
        "the plane alone": np.eye(X.shape[1])[:2],
    }
    return {name: round(one_neighbour(A, train, test), 4) for name, A in maps.items()}


def _centers(count: int, rng: np.random.RandomState) -> np.ndarray:
    """Return points of a square whose area is in proportion to their number, none too close to another."""
    side = 2 * _APART * np.sqrt(count)
    found: list[np.ndarray] = []
    while len(found) < count:
        point = rng.uniform(0, side, 2)
        if all(np.linalg.norm(point - other) >= _APART for other in found):
            found.append(point)
    return np.array(found)


def _rows(centers: np.ndarray, rng: np.random.RandomState) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of all classes; the part of a row is drawn among those of its class."""
    y = np.repeat(np.arange(_CLASSES), _ROWS)
    part = _CLASSES * rng.randint(len(centers) // _CLASSES, size=len(y)) + y
    plane = centers[part] + rng.standard_normal((len(y), 2))
    return np.column_stack([plane, _SPREAD * rng.standard_normal((len(y), _NOISE))]), y


def summarise(setting: Setting, records: Records) -> Summary:
    values = {(k, m): [r[m] for r in records if r["parts"] == k] for k in _PARTS for m in _METHODS}
    mean = {key: float(np.mean(value)) for key, value in values.items()}
    rows = [[k, *(plus_minus(values[k, m], 3) for m in _METHODS)] for k in _PARTS]
    most = _PARTS[-1]
    rivals = ("RCA", "Xing et al.")
    claims = [
        Claim(
            "with compact classes RCA and the method of Xing et al. are as good as NCA (one part: no more than 0.03 behind)",
            min(mean[1, m] - mean[1, "NCA"] for m in rivals) >= -0.03,
            ", ".join(f"{m} {mean[1, m]:.3f}" for m in ("NCA", *rivals)),
        ),
        *(
            Claim(
                f"classes of many parts mislead {words} and not NCA ({most} parts: NCA ahead by 0.1)",
                mean[most, "NCA"] > mean[most, m] + 0.1,
                f"NCA {mean[most, 'NCA']:.3f}, {m} {mean[most, m]:.3f}, the plane alone {mean[most, 'the plane alone']:.3f}",
            )
            for m, words in {"RCA": "RCA", "Xing et al.": "the method of Xing et al."}.items()
        ),
    ]
    remarks = [
        f"Accuracy on new rows, mean and standard error of {len(values[1, 'NCA'])} runs. The paper states this without an experiment."
    ]
    return Summary([Table(["parts of a class", *_METHODS], rows)], claims, remarks)


def draw(setting: Setting, records: Records) -> "dict[str, Figure]":
    figure, axes = panels(1, 1, size=(7.2, 4.6))
    for number, name in enumerate(_METHODS):
        cells = [mean_and_error([r[name] for r in records if r["parts"] == k]) for k in _PARTS]
        means, errors = np.transpose(cells)
        curve(axes[0, 0], number, _PARTS, means, errors, label=name)
    axes[0, 0].set(xscale="log", xlabel="parts of a class", ylabel="accuracy of 1-NN, new rows")
    axes[0, 0].set_xticks(_PARTS, map(str, _PARTS))
    axes[0, 0].minorticks_off()
    axes[0, 0].legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return {"section-6": figure}
