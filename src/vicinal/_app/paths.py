"""Checks that every output of a command is a separate file, neither an input nor another output.  Imports nothing heavy.

The parser declares each path argument as an input or as an output (`add_input`, `add_output`), and `check_paths`
checks them before a command begins and before NumPy is imported: a wrong path is reported at once, and no command can replace
its own input.
"""

import contextlib
import os
import stat
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

from vicinal._app.errors import DATA, MODEL, OUTPUT, USAGE, Failure

PARTIAL = ".partial"  # the extension of a file that holds finished work


# The name of an argument, and the path or file descriptor that it stands for.
Place = tuple[str, str | int]


class Declared(NamedTuple):
    """A path argument.

    label : its name on the command line
    folder : whether it names a folder, which the command itself checks
    table : whether it may be a folder as well as a file
    stdout : whether "-" stands for stdout
    files, beside : see `add_output`
    """

    label: str
    folder: bool = False
    table: bool = False
    stdout: bool = False
    files: Sequence[str] = ()
    beside: Sequence[str] = ()


def add_input(parser: ArgumentParser, *names: str, folder: bool = False, table: bool = False, **options: Any) -> None:
    """Add an argument that names a file to read, or with `folder` a folder; with `table` it may be a folder of Parquet files."""
    _add(parser, "inputs", names, options, folder=folder, table=table)


def add_output(
    parser: ArgumentParser,
    *names: str,
    folder: bool = False,
    stdout: bool = False,
    files: Sequence[str] = (),
    beside: Sequence[str] = (),
    **options: Any,
) -> None:
    """Add an argument that names a file to write, or with `folder` a folder.

    Parameters
    ----------
    stdout : bool
        Whether "-" stands for stdout.
    files : sequence of str
        The names of the files that are written to the folder, if they are known.
    beside : sequence of str
        Endings of further files that are written beside the file.
    """
    _add(parser, "outputs", names, options, folder=folder, stdout=stdout, files=files, beside=beside)


def _add(parser: ArgumentParser, role: str, names: tuple[str, ...], options: dict[str, Any], **facts: Any) -> None:
    """Add an argument and declare it in `inputs` or `outputs` of the parsed command line."""
    action = parser.add_argument(*names, **options)
    label = action.option_strings[0] if action.option_strings else action.metavar
    declared = Declared(str(label), **facts)
    parser.set_defaults(**{role: {**(parser.get_default(role) or {}), action.dest: declared}})


def check_paths(arguments: Namespace) -> None:
    """Raise an error if one file is both an output and an input, or two outputs, or if a path is not valid."""
    keep_apart(_given(arguments, "inputs"), _given(arguments, "outputs"))
    for role, check in (("inputs", _check_readable), ("outputs", check_writable)):
        for attribute, declared in getattr(arguments, role, {}).items():
            value = getattr(arguments, attribute)
            for path in value if isinstance(value, list) else [value]:
                if path is None or (path == "-" and (declared.stdout or role == "inputs")):
                    continue
                if declared.table and os.path.isdir(path):
                    continue
                if not declared.folder:
                    check(path, declared.label)
                elif role == "inputs" and not os.path.isdir(path):
                    raise Failure(DATA, f"the folder {path!r} of {declared.label} does not exist.")


def _check_readable(path: str, label: str) -> None:
    """Raise an error for a missing file or a folder, with the exit code of that kind of input."""
    code = MODEL if label == "MODEL" else DATA
    verb = "load" if label == "MODEL" else "read"
    if not os.path.lexists(path):
        raise Failure(code, f"cannot {verb} {path}: there is no such file.")
    if os.path.isdir(path):
        raise Failure(code, f"cannot {verb} {path}: it is a folder.")


def check_writable(path: str, label: str | None = None) -> None:
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
    existing = os.path.exists(target)
    # A device is written directly; a file is replaced by another one in its folder.
    in_place = is_special(target)
    if (existing and not os.access(target, os.W_OK)) or not (in_place or os.access(folder, os.W_OK)):
        raise Failure(OUTPUT, f"cannot write {path}: permission denied.")


def _given(arguments: Namespace, role: str) -> list[Place]:
    """Return labels and paths of the inputs or outputs that were given; stdin and stdout are given by their descriptors."""
    found = []
    standard = role == "outputs"  # every command writes to stdout, but reads stdin only if "-" is given
    for attribute, declared in getattr(arguments, role, {}).items():
        value, label = getattr(arguments, attribute), declared.label
        for path in value if isinstance(value, list) else [value]:
            if path == "-":
                standard = True
            elif path is not None:
                further = [os.path.join(path, file) for file in declared.files]
                further += [path + ending for ending in declared.beside]
                found += [(label, path), *((label, other) for other in further)]
    if standard:
        name = "stdin" if role == "inputs" else "stdout"
        # A stream that is closed, or replaced by something that is not a file, has no descriptor.
        with contextlib.suppress(AttributeError, OSError, ValueError):
            found.append((name, getattr(sys, name).fileno()))
    return found


def input_paths(arguments: Namespace) -> list[str]:
    """Return the files that a command reads."""
    return [path for _, path in _given(arguments, "inputs") if isinstance(path, str)]


def keep_apart(inputs: list[Place], outputs: list[Place]) -> None:
    """Raise an error for an output that is also an input, or that is named twice.

    Parameters
    ----------
    inputs, outputs : list of (str, str or int)
        The argument as the user writes it ("-o"), and its path or file descriptor.
    """
    for i, output in enumerate(outputs):
        for other in inputs:
            if same_file(output[1], other[1]):
                _refuse(output, other, "an output must not replace an input")
        for other in outputs[:i]:
            if same_file(output[1], other[1]):
                _refuse(output, other, "every output needs a separate file")


def _refuse(output: Place, other: Place, rule: str) -> NoReturn:
    first, second = (label if isinstance(path, int) else f"{label} {path}" for label, path in (output, other))
    kind = "folder" if os.path.isdir(output[1]) else "file"
    raise Failure(USAGE, f"{first} is the same {kind} as {second}: {rule}. Choose another path for {output[0]}.")


def same_file(first: str | int, second: str | int) -> bool:
    """Return whether two paths or descriptors refer to the same file or folder, through any links, even if it does not exist.

    Devices and pipes are never considered the same, because they hold no data that could be lost.
    """
    try:
        return os.path.samefile(first, second) and not is_special(first)
    except OSError:  # at least one of them does not exist, or cannot be accessed
        if isinstance(first, int) or isinstance(second, int) or os.path.exists(first) or os.path.exists(second):
            return False
    # Whether a file system ignores case can only be found from an existing file, so the usual behaviour is assumed.
    fold = str.casefold if sys.platform in ("darwin", "win32") else str
    (folder, name), (other_folder, other_name) = (os.path.split(os.path.realpath(path)) for path in (first, second))
    if fold(name) != fold(other_name):
        return False
    return folder == other_folder or (name != "" and same_file(folder, other_folder))  # the root of a drive has no name


def is_special(path: str | int) -> bool:
    """Return whether a path or descriptor leads to something that exists and is neither a file nor a folder."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))
