"""Stored results: one JSON file per experiment, from which the pages are made."""

import json
import os
import platform
from pathlib import Path
from typing import NamedTuple

import numpy
import scipy
import sklearn

from papers.experiment import Experiment, Records
from vicinal import __version__

FOLDER = Path(__file__).parent / "results"


class Results(NamedTuple):
    """The measurements of an experiment.

    Each of ``units`` has the keys ``"unit"``, ``"result"``, ``"seconds"`` and ``"machine"``, a position in ``machines``.
    """

    machines: list[dict]
    pictures: list[str]
    units: list[dict]

    @property
    def records(self) -> Records:
        """What identifies each unit and what was measured."""
        return [{**entry["unit"], **entry["result"]} for entry in self.units]

    def seconds(self, device: str | None) -> float:
        """Return the time of all units that were measured on a device."""
        return sum(entry["seconds"] for entry in self.units if self.machines[entry["machine"]]["device"] == device)


def _path(experiment: Experiment) -> Path:
    return FOLDER / experiment.paper / f"{experiment.name}.json"


def read(experiment: Experiment) -> Results:
    """Return the stored results of an experiment, empty if there are none."""
    if not _path(experiment).exists():
        return Results([], [], [])
    stored = json.loads(_path(experiment).read_text(encoding="utf-8"))
    return Results(stored["machines"], stored["pictures"], stored["units"])


def write(experiment: Experiment, results: Results) -> Path:
    """Store the results of an experiment; return the path of the file."""
    value = {"version": __version__, **results._asdict()}
    text = json.dumps(value, allow_nan=False, separators=(",", ":")).replace('{"unit"', '\n{"unit"')
    path = _path(experiment)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n", encoding="utf-8")
    return path


def machine(device: str | None) -> dict:
    """Return what the seconds are measured on."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "system": platform.system(), "processor": platform.machine(), "cores": cores, "python": platform.python_version(),
        "numpy": numpy.__version__, "scipy": scipy.__version__, "scikit-learn": sklearn.__version__, "device": device,
    }  # fmt: skip
