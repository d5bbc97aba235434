"""Checks that every output of a command is a separate file, neither an input nor another output.  Imports nothing heavy.

The parser declares each path argument as an input or as an output (`add_input`, `add_output`), and `check_paths`
checks them before a command begins and before NumPy is imported.
"""

import os
import stat
from argparse import ArgumentParser, Namespace
from typing import Any

from vicinal.cli.errors import DATA, MODEL, OUTPUT, USAGE, Failure

PARTIAL = ".partial"  # the extension of a file that holds finished work


def add_input(parser: ArgumentParser, *names: str, **options: Any) -> None:
    """Add an argument that names a file (or a folder) to read; "-" stands for stdin."""
    _add(parser, "inputs", names, options, standard=True)


def add_output(parser: ArgumentParser, *names: str, stdout: bool = False, **options: Any) -> None:
    """Add an argument that names a file to write; with `stdout`, "-" stands for stdout."""
    _add(parser, "outputs", names, options, standard=stdout)


def _add(parser: ArgumentParser, role: str, names: tuple[str, ...], options: dict[str, Any], standard: bool) -> None:
    """Add an argument, and its label and whether it may be "-" to `inputs` or `outputs` of the parsed command line."""
    action = parser.add_argument(*names, **options)
    label = action.option_strings[0] if action.option_strings else str(action.metavar)
    parser.set_defaults(**{role: {**(parser.get_default(role) or {}), action.dest: (label, standard)}})


def check_paths(arguments: Namespace) -> None:
    """Raise an error if one file is both an output and an input, or two outputs, or if a path is not valid."""
    inputs, outputs = _given(arguments, "inputs"), _given(arguments, "outputs")
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


def input_paths(arguments: Namespace) -> list[str]:
    """Return the files that a command reads."""
    return [path for _, path in _given(arguments, "inputs")]


def _given(arguments: Namespace, role: str) -> list[tuple[str, str]]:
    """Return the labels and paths of the inputs or outputs that were given, without stdin and stdout."""
    found = []
    for attribute, (label, standard) in getattr(arguments, role, {}).items():
        path = getattr(arguments, attribute)
        if path is not None and not (path == "-" and standard):
            found.append((label, path))
    return found


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
