"""Figure 1: 1-NN accuracy on six sets under five metrics, and in two dimensions.

Every set is split at random, {_TRAIN:.0%} for training and the rest for testing; of the digits, 200 per class train and 500
test. Metrics are learned on the training rows, in the original units of the set, and evaluated by one nearest
neighbour: on the test rows, and on the training rows by leaving one out. "Whitened" uses one covariance for all
rows, RCA that within the classes; both are `RCA`, with one chunklet or with the classes as chunklets. LDA has one
direction less than there are classes (one for two classes). The paper compares NCA with the other Mahalanobis distances, RCA,
whitening and the Euclidean one; NCA restricted to be diagonal is shown with them, as in the paper, but is not compared. Some columns
are not in the paper: standardised columns show the effect of the units; NCA from the matrices of RCA, of whitening and
from the identity shows the effect of the start, which the paper does not give; and "NCA, penalised" is the likelihood
(Eq. 6) with a penalty of {PENALTY}.
"""

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.decomposition import PCA

from papers.drawing import bars, mean_and_error, panels, plus_minus
from papers.experiment import Claim, Records, Setting, Summary, Table
from papers.nca._neighbours import discriminants, fitted_nca, one_neighbour, whitened_discriminants
from papers.nca._sets import QUICK_SETS, SETS, STAND_IN, rows_of, split
from vicinal import RCA, Objective

if TYPE_CHECKING:
    from matplotlib.figure import Figure


TITLE = "Figure 1: nearest neighbours under learned metrics"
COVERS = ("figure 1",)
NEEDS = ("ionosphere", "boston_housing", "usps")
ORDER = 1
MINUTES = (0.5, 35)

PENALTY, _ITERATIONS, _TRAIN = 0.01, 50, 0.7
_SQUARE = ("NCA", "diagonal NCA", "RCA", "whitened", "Euclidean")
_PLANE = ("NCA", "LDA+RCA", "LDA", "PCA")
_RIVALS = {"square": ("RCA", "whitened", "Euclidean"), "plane": _PLANE[1:]}
_STARTS = ("NCA", "NCA from RCA", "NCA from whitening", "NCA from the identity")
_SPLITS = dict.fromkeys(SETS, 40)  # in full mode: the paper's
_QUICK_SPLITS = dict(zip(QUICK_SETS, (2, 4, 4, 2, 2, 2), strict=True))


def units(setting: Setting) -> list[dict[str, Any]]:
    splits = _SPLITS if setting.full else _QUICK_SPLITS
    few = {name: 4 if name == "digits" else 15 for name in SETS} if setting.full else {}  # starts take long
    return [{"set": name, "run": run, "fits": "paper"} for name, runs in splits.items() for run in range(runs)] + [
        {"set": name, "run": run, "fits": "more"} for name, runs in splits.items() for run in range(few.get(name, runs))
    ]


def measure(setting: Setting, set: str, run: int, fits: str) -> dict[str, Any]:
    train, test = split(*rows_of(setting, set), set, run)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*directions are kept")  # ionosphere has a constant column
        found, converged = (_metrics if fits == "paper" else _more)(*train, run)
    result: dict[str, Any] = {"converged": converged}
    for kind, metrics in found.items():
        result[kind] = {
            name: [round(one_neighbour(A, train), 4), round(one_neighbour(A, train, test), 4)]
            for name, A in metrics.items()
        }
    return result


def _metrics(X: np.ndarray, y: np.ndarray, run: int) -> tuple[dict[str, dict[str, Any]], list[bool]]:
    """Return the matrices A of the paper's metrics, square and of rank two, and whether the fits of NCA have converged."""
    spread = np.where(X.std(axis=0) > 0, X.std(axis=0), 1.0)
    options = ({}, {"structure": "diag"}, {"n_components": 2})  # type: ignore[var-annotated]
    fits = [fitted_nca(X, y, max_iter=_ITERATIONS, random_state=run, **own) for own in options]
    (full, diagonal, flat), converged = zip(*fits, strict=True)
    square = {
        "NCA": full,
        "diagonal NCA": diagonal,
        "RCA": RCA(shrinkage=0).fit(X, y).components_,
        "whitened": _whitening(X),
        "Euclidean": np.eye(X.shape[1]),
        "standardised": np.diag(1 / spread),
    }
    plane = {
        "NCA": flat,
        "LDA+RCA": whitened_discriminants(X, y),
        "LDA": discriminants(X, y),
        "PCA": PCA(2, random_state=run).fit(X).components_,
        "PCA, standardised": PCA(2, random_state=run).fit(X / spread).components_ / spread,
    }
    return {"square": square, "plane": plane}, list(converged)


