"""The failures that end a command early, and their exit codes."""

import contextlib
from collections.abc import Iterable, Iterator
from types import ModuleType

OK = 0
BUG = 1
USAGE = 2
DATA = 3
MODEL = 4
OUTPUT = 5
FIT = 6
MISSING_EXTRA = 7
WORKERS = 9
INTERRUPTED = 130
TERMINATED = 143
BROKEN_PIPE = 141


class Failure(Exception):
    """A failure that the user can fix: a message without a traceback, and an exit code."""

    def __init__(self, message: str, code: int = BUG) -> None:  # a default, so that a worker can send a failure
        super().__init__(message)
        self.code = code


class UsageFailure(Failure):
    """The command line is not valid."""

    def __init__(self, message: str) -> None:
        super().__init__(message, USAGE)


class DataFailure(Failure):
    """The data cannot be read or used."""

    def __init__(self, message: str) -> None:
        super().__init__(message, DATA)


class ModelFailure(Failure):
    """The model file cannot be used."""

    def __init__(self, message: str) -> None:
        super().__init__(message, MODEL)


class OutputFailure(Failure):
    """The result cannot be written."""

    def __init__(self, message: str) -> None:
        super().__init__(message, OUTPUT)


class FitFailure(Failure):
    """The method cannot be fitted to these data."""

    def __init__(self, message: str) -> None:
        super().__init__(message, FIT)


@contextlib.contextmanager
def about_table(source: str | None, inputs: Iterable[str] = ()) -> Iterator[None]:
    """Name the table in failures about data that name none of the files that a command reads."""
    try:
        yield
    except Failure as failure:
        name = "stdin" if source == "-" else source
        if failure.code != DATA or name is None or any(path in str(failure) for path in (name, *inputs)):
            raise
        raise DataFailure(f"{name}: {failure}") from failure


def need(module: str, what: str, extra: str = "app") -> ModuleType:
    """Import an optional package, or raise an error that names the extra that contains it."""
    from importlib import import_module

    try:
        return import_module(module)
    except ImportError as error:
        raise Failure(
            f"{what} needs the package {module.partition('.')[0]!r}, which could not be imported ({error}). "
            f"Install it with: pip install 'vicinal[{extra}]'",
            MISSING_EXTRA,
        ) from error
