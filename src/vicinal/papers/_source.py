"""The code of an experiment as a tree: which statements a function rests on, and a form of them that can be compared."""

import ast
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
