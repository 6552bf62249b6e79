"""Every error says what happened, what to do, and whether trying again helps."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import pytest

from parcelpost import errors
from parcelpost.errors import ParcelpostError
from parcelpost.settings.toml import meanings

ALL: list[type[ParcelpostError]] = [
    found for _, found in inspect.getmembers(errors, inspect.isclass) if issubclass(found, ParcelpostError)
]
LEAVES = [error for error in ALL if not error.__subclasses__()]


def printed_tree() -> dict[str, str]:
    """Each class of the tree in the module's docstring, and the class above it."""
    above: dict[str, str] = {}
    path: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        if found := re.match(r"((?:[│ ] {3})*)(?:[├└]── )?([A-Z]\w+)(?:  |$)", line):
            depth = len(found[1]) // 4 + ("──" in line)
            path[depth:] = [found[2]]
            above[found[2]] = path[depth - 1] if depth else "Exception"
    return above


def test_what_people_are_told_names_no_file_that_only_a_clone_has() -> None:
    named = re.compile(r"\b(docs|deploy|bench|tests)/\w|\w\.md\b")
    assert [text for keys in meanings().values() for text in keys.values() if named.search(text)] == []
    package = Path(errors.__file__).parent
    shipped = {path.name for path in package.rglob("*.md")}
    for file in sorted(package.rglob("*.py")):
        source = file.read_text()
        if not named.search(source):
            continue
        tree = ast.parse(source)
        for told in ast.walk(tree):
            if isinstance(told, ast.Expr) and isinstance(told.value, ast.Constant):
                told.value.value = ""  # a docstring
        texts = [one.value for one in ast.walk(tree) if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        assert [text for text in texts if named.search(text) and text not in shipped] == [], file


def test_the_tree_in_the_docstring_is_the_tree_of_the_classes() -> None:
    assert printed_tree() == {error.__name__: error.__bases__[0].__name__ for error in ALL}


def test_the_tree_says_where_trying_again_helps() -> None:
    for error in ALL:
        (line,) = [line for line in (errors.__doc__ or "").splitlines() if re.search(rf"\b{error.__name__}\b", line)]
        assert not ("retry helps" in line and not error.retry_helps), f"{error.__name__} says so only in its docstring"


def test_an_errors_docstring_is_its_message(subtests: pytest.Subtests) -> None:
    for error in ALL:
        with subtests.test(error=error):
            assert error.__doc__
            assert str(error()) == error.__doc__.splitlines()[0]
            assert str(error("what exactly")) == "what exactly"
            assert error.__doc__.splitlines()[0].endswith(".")


def test_every_error_that_is_raised_has_a_hint(subtests: pytest.Subtests) -> None:
    for error in LEAVES:
        with subtests.test(error=error):
            assert error.hint
            assert error("x").hint == error.hint
            assert error("x", hint="do this").hint == "do this"
            assert error.hint == error("y").hint, "a hint of one error is not that of the next"


def test_there_are_no_errors_outside_the_tree() -> None:
    outside = [
        name
        for name, found in inspect.getmembers(errors, inspect.isclass)
        if found.__module__ == errors.__name__ and not issubclass(found, ParcelpostError)
    ]
    assert outside == []
