"""The failures that end a command early, and their exit codes."""

import contextlib
from collections.abc import Iterable, Iterator
from importlib import import_module
from types import ModuleType

from vicinal._words import one_line

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
# How the packages that read tables are installed.
_EXTRAS = {**dict.fromkeys(("openpyxl", "pandas", "pyarrow"), "'vicinal[app]'"), "zarr": "'vicinal[zarr]'"}


class Failure(Exception):
    """A failure that the user can fix: an exit code, and a message without a traceback."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(code, message)
        self.code, self.message = code, message

    def __str__(self) -> str:
        return self.message


@contextlib.contextmanager
def about_table(source: str | None, inputs: Iterable[str] = ()) -> Iterator[None]:
    """Turn errors about tables into failures, and name the table in those that name none of the files that a command reads."""
    from vicinal._files import FileError
    from vicinal._tables import TableError
    from vicinal.cli.wording import in_command

    try:
        try:
            yield
        except (FileError, TableError) as error:
            code = USAGE if getattr(error, "is_option", False) else DATA
            raise Failure(code, in_command(one_line(error))) from error
        except ImportError as error:
            package = (error.name or "").partition(".")[0]
            if package not in _EXTRAS:
                raise
            text = f"reading this table needs the package {package!r}, which could not be imported ({error})."
            raise Failure(MISSING_EXTRA, f"{text} Install it with: pip install {_EXTRAS[package]}") from error
    except Failure as failure:
        name = "stdin" if source == "-" else source
        if failure.code not in (DATA, FIT) or name is None or any(path in str(failure) for path in (name, *inputs)):
            raise
        raise Failure(failure.code, f"{name}: {failure}") from failure


def need(module: str, what: str, extra: str = "app") -> ModuleType:
    """Import an optional package, or raise an error that names the extra that contains it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise Failure(
            MISSING_EXTRA,
            f"{what} needs the package {module.partition('.')[0]!r}, which could not be imported ({error}). "
            f"Install it with: pip install 'vicinal[{extra}]'",
        ) from error
