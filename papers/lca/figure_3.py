"""Figures 2 and 3: clustering as dimensions of noise are added.

Two Gaussians, two circles, five Gaussians (Fig. 2) are whitened and columns of white noise are appended (sec. 6.1).
The same spectral clustering (SC) is applied to the whitened rows; the two least Gaussian components of FastICA with the
contrast function that clusters best; the rows in LCA's metric; the local subspaces of LCA-Gauss and LCA-Gauss-Red; the
plane of NGCA. The paper gives neither the number of points (500 here), nor the layout of the five Gaussians, nor the graph of SC.
Here each point is connected to its 20 nearest with widths tuned by their distances, as in the code that the paper cites. A second
table has the other graph that the paper may mean (all pairs connected, with one width for all: the median distance, or the width
that is best by the true clusters: four widths, twice the median to a quarter of it, and a search down to a sixteenth of it in few runs), k-means, and a supervised reduction of dimension (NCA to the plane).
"""

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import kurtosis

from papers.drawing import curve, dots, mean_and_error, panels, plus_minus
from papers.experiment import Claim, Records, Setting, Summary, Table
from papers.lca._clustering import accuracy, fastica_planes, k_means, one_width
from papers.lca._ngca import ngca
from papers.lca._problems import PROBLEMS, noisy
from vicinal import LCA, NCA, LCAGauss

if TYPE_CHECKING:
    from matplotlib.figure import Figure


TITLE = "Figures 2 and 3: clustering as dimensions of noise are added"
COVERS = ("figure 3", "figure 2")
ORDER = 3
MINUTES = (1, 60)

_METHODS = ("SC", "FastICA", "LCA", "LCA-Gauss", "LCA-Gauss-Red", "NGCA")
_WIDTHS = np.geomspace(2, 1 / 16, 11)  # times the median distance
_BESIDE = ("SC, one width", "SC, best width", "LCA, one width", "k-means", "k-means on LCA", "NCA, told the clusters")
_BEST = "SC, best width"
_GRAPHS = {
    "SC, one width": "in a graph of one width, the median distance",
    _BEST: "in a graph of one width, the best by the true clusters",
    "SC": "in a graph whose widths are tuned at each point",
}
_PAPER_RUNS = 100
_POINTS = (500, 2000)
_WIDTH_RUNS = 3  # of the search for a width


def _sizes(setting: Setting) -> tuple[tuple[int, ...], int]:
    """Return numbers of noise dimensions, and of runs."""
    return ((0, 2, 5, 10, 15), 30) if setting.full else ((0, 5), 2)


