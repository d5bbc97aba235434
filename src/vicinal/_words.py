"""Names and numbers in messages.  Imports nothing heavy."""

from collections.abc import Iterable

_PLURALS = {"pass": "passes", "entry": "entries", "class": "classes"}


def shown(names: Iterable[object], most: int = 8) -> str:
    """Names as a list for a message, cut after `most`."""
    quoted = [repr(str(name)) for name in names]
    rest = len(quoted) - most
    return ", ".join(quoted[:most]) + (f" and {rest} more" if rest > 0 else "")


def count(number: int, thing: str) -> str:
    """A number and its noun: "1 row", "1,000 rows"."""
    return f"{number:,} {thing if number == 1 else _PLURALS.get(thing, thing + 's')}"


def duration(seconds: float) -> str:
    """A time in words: "40 s", "3 min", "2.5 h"; a second is the least that is told."""
    if seconds < 90:
        return f"{max(seconds, 1):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