def _more(X: np.ndarray, y: np.ndarray, run: int) -> tuple[dict[str, dict[str, Any]], list[bool]]:
    """Return NCA from given matrices, and penalised NCA."""
    first = {
        "NCA from RCA": RCA(shrinkage=0).fit(X, y).components_,
        "NCA from whitening": _whitening(X),
        "NCA from the identity": np.eye(X.shape[1]),
    }
    square = {name: fitted_nca(X, y, n_components=len(A), init=A, max_iter=_ITERATIONS) for name, A in first.items()}
    objective = Objective("likelihood", penalty=PENALTY)
    careful = fitted_nca(X, y, n_components=2, objective=objective, max_iter=_ITERATIONS, random_state=run)
    converged = [fit[1] for fit in (*square.values(), careful)]
    return {
        "square": {name: fit[0] for name, fit in square.items()},
        "plane": {"NCA, penalised": careful[0]},
    }, converged


def _whitening(X: np.ndarray) -> np.ndarray:
    """Return rows that whiten the covariance of all rows: RCA with one chunklet."""
    return RCA(shrinkage=0).fit(X, np.zeros(len(X), dtype=int)).components_


def summarise(setting: Setting, records: Records) -> Summary:
    sets = list(dict.fromkeys(record["set"] for record in records))
    kinds = {"square": "square A", "plane": "two dimensions"}
    tables = [
        _table(f"{words}, {where}", sets, records, kind, part)
        for kind, where in kinds.items()
        for part, words in ((1, "Test accuracy"), (0, "Training accuracy (leave-one-out)"))
    ]
    claims = [
        _claim(
            "square",
            0,
            "NCA is the same as or better than RCA, whitening and Euclid on the training rows",
            sets,
            records,
        ),
        _claim(
            "square", 1, "NCA is the same as or better than RCA, whitening and Euclid on the test rows", sets, records
        ),
        _claim("square", 1, "the same of the best start on the test rows", sets, records, own="starts"),
        _claim("plane", 0, "in two dimensions NCA is the best on the training rows", sets, records),
        _claim("plane", 1, "in two dimensions NCA is superior on the test rows", sets, records, ahead=True),
        _claim_of_means(sets, records),
    ]
    by_fits = {fits: [r for r in records if r["fits"] == fits] for fits in ("paper", "more")}
    short = sum(not all(r["converged"]) for r in records)
    remarks = [
        "The paper draws bars and prints no numbers, so that its claims are compared. Numbers are means and standard "
        "errors over "
        + ", ".join(f"{sum(r['set'] == name for r in by_fits['paper'])} splits ({name})" for name in sets)
        + (", as the paper's; further columns over " if setting.full else "; further columns over ")
        + ", ".join(f"{sum(r['set'] == name for r in by_fits['more'])} ({name})" for name in sets)
        + ".",
        f"{short} of {len(records)} units had a fit of NCA that stopped at {_ITERATIONS} iterations before it converged.",
        f"Diagonal NCA less NCA, test rows: {_gains(sets, records, 'square', 'diagonal NCA')}.",
        f"What a penalty does in the plane (test accuracy less NCA's): {_gains(sets, records, 'plane', 'NCA, penalised')}.",
    ]
    remarks += [] if setting.full else [STAND_IN]
    return Summary(tables, claims, remarks)


def _gains(sets: list[str], records: Records, kind: str, metric: str) -> str:
    """Test accuracy of another fit less NCA's on the same splits, by set."""
    cells = []
    for name in sets:
        other = _by_run(records, name, kind, metric, 1)
        if not other:
            continue
        own = _by_run(records, name, kind, "NCA", 1)
        gain, error = mean_and_error([value - own[run] for run, value in other.items()])
        cells.append(f"{name} {gain:+.3f} ± {error:.3f}")
    return ", ".join(cells)


