"""Where a warning belongs: at the line outside of the package that called into it."""

import sys


def callers_line() -> int:
    """Return the `stacklevel` of a warning for the user's line, however many functions of the package lie between."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and f"{frame.f_globals.get('__name__', '')}.".startswith("vicinal."):
        frame, level = frame.f_back, level + 1
    return level
