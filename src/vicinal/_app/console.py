"""Words and progress on stderr, results on stdout."""

import sys
import time
import warnings

from vicinal._words import count as count
from vicinal._words import printable
from vicinal._words import shown as shown


class Console:
    """Where a command speaks.

    Parameters
    ----------
    quiet : bool
        Say nothing on stderr but errors.
    """

    def __init__(self, quiet=False):
        self.quiet = quiet
        self._live = not quiet and sys.stderr is not None and sys.stderr.isatty()
        self._width = 0
        self._seen = set()
        self._last_step = 0.0

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

    def progress(self, done, total, text):
        """Show how far the work is: one line that is rewritten on a terminal, now and then a line elsewhere."""
        if self.quiet:
            return
        line = printable(f"[{done:>{len(str(total))}}/{total}] {text}")
        if not self._live:
            if time.monotonic() - self._last_step > 2.0:
                self._last_step = time.monotonic()
                self._line(line)
            return
        self._write("\r" + line.ljust(self._width))
        self._width = len(line)
        if done >= total:
            self._clear()

    def _clear(self):
        if self._width:
            self._write("\r" + " " * self._width + "\r")
            self._width = 0

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
            self.warn(one_line(message))

    def take_warnings(self):
        """Send Python's warnings here, each text once."""
        warnings.simplefilter("always")
        warnings.showwarning = self.show_warning


def one_line(value):
    """The text of an exception or warning on one line."""
    return " ".join(str(value).split())
