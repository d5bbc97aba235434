"""Section 7: RCA of a stream.

Pairs of one class arrive one at a time, and each updates W a little (Algorithm 3). With decreasing steps, W
converges to RCA's whitening, up to a rotation; with a constant step it stays noisy, in proportion to the step, but
follows a source that changes. Here the source changes half-way. The error is the distance of W C W' from the
identity, the root mean square over its entries, where C is the true within-chunklet covariance of the moment.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from papers.drawing import curve, mean_and_error, panels, plus_minus
from papers.experiment import Claim, Records, Setting, Summary, Table
from vicinal import OnlineRCA

if TYPE_CHECKING:
    from matplotlib.figure import Figure


TITLE = "Section 7: online RCA converges, or adapts"
COVERS = ("section 7",)
ORDER = 3
MINUTES = (0.2, 0.2)

_D, _BLOCK = 5, 100
_LARGE, _SMALL = 0.006, 0.0015
_STEPS: dict[str, str | float] = {"decreasing step": "auto", "large step": _LARGE, "small step": _SMALL}


def units(setting: Setting) -> list[dict[str, Any]]:
    return [{"run": run} for run in range(10 if setting.full else 3)]


def measure(setting: Setting, run: int) -> dict[str, Any]:
    rng = np.random.RandomState(run)
    turn = np.linalg.qr(rng.standard_normal((_D, _D)))[0]
    roots = [turn * spread for spread in ([1.6, 1, 1.6, 1, 1.6], [1, 1.6, 1, 1.6, 1])]
    models = {name: OnlineRCA(step) for name, step in _STEPS.items()}
    errors: dict = {name: [] for name in models}
    n_blocks = 80
    for block in range(n_blocks):
        root = roots[0 if block < n_blocks // 2 else 1]
        centres = np.repeat(3 * rng.standard_normal((_BLOCK, _D)), 2, axis=0)
        pairs = centres + rng.standard_normal((2 * _BLOCK, _D)) @ root.T
        covariance = root @ root.T / 2  # of a point about the mean of its pair, as in Eq. 1
        for name, model in models.items():
            W = model.partial_fit(pairs, np.arange(2 * _BLOCK) // 2).components_
            errors[name].append(round(float(np.sqrt(np.mean((W @ covariance @ W.T - np.eye(_D)) ** 2))), 4))
    return {"errors": errors}


def summarise(setting: Setting, records: Records) -> Summary:
    errors = {name: np.array([record["errors"][name] for record in records]) for name in _STEPS}
    half = errors["decreasing step"].shape[1] // 2
    # of the last five blocks before the change, and of the last five of all
    before = {name: values[:, half - 5 : half].mean(axis=1) for name, values in errors.items()}
    after = {name: values[:, -5:].mean(axis=1) for name, values in errors.items()}
    rows = [
        [name if step == "auto" else f"{name}, {step}", plus_minus(before[name], 3), plus_minus(after[name], 3)]
        for name, step in _STEPS.items()
    ]
    falling = errors["decreasing step"].mean(axis=0)
    noise = [before[name].mean() for name in ("large step", "small step")]
    claims = [
        Claim(
            "with decreasing steps it converges to RCA (the error falls by half from 200 to 4,000 pairs)",
            falling[half - 1] < 0.5 * falling[1],
            f"{falling[1]:.3f} after {2 * _BLOCK} pairs, {falling[half - 1]:.3f} after {half * _BLOCK}",
        ),
        Claim(
            "a constant step leaves noise that grows with it (by half or more for four times the step)",
            noise[0] > 1.5 * noise[1],
            f"{noise[0]:.3f} for step {_LARGE}, {noise[1]:.3f} for step {_SMALL}",
        ),
        Claim(
            "a constant step adapts to a source that changes, decreasing steps only slowly (errors apart by half)",
            1.5 * after["small step"].mean() < after["decreasing step"].mean(),
            f"{after['small step'].mean():.3f} (step {_SMALL}), {after['decreasing step'].mean():.3f} (decreasing)",
        ),
    ]
    remarks = [
        "The paper reports its simulations in words. It says that the noise “is proportional to η”; that is so of the variance: the "
        "error here is a standard deviation and grows with the root of the step."
    ]
    columns = ["step", f"error after {half * _BLOCK} pairs", f"error {half * _BLOCK} pairs after the change"]
    return Summary([Table(columns, rows)], claims, remarks)


def draw(setting: Setting, records: Records) -> "dict[str, Figure]":
    figure, axes = panels(1, 1, size=(7.2, 4.8))
    ax = axes[0, 0]
    for number, name in enumerate(_STEPS):
        values = np.array([record["errors"][name] for record in records])[:, 1::4]
        mean, error = np.transpose([mean_and_error(column) for column in values.T])
        curve(ax, number, _BLOCK * np.arange(2, 4 * len(mean), 4), mean, error, label=name)
    ax.axvline(_BLOCK * 40, color="0.5", linewidth=1)
    ax.annotate("the source changes", (_BLOCK * 40, 0.02), xytext=(6, 4), textcoords="offset points", fontsize=12)
    ax.set(yscale="log", xlabel="pairs seen", ylabel="error of W C W'", ylim=(0.01, 1.2))
    ax.legend(ncols=2)
    return {"section-7": figure}
