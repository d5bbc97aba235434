"""Every output of a command is a file of its own: neither an input nor another output.  Imports nothing heavy.

The parser declares each path argument as an input or as an output (`add_input`, `add_output`), and `check_paths`
compares them before a command begins, so that no command can replace the data that it was given.
"""

import contextlib
import os
import stat
import sys

from vicinal._app.errors import DataFailure, ModelFailure, UsageFailure

# The ending of a file that holds what is done of some work, and how such a file begins.
PARTIAL, PARTIAL_BEGINNING = ".partial", b'{"what": "vicinal '

# Inputs that are files; what is said of a missing folder is left to its command.
_FILES = ("MODEL", "DATA", "--pairs", "--query")


def add_input(parser, *names, **options):
    """Add an argument that names a file or folder to read."""
    _add(parser, "inputs", names, options, (), ())


def add_output(parser, *names, files=(), beside=(), **options):
    """Add an argument that names a file to write, or a folder.

    Parameters
    ----------
    files : sequence of str
        What is known to be written in the folder.
    beside : sequence of str
        Endings of further files that are written beside the file.
    """
    _add(parser, "outputs", names, options, files, beside)


def _add(parser, role, names, options, files, beside):
    """Add an argument and declare it: `inputs` and `outputs` of the parsed command line hold a label and further files each."""
    action = parser.add_argument(*names, **options)
    label = action.option_strings[0] if action.option_strings else action.metavar
    parser.set_defaults(**{role: {**(parser.get_default(role) or {}), action.dest: (label, files, beside)}})


def check_paths(arguments):
    """Refuse a command line that names one file as an output and as an input, or as two outputs, or a missing input."""
    inputs = _given(arguments, "inputs")
    keep_apart(inputs, _given(arguments, "outputs"))
    for label, path in inputs:
        # Said before anything heavy is imported.
        if label in _FILES and isinstance(path, str) and not os.path.lexists(path):
            if label == "MODEL":
                raise ModelFailure(f"cannot load {path}: there is no such file.")
            raise DataFailure(f"cannot read {path}: No such file or directory.")


def _given(arguments, role):
    """Labels and paths of the inputs or outputs that were given; stdin and stdout by their descriptors."""
    found = []
    standard = role == "outputs"  # every command writes to stdout, but reads stdin only where "-" asks for it
    for attribute, (label, files, beside) in getattr(arguments, role, {}).items():
        value = getattr(arguments, attribute)
        for path in value if isinstance(value, list) else [value]:
            if path == "-":
                standard = True
            elif path is not None:
                further = [os.path.join(path, file) for file in files] + [path + ending for ending in beside]
                found += [(label, path), *((label, other) for other in further)]
    if standard:
        name = "stdin" if role == "inputs" else "stdout"
        # A stream that is closed, or replaced by something that is not a file, has no descriptor.
        with contextlib.suppress(AttributeError, OSError, ValueError):
            found.append((name, getattr(sys, name).fileno()))
    return found


def keep_apart(inputs, outputs):
    """Refuse an output that is also an input, or that is named twice.

    Parameters
    ----------
    inputs, outputs : list of (str, str or int)
        The argument as the user knows it ("-o"), and its path or file descriptor.
    """
    for i, output in enumerate(outputs):
        for other in inputs:
            if same_file(output[1], other[1]):
                _refuse(output, other, "an output may not replace an input")
        for other in outputs[:i]:
            if same_file(output[1], other[1]):
                _refuse(output, other, "every output needs a file of its own")


def _refuse(output, other, rule):
    first, second = (label if isinstance(path, int) else f"{label} {path}" for label, path in (output, other))
    kind = "folder" if os.path.isdir(output[1]) else "file"
    raise UsageFailure(f"{first} is the same {kind} as {second}: {rule}. Choose another path for {output[0]}.")


def same_file(first, second):
    """Whether two paths or descriptors lead to one file or folder, by whatever links, whether it exists or not.

    Devices and pipes are never the same: they keep nothing that could be lost.
    """
    try:
        return os.path.samefile(first, second) and not is_special(first)
    except OSError:  # at least one of them does not exist, or cannot be looked at
        if isinstance(first, int) or isinstance(second, int) or os.path.exists(first) or os.path.exists(second):
            return False
    # Where a file system ignores the case of names, only an existing file shows it; so the usual one is assumed.
    fold = str.casefold if sys.platform in ("darwin", "win32") else str
    (folder, name), (other_folder, other_name) = (os.path.split(os.path.realpath(path)) for path in (first, second))
    if fold(name) != fold(other_name):
        return False
    return folder == other_folder or (name != "" and same_file(folder, other_folder))  # no name: the root of a drive


def is_special(path):
    """Whether a path or descriptor leads to something that exists and is neither a file nor a folder."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))
