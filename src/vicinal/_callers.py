"""Warnings as users see them: at the line of their code that called into the package, and once per cause."""

import re
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager


def callers_line() -> int:
    """Return the `stacklevel` with which a warning refers to the user's line, however deep in the package it is issued."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and f"{frame.f_globals.get('__name__', '')}.".startswith("vicinal."):
        frame, level = frame.f_back, level + 1
    return level


@contextmanager
def merged_warnings(parts: str) -> Iterator[None]:
    """Issue the warnings of similar fits, such as those of classes, once; messages that differ in numbers only count as one.

    parts : what is fitted, in the plural
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    causes = [(warning.category, re.sub(r"[\d.]+(e[-+]\d+)?", "", str(warning.message))) for warning in caught]
    times = Counter(causes)
    for cause, warning in zip(causes, caught, strict=True):
        count = times.pop(cause, 0)
        if count:
            more = f" (So for {count} {parts}; this is the first.)" if count > 1 else ""
            warnings.warn(f"{warning.message}{more}", warning.category, stacklevel=callers_line())
