"""Results on disk: one JSON file per experiment and mode, written after every unit, so that nothing is lost."""

import ast
import contextlib
import hashlib
import json
import os
import platform
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import IO

from vicinal._model_files.replacing import replacing
from vicinal._version import __version__
from vicinal.papers._source import plain, reached, without_annotations


def machine() -> dict:
    """Return what the seconds were measured on."""
    import numpy
    import scipy
    import sklearn

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "system": platform.system(),
        "processor": platform.machine(),
        "cores": cores,
        "python": platform.python_version(),
        "numpy": numpy.__version__,
        "scipy": scipy.__version__,
        "scikit-learn": sklearn.__version__,
    }


def code_of(module: ModuleType) -> str:
    """Return a digest of what determines the numbers: the version, and the code that `units` and `measure` reach.

    Claims, texts and pictures may change without a new measurement; so may comments, annotations and layout.
    """
    path = Path(str(module.__file__))
    digest = hashlib.sha256(__version__.partition(".dev")[0].encode())  # a release measures what led up to it
    for node in reached(_code_in(path), {"units", "measure"}):
        digest.update(plain(node).encode())
        source = getattr(node, "module", None) or ""
        if source.startswith(f"{module.__package__}._"):
            helper = path.with_name(source.rpartition(".")[2] + ".py")
            digest.update(plain(_code_in(helper)).encode())
    return digest.hexdigest()[:16]


def _code_in(path: Path) -> ast.Module:
    return without_annotations(ast.parse(path.read_text(encoding="utf-8")))


class CannotWrite(Exception):
    """A result or picture cannot be written: where, and why."""


@contextlib.contextmanager
def written(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for writing that replaces `path` if there was no error; create its folder."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(str(path)) as file:
            yield file
    except OSError as error:
        why = error.strerror or str(error).partition(": ")[2] or str(error)
        raise CannotWrite(f"cannot write {path}: {why.rstrip('.')}.") from error


class Results:
    """The units of one experiment that have been measured."""

    def __init__(self, path: Path, code: str) -> None:
        self.path = path
        self.code = code
        self.measured: dict[str, dict] = {}
        self.machine: dict = {}
        self._read()

    def _read(self) -> None:
        try:
            stored = json.loads(self.path.read_text(encoding="utf-8"))
            if stored["code"] == self.code:
                whole = [entry for entry in stored["units"] if {"unit", "result", "seconds"} <= entry.keys()]
                self.measured = {_key(entry["unit"]): entry for entry in whole}
                self.machine = stored["machine"]
        except (ValueError, KeyError, TypeError, AttributeError, OSError):
            self.measured = {}  # not there, not ours or cut short: measured anew

    def has(self, unit: dict) -> bool:
        """Return whether a unit has been measured."""
        return _key(unit) in self.measured

    def add(self, unit: dict, result: dict, seconds: float) -> None:
        """Keep a unit's result, on disk before this returns."""
        entry = {"unit": unit, "result": result, "seconds": round(seconds, 3)}
        self.measured[_key(unit)] = json.loads(json.dumps(entry, allow_nan=False))
        self.machine = machine()
        self._write()

    def records(self, units: list[dict]) -> list[dict]:
        """Return ``{**unit, **result}`` of all units, in their order."""
        return [{**unit, **self.measured[_key(unit)]["result"]} for unit in units]

    def seconds(self, units: list[dict]) -> float:
        """Return what the units took when they were measured."""
        return sum(self.measured[_key(unit)]["seconds"] for unit in units)

    def _write(self) -> None:
        value = {
            "version": __version__,
            "code": self.code,
            "machine": self.machine,
            "units": list(self.measured.values()),
        }
        text = json.dumps(value, allow_nan=False, separators=(",", ":")).replace('{"unit"', '\n{"unit"')
        with written(self.path) as file:
            file.write(text.encode("utf-8") + b"\n")


def _key(unit: dict) -> str:
    return json.dumps(unit, sort_keys=True)
