"""Figure 5: what subsampling costs.

LCA learns from 6,000 USPS digits (prepared as for Fig. 4; 2,298 others test) with minibatches of B rows, N rows drawn as
possible neighbours at each step, and a discount gamma (sec. 5). Eq. 7 is run exactly as printed: from the covariance of the data,
{SWEEPS} / (1 - gamma) sweeps over the rows (the paper does not say how many; a step with a large gamma moves little), the last iterate. What it is compared with is the same
with gamma = 0 and all rows in one batch, as in the paper. The library's own solver is shown for comparison. The density always has a
kernel on every training row: only the metric is learned from fewer. Reduced mode has half of the rows (with B and N in proportion) and half of the sweeps, one run, and no gamma = {SLOW}.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from papers.drawing import curve, mean_and_error, panels, plus_minus
from papers.experiment import Claim, Records, Setting, Summary, Table
from papers.lca._digits import STAND_IN, split_digits
from papers.lca._subsampling import eq_7
from vicinal import LCA, ParzenWindows, StochasticEM

if TYPE_CHECKING:
    from matplotlib.figure import Figure


TITLE = "Figure 5: what subsampling costs"
COVERS = ("figure 5", "equation 7")
ORDER = 5
NEEDS = ("usps",)
MINUTES = (0.5, 580)

SWEEPS = 40
SLOW = 0.9
_DISCOUNTS = (0.3, 0.6)
_REG = {True: 1e-5, False: 1e-3}  # full or not
_PAPER_RUNS = 20
# Differences of negative log-likelihood to the exact fit with their standard errors, by gamma and by B: the three N on training
# rows, then on test rows. B and N are 1000, 3000 and 6000.
_PAPER = {
    (0.3, 0): [(6.43, 0.10), (2.70, 0.06), (-0.10, 0.03), (2.12, 0.16), (0.20, 0.08), (0.65, 0.05)],
    (0.3, 1): [(6.58, 0.07), (2.73, 0.05), (-0.06, 0.03), (2.11, 0.16), (0.30, 0.07), (0.46, 0.04)],
    (0.3, 2): [(6.22, 0.08), (2.21, 0.03), (0.00, 0.01), (1.54, 0.16), (-0.75, 0.07), (-0.01, 0.01)],
    (0.6, 0): [(6.43, 0.10), (2.80, 0.06), (-0.17, 0.02), (2.01, 0.17), (0.07, 0.09), (0.15, 0.03)],
    (0.6, 1): [(6.54, 0.07), (2.80, 0.06), (-0.11, 0.02), (2.01, 0.17), (0.16, 0.09), (0.09, 0.03)],
    (0.6, 2): [(6.18, 0.07), (1.98, 0.03), (0.02, 0.02), (1.43, 0.15), (-1.07, 0.08), (0.01, 0.02)],
}


def _sizes(setting: Setting) -> tuple[int, int, tuple[int, ...], int, tuple[int, ...], int]:
    """Return training and test rows; batch and neighbourhood sizes; the small batch; runs of Eq. 7, beside it, of the library; sweeps."""
    if setting.full:
        return 6000, 2298, (1000, 3000, 6000), 100, (10, 3, 3), SWEEPS
    return 600, 600, (100, 300, 600), 50, (2, 2, 2), 10


def _cells(setting: Setting) -> tuple[list[Any], list[Any], list[Any]]:
    """Return (gamma, B, N) of the paper's table, with gamma = 0.9 for the largest N, and of the small batch that it recommends."""
    n, _, sizes, small, _, _ = _sizes(setting)
    table = [(discount, batch, neighbors) for discount in _DISCOUNTS for batch in sizes for neighbors in sizes]
    return table, [(0.9, batch, n) for batch in sizes], [(0.3, small, n), (0.6, small, n), (0.6, small, sizes[1])]


def units(setting: Setting) -> list[dict[str, Any]]:
    n, _, _, _, (literal, beside, library), _ = _sizes(setting)
    table, slow, small = _cells(setting)
    names = ("discount", "batch", "neighbors")
    return [
        {"solver": solver, "run": run, **dict(zip(names, cell, strict=True))}
        for solver, runs, cells in (
            ("Eq. 7", beside, small),
            ("Eq. 7", literal, [(0.0, n, n), *table, *slow]),
            ("library", library, [(0.0, n, n), *table]),
        )
        for run in range(runs)
        for cell in cells
    ]


