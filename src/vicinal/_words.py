"""Names and numbers in messages.  Imports nothing heavy."""

from collections.abc import Iterable
from difflib import get_close_matches

# Characters that a terminal or a browser interprets instead of displaying: controls except tab and line feed, line and
# paragraph separators, and marks that reverse the direction of text, with which a name could imitate another text. Half a
# character of UTF-16, as in the name of a file that is not UTF-8, cannot be written at all.
_CONTROLS = (*range(9), *range(11, 32), *range(127, 160))
_DIRECTIONS = (0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))
_ESCAPES = {code: f"\\u{code:04x}" for code in (*_CONTROLS, *_DIRECTIONS, *range(0xD800, 0xE000))}
_PLURALS = {"pass": "passes", "entry": "entries", "class": "classes", "query": "queries"}


def shown(names: Iterable[object], most: int = 8) -> str:
    """Return names as a list for a message, truncated after `most`."""
    quoted = [repr(str(name)) for name in names]
    rest = len(quoted) - most
    return ", ".join(quoted[:most]) + (f" and {rest} more" if rest > 0 else "")


def similar_names(name: str, known: Iterable[object], most: int = 1) -> list[str]:
    """Return known names that are similar to a name, ignoring case, the most similar one first."""
    by_case = {str(other).casefold(): str(other) for other in known}
    return [by_case[match] for match in get_close_matches(name.casefold(), list(by_case), n=most)]


def did_you_mean(name: str, known: Iterable[object]) -> str:
    """Return a hint that begins with a space, or an empty text if no known name is similar."""
    near = similar_names(name, known)
    return f" Did you mean {near[0]}?" if near else ""


def similar_columns(wanted: Iterable[str], columns: Iterable[str]) -> str:
    """Return the same hint for columns that a table does not have, with up to three similar ones each in quotes."""
    columns = list(columns)
    near = dict.fromkeys(match for name in wanted for match in similar_names(name, columns, 3))
    return f" Did you mean {shown(near)}?" if near else ""


def printable(text: str) -> str:
    r"""Return the text with control characters written as escapes, such as ``\u001b`` and ``\u202e``."""
    return text.translate(_ESCAPES)


def on_one_line(text: str) -> str:
    r"""Return the text with line feeds as escapes, too, so that a name cannot pretend to be a message of its own."""
    return printable(text).replace("\n", "\\n")


def one_line(value: object) -> str:
    """Return the text of an exception, or of anything else, on one line."""
    return " ".join(str(value).split())


def percent(value: float, digits: int = 1) -> str:
    """Return a share as a percentage."""
    return f"{100 * value:.{digits}f} %"


def count(number: int, thing: str) -> str:
    """Return a number and its noun: "1 row", "1,000 rows"."""
    return f"{number:,} {thing if number == 1 else _PLURALS.get(thing, thing + 's')}"


def duration(seconds: float) -> str:
    """Return a time in words: "40 s", "3 min", "2.5 h"; at least one second."""
    if seconds < 90:
        return f"{max(seconds, 1):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
