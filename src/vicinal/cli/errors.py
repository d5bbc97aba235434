"""The failures that end a command early, and their exit codes."""

import contextlib
from collections.abc import Iterable, Iterator
from types import ModuleType

OK, BUG, USAGE, DATA, MODEL, OUTPUT, FIT, MISSING_EXTRA, WORKERS = range(9)
INTERRUPTED, BROKEN_PIPE, TERMINATED = 130, 141, 143
MEANINGS = {
    OK: "success",
    BUG: "a bug in vicinal",
    USAGE: "the command line is not valid",
    DATA: "the data cannot be used",
    MODEL: "the model file cannot be used",
    OUTPUT: "the output cannot be written",
    FIT: "the method cannot be fitted to these data",
    MISSING_EXTRA: "a package is missing",
    WORKERS: "the Dask workers were lost",
    INTERRUPTED: "interrupted",
    BROKEN_PIPE: "the program that reads stdout has ended",
    TERMINATED: "terminated",
}


class Failure(Exception):
    """A failure that the user can fix: an exit code, and a message without a traceback."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(code, message)
        self.code, self.message = code, message

    def __str__(self) -> str:
        return self.message


@contextlib.contextmanager
def about_table(source: str | None, inputs: Iterable[str] = ()) -> Iterator[None]:
    """Name the table in failures about data that name none of the files that a command reads."""
    try:
        yield
    except Failure as failure:
        name = "stdin" if source == "-" else source
        if failure.code != DATA or name is None or any(path in str(failure) for path in (name, *inputs)):
            raise
        raise Failure(DATA, f"{name}: {failure}") from failure


def need(module: str, what: str, extra: str = "app") -> ModuleType:
    """Import an optional package, or raise an error that names the extra that contains it."""
    from importlib import import_module

    try:
        return import_module(module)
    except ImportError as error:
        raise Failure(
            MISSING_EXTRA,
            f"{what} needs the package {module.partition('.')[0]!r}, which could not be imported ({error}). "
            f"Install it with: pip install 'vicinal[{extra}]'",
        ) from error
