"""Section 5: the cost of a pass, quadratic or linear in the number of rows.

One pass of EM visits all pairs of rows. With Eq. 7 on minibatches of 100 rows and a fixed number of possible neighbours, 500, a sweep over
all rows is linear in their number. Both are the plain NumPy code of Fig. 5, on one core, in 20 columns; the time is the
processor's, the least of 3.
"""

import time
from typing import TYPE_CHECKING, Any

import numpy as np
from threadpoolctl import threadpool_limits

from papers.drawing import curve, panels
from papers.experiment import Claim, Records, Setting, Summary, Table
from papers.lca._subsampling import eq_7

if TYPE_CHECKING:
    from matplotlib.figure import Figure


TITLE = "Section 5: the cost of a pass"
COVERS = ("section 5",)
ORDER = 2.7
MINUTES = (0.1, 1)

_BATCH, _NEIGHBORS, _COLUMNS, _TIMES = 100, 500, 20, 3
_WAYS = ("all pairs", "subsampled")


def _sizes(setting: Setting) -> tuple[int, ...]:
    return (1000, 2000, 4000, 8000) if setting.full else (500, 1000, 2000)


def units(setting: Setting) -> list[dict[str, Any]]:
    return [{"rows": n, "way": way} for n in _sizes(setting) for way in _WAYS]


def measure(setting: Setting, rows: int, way: str) -> dict[str, Any]:
    X = np.random.RandomState(0).standard_normal((rows, _COLUMNS))
    sizes = (rows, rows) if way == "all pairs" else (_BATCH, _NEIGHBORS)
    with threadpool_limits(1):
        return {"seconds": min(_seconds(X, *sizes) for _ in range(_TIMES))}


def _seconds(X: np.ndarray, batch: int, neighbors: int) -> float:
    """Return the processor's time of one sweep."""
    start = time.process_time()
    list(eq_7(X, discount=0.6, batch=batch, neighbors=neighbors, sweeps=1, reg=0.0, random_state=0))
    return time.process_time() - start


def summarise(setting: Setting, records: Records) -> Summary:
    sizes = _sizes(setting)
    seconds = {(r["rows"], r["way"]): r["seconds"] for r in records}
    rows = [[n, *(f"{seconds[n, way]:.3f}" for way in _WAYS)] for n in sizes]
    slope = {way: float(np.polyfit(np.log(sizes), np.log([seconds[n, way] for n in sizes]), 1)[0]) for way in _WAYS}
    small = not setting.full
    busy = (
        "These sizes take milliseconds, where the noise of a busy machine shows; full mode has larger ones."
        if small
        else ""
    )
    claims = [
        Claim(
            "a pass over all pairs is quadratic in the number of rows (a power of 1.7 to 2.3)",
            1.7 < slope["all pairs"] < 2.3,
            f"{slope['all pairs']:.2f}",
            departs=busy,
        ),
        Claim(
            "with a fixed number of possible neighbours a sweep is linear in it (a power of 0.7 to 1.3)",
            0.7 < slope["subsampled"] < 1.3,
            f"{slope['subsampled']:.2f}",
            departs=busy,
        ),
    ]
    caption = "Seconds for one pass over the rows:"
    return Summary([Table(["rows", "all pairs", f"B = {_BATCH}, N = {_NEIGHBORS}"], rows, caption)], claims)


def draw(setting: Setting, records: Records) -> "dict[str, Figure]":
    figure, axes = panels(1, 1, size=(6.0, 4.6))
    for number, way in enumerate(_WAYS):
        own = [r for r in records if r["way"] == way]
        name = way if way == "all pairs" else f"B = {_BATCH}, N = {_NEIGHBORS}"
        curve(axes[0, 0], number, [r["rows"] for r in own], [r["seconds"] for r in own], label=name)
    axes[0, 0].set(xscale="log", yscale="log", xlabel="rows", ylabel="seconds per pass")
    sizes = sorted({r["rows"] for r in records})
    axes[0, 0].set_xticks(sizes, map(str, sizes))
    axes[0, 0].minorticks_off()
    axes[0, 0].legend()
    return {"section-5": figure}
