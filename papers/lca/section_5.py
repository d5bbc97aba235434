"""Section 5: the cost of a pass, by the number of rows and of columns.

One pass of EM visits all pairs of rows. With Eq. 7 on minibatches of 100 rows and a fixed number of possible neighbours, 500, a sweep over
all rows is linear in their number. Both are the plain NumPy code of Fig. 5, on one core, in 20 columns; the time is the
processor's, the least of 3.

"We may further use low-rank or diagonal approximation to achieve a complexity which grows quadratically with d instead of cubicly": a pass of the
library's EM for a full, a diagonal and a low-rank covariance (rank {_RANK}), on 150 and on 2,000 Gaussian rows with up to 1,600 columns; with 150 rows
the terms in d alone dominate.
"""

import time
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from papers.drawing import curve, panels
from papers.experiment import Claim, Records, Setting, Summary, Table
from papers.lca._subsampling import eq_7
from vicinal import LCA, Engine

if TYPE_CHECKING:
    from matplotlib.figure import Figure


TITLE = "Section 5: the cost of a pass"
COVERS = ("section 5",)
ORDER = 2.7
MINUTES = (0.1, 1)

_BATCH, _NEIGHBORS, _COLUMNS, _TIMES = 100, 500, 20, 3
_WAYS = ("all pairs", "subsampled")
_RANK, _PASSES = 10, 3
_KINDS = ("full", "diag", "low_rank")
_WIDE = {True: ((100, 200, 400, 800, 1600), (150, 2000)), False: ((50, 100, 200), (150,))}  # columns and rows


def _sizes(setting: Setting) -> tuple[int, ...]:
    return (1000, 2000, 4000, 8000) if setting.full else (500, 1000, 2000)


def units(setting: Setting) -> list[dict[str, Any]]:
    columns, rows = _WIDE[setting.full]
    return [
        *({"rows": n, "way": way, "columns": _COLUMNS} for n in _sizes(setting) for way in _WAYS),
        *({"rows": n, "way": kind, "columns": d} for n in rows for d in columns for kind in _KINDS),
    ]


def measure(setting: Setting, rows: int, way: str, columns: int) -> dict[str, Any]:
    X = np.random.RandomState(0).standard_normal((rows, columns))
    with threadpool_limits(1):
        if way in _KINDS:
            return {"seconds": _seconds_of_em(X, way)}
        sizes = (rows, rows) if way == "all pairs" else (_BATCH, _NEIGHBORS)
        return {"seconds": min(_seconds(X, *sizes) for _ in range(_TIMES))}


def _seconds_of_em(X: np.ndarray, kind: str) -> float:
    """Return the processor's time of a pass of the library's EM: the least of several fits less the least of fits of one pass."""
    rank = {"rank": _RANK} if kind == "low_rank" else {}

    def seconds_of(passes: int) -> float:
        model = LCA(kind, reg=0.01, solver="em", max_iter=passes, tol=0.0, engine=Engine("cpu", threads=1), **rank)  # type: ignore[arg-type]
        start = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(X)
        return time.process_time() - start

    seconds_of(1)  # compiles
    one, more = (min(seconds_of(passes) for _ in range(_TIMES)) for passes in (1, 1 + _PASSES))
    return (more - one) / _PASSES


def _seconds(X: np.ndarray, batch: int, neighbors: int) -> float:
    """Return the processor's time of one sweep."""
    start = time.process_time()
    list(eq_7(X, discount=0.6, batch=batch, neighbors=neighbors, sweeps=1, reg=0.0, random_state=0))
    return time.process_time() - start


