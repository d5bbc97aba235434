"""All public names with their signatures, in `public_names.txt`: a change of the interface is seen in its diff.

``python tests/test_public_names.py`` writes the file.
"""

import inspect
from importlib import import_module
from pathlib import Path

import vicinal

FILE = Path(__file__).with_name("public_names.txt")


def signatures(place, names):
    """A line per function, class and public method of a module."""
    for name in sorted(names):
        thing = getattr(import_module(place), name)
        if not callable(thing):
            continue
        yield f"{place}.{name}{signature_of(thing)}"
        if inspect.isclass(thing):
            for part in sorted(vars(thing)):
                method = inspect.getattr_static(thing, part)
                if not part.startswith("_") and inspect.isfunction(method):
                    yield f"    .{part}{signature_of(method)}"


def signature_of(thing):
    if inspect.isclass(thing) and issubclass(thing, Exception):
        return ""
    signature = inspect.signature(thing)
    empty = inspect.Parameter.empty
    parameters = [part.replace(annotation=empty) for part in signature.parameters.values()]
    return str(signature.replace(parameters=parameters, return_annotation=empty))


def public_names():
    lines = list(signatures("vicinal", vicinal._HOME))
    for module in sorted(vicinal._MODULES):
        lines += signatures(f"vicinal.{module}", import_module(f"vicinal.{module}").__all__)
    return "\n".join(lines) + "\n"


def test_public_names_and_signatures_are_those_of_the_list():
    assert public_names() == FILE.read_text(encoding="utf-8"), "run: python tests/test_public_names.py"


def test_public_names_of_the_top_level_are_few():
    assert len(vicinal._HOME) <= 33


if __name__ == "__main__":
    FILE.write_text(public_names(), encoding="utf-8")
