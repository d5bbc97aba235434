"""The numbers of the command line: each function reads one from text.  Imports nothing heavy."""

from argparse import ArgumentTypeError
from collections.abc import Callable
from typing import TypeVar

_N = TypeVar("_N", int, float)


def _number(text: str, convert: Callable[[str], _N], least: float, what: str) -> _N:
    try:
        value: _N | None = convert(text)
    except ValueError:
        value = None
    if value is None or not value >= least:
        raise ArgumentTypeError(f"expected {what}, got {text!r}")
    return value


def positive(text: str) -> int:
    """Read a whole number of at least 1."""
    return _number(text, int, 1, "a whole number of at least 1")


def two_or_more(text: str) -> int:
    """Read a whole number of at least 2."""
    return _number(text, int, 2, "a whole number of at least 2")


def seed(text: str) -> int:
    """Read the seed of random choices."""
    value = _number(text, int, 0, "a whole number from 0 to 4294967295")
    if value >= 2**32:
        raise ArgumentTypeError(f"expected a whole number from 0 to 4294967295, got {text!r}")
    return value


def level(text: str) -> float:
    """Read a level of p-values."""
    value = _number(text, float, 0.0, "a number in (0, 0.5]")
    if not 0 < value <= 0.5:
        raise ArgumentTypeError(f"expected a number in (0, 0.5], got {text!r}")
    return value


def rate(text: str) -> float:
    """Read a number between 0 and 1, both excluded."""
    value = _number(text, float, 0.0, "a number between 0 and 1")
    if not 0 < value < 1:
        raise ArgumentTypeError(f"expected a number between 0 and 1, got {text!r}")
    return value


def size_text(text: str) -> str:
    """Return an amount of memory as the user wrote it, or an error that says how to write one."""
    import re

    if not re.fullmatch(r"\s*[0-9]+\.?[0-9]*\s*[KMGT]?i?B?\s*", text, re.IGNORECASE):
        raise ArgumentTypeError(f"expected a size such as '512 MB' or '2 GB', got {text!r}")
    return text
