"""Table 2: the density of images of a "2".

5,400 of MNIST's training images of a "2" (784 pixels in [0, 1]) train, the 558 others choose the parameters, the 1,032 test
images test (sec. 4.2). Ordinary Parzen windows have a width, from a grid with steps of two per cent. Manifold Parzen windows have k
neighbours, d kept directions and a noise. Their grid is extended until the likelihood of the validation rows falls: k to 1,600, d to all
pixels. The noise would be extended to the variance of rounding a grey level, 1 / (12 * 255^2), below which a density describes the
rounding of the pixels and no longer the pictures; with all rows it was extended to 0.0001. A reduced set
(every fifth training image, every second validation image, every third test image) shows the rest of the way to that floor.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from papers.drawing import COLOURS, curve, panels
from papers.experiment import Claim, Records, Setting, Summary, Table, at_the_end
from papers.manifold_parzen._digits import STAND_IN, twos
from papers.manifold_parzen._streamed import log_densities
from vicinal import ParzenWindows
from vicinal.quality import negative_log_likelihood

if TYPE_CHECKING:
    from matplotlib.figure import Figure


TITLE = 'Table 2: the density of images of a "2"'
COVERS = ("table 2",)
ORDER = 2
NEEDS = ("mnist",)
MINUTES = (0.1, 50)

# (mean, standard error) on validation and test rows
_PAPER = {"Parzen": ((-197.27, 4.18), (-197.19, 3.55)), "MParzen": ((-696.42, 5.94), (-695.15, 5.21))}


_FLOOR = 1 / (12 * 255**2)  # the variance of rounding a grey level
_TO_THE_FLOOR = np.geomspace(_FLOOR, 0.02, 30)
_REDUCED = (100, 400, 800)


def _neighbors(setting: Setting) -> tuple[int, ...]:
    return (1600, 800, 400, 200, 100, 50, 20) if setting.full else (4, 6, 10, 20, 40)


def _directions(setting: Setting, n_neighbors: int) -> list[int]:
    """Return numbers of directions to try: a quarter, half, three quarters and all of what k neighbours can span."""
    most = min(n_neighbors, 784 if setting.full else 64)
    return sorted({max(most * part // 4, 1) for part in (1, 2, 3, 4)})


def _noises(setting: Setting) -> np.ndarray:
    return np.geomspace(0.0001, 0.06, 18) if setting.full else np.geomspace(0.001, 0.1, 14)


def _widths(setting: Setting) -> np.ndarray:
    return np.geomspace(0.1, 0.3, 56) if setting.full else np.geomspace(0.05, 0.4, 30)


def units(setting: Setting) -> list[dict[str, Any]]:
    found = [{"part": "MParzen", "n_neighbors": k} for k in _neighbors(setting)]
    found.append({"part": "Parzen", "n_neighbors": 0})
    return [*found, *({"part": "reduced", "n_neighbors": k} for k in _REDUCED)] if setting.full else found


def measure(setting: Setting, part: str, n_neighbors: int) -> dict[str, Any]:
    """Measure Parzen windows of all widths, Manifold Parzen windows with the best d and noise for some k, or these with every
    noise down to the floor on fewer rows."""
    train, valid, test = twos(setting)
    parts = {"valid": valid, "test": test}
    if part == "Parzen":
        models = [ParzenWindows(width).fit(train) for width in _widths(setting)]
        return {name: [_scores(model.score_samples(X)) for model in models] for name, X in parts.items()}
    if part == "reduced":
        train, valid, test = train[::5], valid[::2], test[::3]
        logs = log_densities(train, np.concatenate([valid, test]), n_neighbors, [784], _TO_THE_FLOOR, setting.device)[0]
        return {
            name: [_scores(row) for row in rows]
            for name, rows in zip(parts, np.split(logs, [len(valid)], axis=1), strict=True)
        }
    noises, directions = _noises(setting), _directions(setting, n_neighbors)
    found = log_densities(train, np.concatenate([valid, test]), n_neighbors, directions, noises, setting.device)
    means = found[..., : len(valid)].mean(axis=2)
    d, noise = np.unravel_index(means.argmax(), means.shape)
    chosen = {"n_components": directions[d], "n_neighbors": n_neighbors, "noise": float(noises[noise])}
    chosen["by_directions"] = (-means.max(axis=1)).tolist()
    logs = dict(zip(parts, np.split(found[d, noise], [len(valid)]), strict=True))
    return {**{name: _scores(log) for name, log in logs.items()}, "chosen": chosen}


def _scores(logs: np.ndarray) -> list[float]:
    """Return the average negative log-likelihood and its standard error."""
    return [round(float(value), 4) for value in negative_log_likelihood(logs)]


def _parzen(setting: Setting, records: Records) -> dict[str, Any]:
    """Return the scores of Parzen windows with the width of the validation rows."""
    (plain,) = [record for record in records if record["part"] == "Parzen"]
    scores = {name: setting.part(plain[name]) for name in ("valid", "test")}
    best = int(np.argmin([mean for mean, _ in scores["valid"]]))
    return {
        **{name: values[best] for name, values in scores.items()},
        "chosen": {"width": setting.part(_widths(setting))[best]},
    }


def _manifold(setting: Setting, records: Records) -> Records:
    """Return the scores of Manifold Parzen windows, a record for each number of neighbours in ascending order."""
    manifold = [record for record in records if record["part"] == "MParzen"]
    return setting.part(sorted(manifold, key=lambda record: record["n_neighbors"]))


def summarise(setting: Setting, records: Records) -> Summary:
    plain, manifold = _parzen(setting, records), _manifold(setting, records)
    best = min(manifold, key=lambda record: record["valid"][0])
    found = {"Parzen": plain, "MParzen": best}
    rows = [
        [
            name,
            *(f"{mean:.2f} ({error:.2f})" for mean, error in _PAPER[name]),
            *("{:.2f} ({:.2f})".format(*record[part]) for part in ("valid", "test")),
            _parameters(record["chosen"]),
        ]
        for name, record in found.items()
    ]
    gain = plain["test"][0] - best["test"][0]
    error = float(np.hypot(plain["test"][1], best["test"][1]))
    ends = _at_the_ends(setting, best["chosen"])
    claims = [
        Claim(
            "the improvement over Parzen windows is extremely large and significant (ten standard errors and more)"
            if setting.full
            else "Manifold Parzen windows improve on Parzen windows (by 5 nats at least)",
            gain > (10 * error if setting.full else 5),
            f"{gain:.1f} nats per picture, standard error {error:.1f}{ends}",
        )
    ]
    caption = "Average negative log-likelihood (standard errors in brackets)." + (
        "" if setting.full else f" {STAND_IN}"
    )
    columns = ["model", "paper: validation", "paper: test", "here: validation", "here: test", "here: parameters"]
    tables = [Table(columns, rows, caption), _grid_table(manifold)]
    if not setting.full:
        return Summary(tables, claims)
    claims += [_same_number(name, record) for name, record in found.items()]
    reduced = sorted(
        (record for record in records if record["part"] == "reduced"), key=lambda record: record["n_neighbors"]
    )
    return Summary([*tables, _floor_table(reduced)], claims, [_remark(manifold), *_remarks_on_noise(best, reduced)])


def _at_the_ends(setting: Setting, chosen: dict[str, Any]) -> str:
    grids = {
        "n_neighbors": ("k", _neighbors(setting)),
        "n_components": ("d", _directions(setting, chosen["n_neighbors"])),
        "noise": ("noise", _noises(setting)),
    }
    return "".join(
        f"; {name} = {chosen[key]:g}{text}"
        for key, (name, grid) in grids.items()
        if (text := at_the_end(grid, chosen[key]))
    )


def _grid_table(manifold: Records) -> Table:
    rows = [
        [
            r["n_neighbors"],
            *(f"{value:.1f}" for value in r["chosen"]["by_directions"]),
            _parameters(r["chosen"]),
            f"{r['test'][0]:.1f}",
        ]
        for r in manifold
    ]
    shares = ("a quarter", "half", "three quarters", "all")
    width = max(len(row) for row in rows) - 3
    columns = ["k", *(f"{share} of the directions" for share in shares[-width:]), "chosen", "test ANLL"]
    caption = "Validation ANLL for each k, by how many of the directions that its neighbours span are kept, with the best noise:"
    return Table(columns, rows, caption)


def _floor_table(reduced: Records) -> Table:
    rows = []
    for record in reduced:
        cells = []
        for part in ("valid", "test"):
            means = [mean for mean, _ in record[part]]
            for by in ("valid", "test"):
                place = int(np.argmin([mean for mean, _ in record[by]]))
                cells.append(f"{means[place]:.1f} ({record[part][place][1]:.1f})")
        chosen = [_TO_THE_FLOOR[int(np.argmin([mean for mean, _ in record[by]]))] for by in ("valid", "test")]
        rows.append([record["n_neighbors"], *(f"{noise:.2g}" for noise in chosen), cells[0], cells[2], cells[3]])
    columns = [
        "k",
        "noise variance by the validation rows",
        "best noise variance on the test rows",
        "validation ANLL",
        "test ANLL",
        "test ANLL with the noise of the test rows",
    ]
    caption = (
        "The reduced set, all directions, with the noise down to the floor of "
        f"{_FLOOR:.2g} (standard errors in brackets):"
    )
    return Table(columns, rows, caption)


def _parameters(chosen: dict[str, Any]) -> str:
    if "width" in chosen:
        return f"width {chosen['width']:.3f}"
    return f"k={chosen['n_neighbors']:.0f}, d={chosen['n_components']:.0f}, noise variance {chosen['noise']:.4f}"


def _same_number(name: str, record: dict[str, Any]) -> Claim:
    """Return whether the paper's number comes out; a better one does not count as it."""
    paper, error = _PAPER[name][1]
    ours = record["test"][0]
    return Claim(
        f"{name} has the paper's number on the test rows (within two standard errors)",
        abs(ours - paper) < 2 * error,
        f"{ours:.2f} against {paper:.2f} ({error:.2f})",
    )