def _width_dimensions(dimensions: tuple[int, ...]) -> tuple[int, ...]:
    """Return the numbers of noise dimensions at which the best width is sought: none, the middle one, and the most."""
    return dimensions[0], dimensions[len(dimensions) // 2], dimensions[-1]


def units(setting: Setting) -> list[dict[str, Any]]:
    dimensions, runs = _sizes(setting)
    found: list[dict[str, Any]] = [
        {"problem": p, "noise": noise, "run": run, "points": _POINTS[0]}
        for run in range(runs)
        for p in PROBLEMS
        for noise in dimensions
    ]
    widths = [
        {**unit, "part": "widths"}
        for unit in found
        if unit["run"] < _WIDTH_RUNS and unit["noise"] in _width_dimensions(dimensions)
    ]
    more = {"problem": "two circles", "noise": 10, "points": _POINTS[1]}
    return [*found, *widths, *({**more, "run": run} for run in range(3) if setting.full)]


def measure(
    setting: Setting, problem: str, noise: int, run: int, points: int, part: str = "accuracy"
) -> dict[str, Any]:
    X, y = noisy(problem, points, noise, run)
    if part == "widths":
        return {"widths": one_width(X, y, _WIDTHS)}
    local = LCA(tol=1e-5, reg=0.0).fit_transform(X)
    if points > _POINTS[0]:
        return {"LCA": accuracy(local, y)}
    gauss, reduced = (LCAGauss(reduce=search, tol=1e-5, reg=0.0, reg_gauss=0.0).fit(X) for search in (False, True))
    images = {
        "SC": X,
        "LCA": local,
        "LCA-Gauss": _subspace(gauss, X),
        "LCA-Gauss-Red": _subspace(reduced, X),
        "NGCA": ngca(X, 2, random_state=run),
        "NCA, told the clusters": NCA(2, random_state=run, max_iter=200).fit(X, y).transform(X),
    }
    found = {name: accuracy(Z, y) for name, Z in images.items()}
    found["FastICA"] = max(accuracy(plane, y) for plane in fastica_planes(X))
    widths = one_width(X, y, np.array([1.0, 0.5, 0.25, 2.0]))
    found |= {"SC, one width": widths[0], _BEST: max(widths), "LCA, one width": one_width(local, y, np.ones(1))[0]}
    found |= {"k-means": k_means(X, y), "k-means on LCA": k_means(local, y)}
    return {**found, "directions": [gauss.n_components_, reduced.n_components_]}


def _subspace(model: LCAGauss, X: np.ndarray) -> np.ndarray:
    """Return the local subspace; where all directions were found Gaussian there is none, and the rows stay as they are."""
    return model.transform(X) if model.n_components_ else X


def summarise(setting: Setting, records: Records) -> Summary:
    dimensions, _ = _sizes(setting)
    own = [r for r in records if r["points"] == _POINTS[0] and "widths" not in r]
    value = {
        (problem, noise, method): np.array([r[method] for r in own if (r["problem"], r["noise"]) == (problem, noise)])
        for problem in PROBLEMS
        for noise in dimensions
        for method in (*_METHODS, *_BESIDE)
    }
    best = _best_widths(setting, records)
    value |= {(*key, _BEST): accuracy for key, (accuracy, _) in best.items()}
    runs = len({record["run"] for record in own})
    paper = f"the paper has {_PAPER_RUNS} and shows curves only"
    tables = [
        Table(
            ["noise dimensions", *_METHODS, "local directions found (Gauss, Red)"],
            [
                [noise, *(plus_minus(value[problem, noise, m], 1) for m in _METHODS), _directions(own, problem, noise)]
                for noise in dimensions
            ],
            f"Accuracy in per cent, {problem}, mean and standard error of {runs} runs ({paper}):",
        )
        for problem in PROBLEMS
    ]
    tables.append(
        Table(
            ["problem", "noise dimensions", *_BESIDE],
            [
                [p, noise, *(plus_minus(value[p, noise, m], 1) if (p, noise, m) in value else "" for m in _BESIDE)]
                for p in PROBLEMS
                for noise in dimensions
            ],
            "Accuracy in per cent of the other graph (the best width of four, twice the median distance to a quarter of it"
            + (f"; of {len(_WIDTHS)} in {_cells(best)})" if best else ")")
            + ", of k-means, and of a supervised reduction of the dimension:",
        )
    )
    mean = {key: values.mean() for key, values in value.items()}
    middle = dimensions[len(dimensions) // 2]
    found = [r["directions"][1] for r in own if (r["problem"], r["noise"]) == ("two circles", middle)]
    claims = [_almost_gaussian(), *_claims(dimensions, mean, np.mean(found)), *_claims_beside(dimensions, mean)]
    return Summary(tables, claims, _remarks(setting, dimensions, mean, records, best))


def _cells(best: dict[tuple[str, int], tuple[np.ndarray, float]]) -> str:
    """Return where the best width was sought among all, with the number of runs."""
    cells = [f"{problem} with {noise} ({len(runs)})" for (problem, noise), (runs, _) in best.items()]
    return "the runs of " + ", ".join(cells)


def _best_widths(setting: Setting, records: Records) -> dict[tuple[str, int], tuple[np.ndarray, float]]:
    """Return the accuracies with the best width of each run, and the share of the runs in which it is the narrowest that was tried."""
    found = {}
    for problem in PROBLEMS:
        for noise in _width_dimensions(_sizes(setting)[0]):
            runs = [r["widths"] for r in records if "widths" in r and (r["problem"], r["noise"]) == (problem, noise)]
            if not runs:
                continue
            widths = np.array([setting.part(run) for run in runs])
            found[problem, noise] = widths.max(axis=1), float(np.mean(widths[:, :-1].max(axis=1) < widths[:, -1]))
    return found


def _almost_gaussian() -> Claim:
    """Return whether the marginals of the five Gaussians are what the paper says; their layout is ours."""
    X, _ = PROBLEMS["five Gaussians"](20_000, random_state=0)
    excess = kurtosis(X, axis=0)
    return Claim(
        "the directions of interest of the five Gaussians have almost Gaussian marginals (excess kurtosis of both columns within 0.5 of zero)",
        float(np.abs(excess).max()) < 0.5,
        " and ".join(f"{value:+.2f}" for value in excess),
    )


def _remarks(
    setting: Setting,
    dimensions: tuple[int, ...],
    mean: dict[tuple[Any, ...], float],
    records: Records,
    best: dict[tuple[str, int], tuple[np.ndarray, float]],
) -> list[str]:
    if not setting.full:
        return []
    before, many = dimensions[-2:]
    narrow = [
        f"{share:.0%} of the runs on {problem} with {noise}" for (problem, noise), (_, share) in best.items() if share
    ]
    large = [r["LCA"] for r in records if r["points"] == _POINTS[1]]
    ten = next(r["noise"] for r in records if r["points"] == _POINTS[1])
    return [
        "Other methods are as good as LCA in some cases: on five Gaussians, NGCA, which is given the true dimension, has "
        f"{mean['five Gaussians', before, 'NGCA']:.1f}% with {before} dimensions of noise (LCA-Gauss-Red: "
        f"{mean['five Gaussians', before, 'LCA-Gauss-Red']:.1f}%) and {mean['five Gaussians', many, 'NGCA']:.1f}% with {many}; FastICA, whose "
        f"contrast function is chosen with the true clusters, as in the paper, has {mean['five Gaussians', many, 'FastICA']:.1f}% with {many} "
        f"(LCA: {mean['five Gaussians', many, 'LCA']:.1f}%). The paper makes no claim about FastICA.",
        "The paper does not say which graph it means. "
        + (f"The narrowest width that was tried is the only best one in {', '.join(narrow)}." if narrow else ""),
        "LCA-Gauss-Red counts the parameters of a direction against it, which the paper does not; see Algorithm 1 for what that costs.",
        f"More points move the number of noise dimensions at which each method breaks: on the circles with {ten} of them LCA has "
        f"{mean['two circles', ten, 'LCA']:.1f}% with {_POINTS[0]} points and {np.mean(large):.1f}% with {_POINTS[1]} ({len(large)} runs).",
    ]


def _directions(records: Records, problem: str, noise: int) -> str:
    found = [r["directions"] for r in records if (r["problem"], r["noise"]) == (problem, noise)]
    return ", ".join(f"{mean:.1f}" for mean in np.mean(found, axis=0))


def _claims(dimensions: tuple[int, ...], mean: dict[tuple[Any, ...], float], found: float) -> list[Claim]:
    some, many = dimensions[len(dimensions) // 2], dimensions[-1]
    ours = ("LCA", "LCA-Gauss", "LCA-Gauss-Red")
    circles, five = ({m: mean[problem, some, m] for m in _METHODS} for problem in ("two circles", "five Gaussians"))
    worst = {problem: min(mean[problem, 0, m] for m in ours) for problem in PROBLEMS}
    return [
        Claim(
            "without noise LCA and its variants solve all three problems (95% at least)",
            min(worst.values()) >= 95,
            ", ".join(f"{problem}: {value:.1f}% at least" for problem, value in worst.items()),
        ),
        *(
            Claim(
                f"with little noise spectral clustering fails completely on two Gaussians, {words} (below 75% with {some} dimensions)",
                mean["two Gaussians", some, method] < 75,
                f"{mean['two Gaussians', some, method]:.1f}% with {some} dimensions of noise, {mean['two Gaussians', many, method]:.1f}% with {many}",
            )
            for method, words in _GRAPHS.items()
            if ("two Gaussians", some, method) in mean
        ),
        Claim(
            f"on two Gaussians LCA and its variants are much more robust (above 95% with {some} dimensions, by either graph)",
            min(mean["two Gaussians", some, m] for m in (*ours, "LCA, one width")) > 95,
            ", ".join(f"{m} {mean['two Gaussians', some, m]:.1f}%" for m in (*ours, "LCA, one width")),
        ),
        Claim(
            f"two circles with {some} dimensions of noise: SC fails (below 70%), LCA and its variants are much more robust "
            "(15% better at least)",
            circles["SC"] < 70 and min(circles[m] for m in ours) > circles["SC"] + 15,
            f"SC {circles['SC']:.1f}%, " + ", ".join(f"{m} {circles[m]:.1f}%" for m in ours),
        ),
        Claim(
            f"five Gaussians with {some} dimensions of noise: likewise (10% better than SC at least)",
            min(five[m] for m in ours) > five["SC"] + 10,
            f"SC {five['SC']:.1f}%, " + ", ".join(f"{m} {five[m]:.1f}%" for m in ours),
        ),
        Claim(
            "NGCA works very well on two Gaussians, where one component matters (95% at least with all the noise)",
            mean["two Gaussians", many, "NGCA"] >= 95,
            f"{mean['two Gaussians', many, 'NGCA']:.1f}% with {many} dimensions of noise",
        ),
        Claim(
            "NGCA drops quickly with two components that matter: two circles (15% below LCA-Gauss-Red)",
            circles["NGCA"] < circles["LCA-Gauss-Red"] - 15,
            f"{circles['NGCA']:.1f}% against {circles['LCA-Gauss-Red']:.1f}% with {some} dimensions of noise",
        ),
        Claim(
            "NGCA drops quickly with two components that matter: five Gaussians (15% below LCA-Gauss-Red)",
            five["NGCA"] < five["LCA-Gauss-Red"] - 15,
            f"{five['NGCA']:.1f}% against {five['LCA-Gauss-Red']:.1f}% with {some} dimensions of noise; with {many}, "
            f"{mean['five Gaussians', many, 'NGCA']:.1f}% against {mean['five Gaussians', many, 'LCA-Gauss-Red']:.1f}%",
        ),
        Claim(
            f"LCA-Gauss-Red finds how many directions matter (two circles, {some} dimensions of noise: 2, within 0.5)",
            abs(found - 2) <= 0.5,
            f"{found:.1f} on average",
        ),
    ]


def _claims_beside(dimensions: tuple[int, ...], mean: dict[tuple[Any, ...], float]) -> list[Claim]:
    """Return the claims about k-means, and about a reduction that is given the clusters."""
    some = dimensions[len(dimensions) // 2]
    pairs = [(mean[p, some, "LCA"], mean[p, some, "k-means on LCA"]) for p in PROBLEMS]
    gaps = {p: mean[p, some, "NCA, told the clusters"] - mean[p, some, "LCA-Gauss-Red"] for p in PROBLEMS}
    return [
        Claim(
            f"spectral clustering performs better than k-means (in LCA's metric with {some} dimensions of noise: by 10% at least where clusters are not convex, by no more than 2% worse elsewhere)",
            pairs[1][0] > pairs[1][1] + 10 and min(sc - km for sc, km in pairs) > -2,
            "; ".join(f"{p}: {sc:.1f}% against {km:.1f}%" for p, (sc, km) in zip(PROBLEMS, pairs, strict=True)),
        ),
        Claim(
            f"LCA-Gauss reduces the dimension without labels as well as a supervised method (LCA-Gauss-Red within 3% of NCA with the true clusters, {some} dimensions of noise)",
            max(gaps.values()) < 3,
            "; ".join(f"{p}: {-gap:+.1f}%" for p, gap in gaps.items()),
        ),
    ]  # fmt: skip


def draw(setting: Setting, records: Records) -> "dict[str, Figure]":
    dimensions, _ = _sizes(setting)
    clouds, axes = panels(1, 3, size=(4.4, 4.2))
    for ax, (name, make) in zip(axes[0], PROBLEMS.items(), strict=True):
        dots(ax, *make(500, random_state=0))
        ax.set(title=name, xlabel="x", ylabel="y", aspect="equal")
    curves, axes = panels(1, 3, size=(5.0, 5.0), sharey=True)
    for ax, problem in zip(axes[0], PROBLEMS, strict=True):
        for number, method in zip((0, 1, 2, 3, 4, 6), _METHODS, strict=True):  # six signs that differ
            own = [r for r in records if r["problem"] == problem and r["points"] == _POINTS[0] and "widths" not in r]
            cells = [[r[method] for r in own if r["noise"] == d] for d in dimensions]
            means, errors = zip(*map(mean_and_error, cells), strict=True)
            places = np.array(dimensions) + 0.12 * (len(ax.containers) - 2.5)  # side by side where they are equal
            curve(ax, number, places, means, errors, label=method)
        ax.set(title=problem, xlabel="dimensions of noise", ylim=(20, 103))
    axes[0, 0].set_ylabel("clustering accuracy (%)")
    axes[0, 0].legend(loc="lower left")
    return {"figure-2": clouds, "figure-3": curves}
