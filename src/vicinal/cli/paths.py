"""Every output of a command is a separate file, neither an input nor another output.  Imports nothing heavy.

The parser reads each path as an `InputPath`, an `OutputPath` or a `TablePath`, and `check_paths` checks them before a command begins.
"""

import os
import stat
from argparse import Namespace

from vicinal.cli.errors import DATA, MODEL, OUTPUT, USAGE, Failure


class InputPath(str):
    """A file (or a folder) to read; "-" stands for stdin."""


class OutputPath(str):
    """A file to write."""


class TablePath(OutputPath):
    """A table to write; "-" stands for stdout."""


def check_paths(arguments: Namespace) -> None:
    """Raise an error if an output is an input or another output, if an input does not exist, or if an output cannot be written."""
    inputs, outputs = paths_in(arguments, InputPath), paths_in(arguments, OutputPath)
    for i, (label, path) in enumerate(outputs):
        for other_label, other in [*inputs, *outputs[:i]]:
            if same_file(path, other):
                raise Failure(
                    USAGE,
                    f"{label} {path} is the same file as {other_label} {other}: every output needs a separate file, and must not "
                    f"replace an input. Choose another path for {label}.",
                )
    for label, path in inputs:
        if not os.path.lexists(path):
            code, verb = (MODEL, "load") if label == "MODEL" else (DATA, "read")
            raise Failure(code, f"cannot {verb} {path}: there is no such file.")
    for _, path in outputs:
        check_writable(path)


def paths_in(arguments: Namespace, kind: type[str]) -> list[tuple[str, str]]:
    """Return the paths of a kind on the command line as (label, path), without stdin and stdout."""
    return [
        (arguments.labels_of_paths[name], path)
        for name, path in vars(arguments).items()
        if isinstance(path, kind) and not (path == "-" and isinstance(path, (InputPath, TablePath)))
    ]


def check_writable(path: str) -> None:
    """Raise an error before any work if the output cannot be written."""
    if path == "-":
        raise Failure(
            USAGE,
            "models and reports are written to files. Pass a file name instead of '-', which is for tables and text.",
        )
    target = os.path.realpath(path)
    folder = os.path.dirname(target)
    if os.path.isdir(target):
        raise Failure(OUTPUT, f"cannot write {path}: it is a folder. Name a file in it.")
    if not os.path.isdir(folder):
        raise Failure(OUTPUT, f"cannot write {path}: the folder {folder!r} does not exist.")
    # A device is written directly; a file is replaced by another one in its folder.
    may_replace = is_special(target) or os.access(folder, os.W_OK)
    if not may_replace or (os.path.exists(target) and not os.access(target, os.W_OK)):
        raise Failure(OUTPUT, f"cannot write {path}: permission denied.")


def same_file(first: str, second: str) -> bool:
    """Return whether two paths lead to the same file or folder, through any links, even if it does not exist.

    Devices and pipes are never considered the same, because they hold no data that could be lost.
    """
    if os.path.exists(first) and os.path.exists(second):
        return os.path.samefile(first, second) and not is_special(first)
    return os.path.normcase(os.path.realpath(first)) == os.path.normcase(os.path.realpath(second))


def is_special(path: str) -> bool:
    """Return whether a path leads to something that exists and is neither a file nor a folder."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))
