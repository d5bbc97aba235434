"""The code of an experiment as a tree: which statements a function rests on, and a form of them that can be compared."""

import ast
import re
from typing import Any


def reached(tree: ast.Module, names: set[str]) -> list[ast.stmt]:
    """Return the top-level statements that define these names, and those that they name in turn."""
    found: dict[int, ast.stmt] = {}
    while True:
        new = {i: node for i, node in enumerate(tree.body) if i not in found and names & defined(node)}
        if not new:
            return [found[i] for i in sorted(found)]
        found |= new
        names = names | {part.id for node in new.values() for part in ast.walk(node) if isinstance(part, ast.Name)}


def defined(node: ast.stmt) -> set[str]:
    """Return the names that a top-level statement defines."""
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return {node.name}
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}


def without_docstring(node: ast.AST) -> list[ast.stmt]:
    """Return the statements of a module, class or function below its docstring; nothing for other nodes."""
    body: Any = getattr(node, "body", None)
    if not isinstance(body, list) or not body:
        return []
    first = body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        return body[1:]
    return body


def without_annotations(tree: ast.Module) -> ast.Module:
    """Return the code without annotations, and without the imports that only annotations need: they determine no numbers.

    The fields of classes keep theirs, because a dataclass is made of them.
    """
    bare = _Bare()
    code = bare.visit(tree)
    elsewhere = {part.id for part in ast.walk(code) if isinstance(part, ast.Name)}
    return _WithoutImports(bare.names - elsewhere).visit(code)


class _Bare(ast.NodeTransformer):
    """Removes the annotations of functions and variables, and notes the names in them."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def _noted(self, annotation: ast.expr | None) -> None:
        for part in ast.walk(annotation) if annotation is not None else ():
            if isinstance(part, ast.Name):
                self.names.add(part.id)
            elif isinstance(part, ast.Constant) and isinstance(part.value, str):  # quoted, or an entry of a Literal
                self.names |= set(re.findall(r"[A-Za-z_]\w*", part.value))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self._noted(node.returns)
        node.returns = None
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        self._noted(node.annotation)
        node.annotation = None
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.body = [part if isinstance(part, ast.AnnAssign) else self.visit(part) for part in node.body]
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        self._noted(node.annotation)
        return None if node.value is None else self.generic_visit(ast.Assign([node.target], node.value))

    def visit_If(self, node: ast.If) -> ast.AST | None:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            self.names.add("TYPE_CHECKING")
            return None
        return self.generic_visit(node)


class _WithoutImports(ast.NodeTransformer):
    """Removes the imports of some names."""

    def __init__(self, names: set[str]) -> None:
        self.names = names

    def _kept(self, node: ast.Import | ast.ImportFrom) -> ast.AST | None:
        node.names = [alias for alias in node.names if (alias.asname or alias.name).partition(".")[0] not in self.names]
        return node if node.names else None

    visit_Import = visit_ImportFrom = _kept


def plain(node: Any) -> str:
    """Return the code without docstrings, comments and layout, the same under every version of Python.

    `ast.dump` is not: what it writes for empty fields has changed.
    """
    if isinstance(node, list):
        return "[" + ",".join(map(plain, node)) + "]"
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = {name: value for name, value in ast.iter_fields(node) if value is not None and value != []}
    fields.pop("kind", None)
    if "body" in fields and isinstance(fields["body"], list):
        fields["body"] = without_docstring(node)
    return type(node).__name__ + "(" + ",".join(f"{name}={plain(value)}" for name, value in fields.items()) + ")"
