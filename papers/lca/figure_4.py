"""Figure 4: six density models of USPS digits.

Each model learns from 2,000 digits (256 pixels in [-1, 1], blurred by a Gaussian of standard deviation {BLUR} pixel), its
penalty is chosen by 1,000 others, and 3,000 more test it (sec. 6.2). The penalty of LCA-Gauss's Gaussian part is the best
one of the plain Gaussian. From a first guess the search goes up and down in steps of a factor 2, in each direction until the
likelihood of the validation rows falls, so that the chosen penalty always lies between two that were tried.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from papers.drawing import COLOURS, MARKERS, mean_and_error, panels, plus_minus
from papers.experiment import Claim, Records, Setting, Summary, Table
from papers.lca._digits import STAND_IN, split_digits
from papers.real_sets import blur_images
from vicinal import LCA, LCAGauss, ParzenWindows

if TYPE_CHECKING:
    from matplotlib.figure import Figure


TITLE = "Figure 4: six density models of digits"
COVERS = ("figure 4",)
ORDER = 4
NEEDS = ("usps",)
MINUTES = (0.4, 60)

BLUR = (blur_images.__kwdefaults__ or {})["sd"]

_PAPER = {
    "LCA - Isotropic": (268.09, 0.08),
    "LCA - Diagonal": (-2.71, 0.42),
    "LCA - Full": (-386.73, 0.30),
    "Gaussian": (-388.20, 0.27),
    "LCA - Gauss": (-400.28, 0.31),
    "LCA - Gauss - Red": (-400.26, 0.31),
}
_PAPER_RUNS = (15, 20)
_TOL = 3e-3  # nats per row and pass: the numbers move by about 0.05
# What would give the paper's numbers: the variance of an isotropic kernel, and the penalty of the diagonal one.
_WIDE, _STIFF = 1.155, 0.006
# Where the search for a penalty begins, full and quick.
_FIRST = {
    "LCA - Isotropic": (2.5e-3, 2.5e-3),
    "LCA - Diagonal": (1.25e-3, 1.25e-3),
    "LCA - Full": (5e-6, 2.5e-4),
    "Gaussian": (5e-6, 2e-3),
    "LCA - Gauss": (4e-3, 1.5e-2),
}
_GAIN = 1e-3  # nats on the validation rows: less is not worth another step


def units(setting: Setting) -> list[dict[str, Any]]:
    parts = ("Parzen", "LCA - Full", "Gauss")
    runs = range(15 if setting.full else 2)
    return [{"run": run, "part": part} for run in runs for part in parts] + [{"run": 0, "part": "other start"}]


def measure(setting: Setting, run: int, part: str) -> dict[str, Any]:
    sizes = (2000, 1000, 3000) if setting.full else (600, 300, 800)
    train, valid, test = split_digits(setting, run, *sizes)
    engine = setting.engine
    first = {name: values[0 if setting.full else 1] for name, values in _FIRST.items()}
    if part == "Parzen":
        shapes = {"LCA - Isotropic": "spherical", "LCA - Diagonal": "diag"}
        found = {
            name: _search(
                lambda reg, s=s: LCA(s, reg=reg, tol=_TOL, engine=engine).fit(train), first[name], valid, test
            )
            for name, s in shapes.items()
        }
        wide = ParzenWindows(np.sqrt(_WIDE)).fit(train)
        stiff = LCA("diag", reg=_STIFF, tol=_TOL, engine=engine).fit(train)
        return {**found, "wide": -wide.score(test), "stiff": [-stiff.score(valid), -stiff.score(test)]}

    def full(
        reg: float, init: np.ndarray | str = "covariance"
    ) -> LCA:  # the paper's EM; see the remark on local optima
        return LCA(reg=reg, solver="em", tol=1e-2, init=init, engine=engine).fit(train)

    if part == "LCA - Full":
        return {part: _search(full, first[part], valid, test)}
    if part == "other start":
        reg = first["LCA - Full"]
        return {"other start": -full(reg, init=full(8 * reg).covariance_).score(test), "start": -full(reg).score(test)}
    gaussian = _search(lambda reg: _Gaussian(reg).fit(train), first["Gaussian"], valid, test)

    def gauss(reg: float, reduce: bool = False) -> LCAGauss:
        return LCAGauss(reg=reg, reg_gauss=gaussian["reg"], reduce=reduce, tol=_TOL, engine=engine).fit(train)

    plain = _search(gauss, first["LCA - Gauss"], valid, test)
    reduced = _scores(gauss(plain["reg"], reduce=True), plain["reg"], valid, test)
    return {"Gaussian": gaussian, "LCA - Gauss": plain, "LCA - Gauss - Red": reduced}


class _Gaussian:
    """One Gaussian with the penalty on the trace of its precision: the covariance plus reg times the identity."""

    def __init__(self, reg: float) -> None:
        self.reg = reg

    def fit(self, X: np.ndarray) -> Self:
        self.mean = X.mean(axis=0)
        covariance = np.cov(X.T, bias=True) + self.reg * np.eye(X.shape[1])
        self.root = np.linalg.cholesky(2 * np.pi * covariance)
        return self

    def score(self, X: np.ndarray) -> float:
        white = np.linalg.solve(self.root, (X - self.mean).T)
        return float(-np.log(np.diag(self.root)).sum() - np.pi * (white**2).sum(axis=0).mean())


def _search(fit: Callable[..., Any], first: float, valid: np.ndarray, test: np.ndarray) -> dict[str, Any]:
    """Return the penalty that is best on the validation rows: from the first guess upwards and downwards, while it gets
    better."""
    tried = [_scores(fit(first), first, valid, test)]
    for factor in (2.0, 0.5):
        best = tried[0]  # both ways begin at the first guess
        reg = first * factor
        while True:
            tried.append(_scores(fit(reg), reg, valid, test))
            if tried[-1]["valid"] >= best["valid"] - _GAIN:
                break
            best, reg = tried[-1], reg * factor
    best = min(tried, key=lambda found: found["valid"])
    path = sorted((found["reg"], found["valid"]) for found in tried)
    return {**best, "tried": [reg for reg, _ in path], "path": [value for _, value in path]}


def _scores(model: Any, reg: float, valid: np.ndarray, test: np.ndarray) -> dict[str, Any]:
    found = {"reg": float(reg), "valid": -float(model.score(valid)), "test": -float(model.score(test))}
    if isinstance(model, LCAGauss):
        found["directions"] = model.n_components_
    if isinstance(model, LCA) and model.covariance_type == "spherical":
        found["variance"] = float(model.covariance_[0, 0])
    return found


def _values(records: Records, name: str, key: str = "test") -> np.ndarray:
    return np.array([record[name][key] for record in records if name in record])


def summarise(setting: Setting, records: Records) -> Summary:
    ours = {name: _values(records, name) for name in _PAPER}
    rows = [
        [name, _paper_text(name), plus_minus(ours[name]), _penalties(_values(records, name, "reg"))] for name in _PAPER
    ]
    mean = {name: values.mean() for name, values in ours.items()}
    gain = {name: mean[name] - mean["LCA - Gauss"] for name in ("Gaussian", "LCA - Full")}
    red = mean["LCA - Gauss - Red"] - mean["LCA - Gauss"]
    steps = -np.diff([mean[name] for name in ("LCA - Isotropic", "LCA - Diagonal", "LCA - Full")])
    claims = [
        Claim(
            "a diagonal metric beats an isotropic one, and a full metric a diagonal one (by 3 nats at least)",
            steps.min() > 3,
            f"{steps[0]:.1f} and {steps[1]:.1f} nats",
        ),
        Claim(
            "LCA-Gauss outperforms a single Gaussian (by 4 nats at least)",
            gain["Gaussian"] > 4,
            f"{gain['Gaussian']:.1f} nats better",
        ),
        Claim(
            "LCA-Gauss-Red gains nothing over LCA-Gauss (within 2 nats)",
            abs(red) < 2,
            f"{-red:.2f} nats better",
        ),
    ]
    if setting.full:
        claims += _claims_of_numbers(records, mean, gain)
    return Summary(
        [Table(["model", "paper (USPS)", "here", "penalty"], rows, _caption(setting, len(ours["Gaussian"])))],
        claims,
        _remarks(setting, records),
    )


def _paper_text(name: str) -> str:
    return "{:.2f} ± {:.2f}".format(*_PAPER[name])


def _penalties(values: np.ndarray) -> str:
    """Return the middle one and the range, all of them tried."""
    low, middle, high = np.sort(values)[[0, len(values) // 2, -1]]
    return f"{middle:.2g} ({low:.2g} to {high:.2g})"


def _caption(setting: Setting, runs: int) -> str:
    text = f"Test negative log-likelihood (nats per digit), mean and standard error of {runs} runs (paper: {_PAPER_RUNS[0]} in its text, {_PAPER_RUNS[1]} in its caption); the "
    text += "penalty chosen, the middle one of the runs and their range."
    return text if setting.full else f"{text} {STAND_IN}"


def _claims_of_numbers(records: Records, mean: dict[str, float], gain: dict[str, float]) -> list[Claim]:
    """Return what only USPS can show."""
    names = ("LCA - Full", "Gaussian", "LCA - Gauss", "LCA - Gauss - Red")
    isotropic, diagonal = mean["LCA - Isotropic"], mean["LCA - Diagonal"]
    paper = {name: value for name, (value, _) in _PAPER.items()}
    return [
        Claim(
            "LCA-Gauss outperforms Parzen windows with a full metric (by 4 nats at least)",
            gain["LCA - Full"] > 4,
            f"{gain['LCA - Full']:.1f} nats better",
        ),
        Claim(
            "in high dimension Parzen windows alone do poorly: LCA - Full is no better than one Gaussian",
            mean["LCA - Full"] > mean["Gaussian"],
            f"{mean['LCA - Full'] - mean['Gaussian']:.2f} nats worse",
        ),
        Claim(
            "the numbers of " + ", ".join(names) + " are the paper's (within 2 nats)",
            max(abs(mean[name] - paper[name]) for name in names) < 2,
            ", ".join(f"{mean[name] - paper[name]:+.2f}" for name in names),
        ),
        Claim(
            "the isotropic model reaches 268.09 (within 2.5 nats)",
            abs(isotropic - paper["LCA - Isotropic"]) < 2.5,
            f"{isotropic:.2f}",
        ),
        Claim(
            "the diagonal model reaches -2.71 (within 2.5 nats)",
            abs(diagonal - paper["LCA - Diagonal"]) < 2.5,
            f"{diagonal:.2f}",
        ),
    ]


def _remarks(setting: Setting, records: Records) -> list[str]:
    directions = {name: _values(records, name, "directions") for name in ("LCA - Gauss", "LCA - Gauss - Red")}
    found = " and ".join(f"{np.mean(value):.0f} ({name})" for name, value in directions.items())
    (other,) = [record for record in records if record["part"] == "other start"]
    flat = [np.ptp(r["LCA - Gauss"]["path"]) for r in records if "LCA - Gauss" in r]
    span = [r["LCA - Gauss"]["tried"][-1] / r["LCA - Gauss"]["tried"][0] for r in records if "LCA - Gauss" in r]
    remarks = [f"Local directions found, of {256 if setting.full else 64}: {found}."]
    if setting.full:
        parzen = [record for record in records if "wide" in record]
        wide = np.mean([record["wide"] for record in parzen])
        stiff_valid, stiff = np.mean([record["stiff"] for record in parzen], axis=0)
        valid = _values(records, "LCA - Diagonal", "valid").mean()
        variance = _values(records, "LCA - Isotropic", "variance").mean()
        remarks += [
            f"Isotropic: the optimum of the criterion over the bandwidth is a kernel variance of {variance:.3f}; a variance of {_WIDE} gives the paper's "
            f"number, {wide:.2f} on average over these runs. Why the paper's model is far from the optimum is not known. Diagonal: a penalty of {_STIFF} has {stiff:.2f}, "
            f"close to the paper's number, but the validation rows do not choose it ({stiff_valid:.2f} against {valid:.2f} on them).",
            "The paper does not say how the pixels were prepared; this preparation was found by a search for one that gives "
            "its numbers, and confirmed on rows that the search did not use.",
            "LCA - Full is fitted by the paper's EM from the covariance of the data, because the criterion has local optima: the fit of the "
            f"first run that starts from the answer to a penalty eight times as large has {other['other start']:.2f} on the test rows, the one "
            f"from the covariance of the data {other['start']:.2f}.",
            f"LCA - Gauss hardly depends on its penalty: over all that were tried, which span a factor of {np.median(span):.0f} (median of the runs), "
            f"its negative log-likelihood on the validation rows moves by {np.median(flat):.2f} nats.",
        ]
    return remarks


def draw(setting: Setting, records: Records) -> "dict[str, Figure]":
    """Draw isotropic and diagonal kernels on a scale of hundreds of nats, and the others on one of ten."""
    figure, axes = panels(1, 2, size=(5.6, 4.8), width_ratios=[1, 2])
    for ax, names in zip(axes[0], (list(_PAPER)[:2], list(_PAPER)[2:]), strict=True):
        for shift, (who, moments) in enumerate(_shown(setting, records, names).items()):
            values, errors = zip(*moments, strict=True)
            places = np.arange(len(names)) + (0.12 if shift else -0.12) * setting.full
            colour, marker = COLOURS[shift], MARKERS[shift]
            ax.errorbar(
                places, values, errors, label=who, color=colour, marker=marker, markersize=9, linestyle="", capsize=5
            )
            side = -1 if who == "paper" else 1
            for place, value in zip(places, values, strict=True):
                text = {"textcoords": "offset points", "va": "center", "fontsize": 11, "color": colour}
                ax.annotate(f"{value:.1f}", (place, value), (9 * side, 0), ha="right" if side < 0 else "left", **text)
        ax.set_xticks(range(len(names)), [name.replace("LCA - ", "LCA\n").replace(" - ", "-") for name in names])
        ax.margins(x=0.3, y=0.15)
    axes[0, 0].set_ylabel("test negative log-likelihood (nats)")
    axes[0, 1].legend()
    return {"figure-4": figure}


def _shown(setting: Setting, records: Records, names: list[str]) -> dict[str, list[tuple[Any, ...]]]:
    ours = {"here": [mean_and_error(_values(records, name)) for name in names]}
    return {"paper": [_PAPER[name] for name in names], **ours} if setting.full else ours
