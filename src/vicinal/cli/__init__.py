"""The `vicinal` command: parses the command line, calls the module of one command, and exits with a defined code.

::

      commands               learn.py, transform.py, score.py, outliers.py, neighbors.py, inspect.py,
                             compare.py, report.py, adapt.py, demo.py: each has one function of (arguments, console)

      starting               parser.py: options and help        paths.py: no output may be an input or another output
                             console.py: messages and progress  errors.py: failures and their exit codes

      reading                tables.py (by `vicinal._files`), vectors.py for embeddings, pairs.py, wording.py (names of options)
      columns and models     columns.py prepares a table by `vicinal.tables`; models.py creates, saves, loads and opens models;
                             workers.py starts Dask workers, to which it gives parts of the rows
      writing                outputs.py, results.py (tables, block by block), reading_code.py (code in reports)

The parser and what it uses, `errors` and `console` import nothing heavy, so that ``--help`` and wrong options are fast. The other
modules are imported only after the command line has been parsed.
"""

import os
import signal
import sys
from argparse import Namespace
from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib import import_module
from types import FrameType
from typing import Any

from vicinal._words import one_line
from vicinal.cli import errors
from vicinal.cli.console import Console
from vicinal.cli.parser import make_parser
from vicinal.cli.paths import InputPath, check_paths, paths_in
from vicinal.cli.workers import cluster_of


class _Signals:
    """Make Ctrl-C and SIGTERM end the command, even if a fit would return its best parameters when interrupted."""

    def __init__(self) -> None:
        self.code: int | None = None

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.code = errors.INTERRUPTED if number == signal.SIGINT else errors.TERMINATED
        raise KeyboardInterrupt

    def check(self) -> None:
        """Raise the interruption if one came in the meantime."""
        if self.code is not None:
            raise KeyboardInterrupt

    def came(self) -> bool:
        """Return whether an interruption came."""
        return self.code is not None

    def install(self) -> Callable[[], None]:
        """Install the signal handlers, and return a function that restores the previous ones."""
        before = {}
        try:
            for number in (signal.SIGINT, signal.SIGTERM):
                before[number] = signal.signal(number, self)
        except ValueError:  # not the main thread, where signal handlers cannot be installed
            pass

        def restore() -> None:
            for number, handler in before.items():
                signal.signal(number, handler)

        return restore


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return its exit code (see docs/command.md)."""
    parser = make_parser()
    if not (sys.argv[1:] if argv is None else argv):
        parser.print_help()
        return errors.OK
    arguments = parser.parse_args(argv)
    signals = _Signals()
    console = Console(quiet=arguments.quiet, check=signals.check)
    restore = signals.install()
    try:
        return _run(arguments, console, signals)
    except KeyboardInterrupt:
        code = signals.code or errors.INTERRUPTED
        console.fail("interrupted." if code == errors.INTERRUPTED else "terminated.")
        return code
    finally:
        restore()


def _run(arguments: Namespace, console: Console, signals: _Signals) -> int:
    import warnings

    from vicinal.cli.outputs import silence_stdout

    try:
        with warnings.catch_warnings(), _limited_threads(arguments.threads), console:
            console.take_warnings()
            check_paths(arguments)
            if arguments.command != "inspect":
                errors.need("pandas", f"vicinal {arguments.command}")
            run_command = getattr(import_module(f"vicinal.cli.{arguments.command}"), arguments.command)
            arguments.check_interrupted, arguments.interrupted = signals.check, signals.came
            table = getattr(arguments, "data", None) or getattr(arguments, "corpus", None)
            if table is not None:
                console.doing(f"reading {'stdin' if table == '-' else table}")
            with (
                errors.about_table(table, [path for _, path in paths_in(arguments, InputPath)]),
                cluster_of(arguments, console),
            ):
                run_command(arguments, console)
        return errors.OK
    except errors.Failure as failure:
        if failure.code == errors.OUTPUT:
            silence_stdout()
        console.fail(one_line(failure))
        return failure.code
    except BrokenPipeError:  # the program that reads stdout has ended
        silence_stdout()
        return errors.BROKEN_PIPE
    except MemoryError as error:
        console.fail(f"out of memory: {one_line(error) or 'use fewer rows or columns, or lower --memory'}.")
        return errors.FIT
    except Exception as error:
        if signals.came():  # an interruption inside a callback of a compiler is lost and leaves it in disorder
            raise KeyboardInterrupt from error
        if os.environ.get("VICINAL_DEBUG"):
            raise
        console.fail(
            f"an unexpected {type(error).__name__}: {one_line(error)} This is a bug in vicinal; set VICINAL_DEBUG=1 to see the traceback."
        )
        return errors.BUG


def _limited_threads(threads: int | None) -> AbstractContextManager[Any]:
    """Limit BLAS and OpenMP to as many threads as the engine."""
    import contextlib

    if threads is None:
        return contextlib.nullcontext()
    from threadpoolctl import threadpool_limits

    return threadpool_limits(limits=threads)


if __name__ == "__main__":
    sys.exit(main())
