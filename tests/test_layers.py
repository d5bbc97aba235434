"""Test that a folder imports only from folders below it, and only their public names.

The order is read from docs/house.md. A room is a folder of the package or a module beside those folders.
"""

import ast
import re
from fnmatch import fnmatch
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

import vicinal

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "vicinal"


class Import(NamedTuple):
    """One imported name: the position of the line, and the module and the name that it imports."""

    file: Path
    line: int
    module: str
    name: str | None  # None where the module itself is imported

    @property
    def room(self):
        """The room that the line stands in."""
        return self.file.relative_to(SOURCE).parts[0].removesuffix(".py")


def read_order(text):
    """The lines of rooms, the highest first, in the first code block below the heading on imports."""
    block = text.split("## Which folder may import which?")[1].split("```")[1]
    return [re.split(r" {2,}", line)[0].split() for line in block.strip().splitlines()]


ORDER = read_order((ROOT / "docs" / "house.md").read_text(encoding="utf-8"))
DEPTH = {room: depth for depth, rooms in enumerate(ORDER) for room in rooms}


def python_files():
    return sorted(file for file in SOURCE.rglob("*.py") if file != SOURCE / "__init__.py")


def imports_in(file, source=None):
    """Every import from vicinal in a file, those inside functions included, relative ones spelled out."""
    package = ["vicinal", *file.relative_to(SOURCE).parent.parts]
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8") if source is None else source)):
        if isinstance(node, ast.Import):
            found = [(alias.name, None) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*above, node.module] if node.module else above)
            found = [(module, alias.name) for alias in node.names]
        else:
            continue
        yield from (
            Import(file, node.lineno, module, name) for module, name in found if module.split(".")[0] == "vicinal"
        )


def source_of(module):
    base = SOURCE.joinpath(*module.split(".")[1:])
    return (base / "__init__.py" if base.is_dir() else base.with_suffix(".py")).read_text(encoding="utf-8")


@cache
def public_names(module):
    """The ``__all__`` of a module, as its source has it, or None."""
    for node in ast.parse(source_of(module)).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", None) == "__all__":
            return ast.literal_eval(node.value)
    return None


def fault_of_name(module, name):
    """Why a name may not be imported from a module of another room, or None."""
    parts = module.split(".")
    for part in (*parts[2:], name or ""):
        if part.startswith("_") and not part.endswith("__"):
            return f"{part} is private"
    for depth in range(2, len(parts) + 1):
        inside, public = ".".join(parts[:depth]), public_names(".".join(parts[:depth]))
        wanted = name if depth == len(parts) else parts[depth]
        if public is not None and wanted is not None and wanted not in public:
            return f"{wanted} is not in the __all__ of {inside}"
    return None


def fault_of(line):
    """The rule that an import breaks, or None."""
    module, name, own = line.module, line.name, line.room
    if module == "vicinal" and name is None:
        below = DEPTH[own] < DEPTH["_lca"]
        return None if below else f"`import vicinal` stands for all methods, and {own} is not above them."
    if module == "vicinal":  # a name of the public list comes from its own room
        module, name = (f"vicinal.{vicinal._HOME[name]}", None) if name in vicinal._HOME else (f"vicinal.{name}", None)
    other = module.split(".")[1]
    if other == own:
        return None
    if other not in DEPTH:
        return f"{own} imports from {other}, which has no place in the order of docs/house.md."
    if DEPTH[other] <= DEPTH[own]:
        place = "on the same line as" if DEPTH[other] == DEPTH[own] else "above"
        return f"{own} imports from {other}, which stands {place} {own}; a folder imports only from folders below it."
    fault = None if line.module == "vicinal" else fault_of_name(module, name)
    return fault and f"{own} imports from {other}, but {fault}; a folder imports only public names of other folders."


def test_every_room_has_one_place():
    rooms = {file.relative_to(SOURCE).parts[0].removesuffix(".py") for file in python_files()}
    assert rooms <= set(DEPTH), f"docs/house.md does not say where {sorted(rooms - set(DEPTH))} stand."
    assert len(DEPTH) == sum(map(len, ORDER)), "docs/house.md lists a room twice."


def test_rooms_import_only_public_names_of_rooms_below():
    found = []
    for line in (line for file in python_files() for line in imports_in(file)):
        fault = fault_of(line)
        if fault:
            found.append(f"{line.file.relative_to(ROOT).as_posix()}:{line.line}: {fault}")
    assert not found, "\n".join([f"{len(found)} imports break the order of the rooms (docs/house.md):", *found])