def _by_run(records: Records, name: str, kind: str, metric: str, part: int) -> dict[int, float]:
    """Return the accuracies of a metric on a set, by split."""
    return {r["run"]: r[kind][metric][part] for r in records if r["set"] == name and metric in r[kind]}


def _values(records: Records, name: str, kind: str, metric: str, part: int) -> list[float]:
    return list(_by_run(records, name, kind, metric, part).values())


def _table(caption: str, sets: list[str], records: Records, kind: str, part: int) -> Table:
    metrics = list(dict.fromkeys(metric for record in records for metric in record[kind]))
    values = {(name, m): _values(records, name, kind, m, part) for name in sets for m in metrics}
    rows = [[name] + [plus_minus(values[name, m], 3) if values[name, m] else "" for m in metrics] for name in sets]
    return Table(["set", *metrics], rows, caption)


def _best_start(records: Records, name: str, kind: str, part: int) -> dict[int, float]:
    """Return the start of best training accuracy, split by split, among those with a fit on every split of the smaller number."""
    train = {m: _by_run(records, name, kind, m, 0) for m in _STARTS}
    found = {m: _by_run(records, name, kind, m, part) for m in _STARTS}
    runs = set.intersection(*(set(by_run) for by_run in train.values()))
    best = {run: max((train[m][run], -place, m) for place, m in enumerate(_STARTS))[-1] for run in runs}
    return {run: found[best[run]][run] for run in runs}


def _claim(
    kind: str, part: int, says: str, sets: list[str], records: Records, *, ahead: bool = False, own: str = "NCA"
) -> Claim:
    evidence, behind, equal = [], {}, []
    for name in sets:
        mine = _best_start(records, name, kind, part) if own == "starts" else _by_run(records, name, kind, own, part)
        if not mine:
            continue
        rivals = {m: _by_run(records, name, kind, m, part) for m in _RIVALS[kind]}
        best = max(rivals, key=lambda m: np.mean([rivals[m][run] for run in mine]))
        gain, error = mean_and_error([mine[run] - rivals[best][run] for run in mine])
        evidence.append(f"{name} {gain:+.3f} ± {error:.3f} ({best})")
        if gain + 2 * error < 0:
            behind[name] = best
        elif gain - 2 * error <= 0:
            equal.append(name)
    asked = "ahead of the best other" if ahead else "never behind the best other"
    return Claim(
        f"{says}, on every set ({asked} by two standard errors)",
        not (behind or (ahead and equal)),
        ("NCA" if own == "NCA" else "The start that is best on the training rows")
        + " less the best other: "
        + ", ".join(evidence),
    )


def _claim_of_means(sets: list[str], records: Records) -> Claim:
    """Return the reading of one bar chart as a whole: the mean over the sets."""
    means = {m: np.mean([np.mean(_values(records, name, "square", m, 1)) for name in sets]) for m in _SQUARE}
    return Claim(
        "NCA is the best of RCA, whitening and Euclid on the test rows in the mean over the sets",
        means["NCA"] > max(means[m] for m in _RIVALS["square"]),
        ", ".join(f"{metric} {value:.3f}" for metric, value in means.items()),
    )


def draw(setting: Setting, records: Records) -> "dict[str, Figure]":
    sets = list(dict.fromkeys(record["set"] for record in records))
    figure, axes = panels(2, 2, size=(7.2, 4.2), sharey="row")
    for row, (kind, metrics) in enumerate({"square": _SQUARE, "plane": _PLANE}.items()):
        for part, words in enumerate(("training rows, leave-one-out", "test rows")):
            ax = axes[row, part]
            cells = [[mean_and_error(_values(records, s, kind, m, part)) for s in sets] for m in metrics]
            bars(
                ax,
                [s.replace(" ", "\n") for s in sets],
                metrics,
                [[c[0] for c in line] for line in cells],
                [[c[1] for c in line] for line in cells],
            )
            ax.set(ylim=(0.3, 1.0), title=f"{'square A' if kind == 'square' else 'rank 2'}: {words}")
            ax.set_ylabel("accuracy of 1-NN" if part == 0 else "")
            ax.tick_params(axis="x", labelsize=12)
        axes[row, 1].legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return {"figure-1": figure}
