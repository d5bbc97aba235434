"""Section 7: LCA before other methods that rely on local distances.

The conclusion names uses that the paper does not try: semi-supervised learning, manifold learning and mean shift. Here each is applied to the
whitened rows with columns of noise, and to the same rows in LCA's metric. Semi-supervised: the problems of Fig. 2 with 5 columns of noise and 500 rows, of which 3 in
each cluster have a label; label spreading over 10 neighbours predicts the others. Manifold learning: 800 rows of a Swiss roll with 2 columns of noise; the
rank correlation of the first Isomap coordinate (10 neighbours) with the place along the roll. Mean shift: five Gaussians with 2 columns of noise;
kernels of the shape of LCA's, or of a ball with the same determinant, both widened by the same factor {WIDER}.
"""

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import spearmanr
from sklearn.datasets import make_swiss_roll
from sklearn.manifold import Isomap
from sklearn.semi_supervised import LabelSpreading

from papers.drawing import bars, panels, plus_minus
from papers.experiment import Claim, Records, Setting, Summary, Table
from papers.lca._problems import PROBLEMS, noisy
from vicinal import LCA, ParzenMeanShift, ParzenWindows
from vicinal.datasets import add_noise_dimensions
from vicinal.quality import clustering_accuracy

if TYPE_CHECKING:
    from matplotlib.figure import Figure


TITLE = "Section 7: LCA before other local methods"
COVERS = ("section 7",)
ORDER = 7
MINUTES = (0.2, 1)

WIDER = 2.0
_LABELLED = 3
_ROLL, _SHIFT = "Swiss roll, Isomap", "five Gaussians, mean shift"
_SPREADING = {f"{problem}, label spreading": problem for problem in PROBLEMS}
_TASKS = (*_SPREADING, _ROLL, _SHIFT)
_METRICS = ("whitened rows", "LCA")


def units(setting: Setting) -> list[dict[str, Any]]:
    return [{"task": task, "run": run} for run in range(20 if setting.full else 2) for task in _TASKS]


def measure(setting: Setting, task: str, run: int) -> dict[str, Any]:
    if task == _ROLL:
        X, place = make_swiss_roll(800, random_state=run)
        X = add_noise_dimensions(X, 2, random_state=run)
        return _compare(X, lambda Z: _unrolled(Z, place))
    if task == _SHIFT:
        return _mean_shift(*noisy("five Gaussians", 500, 2, run))
    X, y = noisy(_SPREADING[task], 500, 5, run)
    rng = np.random.RandomState(run)
    known = np.concatenate([rng.choice(np.flatnonzero(y == c), _LABELLED, replace=False) for c in np.unique(y)])
    return _compare(X, lambda Z: _spread(Z, y, known))


def _compare(X: np.ndarray, value: Callable[[np.ndarray], float]) -> dict[str, float]:
    return dict(zip(_METRICS, (value(X), value(LCA(reg=0.0, tol=1e-5).fit_transform(X))), strict=True))


def _spread(Z: np.ndarray, y: np.ndarray, known: np.ndarray) -> float:
    """Return the share of the rows without a label that label spreading gets right, in per cent."""
    labels = np.full(len(y), -1)
    labels[known] = y[known]
    with warnings.catch_warnings():  # rows that no label reaches, and slow convergence
        warnings.simplefilter("ignore")
        found = LabelSpreading(kernel="knn", n_neighbors=10, max_iter=200).fit(Z, labels).transduction_
    return 100 * float((found == y)[labels < 0].mean())


def _unrolled(Z: np.ndarray, place: np.ndarray) -> float:
    """Return the rank correlation of the first Isomap coordinate with the place along the roll, in per cent."""
    with warnings.catch_warnings():  # a graph in pieces is completed
        warnings.simplefilter("ignore")
        first = Isomap(n_neighbors=10, n_components=2).fit_transform(Z)[:, 0]
    return 100 * abs(float(spearmanr(first, place).statistic))


def _mean_shift(X: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """Return the accuracy of the clusters that mean shift finds, in per cent."""
    covariance = WIDER**2 * LCA(reg=0.0, tol=1e-5).fit(X).covariance_
    ball = np.exp(np.linalg.slogdet(covariance)[1] / len(covariance)) * np.eye(len(covariance))
    found = {}
    for name, kernel in zip(_METRICS, (ball, covariance), strict=True):
        labels = ParzenMeanShift(ParzenWindows(kernel)).fit_predict(X)
        found[name] = 100 * clustering_accuracy(y, labels)
    return found


def summarise(setting: Setting, records: Records) -> Summary:
    found = {(t, m): np.array([r[m] for r in records if r["task"] == t]) for t in _TASKS for m in _METRICS}
    rows = [[task, *(plus_minus(found[task, metric], 1) for metric in _METRICS)] for task in _TASKS]
    gain = {task: float((found[task, "LCA"] - found[task, "whitened rows"]).mean()) for task in _TASKS}
    spreading = {name: gain[name] for name in _SPREADING}
    claims = [
        Claim(
            "LCA helps semi-supervised learning (label spreading: better by 5% at least on one of the three problems, worse by 1% at most on the others)",
            max(spreading.values()) > 5 and min(spreading.values()) > -1,
            "; ".join(f"{name.partition(',')[0]}: {value:+.1f}%" for name, value in spreading.items()),
        ),
        Claim(
            "LCA helps manifold learning (Isomap: the correlation rises by 5% at least)",
            gain[_ROLL] > 5,
            f"{gain[_ROLL]:+.1f}%",
        ),
        Claim(
            "LCA's metric helps mean shift (better than a ball of the same volume by 5% at least)",
            gain[_SHIFT] > 5,
            f"{gain[_SHIFT]:+.1f}%",
        ),
    ]  # fmt: skip
    caption = f"Per cent right (Isomap: rank correlation in per cent), mean and standard error of {len(records) // len(_TASKS)} runs:"
    return Summary([Table(["task", *_METRICS], rows, caption)], claims)


def draw(setting: Setting, records: Records) -> "dict[str, Figure]":
    figure, axes = panels(1, 1, size=(9.6, 4.6))
    values = [[np.mean([r[m] for r in records if r["task"] == t]) for t in _TASKS] for m in _METRICS]
    bars(axes[0, 0], [task.replace(", ", ",\n") for task in _TASKS], list(_METRICS), values)
    axes[0, 0].set_ylabel("per cent")
    axes[0, 0].margins(y=0.2)
    axes[0, 0].legend(loc="upper left", ncols=2)
    return {"section-7": figure}
