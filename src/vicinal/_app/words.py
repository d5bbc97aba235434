"""Translation of messages of the library for the command line: ``--set reg=0.01`` instead of ``reg=0.01``."""

import re
from typing import Any

# Advice that has no option on the command line, and its replacement.
_OPTIONS = {"random_state": "--seed"}
_ONLY_IN_PYTHON = re.compile(r",? or look at objectives_|,? or look at \w+_(?=[.,]|$)")
_ADVICE = r"\b([Rr]aise|[Ll]ower|[Pp]ass|[Uu]se|[Ss]et|[Cc]hoose|[Cc]hange)"


def in_command_words(text: str, estimator: Any) -> str:
    """Return a message of an estimator, with its parameters as ``--set`` takes them.

    Parameters
    ----------
    text : str
    estimator : estimator
    """
    parameters = sorted(set(estimator.get_params(deep=False)) - {"engine", "callback", "verbose"})
    settable = "|".join(map(re.escape, sorted(parameters, key=len, reverse=True)))
    if not settable:
        return text
    text = _ONLY_IN_PYTHON.sub("", text)
    # An assignment that is not inside a call such as Objective(kind=...), not after an option, and does not state what was passed.
    text = re.sub(rf"(?<![\w.(-])(?<!--set )(?<!got )({settable})=(?=[^\s=])", _assignment, text)
    # A parameter that is only named: "Raise max_iter".
    return re.sub(rf"{_ADVICE} ({settable})(?![\w=])", _named, text)


def _assignment(match: re.Match[str]) -> str:
    name = match.group(1)
    return f"{_OPTIONS[name]} " if name in _OPTIONS else f"--set {name}="


def _named(match: re.Match[str]) -> str:
    verb, name = match.groups()
    return f"{verb} {name} ({_OPTIONS.get(name) or f'--set {name}=...'})"
