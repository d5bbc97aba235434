"""Figure 9 (stand-ins): clips of a film as chunklets.

The paper's clips of a surveillance camera are not public. There are two substitutes. The film: 20 drawn people in different
clothes walk through light that changes in intensity and in spectrum; 130 clips, some 6,000 frames, each a colour histogram in
L*a*b* space with 5 bins per dimension, compared by the L1 distance before RCA, all as in the paper. The lights: 20 people of
the faces of Figure 4 are filmed while the light moves from side to side; a clip is a run of pictures of one person that are
next to each other in the direction of the light, 130 clips again. Clips are the only supervision. For comparison,
chunklets of the same sizes whose frames are drawn from all frames of the person, and, for the size of the effect, the
teachers of Figure 4 ({PERCENT}% of the points).
"""

import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.spatial.distance import cdist

from papers.drawing import curve, mean_and_error, panels
from papers.experiment import Claim, Records, Setting, Summary, Table
from papers.rca._faces import STAND_IN, coefficients, faces, taught
from papers.rca._film import Film, drawn_film
from vicinal import RCA
from vicinal.quality import neighbor_purity
from vicinal.results import ChunkletRows

if TYPE_CHECKING:
    from matplotlib.figure import Figure


TITLE = "Figure 9 (stand-ins): clips of a film as chunklets"
COVERS = ("figure 9", "section 8.2")
NEEDS = ("yale_b",)
ORDER = 9
MINUTES = (0.3, 2)

PERCENT = 30
_PLACES = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 100)  # the paper's axis ends at 100
_METHODS = {"before": "before RCA", "clips": "RCA, clips", "independent": "RCA, same sizes at random"}
_KINDS = {"film": "film, histograms", "lights": "moving lights, faces", "teachers": "teachers, faces"}


def units(setting: Setting) -> list[dict[str, Any]]:
    runs = {"film": 10, "lights": 20, "teachers": 20} if setting.full else {"film": 3, "lights": 4, "teachers": 4}
    return [{"kind": kind, "run": run} for kind, n in runs.items() for run in range(n)]


def measure(setting: Setting, kind: str, run: int) -> dict[str, Any]:
    clips: Any
    if kind == "film":
        film = _film(setting, run)
        X, people, clips = film.histograms, film.people, film.clips
    elif kind == "lights":
        X, people, clips = _moving_lights(setting, run)
    else:
        X, people = coefficients(setting)
        clips = taught(people, PERCENT, run)
    before = _purity_by_l1(X, people) if kind == "film" else _purity(X, people)
    found = {"before": before, "clips": _purity(_learned(X, clips), people)}
    if kind != "teachers":
        others = _same_sizes(people, clips, np.random.RandomState(run))
        found["independent"] = _purity(_learned(X, others), people)
        found["n"] = [len(X), len(np.unique(clips))]
    if kind == "film":
        found["euclidean"] = _purity(X, people)
    return found


def _learned(X: np.ndarray, chunklets: ChunkletRows | np.ndarray) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*directions are kept")  # some bins are always empty
        return RCA(shrinkage=0).fit_transform(X, chunklets)


def _film(setting: Setting, run: int) -> Film:
    return drawn_film(random_state=run) if setting.full else drawn_film(12, 60, 24, random_state=run)


