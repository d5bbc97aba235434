"""The line that a warning refers to: the line of the user's code that called into the package."""

import sys


def callers_line() -> int:
    """Return the `stacklevel` with which a warning refers to the user's line, however deep in the package it is issued."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and f"{frame.f_globals.get('__name__', '')}.".startswith("vicinal."):
        frame, level = frame.f_back, level + 1
    return level