def _remark(manifold: Records) -> str:
    paper = _PAPER["MParzen"][1][0]
    by_k = {r["n_neighbors"]: r["test"][0] for r in manifold}
    below = max((k for k, value in by_k.items() if value > paper), default=None)
    above = min((k for k, value in by_k.items() if value < paper), default=None)
    return (
        f"The paper's parameters are not known. Its number for MParzen lies between ours for k={below} and for k={above}; "
        "a grid that stopped at so many neighbours and directions would give it."
    )


def _remarks_on_noise(best: dict[str, Any], reduced: Records) -> list[str]:
    """Return what the number of Manifold Parzen windows depends on."""
    ends = [r for r in reduced if int(np.argmin([mean for mean, _ in r["valid"]])) == 0]
    text = (
        f"The number of MParzen depends on where the grid of noises ends. With all rows it ends at {_noises(Setting(True))[0]:.2g}, which the "
        f"validation rows choose for k={best['n_neighbors']}; the rule of this page would go on to the floor. "
    )
    for record in reduced[-1:]:
        valid, test = ([mean for mean, _ in record[part]] for part in ("valid", "test"))
        at = int(np.argmin(np.abs(np.log(_TO_THE_FLOOR / 1e-4))))
        place = int(np.argmin(valid))
        text += (
            f"On the reduced set with k={record['n_neighbors']}, going on from {_TO_THE_FLOOR[at]:.2g} to the choice of the validation rows, {_TO_THE_FLOOR[place]:.2g}"
            f"{' (the floor)' if place == 0 else ''}, moves the ANLL of the validation rows from {valid[at]:.0f} to {valid[place]:.0f} and that of the test rows from {test[at]:.0f} to {test[place]:.0f}, with standard errors of {record['test'][at][1]:.0f} and {record['test'][place][1]:.0f}: a few pictures cost more than all others gain. "
        )
    text += f"The floor itself is chosen for {len(ends)} of the {len(reduced)} numbers of neighbours."
    return [text]


