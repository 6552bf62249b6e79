"""Reads the docstrings of classes and of their fields from the source."""

from __future__ import annotations

import ast
from pathlib import Path

import parcelpost

SOURCE = Path(parcelpost.__file__).parent


class Described:
    """A class with its docstrings."""

    def __init__(self, node: ast.ClassDef) -> None:
        self.name = node.name
        self.about = " ".join((ast.get_docstring(node) or "").split("\n\n")[0].split())
        self.fields = dict(_fields(node.body))


def classes(file: str) -> dict[str, Described]:
    """Returns the classes of a module by name, in the order of the file."""
    tree = ast.parse((SOURCE / file).read_text(encoding="utf-8"))
    return {node.name: Described(node) for node in tree.body if isinstance(node, ast.ClassDef)}


def _fields(body: list[ast.stmt]) -> list[tuple[str, str]]:
    following = [*body[1:], ast.Pass()]
    return [
        (node.target.id, _text(after))
        for node, after in zip(body, following, strict=True)
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    ]


def _text(node: ast.stmt) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return " ".join(node.value.value.split())
    return ""
