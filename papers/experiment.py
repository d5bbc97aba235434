"""The parts of a table or figure of a paper."""

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from types import ModuleType
from typing import Any

import numpy as np

from papers.real_sets import load, usps_blurred
from vicinal import Engine

Records = list[dict[str, Any]]  # of all units, what identifies a unit and what was measured

# The folder and the title of each paper, in the order of the pages, by what the command calls it.
PAPERS = {
    "lca": ("lca", "Local Component Analysis (Le Roux and Bach, 2012)"),
    "mparzen": ("manifold_parzen", "Manifold Parzen Windows (Vincent and Bengio, 2002)"),
    "rca": ("rca", "Relevant Component Analysis (Bar-Hillel, Hertz, Shental and Weinshall, 2005)"),
    "nca": ("nca", "Neighbourhood Components Analysis (Goldberger, Roweis, Hinton and Salakhutdinov, 2004)"),
}


# The parts of a grid: all of it, and every second value. A verdict that is the same on the three does not depend on the step of the grid
# (the whole grid is each half refined by two) nor on its position (the halves are half a step apart).
GRIDS = {"whole": slice(None), "even": slice(0, None, 2), "odd": slice(1, None, 2)}


class Missing(Exception):
    """An experiment cannot be run: the message names what is missing, and the remedy."""


@dataclass(frozen=True)
class Setting:
    """The amount of work, and the location of the real data.

    Parameters
    ----------
    full : bool
        The papers' real sets and sizes; otherwise minutes, without data files.
    data_home : str or None
        Folder of the real sets; None asks the environment variable ``VICINAL_DATA``.
    device : str or None
        A torch device for the most expensive pairwise computations, in float64; None is the CPU.
    grid : str
        The part of every grid that is used, by its name in `GRIDS`.
    """

    full: bool = False
    data_home: str | None = None
    device: str | None = None
    grid: str = "whole"

    def part(self, grid: Any) -> Any:
        """Return the part of a grid that is used."""
        return grid[GRIDS[self.grid]]

    @property
    def engine(self) -> Engine | None:
        """The engine for the heaviest pair work."""
        return None if self.device is None else Engine("torch", device=self.device, precision="float64")

    def load(self, name: str, **options: Any) -> Any:
        """Return a real set by `papers.real_sets.load`; `Missing` without it."""
        return self._or_missing(load, name, **options)

    def usps_blurred(self, **options: Any) -> Any:
        """Return USPS as two of the papers prepared it."""
        return self._or_missing(usps_blurred, **options)

    def _or_missing(self, loader: Callable[..., Any], *names: str, **options: Any) -> Any:
        try:
            return loader(*names, data_home=self.data_home, **options)
        except FileNotFoundError as error:
            raise Missing(str(error)) from error


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, and whether it holds.

    Parameters
    ----------
    says : str
        A sentence of the paper, with the rule by which it is judged; the rule is stated before the measurement.
    holds : bool
        Whether it holds.
    evidence : str
        The numbers by which it is judged.
    """

    says: str
    holds: bool
    evidence: str


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
    """A module of the folder of a paper, with its address."""

    paper: str
    name: str
    module: ModuleType

    @property
    def title(self) -> str:
        """Its heading."""
        return self.module.TITLE

    @property
    def about(self) -> str:
        """The docstring below its first line, with the module's constants for names in braces."""
        return (inspect.getdoc(self.module) or "").partition("\n")[2].strip().format_map(vars(self.module))

    @property
    def command(self) -> str:
        """The command that measures it at the sizes of the paper."""
        return f"python papers/run.py {self.paper} {self.name} --full"

    def missing(self, setting: Setting) -> str:
        """Return what is missing to measure it, with the remedy; empty if nothing is."""
        for package, extra in getattr(self.module, "EXTRAS", {}).items():
            if find_spec(package) is None:
                return f"needs the package {package!r}. Install it with: pip install 'vicinal[{extra}]'"
        try:
            for name in getattr(self.module, "NEEDS" if setting.full else "QUICK_NEEDS", ()):
                setting.load(name)
        except Missing as error:
            return str(error)
        return ""


def experiments(paper: str) -> list[Experiment]:
    """Return the tables and figures of a paper, in the paper's order."""
    package = import_module(f"papers.{PAPERS[paper][0]}")
    names = [module.name for module in iter_modules(package.__path__) if not module.name.startswith("_")]
    modules = [Experiment(paper, name, import_module(f"{package.__name__}.{name}")) for name in names]
    return sorted(modules, key=lambda experiment: (experiment.module.ORDER, experiment.name))


def best_positions(scores: np.ndarray) -> dict[str, tuple[int, ...]]:
    """Return the position of the highest score of a grid of any number of axes, by the part of `GRIDS` that is used on all of them."""
    found = {}
    for name, part in GRIDS.items():
        places = [np.arange(length)[part] for length in scores.shape]
        best = np.unravel_index(scores[np.ix_(*places)].argmax(), [len(place) for place in places])
        found[name] = tuple(int(place[i]) for place, i in zip(places, best, strict=True))
    return found


def at_the_end(grid: Iterable[float], value: float) -> str:
    """Return a remark for the evidence if the best value of a grid is its first or last one."""
    values = sorted(grid)
    if value in (values[0], values[-1]):
        return f" (the {'smallest' if value == values[0] else 'largest'} that was tried)"
    return ""
