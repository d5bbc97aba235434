"""Figure 8: the effect of the size of the chunklets.

The faces are those of Figure 4. {SEEN:.0%} of the points are drawn and divided into chunklets of S points, S from 2 to 10; RCA keeps 30 of
60 dimensions. The error is the share of wrong people among the first 64 neighbours. Classes are not multiples of S, and the
paper can be read in two ways. "As printed": chunklets of S points of a person who is drawn each time, and one smaller
chunklet for what remains of the whole number of points (footnote 7). "Leftovers kept": the same share of every person's
pictures, with a smaller chunklet per person. "Leftovers discarded" is shown for comparison: the same without the smaller chunklets, so that larger S
have fewer points, while the paper fixes their number.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from papers.drawing import curve, mean_and_error, panels, plus_minus
from papers.experiment import Claim, Records, Setting, Summary, Table
from papers.rca._faces import PLACES, STAND_IN, coefficients, purity
from vicinal import RCA
from vicinal.companions import simulate_chunklets
from vicinal.results import ChunkletRows

if TYPE_CHECKING:
    from matplotlib.figure import Figure


TITLE = "Figure 8: sizes of chunklets"
COVERS = ("figure 8", "section 8.1.6")
NEEDS = ("yale_b",)
ORDER = 8
MINUTES = (0.2, 4)

SEEN = 0.3
_SIZES = (2, 3, 4, 5, 6, 7, 8, 9, 10)
_FEW_SIZES = (2, 3, 4, 5, 10)  # in quick mode
_READINGS = {"printed": "as printed", "kept": "leftovers kept", "discarded": "leftovers discarded (fewer points)"}


def units(setting: Setting) -> list[dict[str, Any]]:
    sizes, runs = (_SIZES, 60) if setting.full else (_FEW_SIZES, 4)
    return [{"size": s, "reading": reading, "run": run} for s in sizes for reading in _READINGS for run in range(runs)]


def measure(setting: Setting, size: int, reading: str, run: int) -> dict[str, Any]:
    X, people = coefficients(setting)
    if reading == "printed":
        chunklets = _as_printed(people, size, run)
    else:
        chunklets = simulate_chunklets(people, size, fraction=SEEN, remainder=reading == "kept", random_state=run)
    rca = RCA(30, shrinkage=0).fit(X, chunklets)
    return {
        "error": round(1 - purity(rca.transform(X), people)[-1], 5),
        "points": rca.n_points_,
        "contrasts": rca.n_contrasts_,
    }


def _as_printed(people: np.ndarray, size: int, random_state: int) -> ChunkletRows:
    """Return chunklets of `size` points, each of a randomly drawn person, and one of the remaining points."""
    rng = np.random.RandomState(random_state)
    total = round(SEEN * len(people))
    left = {person: list(rng.permutation(np.flatnonzero(people == person))) for person in np.unique(people)}
    rows, ids = [], []  # type: ignore[var-annotated]
    while total - len(rows) >= 2:
        wanted = min(size, total - len(rows))
        person = rng.choice([person for person, own in left.items() if len(own) >= wanted])
        rows += [left[person].pop() for _ in range(wanted)]
        ids += [len(ids)] * wanted
    return ChunkletRows(np.array(rows), np.unique(ids, return_inverse=True)[1])


def summarise(setting: Setting, records: Records) -> Summary:
    sizes = list(dict.fromkeys(record["size"] for record in records))
    errors = {name: {s: _errors(records, name, s) for s in sizes} for name in _READINGS}
    points = {name: {s: _mean(records, name, s, "points") for s in sizes} for name in _READINGS}
    rows = [
        [
            s,
            f"{1 + 1 / (s - 1):.3f}",
            *[plus_minus(errors[name][s], 4) for name in _READINGS],
            *[f"{points[name][s]:.0f}" for name in _READINGS],
        ]
        for s in sizes
    ]
    claims = []
    for name in ("printed", "kept"):
        words = _READINGS[name]
        mean = {s: float(np.mean(values)) for s, values in errors[name].items()}
        gained = {s: (mean[2] - mean[s]) / (mean[2] - mean[10]) for s in (3, 4, 5)}
        error = _uncertainty(errors[name])
        largest, at = _largest_rise(errors[name])
        claims += [
            Claim(
                f"larger chunklets give lower errors, {words} (10 against 2, by 0.01, and no step up by more than two standard errors)",
                mean[10] < mean[2] - 0.01 and largest <= 2,
                f"{mean[sizes[0]]:.4f} for {sizes[0]}, {mean[sizes[-1]]:.4f} for {sizes[-1]}; the largest step up is {largest:+.1f} standard errors (to {at})",
            ),
            Claim(
                f"most of the gain from 2 to 10 is there with chunklets of 3 points, {words} (over half of it)",
                gained[3] > 0.5,
                ", ".join(f"{share:.0%} with {s}" for s, share in gained.items()) + f"; the first ± {error:.0%}",
            ),
        ]
    runs = len(errors["kept"][sizes[0]])
    remarks = [
        f"The paper shows a curve without numbers. {runs} realisations each; the neighbours are the first {PLACES[-1]}. The bound of "
        "Eq. 12 is beside it, as there; see Equation 12. "
        f"Of the fall of that bound from chunklets of 2 points to chunklets of 10, {_by_bound(3):.0%} is there with 3 points.",
        "Where leftovers are discarded the error follows the number of points, which jumps with S.",
    ]
    remarks += [] if setting.full else [STAND_IN]
    columns = ["S", "bound of Eq. 12", *[f"error, {w}" for w in _READINGS.values()]]
    columns += [f"points, {w}" for w in _READINGS.values()]
    return Summary([Table(columns, rows)], claims, remarks)


def _errors(records: Records, reading: str, size: int) -> list[float]:
    return [r["error"] for r in records if r["size"] == size and r["reading"] == reading]


def _mean(records: Records, reading: str, size: int, key: str) -> float:
    return float(np.mean([r[key] for r in records if r["size"] == size and r["reading"] == reading]))


def _by_bound(size: int) -> float:
    """Return the share of the fall of the bound 1 + 1/(S-1) from the smallest to the largest S that this S has."""
    bound = {s: 1 + 1 / (s - 1) for s in (_SIZES[0], size, _SIZES[-1])}
    return (bound[_SIZES[0]] - bound[size]) / (bound[_SIZES[0]] - bound[_SIZES[-1]])


def _largest_rise(errors: dict[int, list[float]]) -> tuple[float, int]:
    """Return the largest rise of the error from one size to the next, in standard errors, and the larger size."""
    cells = {size: mean_and_error(values) for size, values in errors.items()}
    steps = zip(list(cells)[:-1], list(cells)[1:], strict=True)
    return max(((cells[b][0] - cells[a][0]) / max(np.hypot(cells[a][1], cells[b][1]), 1e-12), b) for a, b in steps)


def _uncertainty(errors: dict[int, list[float]]) -> float:
    """Return the standard error of the share of the gain that chunklets of 3 have, to first order."""
    two, three, ten = (mean_and_error(errors[size]) for size in (2, 3, 10))
    gain = two[0] - ten[0]
    share = (two[0] - three[0]) / gain
    return float(np.hypot(np.hypot((1 - share) * two[1], three[1]), share * ten[1]) / gain)


def draw(setting: Setting, records: Records) -> "dict[str, Figure]":
    figure, axes = panels(1, 2, size=(6.0, 4.6))
    sizes = list(dict.fromkeys(record["size"] for record in records))
    for number, (name, words) in enumerate(_READINGS.items()):
        cells = [mean_and_error(_errors(records, name, size)) for size in sizes]
        mean, error = np.transpose(cells)
        curve(axes[0, 0], number, sizes, mean, error, label=words)
    axes[0, 0].set(xlabel="points per chunklet", ylabel="error of the first 64 neighbours", title="RCA on faces")
    axes[0, 0].legend()
    curve(axes[0, 1], 3, sizes, [1 + 1 / (size - 1) for size in sizes])
    axes[0, 1].set(xlabel="points per chunklet", ylabel="bound of the ratio of variances", title="Eq. 12")
    return {"figure-8": figure}