@pytest.mark.parametrize(
    ("file", "source", "expected"),
    [
        ("_density/parzen.py", "from vicinal._lca.lca import LCA", "_lca, which stands above _density"),
        ("_density/parzen.py", "def f():\n    from vicinal import LCA", "_lca, which stands above _density"),
        ("_density/parzen.py", "from .._lca import lca", "_lca, which stands above _density"),
        ("_density/parzen.py", "import vicinal._metric", "_metric, which stands on the same line as _density"),
        ("_density/parzen.py", "import vicinal", "`import vicinal` stands for all methods"),
        ("_density/parzen.py", "from vicinal._attic import junk", "no place in the order"),
        ("_lca/lca.py", "from vicinal._engine.choice import choose", "choice is not in the __all__ of vicinal._engine"),
        ("_lca/lca.py", "from vicinal._mixtures import _private", "_private is private"),
        ("_lca/lca.py", "import vicinal._engine.choice", "choice is not in the __all__ of vicinal._engine"),
        ("_lca/lca.py", "from vicinal._engine import Points", "Points is not in the __all__ of vicinal._engine"),
        ("_lca/lca.py", "from vicinal._mixtures.base import MixtureBase", "base is not in the __all__ of vicinal._mixtures"),
        ("_lca/lca.py", "from vicinal._checks import _private", "_private is private"),
        ("_lca/lca.py", "from vicinal._engine import prepare\nfrom vicinal import Engine", None),
        ("_lca/lca.py", "from vicinal._lca.steps import _anything\nfrom . import _inside", None),
        ("cli/score.py", "import vicinal\nfrom vicinal import LCA, datasets\nfrom vicinal._version import __version__", None),
        ("cli/score.py", "import numpy\nfrom sklearn.utils import _safe_indexing", None),
    ],
)  # fmt: skip
def test_what_breaks_the_rule(file, source, expected):
    faults = [fault for fault in map(fault_of, imports_in(SOURCE / file, source)) if fault]
    if expected is None:
        assert not faults
    else:
        assert len(faults) == 1
        assert expected in faults[0]


# -- folders of the engine ----------------------------------------------------------------------------------------------


def imported_when_run(file):
    """The modules and names of vicinal that a file imports, inside functions too, but for annotations alone."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            node.body = [ast.Pass()]
    return {f"{line.module}.{line.name or ''}" for line in imports_in(file, ast.unparse(tree))}


def test_folders_of_the_engine_import_each_other_in_one_order():
    """32 of its 68 files were one cycle of imports."""
    engine = SOURCE / "_engine"
    files = [file for file in engine.rglob("*.py") if file != engine / "__init__.py"]
    homes = {file: file.relative_to(engine).parts[0].removesuffix(".py") for file in files}
    imports = {home: set() for home in homes.values()}
    for file, home in homes.items():
        others = {module.split(".")[2] for module in imported_when_run(file) if module.startswith("vicinal._engine.")}
        imports[home] |= others & set(imports) - {home}
    order = list(TopologicalSorter(imports).static_order())  # raises an error that shows the cycle
    assert order.index("contract") < order.index("cpu") < order.index("frames") < order.index("cuda")


# -- folders: the README of a folder says what each of its files is for ------------------------------------------------


@pytest.mark.parametrize("folder", ["tests", "benchmarks"])
def test_the_readme_of_a_folder_names_each_of_its_files(folder):
    text = (ROOT / folder / "README.md").read_text(encoding="utf-8")
    named = [name.rstrip("/") for name in re.findall(r"`([\w*./]+)`", text)]
    files = [file.name for file in (ROOT / folder).iterdir() if not file.name.startswith(("README", "_", "."))]
    missing = sorted(
        name for name in files if not any(fnmatch(name, pattern) or pattern.startswith(f"{name}/") for pattern in named)
    )
    assert not missing, f"{folder}/README.md does not say what these files are for: {missing}"


def test_the_first_file_of_a_folder_names_each_of_its_files():
    missing = []
    for file in sorted(set(SOURCE.rglob("*.py")) - set(SOURCE.glob("*.py"))):
        overview = ast.get_docstring(ast.parse((file.parent / "__init__.py").read_text(encoding="utf-8")))
        if file.name != "__init__.py" and not re.search(rf"(?<!\w){re.escape(file.name)}", overview):
            missing.append(file.relative_to(SOURCE).as_posix())
    assert not missing, f"the docstring of __init__.py does not say what these files are for: {missing}"
