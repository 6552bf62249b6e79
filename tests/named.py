"""What a page names in backquotes, and whether it is there."""

from __future__ import annotations

import ast
import re
from functools import cache
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).parents[1]
_FOLDERS = ("tests/", "bench/", "src/", "docs/", "deploy/")


def missing(text: str) -> list[str]:
    """Files, tests and Python names of this repository that stand in backquotes and do not exist."""
    return [name for name in re.findall(r"`([^`\n]+)`", text) if not _is_there(name)]


def named_tests(text: str) -> list[str]:
    return re.findall(r"`(tests/[\w/]+\.py(?:::\w+)?)`", text)


def _is_there(name: str) -> bool:
    if name.startswith(_FOLDERS):
        file, _, test = name.partition("::")
        return (ROOT / file).exists() and (not test or test in _functions(file))
    if re.fullmatch(r"parcelpost(\.\w+)+", name) and not name.endswith((".toml", ".db")):
        return _python_name_is_there(name)
    return True


@cache
def _functions(file: str) -> frozenset[str]:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def _python_name_is_there(name: str) -> bool:
    """A module, or what one has."""
    try:
        import_module(name)
    except ImportError:
        module, _, attribute = name.rpartition(".")
        try:
            return hasattr(import_module(module), attribute)
        except ImportError:
            return False
    return True