def _moving_lights(setting: Setting, run: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return rows, people and clips of 20 people, each under lights that follow each other."""
    rng = np.random.RandomState(run)
    X, people = coefficients(setting)
    filmed = np.flatnonzero(np.isin(people, rng.permutation(np.unique(people))[:20]))
    X, people, lights = X[filmed], people[filmed], faces(setting)[2][filmed]
    clips = np.empty(len(people), dtype=int)
    for number, person in enumerate(np.unique(people)):
        own = np.flatnonzero(people == person)
        # row by row of the lamp's height, from side to side: neighbours in the list are neighbours in the light
        order = own[np.lexsort((lights[own, 0], lights[own, 1].round(-1)))]
        cuts = np.sort(rng.choice(np.arange(1, len(own)), 5 + number % 2, replace=False))
        clips[order] = 100 * number + np.searchsorted(cuts, np.arange(len(own)), side="right")
    return X, people, clips


def _same_sizes(people: np.ndarray, clips: np.ndarray, rng: np.random.RandomState) -> np.ndarray:
    """Return chunklets of the sizes of the clips, whose rows are drawn from all rows of the person."""
    others = np.empty_like(clips)
    for person in np.unique(people):
        own = np.flatnonzero(people == person)
        others[rng.permutation(own)] = clips[own]
    return others


def _purity(rows: np.ndarray, people: np.ndarray) -> list[float]:
    return neighbor_purity(rows, people, _PLACES[-1])[np.array(_PLACES) - 1].round(4).tolist()


def _purity_by_l1(rows: np.ndarray, people: np.ndarray) -> list[float]:
    """Return the same with the L1 distance, in blocks."""
    right = np.zeros(_PLACES[-1])
    for first in range(0, len(rows), 500):
        distances = cdist(rows[first : first + 500], rows, "cityblock")
        distances[np.arange(len(distances)), np.arange(first, first + len(distances))] = np.inf
        near = np.argsort(distances, axis=1, kind="stable")[:, : _PLACES[-1]]
        right += (people[near] == people[first : first + 500, None]).sum(axis=0)
    mean = np.cumsum(right) / np.arange(1, _PLACES[-1] + 1) / len(rows)
    return mean[np.array(_PLACES) - 1].round(4).tolist()


def summarise(setting: Setting, records: Records) -> Summary:
    curves = {kind: {name: _curves(records, kind, name) for name in _METHODS} for kind in _KINDS}
    rows = [
        [f"{words}, {method}", *[f"{value:.3f}" for value in curves[kind][name].mean(axis=0)]]
        for kind, words in _KINDS.items()
        for name, method in _METHODS.items()
        if len(curves[kind][name])
    ]
    plain = np.array([record["euclidean"] for record in records if record["kind"] == "film"]).mean(axis=0)
    rows.insert(1, ["film, histograms, Euclidean distance before RCA", *[f"{value:.3f}" for value in plain]])
    gains = {kind: curves[kind]["clips"] - curves[kind]["before"] for kind in _KINDS}
    claims = [
        Claim(
            "RCA brings right neighbours of the film closer than the L1 distance of histograms (every k, by two standard errors)",
            _smallest(gains["film"]) > 2,
            _by_place(gains["film"]),
        ),
        Claim(
            "the effect is smaller than on Yale B (gain in purity by the clips of the film against that by the teachers, every k "
            "up to 64)",
            bool(np.all(gains["film"].mean(axis=0)[:-1] < gains["teachers"].mean(axis=0)[:-1])),
            f"film {_means(gains['film'])}; teachers {_means(gains['teachers'])} (k = {_list(_PLACES)})",
        ),
    ]
    for kind in ("film", "lights"):
        loss = curves[kind]["independent"] - curves[kind]["clips"]
        claims.append(
            Claim(
                f"dependent frames tell less than independent ones: {_KINDS[kind]} (every k, by two standard errors)",
                _smallest(loss) > 2,
                f"purity from random chunklets less that from clips: {_by_place(loss)}",
            )
        )
    frames, clips = np.mean([record["n"] for record in records if record["kind"] == "film"], axis=0)
    runs = {kind: len(curves[kind]["before"]) for kind in _KINDS}
    remarks = [
        f"{frames:.0f} frames in {clips:.0f} clips of the film; {_list(runs.values())} realisations of film, lights and teachers. The paper "
        "shows two curves without numbers.",
        "The teachers' row is RCA without reduction, as for the clips; Figure 4 has it with cFLD.",
        "The film is drawn: what it says about clips need not carry over to a real one.",
    ]
    remarks += [] if setting.full else [STAND_IN]
    return Summary([Table(["purity of the first k", *map(str, _PLACES)], rows)], claims, remarks)


def _curves(records: Records, kind: str, name: str) -> np.ndarray:
    return np.array([record[name] for record in records if record["kind"] == kind and name in record])


def _smallest(differences: np.ndarray) -> float:
    """Return the smallest mean over its standard error."""
    return min(mean / max(error, 1e-9) for mean, error in map(mean_and_error, differences.T))


def _by_place(differences: np.ndarray) -> str:
    cells = (
        f"{mean:+.3f} ± {error:.3f} (k = {k})"
        for k, (mean, error) in zip(_PLACES, map(mean_and_error, differences.T), strict=True)
    )
    return ", ".join(cells)


def _means(differences: np.ndarray) -> str:
    return ", ".join(f"{value:+.3f}" for value in differences.mean(axis=0))


def _list(values: Iterable[object]) -> str:
    return ", ".join(map(str, values))


def draw(setting: Setting, records: Records) -> "dict[str, Figure]":
    figure, axes = panels(1, 3, size=(5.4, 4.6))
    for ax, kind in zip(axes[0], _KINDS, strict=True):
        for number, (name, words) in enumerate(_METHODS.items()):
            values = _curves(records, kind, name)
            if len(values):
                label = "L1 distance before RCA" if (kind, name) == ("film", "before") else words
                label = "RCA, teachers" if (kind, name) == ("teachers", "clips") else label
                mean, error = np.transpose([mean_and_error(column) for column in values.T])
                curve(ax, number, _PLACES, mean, error, label=label)
        ax.set(xlabel="first k neighbours", title=_KINDS[kind], ylim=(0, 1))
        ax.legend(loc="lower left" if kind == "film" else "upper right")
    axes[0, 0].set_ylabel("share of the same person")
    pictures = _film(setting, 0).pictures
    shown, frames = panels(1, len(pictures), size=(1.5, 3.0))
    for ax, picture in zip(frames[0], pictures, strict=True):
        ax.imshow(picture, interpolation="nearest")
        ax.set(xticks=[], yticks=[])
        for spine in ax.spines.values():
            spine.set_visible(False)
    frames[0, 0].set_title("frames of one clip", loc="left", fontsize=13)
    return {"figure-9": figure, "figure-9-clip": shown}
