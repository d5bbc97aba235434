"""Section 2: soft neighbourhoods, and what d directions cost.

A neighbourhood may be hard, the k nearest rows, as in the paper's experiments, or soft: all rows with a Gaussian weight, here with one width
for all rows. Both are tried on the spiral of Table 1 (one direction; width or k and the noise by validation rows).

Scoring a row costs about d times as much as with ordinary Parzen windows, and so does storage: the time of scoring {_SCORED} rows under {_KERNELS} kernels of {_COLUMNS}
columns, on one core, the least of {_TIMES} (all numbers of directions in turn, {_TIMES} times over), against the number of directions kept; 0 directions are ordinary Parzen windows. The library computes
those by one matrix product; the plain algorithm of the paper, one kernel at a time, is shown for comparison.
"""

import time
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import logsumexp
from threadpoolctl import threadpool_limits

from papers.drawing import curve, panels, plus_minus
from papers.experiment import Claim, Records, Setting, Summary, Table, at_the_end
from vicinal import Engine, ManifoldParzen
from vicinal.datasets import make_spiral

if TYPE_CHECKING:
    from matplotlib.figure import Figure


TITLE = "Section 2: soft neighbourhoods, and what d directions cost"
COVERS = ("section 2",)
ORDER = 0.5
MINUTES = (0.5, 2)

_NOISES = np.geomspace(0.003, 0.03, 10)
_NEIGHBOURS = (4, 5, 7, 9, 11, 14, 18)
_BANDWIDTHS = np.geomspace(0.01, 0.16, 9)
_DIRECTIONS = (0, 1, 2, 4, 8, 16, 32, 64)
_KERNELS, _SCORED, _COLUMNS, _TIMES = 600, 500, 256, 5
_NEIGHBOURHOODS = ("hard", "soft")
_WAYS = ("plain", "library")


def units(setting: Setting) -> list[dict[str, Any]]:
    spirals = [{"what": "spiral", "number": run} for run in range(20 if setting.full else 4)]
    return [*spirals, {"what": "cost", "number": 0}]


def measure(setting: Setting, what: str, number: int) -> dict[str, Any]:
    if what == "cost":
        return _costs()
    rng = np.random.RandomState(number)
    train, valid, test = (make_spiral(n, random_state=rng)[0] for n in (300, 300, 10_000))
    hard = [ManifoldParzen(1, n_neighbors=k, noise=s**2) for k, s in product(_NEIGHBOURS, _NOISES)]
    soft = [ManifoldParzen(1, vicinity="kernel", bandwidth=b, noise=s**2) for b, s in product(_BANDWIDTHS, _NOISES)]
    found = {}
    for name, candidates in zip(_NEIGHBOURHOODS, (hard, soft), strict=True):
        best = max((model.fit(train) for model in candidates), key=lambda model: model.score(valid))
        width = best.n_neighbors if name == "hard" else best.bandwidth
        found[name] = {"test": -float(best.score(test)), "width": float(width), "noise": float(best.noise)}  # type: ignore[arg-type]
    return found


def _costs() -> dict[str, Any]:
    """Return the least times by way and number of directions, and the numbers that are stored for each row and column."""
    rng = np.random.RandomState(0)
    X, rows = rng.standard_normal((_KERNELS, _COLUMNS)), rng.standard_normal((_SCORED, _COLUMNS))
    works: dict[tuple[str, int], Callable[[], np.ndarray]] = {}
    numbers = {}
    for d in _DIRECTIONS:
        model = ManifoldParzen(d, n_neighbors=max(d, 1), noise=1.0, engine=Engine("cpu", threads=1)).fit(X)
        frames = model.local_frames_ if d else np.empty((_KERNELS, 0, _COLUMNS))
        variances = model.local_variances_ if d else np.empty((_KERNELS, 0))
        works["library", d] = partial(model.score_samples, rows)
        works["plain", d] = partial(log_density, rows, X, frames, variances, 1.0)
        numbers[d] = frames.size / X.size + 1
    seconds = dict.fromkeys(works, np.inf)
    with threadpool_limits(1):
        assert all(np.allclose(works["library", d](), works["plain", d]()) for d in _DIRECTIONS)
        for _ in range(_TIMES):
            for key, work in works.items():
                start = time.process_time()
                work()
                seconds[key] = min(seconds[key], time.process_time() - start)
    return {
        "directions": list(_DIRECTIONS),
        "numbers": list(numbers.values()),
        **{way: [round(seconds[way, d], 5) for d in _DIRECTIONS] for way in _WAYS},
    }


