"""Messages and progress on stderr."""

import contextlib
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, Self

from vicinal._words import duration, on_one_line, one_line

# The longest silence: the interval between lines of progress if stderr is not a terminal, and between signs of life.
_SECONDS = 5.0


class Console:
    """The output of a command: messages, warnings, errors and progress.

    Within its context, it also shows that the command is alive if nothing else was shown for five seconds.

    Parameters
    ----------
    quiet : bool
        Print only errors to stderr.
    check : callable, optional
        It is called at every step of the work, and raises KeyboardInterrupt if an interruption came that was lost in compiled code.
    """

    def __init__(self, quiet: bool = False, check: Callable[[], None] = lambda: None) -> None:
        self.quiet, self._check = quiet, check
        self._bars: Any = None if quiet or sys.stderr is None or not sys.stderr.isatty() else _progress_bars()
        self._bar: Any = None
        self._seen: set[str] = set()
        self._last_line = time.monotonic()
        self._work: tuple[object, float, float] | None = None  # the name of the work, when it began, and at which count
        self._work_of_line: object = None
        # For signs of life: what the command is doing, since when, and the line of the last step if it makes progress.
        self._doing, self._since = "starting", self._last_line
        self._step: str | None = None
        self._block: tuple[str, str, float, float] | None = None
        self._lock, self._ended = threading.RLock(), threading.Event()
        self._watch: threading.Thread | None = None

    def __enter__(self) -> Self:
        if not self.quiet:
            self._watch = threading.Thread(target=self._show_life, daemon=True)
            self._watch.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        if self._watch is not None:
            self._watch.join()
        with self._lock:
            self._clear()

    def say(self, text: str) -> None:
        """Print a message."""
        if not self.quiet:
            self._line(self._with_rows(text))

    def warn(self, text: str) -> None:
        """Print a warning; each message is printed only once."""
        text = self._with_rows(text)
        if not self.quiet and text not in self._seen:
            self._seen.add(text)
            self._line(f"warning: {text}")

    def _with_rows(self, text: str) -> str:
        return text if self._block is None else f"{self._block[0]}: {text}"

    def fail(self, text: str) -> None:
        """Print the reason why the command ends, even if quiet."""
        self._line(f"vicinal: error: {text}")

    def show_warning(self, message: Warning | str, category: type[Warning], *place: object, **more: object) -> None:
        """Replace `warnings.showwarning`: show the message without the file and line."""
        if not issubclass(category, (DeprecationWarning, PendingDeprecationWarning, FutureWarning)):
            self.warn(one_line(message))

    def take_warnings(self) -> None:
        """Redirect Python's warnings to this console, each message once."""
        warnings.simplefilter("always")
        warnings.showwarning = self.show_warning

    @contextlib.contextmanager
    def block(self, rows: str, source: str, start: float, stop: float) -> Iterator[None]:
        """Let messages name the rows of a block, and progress be that of the whole table, of which the block is a share."""
        self._block = rows, source, start, stop
        try:
            yield
        finally:
            self._block = None

    def doing(self, text: str) -> None:
        """Set what the command is doing, for signs of life; nothing is printed now."""
        self._check()
        with self._lock:
            self._doing, self._since, self._step = on_one_line(text), time.monotonic(), None

    def progress(self, done: float, total: float, text: str, *, at_most: bool = False, estimate: bool = True) -> None:
        """Show progress: a bar on a terminal, a line every few seconds elsewhere, both with the remaining time.

        Parameters
        ----------
        done, total : float
        text : str
            The next step. Steps of the same total take about the same time.
        at_most : bool
            Whether the work may end before all steps are done.
        estimate : bool
            Whether to estimate the remaining time from the steps so far; otherwise the text contains it.
        """
        self._check()
        if self.quiet:
            return
        work: object = total
        if self._block is not None:
            _, source, start, stop = self._block
            done, total, work = int(100 * (start + (stop - start) * done / total)), 100, source
            text = f"% of {source}: {text}"
        with self._lock:
            self._show_progress(done, total, on_one_line(text), work, at_most, estimate)

    def _show_progress(self, done: float, total: float, text: str, work: object, at_most: bool, estimate: bool) -> None:
        now = time.monotonic()
        if self._work is None or self._work[0] != work or done < self._work[2]:
            self._work = work, now, done
        _, start, first = self._work
        if estimate and first < done < total:
            seconds = (now - start) / (done - first) * (total - done)
            text += f"; {'at most' if at_most else 'about'} {duration(seconds)} left"
        line = f"[{done:>{len(str(total))}}/{total}] {text}"
        self.doing("finishing")  # once all steps are done
        if done < total:
            self._step = line
        if self._bars is not None:
            self._draw(done, total, text)
        elif now - self._last_line > _SECONDS or (done >= total and self._work_of_line == work):
            self._work_of_line = work
            self._line(line)

    def _show_life(self) -> None:
        """Show every few seconds that the command is alive, while nothing else is shown."""
        while not self._ended.wait(1.0):
            with self._lock:
                now = time.monotonic()
                if now - self._last_line < _SECONDS or self._ended.is_set():
                    continue
                if self._bar is not None:
                    self._bar.refresh()  # with the elapsed time
                elif self._bars is not None:
                    self._draw(0, 1, self._doing)
                else:
                    self._line(self._step or f"[...] {self._doing} ({now - self._since:.0f} s)")

    def _draw(self, done: float, total: float, text: str) -> None:
        self._last_line = time.monotonic()
        if self._bar is None or self._bar.total != total:
            self._clear()
            style = "{n_fmt}/{total_fmt} |{bar:16}| {elapsed} {desc}"
            self._bar = self._bars(total=total, leave=False, dynamic_ncols=True, bar_format=style)
        self._bar.n = done
        self._bar.set_description_str(text)
        if done >= total:
            self._clear()

    def _clear(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def _line(self, text: str) -> None:
        with self._lock:
            self._clear()
            self._last_line = time.monotonic()
            # A closed or full stderr must not change the result or the exit code of the command.
            with contextlib.suppress(OSError, ValueError, AttributeError):
                sys.stderr.write(on_one_line(text) + "\n")
                sys.stderr.flush()


def _progress_bars() -> Any:
    """Return tqdm, or None if it is not installed; progress is then shown as lines, as without a terminal."""
    try:
        from tqdm import tqdm
    except ImportError:
        return None
    return tqdm