def draw(setting: Setting, records: Records) -> "dict[str, Figure]":
    """Return the likelihood against k, from ordinary Parzen windows (k = 0) on."""
    plain, manifold = _parzen(setting, records), _manifold(setting, records)
    reduced = [record for record in records if record["part"] == "reduced"]
    figure, axes = panels(1, 2 if reduced else 1, size=(7.2, 4.8))
    ax = axes[0, 0]
    k = [record["n_neighbors"] for record in manifold]
    for number, (part, name) in enumerate({"valid": "validation rows", "test": "test rows"}.items()):
        values, errors = zip(*(record[part] for record in manifold), strict=True)
        curve(ax, number, np.array(k) * (1 + 0.03 * number), values, errors, label=f"MParzen, {name}")
    ax.axhline(plain["test"][0], color="black", linewidth=1, label="Parzen, test rows")
    if setting.full:
        for name, style in (("Parzen", "--"), ("MParzen", ":")):
            ax.axhline(
                _PAPER[name][1][0], color="0.45", linewidth=1.8, linestyle=style, label=f"the paper's {name}, test rows"
            )
    for record in manifold:
        ax.annotate(f"d={record['chosen']['n_components']:.0f}", (record["n_neighbors"], record["test"][0]), (0, -16),
                    textcoords="offset points", ha="center", fontsize=10)  # fmt: skip
    ax.set(xscale="log", xlabel="k, neighbours of a row", ylabel="negative log-likelihood (nats)")
    ax.set_xticks(k, map(str, k))
    ax.minorticks_off()
    ax.margins(y=0.12)
    ax.legend(fontsize=10)
    if reduced:
        for number, record in enumerate(sorted(reduced, key=lambda record: record["n_neighbors"])):
            for part, style in (("valid", "-"), ("test", ":")):
                label = f"k={record['n_neighbors']}, {'validation' if part == 'valid' else 'test'} rows"
                means = [mean for mean, _ in record[part]]
                axes[0, 1].plot(_TO_THE_FLOOR, means, color=COLOURS[number], linestyle=style, label=label)
        axes[0, 1].axvline(_noises(setting)[0], color="0.6", linewidth=0.8, label="end of the grid with all rows")
        lowest = min(mean for record in reduced for mean, _ in record["valid"])
        axes[0, 1].set(xscale="log", xlabel="noise variance", title="a fifth of the rows", ylim=(1.2 * lowest, 0))
        axes[0, 1].legend(fontsize=10, loc="lower right")
    return {"table-2": figure}
