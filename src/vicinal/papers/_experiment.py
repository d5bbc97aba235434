"""The parts of a table or figure of a paper."""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from types import ModuleType
from typing import Any

from vicinal import Engine
from vicinal.datasets import load, usps_blurred
from vicinal.papers._list import PAPERS

Records = list[dict[str, Any]]  # of all units, what identifies a unit and what was measured


class Missing(Exception):
    """An experiment cannot be run: the message names what is missing, and the remedy."""


@dataclass(frozen=True)
class Setting:
    """The amount of work, and the location of the real data.

    Parameters
    ----------
    full : bool
        The papers' real sets and, unless `reduced`, sizes; otherwise minutes, without data files.
    reduced : bool
        The real sets with fewer runs, and fewer rows where an experiment says so; only with `full`.
    data_home : str or None
        Folder of the real sets; None asks the environment variable ``VICINAL_DATA``.
    device : str or None
        A torch device for the most expensive pairwise computations, in float64; None is the CPU.
    """

    full: bool = False
    reduced: bool = False
    data_home: str | None = None
    device: str | None = None

    @property
    def mode(self) -> str:
        """The word for it: "full", "reduced" or "quick"."""
        return "reduced" if self.reduced else "full" if self.full else "quick"

    @property
    def engine(self) -> Engine | None:
        """The engine for the heaviest pair work."""
        return None if self.device is None else Engine("torch", device=self.device, precision="float64")

    def load(self, name: str, **options: Any) -> Any:
        """Return a real set by `vicinal.datasets.load`, never by download; `Missing` without it."""
        return self._or_missing(load, name, options)

    def usps_blurred(self, **options: Any) -> Any:
        """Return USPS as two of the papers prepared it."""
        return self._or_missing(usps_blurred, None, options)

    def _or_missing(self, loader: Callable[..., Any], name: str | None, options: dict[str, Any]) -> Any:
        try:
            names = () if name is None else (name,)
            return loader(*names, data_home=self.data_home, download_if_missing=False, **options)
        except FileNotFoundError as error:
            remedy = "Give the folder of the data sets with --data (docs/datasets.md says where to get them)."
            raise Missing(f"{error} {remedy}") from error


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, and whether it holds.

    Parameters
    ----------
    says : str
        The claim, with the required margin.
    holds : bool
        Whether it holds.
    evidence : str
        The numbers.
    departs : str, default=""
        The reason why it is known not to hold. It is shown on the page, and the claim does not count as a failure.
    """

    says: str
    holds: bool
    evidence: str
    departs: str = ""

    @property
    def fails(self) -> bool:
        """Whether it should hold and does not."""
        return not (self.holds or self.departs)


@dataclass(frozen=True)
class Table:
    """A table of the page: rows of texts or numbers, with the paper's numbers beside ours."""

    columns: list[str]
    rows: list[list[Any]]
    caption: str = ""


@dataclass(frozen=True)
class Summary:
    """The results: tables, claims, and remarks on differences from the paper."""

    tables: list[Table]
    claims: list[Claim]
    remarks: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Experiment:
    """A module of `vicinal.papers` with its address."""

    paper: str
    name: str
    module: ModuleType

    @property
    def title(self) -> str:
        """Its heading."""
        return self.module.TITLE

    @property
    def source(self) -> str:
        """Where its code is, in the package."""
        return self.module.__name__

    def answers_to(self, wish: str) -> bool:
        """Return whether ``--figure WISH`` means this one: "3", "figure 3", "fig3", "table 1", "eq12"."""
        wanted = _plain(wish)
        for cover in self.module.COVERS:
            kind, _, number = cover.partition(" ")
            short = {"figure": "fig", "equation": "eq", "section": "sec"}.get(kind, kind)
            if wanted in (_plain(cover), _plain(short + number)) or (kind == "figure" and wanted == _plain(number)):
                return True
        return wanted == _plain(self.name)

    def units(self, setting: Setting) -> list[dict]:
        """Return the units of work; in reduced mode those of the first runs only."""
        units = self.module.units(setting)
        if not setting.reduced:
            return units
        return [unit for unit in units if unit.get("run", 0) < getattr(self.module, "REDUCED_RUNS", 5)]

    def minutes(self, setting: Setting) -> float:
        """Return the approximate number of minutes that it takes on one core."""
        quick, full = self.module.MINUTES
        return full if setting.full else quick

    def missing(self, setting: Setting, *, measuring: bool = True, drawing: bool = True) -> str:
        """Return what is missing to measure it, or to draw what is measured, with the remedy; empty when nothing is."""
        extras = {"matplotlib": "plot"} if drawing else {}
        extras |= getattr(self.module, "EXTRAS", {}) if measuring else {}
        for package, extra in extras.items():
            if find_spec(package) is None:
                return f"needs the package {package!r}. Install it with: pip install 'vicinal[{extra}]'"
        if not measuring:
            return ""
        try:
            for name in getattr(self.module, "NEEDS" if setting.full else "QUICK_NEEDS", ()):
                setting.load(name)
        except Missing as error:
            return str(error)
        return ""

    def __reduce__(self) -> tuple:
        """Pickle an experiment by its name, because modules cannot be pickled."""
        return _by_name, (self.paper, self.name)


def _by_name(paper: str, name: str) -> "Experiment":
    return next(experiment for experiment in experiments(paper) if experiment.name == name)


def _plain(text: str) -> str:
    return "".join(letter for letter in text.lower() if letter.isalnum())


def experiments(paper: str) -> list[Experiment]:
    """Return the tables and figures of a paper, in the paper's order."""
    folder, _ = PAPERS[paper]
    package = import_module(f"vicinal.papers.{folder}")
    names = [module.name for module in iter_modules(package.__path__) if not module.name.startswith("_")]
    found = [Experiment(paper, name, import_module(f"{package.__name__}.{name}")) for name in names]
    return sorted(found, key=lambda experiment: (experiment.module.ORDER, experiment.name))


def at_the_end(grid: Iterable[float], value: float) -> str:
    """Return a remark for the evidence if the best value of a grid is its first or last one."""
    values = sorted(grid)
    if value in (values[0], values[-1]):
        return f" (the {'smallest' if value == values[0] else 'largest'} that was tried)"
    return ""


def data_folder(given: str | None) -> str | None:
    """Return the folder that ``--data`` or the environment names, checked to exist."""
    folder = given or os.environ.get("VICINAL_DATA") or None
    if folder is not None and not os.path.isdir(folder):
        raise NotADirectoryError(f"the data folder {folder!r} does not exist.")
    return folder
