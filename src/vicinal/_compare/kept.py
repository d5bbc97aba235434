"""Outcomes of a comparison in a file, so that an interrupted run can be continued.

The first line identifies the comparison by a digest of the rows, the folds and the settings. Each further line is one outcome
as JSON; Python writes and reads floats without loss. The outcome of a line that was cut is computed again.
"""

import json
import os
from contextlib import suppress
from pathlib import Path

import numpy as np
from joblib import hash as hash_of

from vicinal._compare.folds import Outcome
from vicinal._compare.plan import Plan
from vicinal._plain import plain
from vicinal._version import __version__

_WHAT = "vicinal comparison"
_BEGINNING = json.dumps({"what": _WHAT})[:-1].encode()


class KeptOutcomes:
    """The finished work of a plan, read from a file and appended to it.

    Parameters
    ----------
    path : path
        The file. An error is raised if it belongs to another comparison or is any other file.
    plan : Plan
    """

    def __init__(self, path: str | os.PathLike[str], plan: Plan) -> None:
        self._path = Path(path)
        self._known: dict[tuple[str, str, int], Outcome] = {}
        header = json.dumps({"what": _WHAT, "version": __version__, "digest": _digest(plan)}).encode()
        if not holds_work(path):
            raise ValueError(f"keep: {path} is not a file of a comparison, and is not changed. Choose another path.")
        first, *lines = (self._path.read_bytes() if self._path.exists() else b"").split(b"\n")
        if not header.startswith(first):  # a kill can leave a part of the header
            raise ValueError(
                f"keep: {path} belongs to a comparison of other rows, or with other settings or another version of vicinal. "
                "Delete it to start again."
            )
        for line in lines:
            with suppress(ValueError, TypeError, KeyError, RecursionError):  # of a line that was cut or damaged
                entry = json.loads(line)
                outcome = Outcome(**entry["outcome"])
                curve = None if outcome.curve is None else np.array(outcome.curve)
                self._known[entry["kind"], entry["name"], entry["fold"]] = outcome._replace(curve=curve)
        if first != header:
            self._path.write_bytes(header)

    def get(self, kind: str, name: str, fold: int) -> Outcome | None:
        """Return the outcome of a method in a fold, or None if it is not known."""
        return self._known.get((kind, name, fold))

    def add(self, kind: str, name: str, fold: int, outcome: Outcome) -> None:
        """Save the outcome of a method in a fold; it is on the disk when this returns."""
        entry = {"kind": kind, "name": name, "fold": fold, "outcome": plain(outcome)}
        with open(self._path, "a", encoding="utf-8", newline="") as file:
            file.write("\n" + json.dumps(entry))  # on a line of its own, even if the last one was cut
            file.flush()
            os.fsync(file.fileno())


def holds_work(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is free, or leads to a file of finished work; a kill can leave a part of its first line."""
    try:
        with open(path, "rb") as file:
            return _BEGINNING.startswith(file.read(len(_BEGINNING)))
    except FileNotFoundError:
        return True


def _digest(plan: Plan) -> str:
    targets = None if plan.targets is None else (plan.targets.task, plan.targets.classes, plan.targets.y)
    kinds = [str(kind) for kind in plan.kinds]
    return str(hash_of((plan.X, plan.names, kinds, targets, plan.splits, plan.settings)))
