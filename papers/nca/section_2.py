"""Section 2: does NCA overtrain?

"It has been our experience that the larger we can drive f during training the better our test performance will be. In other
words, we have never observed an overtraining effect." The sets and splits of Figure 1, square A from the automatic start, up to
{_ITERATIONS} iterations of L-BFGS: f on the training rows and the accuracy of one neighbour on the test rows after
each of a few iterations, up to the matrix that the fit returns. A fit that ends on a plateau is resumed once and returns the better of both ends; where
that is the first, the path ends there. Overtraining is a fall: the mean test accuracy of the returned matrices is below the highest
mean on the way by more than two standard errors (of the differences on the same splits).
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from papers.drawing import curve, mean_and_error, panels
from papers.experiment import Claim, Records, Setting, Summary, Table
from papers.nca._neighbours import expected_accuracy, fitted_nca, one_neighbour
from papers.nca._sets import QUICK_SETS, SETS, STAND_IN, rows_of, split

if TYPE_CHECKING:
    from matplotlib.figure import Figure


TITLE = "Section 2: does NCA overtrain?"
COVERS = ("section 2",)
NEEDS = ("ionosphere", "boston_housing", "usps")
ORDER = 1.4
MINUTES = (0.3, 6)

_ITERATIONS = 200
_PLACES = (1, 2, 3, 5, 8, 12, 20, 30, 50, 80, 120, 200)


def units(setting: Setting) -> list[dict[str, Any]]:
    splits = (
        {name: 5 if name == "digits" else 10 for name in SETS} if setting.full else dict.fromkeys(QUICK_SETS[:5], 3)
    )
    return [{"set": name, "run": run} for name, runs in splits.items() for run in range(runs)]


def measure(setting: Setting, set: str, run: int) -> dict[str, Any]:
    train, test = split(*rows_of(setting, set), set, run)
    path: list[np.ndarray] = []
    nca, _ = fitted_nca(
        *train,
        max_iter=_ITERATIONS,
        tol=0.0,
        random_state=run,
        callback=lambda vector, n_iter: path.append(vector.reshape(-1, train[0].shape[1]).copy()),
    )
    path = path or [nca]  # a start that cannot be improved
    # The climb that returned its end: the metric of no other iterate is as close to the returned one, up to its scale.
    last = 1 + int(np.argmin([np.linalg.norm(_shape(A) - _shape(nca)) for A in path]))
    found = []
    for place in _PLACES:
        A = path[place - 1] if place < last else nca
        found.append([round(expected_accuracy(A, *train), 5), round(one_neighbour(A, train, test), 4)])
    return {"path": found, "last": last, "iterations": len(path)}


def _shape(A: np.ndarray) -> np.ndarray:
    """Return the metric of A, scaled to length one."""
    metric = A.T @ A
    return metric / np.linalg.norm(metric)


def summarise(setting: Setting, records: Records) -> Summary:
    sets = list(dict.fromkeys(record["set"] for record in records))
    rows, falls, overtrained, rises = [], {}, [], {}
    for name in sets:
        path = np.array([record["path"] for record in records if record["set"] == name])
        f, test = path[..., 0], path[..., 1]
        best = int(test.mean(axis=0).argmax())
        fall = mean_and_error(test[:, best] - test[:, -1])
        falls[name] = (*fall, _PLACES[best])
        if best < len(_PLACES) - 1 and fall[0] > 2 * fall[1]:
            overtrained.append(name)
        rises[name] = float(np.corrcoef(f.mean(axis=0), test.mean(axis=0))[0, 1])
        rows.append(
            [
                name,
                len(path),
                f"{f[:, 0].mean():.3f} → {f[:, -1].mean():.3f}",
                f"{test[:, 0].mean():.3f}",
                f"{test[:, best].mean():.3f} ({_PLACES[best]})",
                f"{test[:, -1].mean():.3f}",
                f"{fall[0]:.3f} ± {fall[1]:.3f}",
                f"{rises[name]:+.2f}",
            ]
        )
    claims = [
        Claim(
            "no overtraining on any set (the test accuracy of the returned matrices is not below the highest on the way by two standard errors)",
            not overtrained,
            "fall from the best: "
            + ", ".join(f"{s} {m:.3f} ± {e:.3f} (best at {k})" for s, (m, e, k) in falls.items()),
        ),
        Claim(
            "the larger f, the better the test performance (correlation of the two along the mean path positive on every set)",
            min(rises.values()) > 0,
            ", ".join(f"{name} {value:+.2f}" for name, value in rises.items()),
        ),
    ]
    columns = [
        "set",
        "splits",
        "f, first and last",
        "test: first",
        "best (iteration)",
        "last",
        "fall from the best",
        "correlation",
    ]
    remarks = [
        "Paths that end early keep the returned matrix. The best of several places is above the last one by chance as well.",
        f"A resumed climb was longer than the path to the returned matrix in {sum(r['last'] < r['iterations'] for r in records)} of {len(records)} fits.",
    ]
    remarks += [] if setting.full else [STAND_IN]
    return Summary([Table(columns, rows)], claims, remarks)


def draw(setting: Setting, records: Records) -> "dict[str, Figure]":
    sets = list(dict.fromkeys(record["set"] for record in records))
    figure, axes = panels(2, 3, size=(4.6, 3.6))
    for ax, name in zip(axes.ravel(), sets, strict=False):
        path = np.array([record["path"] for record in records if record["set"] == name])
        for number, words in enumerate(("f, training rows", "accuracy, test rows")):
            mean, error = np.transpose([mean_and_error(column) for column in path[..., number].T])
            curve(ax, number, _PLACES, mean, error, label=words)
        ax.set(xscale="log", title=name, xlabel="iterations")
    for ax in axes.ravel()[len(sets) :]:
        ax.set_visible(False)
    axes[0, 0].legend()
    return {"section-2": figure}
