"""Words and progress on stderr, results on stdout."""

import sys
import time
import warnings
from typing import Any

from vicinal._words import count as count
from vicinal._words import duration as duration
from vicinal._words import printable
from vicinal._words import shown as shown

# How often a log without a terminal gets a line about the work.
_SECONDS_BETWEEN_LINES = 5.0


class Console:
    """Where a command speaks.

    Parameters
    ----------
    quiet : bool
        Say nothing on stderr but errors.

    Attributes
    ----------
    reword : callable
        What makes the command's words of a warning of the library.
    """

    def __init__(self, quiet=False):
        self.quiet = quiet
        self.reword = str  # of Python's warnings
        self._bars: Any = None if quiet or not _is_terminal(sys.stderr) else _progress_bars()
        self._bar: Any = None
        self._seen = set()
        self._last_line, self._told_of = time.monotonic(), None  # the work of the last line
        self._work: tuple[object, float, float] | None = None  # what the work is, when it began, and from where

    def say(self, text):
        """Say something that is good to know."""
        if not self.quiet:
            self._line(text)

    def warn(self, text):
        """Say something that may be wrong; once a text."""
        if not self.quiet and text not in self._seen:
            self._seen.add(text)
            self._line(f"warning: {text}")

    def fail(self, text):
        """Say why the command ends; also when quiet."""
        self._line(f"vicinal: error: {text}")

    def progress(self, done, total, text, *, work=None, at_most=False, estimate=True):
        """Show how far the work is: a bar on a terminal, a line now and then elsewhere, both with the time left.

        Parameters
        ----------
        done, total : float
        text : str
            What comes next.
        work : object, optional
            Steps of the same work take about the same time; by default, those with the same total.
        at_most : bool
            Whether the work may end before all steps are done.
        estimate : bool
            Whether to tell the time left from the steps so far; else the text tells it.
        """
        if self.quiet:
            return
        now = time.monotonic()
        work = total if work is None else work
        if self._work is None or self._work[0] != work or done < self._work[2]:
            self._work = work, now, done
        _, start, first = self._work
        left = ""
        if estimate and done > first and done < total:
            seconds = (now - start) / (done - first) * (total - done)
            left = f"; {'at most' if at_most else 'about'} {duration(seconds)} left"
        text = printable(text)
        if self._bars is not None:
            self._draw(done, total, text + left)
        elif now - self._last_line > _SECONDS_BETWEEN_LINES or (done >= total and self._told_of == work):
            self._last_line, self._told_of = now, work
            self._line(f"[{done:>{len(str(total))}}/{total}] {text}{left}")

    def _draw(self, done, total, text):
        if self._bar is None or self._bar.total != total:
            self._clear()
            self._bar = self._bars(
                total=total,
                leave=False,
                dynamic_ncols=True,
                bar_format="{n_fmt}/{total_fmt} |{bar:16}| {elapsed} {desc}",
            )
        self._bar.n = done
        self._bar.set_description_str(text)
        if done >= total:
            self._clear()

    def _clear(self):
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def _line(self, text):
        self._clear()
        self._write(printable(text) + "\n")

    def _write(self, text):
        # A closed or full stderr must not change what the command does or how it ends.
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except (OSError, ValueError, AttributeError):
            pass

    def show_warning(self, message, category, filename, lineno, file=None, line=None):
        """Take the place of `warnings.showwarning`: the words without the file and line."""
        if not issubclass(category, (DeprecationWarning, PendingDeprecationWarning, FutureWarning)):
            self.warn(self.reword(one_line(message)))

    def take_warnings(self):
        """Send Python's warnings here, each text once."""
        warnings.simplefilter("always")
        warnings.showwarning = self.show_warning


def _is_terminal(stream):
    return stream is not None and stream.isatty()


def _progress_bars():
    """tqdm, or None where it is not installed: lines then tell of the work, as without a terminal."""
    try:
        from tqdm import tqdm
    except ImportError:
        return None
    return tqdm


def one_line(value):
    """Return the text of an exception or warning on one line."""
    return " ".join(str(value).split())