def summarise(setting: Setting, records: Records) -> Summary:
    sizes, (columns, heights) = _sizes(setting), _WIDE[setting.full]
    seconds = {(r["rows"], r["way"], r["columns"]): r["seconds"] for r in records}
    rows = [[n, *(f"{seconds[n, way, _COLUMNS]:.3f}" for way in _WAYS)] for n in sizes]
    slope = {way: _power(sizes, [seconds[n, way, _COLUMNS] for n in sizes]) for way in _WAYS}
    columns = tuple(d for d in columns if all((n, kind, d) in seconds for n in heights for kind in _KINDS))
    wide = [[n, d, *(f"{seconds[n, kind, d]:.3f}" for kind in _KINDS)] for n in heights for d in columns]
    claims = [
        Claim(
            "a pass over all pairs is quadratic in the number of rows (a power of 1.7 to 2.3)",
            1.7 < slope["all pairs"] < 2.3,
            f"{slope['all pairs']:.2f}",
        ),
        Claim(
            "with a fixed number of possible neighbours a sweep is linear in it (a power of 0.7 to 1.3)",
            0.7 < slope["subsampled"] < 1.3,
            f"{slope['subsampled']:.2f}",
        ),
    ]
    table = Table(["rows", "all pairs", f"B = {_BATCH}, N = {_NEIGHBORS}"], rows, "Seconds for one pass over the rows:")
    if len(columns) < 3:
        return Summary([table], claims)
    few, last = heights[0], columns[-3:]
    power = {(n, kind): _power(last, [seconds[n, kind, d] for d in last]) for n in heights for kind in _KINDS}
    claims += [
        Claim(
            f"with a {words} covariance a pass grows quadratically with d instead of cubically (a power below 2.5 from {last[0]} to {last[-1]} columns, {few} rows)",
            power[few, kind] < 2.5,
            f"{power[few, kind]:.2f} (full: {power[few, 'full']:.2f}); {seconds[few, kind, last[-1]] / seconds[few, 'full', last[-1]]:.2f} times the time of a full "
            f"covariance with {last[-1]} columns",
        )
        for kind, words in {"diag": "diagonal", "low_rank": "low-rank"}.items()
    ]
    tables = [
        table,
        Table(
            ["rows", "columns", *_KINDS], wide, "Seconds for one pass of the library's EM, by the kind of covariance:"
        ),
    ]
    remarks = [
        "The library forms the d x d scatter of Eq. 4 for every kind of covariance, in n d^2 operations, and takes from it what the kind needs. A diagonal covariance needs "
        "only the diagonal of the scatter, n d operations once the weights of the pairs are there, and no decomposition; a low rank r needs the scatter's product with "
        "d x r matrices, as in subspace iteration, and the inverse by Woodbury's identity. The weights themselves cost n^2 d for every kind.",
        *(
            f"Power of d with {n} rows, from {last[0]} to {last[-1]} columns: "
            + ", ".join(f"{power[n, kind]:.2f} ({kind})" for kind in _KINDS)
            + "."
            for n in heights
        ),
    ]
    return Summary(tables, claims, remarks)


def _power(sizes: tuple[int, ...], seconds: list[float]) -> float:
    """Return the power of the size with which the time grows."""
    return float(np.polyfit(np.log(sizes), np.log(np.maximum(seconds, 1e-5)), 1)[0])


def draw(setting: Setting, records: Records) -> "dict[str, Figure]":
    figure, axes = panels(1, 2, size=(5.6, 4.6))
    few, columns = _WIDE[setting.full][1][0], _WIDE[setting.full][0]
    curves: list[tuple[Any, str, str, list[dict[str, Any]]]] = []
    for way in _WAYS:
        name = way if way == "all pairs" else f"B = {_BATCH}, N = {_NEIGHBORS}"
        curves.append((axes[0, 0], name, "rows", [r for r in records if r["way"] == way]))
    for kind in _KINDS:
        own = [r for r in records if (r["way"], r["rows"]) == (kind, few)]
        curves.append((axes[0, 1], f"{kind}, {few} rows", "columns", own))
    for number, (ax, name, key, own) in enumerate(curves):
        curve(
            ax, number % 2 if key == "rows" else number, [r[key] for r in own], [r["seconds"] for r in own], label=name
        )
    for ax, name, sizes in zip(axes[0], ("rows", "columns"), (_sizes(setting), columns), strict=True):
        ax.set(xscale="log", yscale="log", xlabel=name, ylabel="seconds per pass")
        ax.set_xticks(sizes, map(str, sizes))
        ax.minorticks_off()
        ax.legend()
    return {"section-5": figure}
