"""A check that numbers in the text of a page come from results and are not typed into a sentence.

A typed number can become wrong without anyone noticing.  In an f-string, the number comes from the records or from a
constant that the experiment uses.  The check raises an error for digits in every text that `summarise` can reach,
except

- names of things in a paper: Table 3, Figs. 4 and 5, Eq. 7, sec. 6.2; and 1-NN;
- code and formulas in backticks;
- the first argument of `Claim`, which states its rule and margins independently of the results;
- keys of dicts, subscripts and comparisons, which are names and not prose;

and for decimals and percentages in the docstring of a module, which describes the set-up of the experiment.  There a constant of
the module is named in braces: ``{BLUR}``.
"""

import ast
import inspect
import re
from pathlib import Path
from types import ModuleType

from vicinal.papers._source import reached, without_docstring

_NUMBER = r"\d+(?:\.\d+)*[a-z]?"
_NAMES = (
    r"Algorithms?|Appendix|Eqs?\.|Equations?|Figs?\.|Figures?|Propositions?|Tables?|footnotes?|notes?|secs?\.|sections?"
)
_REFERENCE = re.compile(rf"(?<!\w)(?:{_NAMES})\s{_NUMBER}(?:(?:,?\s(?:and|to|or)|,)\s{_NUMBER})*", re.IGNORECASE)
_NAME = re.compile(r"`[^`]*`|\b1-NN\b")
_FIELD = re.compile(r"\{[^{}]*\}")  # of a template for str.format
_DECIMAL = re.compile(r"\d\.\d|\d ?%|\d per cent")


class TypedNumber(Exception):
    """A sentence of a page holds a number that no result fills in: where, and which."""


def about(module: ModuleType) -> str:
    """Return the docstring of an experiment below its first line, with the module's constants for names in braces."""
    text = (inspect.getdoc(module) or "").partition("\n")[2].strip()
    if _DECIMAL.search(_without_references(text)):
        raise TypedNumber(
            f"{module.__name__}: the docstring holds a typed decimal or percentage. Name a constant in braces."
        )
    return text.format_map(vars(module)) if _FIELD.search(text) else text


def refuse_typed_numbers(module: ModuleType) -> None:
    """Raise `TypedNumber` if a text that `summarise` can reach contains typed digits."""
    if module.__file__ is None:
        return
    found = _typed(Path(module.__file__), {"summarise"}, module.__package__ or "")
    if found:
        raise TypedNumber(
            f"{module.__name__}: {len(found)} typed numbers in prose, which must come from the results through placeholders: "
            + "; ".join(found)
        )


def _typed(path: Path, names: set[str], package: str) -> list[str]:
    """Return "file:line: text" for each typed number, also in helpers of the same package."""
    found = []
    for node in reached(ast.parse(path.read_text(encoding="utf-8")), names):
        if isinstance(node, ast.ImportFrom):
            if (node.module or "").startswith(f"{package}._"):
                helper = path.with_name((node.module or "").rpartition(".")[2] + ".py")
                found += _typed(helper, {alias.name for alias in node.names}, package)
            continue
        texts = _Texts()
        texts.visit(node)
        found += [f"{path.name}:{line}: {text!r}" for line, text in texts.found]
    return found


def _without_references(text: str) -> str:
    return _REFERENCE.sub("", _NAME.sub("", _FIELD.sub("", text)))


class _Texts(ast.NodeVisitor):
    """Collects the texts with digits of their own that could end in a sentence."""

    def __init__(self) -> None:
        self.found: list[tuple[int, str]] = []

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str) and re.search(r"\d", _without_references(node.value)):
            self.found.append((node.lineno, node.value))

    def visit_FormattedValue(self, node: ast.FormattedValue) -> None:
        self.visit(node.value)  # and not the format, as in .2f

    def visit_Subscript(self, node: ast.Subscript) -> None:
        self.visit(node.value)

    def visit_Compare(self, node: ast.Compare) -> None:
        pass

    def visit_Dict(self, node: ast.Dict) -> None:
        for value in node.values:
            self.visit(value)

    def visit_Call(self, node: ast.Call) -> None:
        says = isinstance(node.func, ast.Name) and node.func.id == "Claim"
        self.visit(node.func)
        for value in node.args[1:] if says else node.args:
            self.visit(value)
        for keyword in node.keywords:
            if not (says and keyword.arg == "says"):
                self.visit(keyword.value)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        for statement in without_docstring(node):
            self.visit(statement)

    visit_ClassDef = visit_FunctionDef  # type: ignore[assignment]