def measure(setting: Setting, solver: str, run: int, discount: float, batch: int, neighbors: int) -> dict[str, Any]:
    n, m, _, _, _, sweeps = _sizes(setting)
    train, test = split_digits(setting, run, n, m)
    reg = _REG[setting.full]
    if solver == "library":
        lca = LCA(reg=reg, random_state=run, engine=setting.engine)
        if discount == 0:
            lca.set_params(solver="accelerated", tol=1e-3)
        else:
            lca.set_params(solver=StochasticEM(batch_size=batch, n_candidates=neighbors, discount=discount))
        lca.fit(train)
        return {"train": -lca.score(), "test": -lca.score(test), "passes": lca.n_iter_}
    sweeps = round(sweeps / (1 - discount))
    options: dict[str, Any] = {
        "discount": discount,
        "batch": batch,
        "neighbors": neighbors,
        "sweeps": sweeps,
        "reg": reg,
    }
    path = list(eq_7(train, **options, random_state=run, device=setting.device))
    half, last = (
        ParzenWindows(covariance, engine=setting.engine).fit(train) for covariance in (path[sweeps // 2 - 1], path[-1])
    )
    return {"train": -last.score(), "test": -last.score(test), "test at half": -half.score(test)}


def summarise(setting: Setting, records: Records) -> Summary:
    cells = {solver: _differences(records, solver) for solver in ("Eq. 7", "library")}
    tables = [
        _table(setting, cells["Eq. 7"], "Eq. 7 to the letter"),
        _beside(setting, cells["Eq. 7"]),
        _table(
            setting,
            cells["library"],
            "The library's solver, which starts from an exact fit to a sample and keeps the best sweep",
        ),
    ]
    claims = _claims(setting, cells["Eq. 7"])
    if setting.full:
        claims += [_same_numbers(cells["Eq. 7"], _sizes(setting)[2])]
    return Summary(tables, claims, _remarks(setting, records, cells))


def _differences(records: Records, solver: str) -> dict[tuple[Any, ...], np.ndarray]:
    """Return arrays of (train, test) differences to the exact fit of the same run, by (gamma, B, N)."""
    own = [r for r in records if r["solver"] == solver]
    exact = {r["run"]: np.array([r["train"], r["test"]]) for r in own if r["discount"] == 0}
    cells: dict[tuple, list] = {}
    for r in own:
        if r["discount"]:
            key = r["discount"], r["batch"], r["neighbors"]
            cells.setdefault(key, []).append(np.array([r["train"], r["test"]]) - exact[r["run"]])
    return {key: np.array(values) for key, values in cells.items()}


def _table(setting: Setting, cells: dict[tuple[Any, ...], np.ndarray], name: str) -> Table:
    sizes = _sizes(setting)[2]
    columns = ["gamma", "B", *(f"{part}, N = {size}" for part in ("train", "test") for size in sizes)]
    rows = []
    for discount in _DISCOUNTS:
        for position, batch in enumerate(sizes):
            found = [plus_minus(cells[discount, batch, n][:, part]) for part in (0, 1) for n in sizes]
            if setting.full:
                found = [
                    f"{text} ({mean:+.2f})" for text, (mean, _) in zip(found, _PAPER[discount, position], strict=True)
                ]
            rows.append([discount, batch, *found])
    runs = len(cells[_DISCOUNTS[0], sizes[0], sizes[0]])
    caption = f"{name}: negative log-likelihood (nats per digit) minus that of the exact fit, mean and standard error of {runs} runs"
    caption += f"; in brackets the paper's ({_PAPER_RUNS} runs)." if setting.full else f". {STAND_IN}"
    return Table(columns, rows, caption)


def _beside(setting: Setting, cells: dict[tuple[Any, ...], np.ndarray]) -> Table:
    rows = [
        [discount, batch, neighbors, *(plus_minus(cells[discount, batch, neighbors][:, part]) for part in (0, 1))]
        for discount, batch, neighbors in (*_cells(setting)[1], *_cells(setting)[2])
    ]
    caption = (
        "Eq. 7 where the paper has words and no numbers (small batches, and a discount that it calls very similar):"
    )
    return Table(["gamma", "B", "N", "train", "test"], rows, caption)


def _claims(setting: Setting, cells: dict[tuple[Any, ...], np.ndarray]) -> list[Claim]:
    few, some, all_rows = sizes = _sizes(setting)[2]
    small = _sizes(setting)[3]
    mean = {key: value.mean(axis=0) for key, value in cells.items()}
    gammas_here = sorted({g for g, batch, _ in mean if batch > small})
    ranges = {g: float(np.ptp([mean[g, b, all_rows][1] for b in sizes])) for g in gammas_here}
    gammas = max(np.abs(mean[0.3, b, n] - mean[0.6, b, n]).max() for b in sizes for n in sizes)
    largest = gammas_here[-1]
    slow = max(np.abs(mean[0.6, b, all_rows] - mean[largest, b, all_rows]).max() for b in sizes)
    train = {n: float(np.mean([mean[g, b, n][0] for g in _DISCOUNTS for b in sizes])) for n in sizes}
    test = {n: float(np.mean([mean[g, all_rows, n][1] for g in _DISCOUNTS])) for n in sizes}
    safe = mean[0.6, small, some]
    claims = [
        Claim(
            "gamma has little influence: 0.3 and 0.6 within 1 nat of each other in every cell"
            + (", 0.9 (with all rows as neighbours) within 1 nat of 0.6" if largest == 0.9 else ""),
            max(gammas, slow) < 1,
            f"largest difference {gammas:.2f} nats" + (f", and {slow:.2f}" if slow else ""),
        ),
        Claim(
            "a small neighbourhood hurts: the training likelihood is the worse the smaller N is (by 0.1 nats at each step)",
            train[few] > train[some] + 0.1 > train[all_rows] + 0.2,
            ", ".join(f"{train[n]:+.2f} nats (N = {n})" for n in sizes),
        ),
        Claim(
            "reducing the neighbourhood regularises at first: with full batches half the rows do better on test rows than all"
            if setting.full
            else "reducing the neighbourhood regularises at first: with full batches half the rows cost less on test than on training rows",
            test[some] < (0 if setting.full else train[some]),
            f"{test[some]:+.2f} nats on test rows (N = {some}); {train[some]:+.2f} on training rows",
        ),
        Claim(
            "reduced too much it drastically hurts (with full batches by 1 nat at least on test rows)"
            if setting.full
            else "reduced too much it hurts (with full batches, on test rows)",
            test[few] > (1 if setting.full else 0),
            f"{test[few]:+.2f} nats (N = {few})",
        ),
        Claim(
            "it is safe to use gamma = 0.6 with the small batches and half of the rows as neighbours (under 1 nat on test rows)",
            safe[1] < 1,
            f"{safe[1]:+.2f} nats on test rows, {safe[0]:+.2f} on training rows (B = {small}, N = {some})",
        ),
    ]  # fmt: skip
    return [*_claims_of_full_runs(cells, ranges, few, some, all_rows), *claims] if setting.full else claims


def _claims_of_full_runs(
    cells: dict[tuple[Any, ...], np.ndarray], ranges: dict[float, float], few: int, some: int, all_rows: int
) -> list[Claim]:
    largest = max(ranges)
    batches = Claim(
        "reducing the batch size has little effect except when gamma is small: with all rows as neighbours the test figures of the three batch sizes lie within 0.3 nats of each other for gamma = 0.6 and 0.9, and at least twice as far apart for gamma = 0.3 as for 0.6",
        max(ranges[0.6], ranges[largest]) < 0.3 and ranges[0.3] > 2 * ranges[0.6],
        "range " + ", ".join(f"{value:.2f} (gamma = {g})" for g, value in ranges.items()),
    )
    spread = {g: [cells[g, b, all_rows][:, 1] for b in (few, some)] for g in (0.3, largest)}
    if len(spread[0.3][0]) < 2 or largest == 0.6:
        return [batches]
    first, last = (float(np.mean([values.std(ddof=1) for values in spread[g]])) for g in (0.3, largest))
    consistent = Claim(
        "larger values of gamma yield more consistent test performance: with minibatches and all rows as neighbours the standard deviation over runs is lower for 0.9 than for 0.3",
        last < first,
        f"{last:.3f} against {first:.3f} nats",
    )
    return [batches, consistent]


def _compared(cells: dict[tuple[Any, ...], np.ndarray], sizes: tuple[int, ...]) -> np.ndarray:
    """Return ours minus the paper's for the 36 cells of its table, in standard errors of the difference.

    One run has no standard error of its own: the paper's serves, scaled to one run.
    """
    found = []
    for (discount, position), paper in _PAPER.items():
        own = [cells[discount, sizes[position], n][:, part] for part in (0, 1) for n in sizes]
        for values, (mean, error) in zip(own, paper, strict=True):
            ours, ours_error = mean_and_error(values)
            if len(values) == 1:
                ours_error = error * np.sqrt(_PAPER_RUNS)
            found.append((ours - mean) / np.hypot(ours_error, error))
    return np.array(found)


def _same_numbers(cells: dict[tuple[Any, ...], np.ndarray], sizes: tuple[int, ...]) -> Claim:
    away = np.abs(_compared(cells, sizes))
    return Claim(
        "the numbers are the paper's: nine of ten cells within two standard errors of the difference",
        float((away < 2).mean()) >= 0.9,
        f"{(away < 2).sum()} of {len(away)} cells",
    )


def _remarks(setting: Setting, records: Records, cells: dict[str, dict[tuple[Any, ...], np.ndarray]]) -> list[str]:
    sizes = _sizes(setting)[2]
    exact = {s: [r["test"] for r in records if r["solver"] == s and r["discount"] == 0] for s in ("Eq. 7", "library")}
    late = {
        g: max(abs(r["test at half"] - r["test"]) for r in records if r["solver"] == "Eq. 7" and r["discount"] == g)
        for g in sorted({r["discount"] for r in records} - {0.0})
    }
    remarks = [
        "The paper names neither its penalty nor its number of sweeps; one of each was tried here.",
        f"The exact fits have a test negative log-likelihood of {plus_minus(exact['Eq. 7'])} (EM from the covariance of the data) and "
        f"{plus_minus(exact['library'])} (the library's accelerated solver). The paper's penalty for this figure is not known; "
        f"{_REG[setting.full]:g} here.",
        "Slower convergence with a larger gamma: between half of the sweeps and the last, the test figure of a cell still moves by at most "
        + ", ".join(f"{value:.2f} (gamma = {g})" for g, value in late.items())
        + " nats.",
    ]
    if setting.full:
        within = {name: int((np.abs(_compared(found, sizes)) < 2).sum()) for name, found in cells.items()}
        remarks.append(
            f"Within two standard errors of the paper's are {within['Eq. 7']} of the cells of Eq. 7 and {within['library']} of those of the library's "
            f"solver, out of {6 * len(_PAPER)}. The library's are near zero for N = {sizes[-1]} by construction: its start is "
            "an exact fit."
        )
    return remarks


def draw(setting: Setting, records: Records) -> "dict[str, Figure]":
    sizes = _sizes(setting)[2]
    cells = _differences(records, "Eq. 7")
    figure, axes = panels(1, 2, size=(6.2, 5.0))
    for part, (ax, name) in enumerate(zip(axes[0], ("training rows", "test rows"), strict=True)):
        settings = [(discount, batch) for discount in _DISCOUNTS for batch in sizes]
        for number, (discount, batch) in zip((0, 1, 2, 3, 4, 6), settings, strict=True):
            moments = [mean_and_error(cells[discount, batch, n][:, part]) for n in sizes]
            means, errors = zip(*moments, strict=True)
            places = np.arange(3) + 0.07 * (settings.index((discount, batch)) - 2.5)
            curve(ax, number, places, means, errors, label=f"gamma = {discount}, B = {batch}")
            if setting.full:
                paper = _PAPER[discount, sizes.index(batch)][3 * part : 3 * part + 3]
                ax.plot(places, [mean for mean, _ in paper], "k_", markersize=12, label=None if number else "the paper")
        ax.axhline(0, color="0.6", linewidth=0.8)
        ax.set(title=name, xlabel="N, possible neighbours")
        ax.set_xticks(range(3), map(str, sizes))
    axes[0, 0].set_ylabel("nats worse than the exact fit")
    handles, names = axes[0, 0].get_legend_handles_labels()
    axes[0, 0].legend(handles, names, fontsize=10)
    return {"figure-5": figure}
