"""Figure 1: the holes of nearest neighbours.

Two classes lie along two horizontal lines, at {APART} from each other, with Gaussian noise of standard deviation {SPREAD} across them: 30 rows of each on a
length of 4. The true boundary is the straight line between them. Where a class has a gap, the nearest row belongs to the other
class, and the surface of the nearest-neighbour rule has holes and zig-zags; so has that of spherical Parzen windows. Manifold Parzen windows of one
direction follow the lines. The parameters of both densities are chosen by the conditional log-likelihood of 300 validation rows. The table shows
the area on the wrong side of the line, within the strip of the data, and the errors on new rows.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.neighbors import KNeighborsClassifier

from papers.drawing import dots, panels, plus_minus
from papers.experiment import GRIDS, Claim, Records, Setting, Summary, Table, best_positions
from vicinal import DensityClassifier, ManifoldParzen, ParzenWindows

if TYPE_CHECKING:
    from matplotlib.figure import Figure


TITLE = "Figure 1: the holes of nearest neighbours"
COVERS = ("figure 1",)
ORDER = 0
MINUTES = (0.1, 0.5)

APART, SPREAD = 0.3, 0.05
_LENGTH, _ROWS = 4.0, 30
_WIDTHS = np.geomspace(0.02, 1.0, 40)
_NOISES = np.geomspace(0.005, 0.2, 20)
_NEIGHBOURS = (2, 3, 4, 5, 6, 7, 9, 11)
_MODELS = ("nearest neighbour", "Parzen", "MParzen")


def units(setting: Setting) -> list[dict[str, Any]]:
    return [{"run": run} for run in range(40 if setting.full else 5)]


def measure(setting: Setting, run: int) -> dict[str, Any]:
    rng = np.random.RandomState(run)
    (test, labels), models = _draw(rng, 5000), _fitted(rng)
    strip, side = _strip(200, 60)
    return {
        name: {
            grid: {
                "area": 100 * float((model.predict(strip) != side).mean()),
                "error": 100 * (1 - model.score(test, labels)),
            }
            for grid, model in by_grid.items()
        }
        for name, by_grid in models.items()
    }


def _draw(rng: np.random.RandomState, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of both classes."""
    y = np.repeat([0, 1], count)
    across = APART * (y - 0.5) + SPREAD * rng.standard_normal(len(y))
    return np.stack([rng.uniform(0, _LENGTH, len(y)), across], axis=1), y


def _fitted(rng: np.random.RandomState) -> dict[str, dict[str, Any]]:
    """Return the models by the part of the grids from which the validation rows choose."""
    (X, y), (valid, v) = _draw(rng, _ROWS), _draw(rng, 150)

    def best(densities: list[list[Any]]) -> dict[str, DensityClassifier]:
        fitted = [[DensityClassifier(density).fit(X, y) for density in line] for line in densities]
        right = np.arange(len(v)), v
        scores = np.array([[model.predict_log_proba(valid)[right].mean() for model in line] for line in fitted])
        if len(densities) == 1:
            return {grid: fitted[0][at] for grid, (at,) in best_positions(scores[0]).items()}
        return {grid: fitted[line][at] for grid, (line, at) in best_positions(scores).items()}

    manifold = [[ManifoldParzen(1, n_neighbors=k, noise=s**2) for s in _NOISES] for k in _NEIGHBOURS]
    models = (
        dict.fromkeys(GRIDS, KNeighborsClassifier(1).fit(X, y)),
        best([[ParzenWindows(width) for width in _WIDTHS]]),
        best(manifold),
    )
    return dict(zip(_MODELS, models, strict=True))


def _strip(columns: int, lines: int) -> tuple[np.ndarray, np.ndarray]:
    """Return points of the strip of the data, and on which side of the true boundary each is."""
    height = 0.5 * APART + 2 * SPREAD
    points = np.stack(np.meshgrid(np.linspace(0, _LENGTH, columns), np.linspace(-height, height, lines)), axis=-1)
    points = points.reshape(-1, 2)
    return points, (points[:, 1] > 0).astype(int)


def summarise(setting: Setting, records: Records) -> Summary:
    value = {
        (m, key): np.array([r[m][setting.grid][key] for r in records]) for m in _MODELS for key in ("area", "error")
    }
    rows = [[m, plus_minus(value[m, "area"]), plus_minus(value[m, "error"], 3)] for m in _MODELS]
    area, error = ({m: float(value[m, key].mean()) for m in _MODELS} for key in ("area", "error"))
    claims = [
        Claim(
            "nearest neighbours leave holes: at least 5% of the strip is on the wrong side of the surface",
            area["nearest neighbour"] >= 5,
            f"{area['nearest neighbour']:.1f}%",
        ),
        Claim(
            "kernels that follow the manifold leave fewer (at most half the area of nearest neighbours, and less than spherical windows)",
            area["MParzen"] <= 0.5 * area["nearest neighbour"] and area["MParzen"] < area["Parzen"],
            f"{area['MParzen']:.1f}% against {area['nearest neighbour']:.1f}% and {area['Parzen']:.1f}% (Parzen)",
        ),
        Claim(
            "they err less on new rows (than nearest neighbours)",
            error["MParzen"] < error["nearest neighbour"],
            f"{error['MParzen']:.3f}% against {error['nearest neighbour']:.3f}%",
        ),
    ]
    caption = f"Area on the wrong side and errors in per cent, mean and standard error of {len(records)} training sets (the paper has a picture):"
    return Summary([Table(["rule", "area", "errors on new rows"], rows, caption)], claims)


def draw(setting: Setting, records: Records) -> "dict[str, Figure]":
    rng = np.random.RandomState(records[0]["run"])
    _draw(rng, 5000)
    state = rng.get_state()
    models = _fitted(rng)
    rng.set_state(state)
    X, y = _draw(rng, _ROWS)
    grid, _ = _strip(400, 120)
    figure, axes = panels(3, 1, size=(8.4, 2.3), sharex=True, sharey=True)
    for ax, (name, by_grid) in zip(axes[:, 0], models.items(), strict=True):
        side = by_grid[setting.grid].predict(grid).reshape(120, 400)
        x, across = grid[:400, 0], grid[::400, 1]
        ax.contourf(x, across, side, levels=[-0.5, 0.5, 1.5], colors=["#dbe8f5", "#fbe3d0"])
        ax.axhline(0, color="0.4", linewidth=0.8, linestyle="--")
        dots(ax, X, y, size=16)
        ax.set(title=name, ylabel="across")
    axes[-1, 0].set_xlabel("along the manifold")
    return {"figure-1": figure}