def log_density(rows: np.ndarray, X: np.ndarray, frames: np.ndarray, variances: np.ndarray, noise: float) -> np.ndarray:
    """Return the paper's MParzen::Test with its LocalGaussian: one kernel after another.

    Parameters
    ----------
    rows : array of shape (m, n)
    X : array of shape (l, n)
    frames, variances : arrays of shapes (l, d, n) and (l, d)
        Directions and the variances along them, without the noise.
    noise : float
        The variance sigma^2.
    """
    n, d = X.shape[1], frames.shape[1]
    logs = np.empty((len(rows), len(X)))
    for i, (center, V, variance) in enumerate(zip(X, frames, variances, strict=True)):
        difference = rows - center
        scale = variance + noise
        r = n * np.log(2 * np.pi) + np.log(scale).sum() + (n - d) * np.log(noise)
        q = (difference**2).sum(axis=1) / noise + (difference @ V.T) ** 2 @ (1 / scale - 1 / noise)
        logs[:, i] = -0.5 * (r + q)
    return logsumexp(logs, axis=1) - np.log(len(X))


def summarise(setting: Setting, records: Records) -> Summary:
    spirals = [r for r in records if r["what"] == "spiral"]
    value, widths = (
        {name: np.array([r[name][key] for r in spirals]) for name in _NEIGHBOURHOODS} for key in ("test", "width")
    )
    middle = {name: float(np.median(values)) for name, values in widths.items()}
    shown = {
        "hard": f"k={middle['hard']:.0f}{at_the_end(_NEIGHBOURS, middle['hard'])}",
        "soft": f"width {middle['soft']:.3f}{at_the_end(_BANDWIDTHS, middle['soft'])}",
    }
    cost = _relative(records)
    gap = float((value["soft"] - value["hard"]).mean())
    caption = f"Spiral: test ANLL, mean and standard error of {len(spirals)} training sets:"
    tables = [
        Table(
            ["neighbourhood", "test ANLL", "parameter (median)"],
            [[name, plus_minus(value[name], 3), shown[name]] for name in _NEIGHBOURHOODS],
            caption,
        ),
        Table(
            ["d", "plain algorithm: time", "library: time", "numbers stored"],
            [
                [d, *(f"{cost[way][i]:.2f}" for way in _WAYS), f"{cost['numbers'][i]:.0f}"]
                for i, d in enumerate(cost["directions"])
            ],
            "Time and storage relative to ordinary Parzen windows:",
        ),
    ]
    claims = [
        Claim(
            "a soft neighbourhood with one width is as good as a hard one (within 0.03 nats on the spiral)",
            abs(gap) < 0.03,
            f"{gap:+.3f} nats",
        ),
        *(
            Claim(
                f"the computational cost is only about d times that of ordinary Parzen windows (at most 1.5 (d + 1) times for every d, {name})",
                all(time <= 1.5 * (d + 1) for d, time in zip(cost["directions"], cost[way], strict=True)),
                f"{cost[way][-1]:.1f} times with d = {cost['directions'][-1]}",
            )
            for way, name in {"plain": "plain algorithm", "library": "the library"}.items()
        ),
        Claim(
            "so is storage (d + 1 times the rows)",
            all(abs(number - d - 1) < 0.01 for d, number in zip(cost["directions"], cost["numbers"], strict=True)),
            f"{cost['numbers'][-1]:.0f} times with d = {cost['directions'][-1]}",
        ),
    ]
    return Summary(tables, claims)


def _relative(records: Records) -> dict[str, Any]:
    """Return times relative to those without directions, and the numbers stored."""
    (cost,) = [r for r in records if r["what"] == "cost"]
    return {
        **{key: cost[key] for key in ("directions", "numbers")},
        **{way: np.array(cost[way]) / cost[way][0] for way in _WAYS},
    }


def draw(setting: Setting, records: Records) -> "dict[str, Figure]":
    cost = _relative(records)
    figure, axes = panels(1, 1, size=(6.4, 4.6))
    for number, (way, label) in enumerate({"plain": "the paper's algorithm", "library": "the library"}.items()):
        curve(axes[0, 0], number, cost["directions"], cost[way], label=label)
    axes[0, 0].plot(cost["directions"], [d + 1 for d in cost["directions"]], color="0.5", linestyle=":", label="d + 1")
    axes[0, 0].set(xlabel="d, directions kept", ylabel="time relative to Parzen windows")
    axes[0, 0].legend()
    return {"section-2": figure}
