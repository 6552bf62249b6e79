"""What the documents must name. Each part compares one list in the program with one page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from parcelpost.cli.main import app

DOCS = Path(__file__).parents[1] / "docs"


def sections(page: str) -> dict[str, str]:
    """The text under each second-level heading of a page, by heading."""
    _, *parts = re.split(r"^## (.+)$", (DOCS / page).read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


# Commands


def _commands(command: Any, words: str) -> dict[str, Any]:
    """Every command that can be run, by its full name; groups only lead to others, but for the program itself."""
    below = getattr(command, "commands", {})
    found = {} if below and " " in words else {words: command}
    for name, one in below.items():
        found |= _commands(one, f"{words} {name}")
    return found


COMMANDS = _commands(get_command(app), "parcelpost")


@pytest.mark.parametrize("words", COMMANDS)
def test_every_command_and_each_of_its_options_is_documented(words: str) -> None:
    text = sections("commands.md").get(words, "")
    assert f"```\n{words}" in text, f"docs/commands.md has no section '## {words}' with an example"
    options = [name for parameter in COMMANDS[words].params for name in parameter.opts if name.startswith("-")]
    missing = [name for name in options if not re.search(rf"`{name}[ `]", text)]
    assert missing == []


@pytest.mark.parametrize("words", COMMANDS)
def test_no_option_is_documented_that_does_not_exist(words: str) -> None:
    options = {name for parameter in COMMANDS[words].params for name in parameter.opts} | {"--help"}
    named = set(re.findall(r"^\| `(--[a-z-]+)", sections("commands.md")[words], flags=re.MULTILINE))
    assert named <= options


def test_every_documented_command_exists() -> None:
    assert {title for title in sections("commands.md") if title.startswith("parcelpost")} == set(COMMANDS)
