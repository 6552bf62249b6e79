"""The commands that README, docs and the examples of --help tell people to type."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import typer
from typer.main import get_command

from docs.reference.commands import commands, examples
from parcelpost.cli.main import LazyCommand, app

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
HELP = "--help"
"""Stands for the page of an example in a command's help."""
_PROGRAMS = (
    "parcelpost", "make", "python", "pip", "curl", "printf", "export", "umask", "mkdir", "echo", "git", "sudo",
    "createdb", "gcloud", "docker", "podman", "kubectl", "systemctl", "journalctl", "sqlite3", "cp", "mv", "chmod",
    "install", "cd", "promtool", "useradd", "jq", "rsync", "tar", "scp", "logrotate", "helm", "psql", "pg_dump",
)  # fmt: skip


class Typed(NamedTuple):
    """One line that somebody may type, and what the page shows that it prints."""

    page: str
    line: str
    shown: tuple[str, ...]
    is_first: bool
    """Of its command in its block."""


def typed() -> list[Typed]:
    in_help = [one for command in commands().values() for one in _lines(HELP, examples(command))]
    pages = [(page.name, page.read_text(encoding="utf-8")) for page in PAGES]
    return in_help + [one for name, text in pages for block in _blocks(text) for one in _lines(name, block)]


def inline() -> list[tuple[str, str]]:
    """Each `parcelpost ...` in the running text, with its page."""
    return [
        (page.name, words)
        for page in PAGES
        for words in re.findall(r"`(parcelpost [^`\n]+)`", _without_blocks(page.read_text(encoding="utf-8")))
    ]


def _blocks(text: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    return [body for language, body in found if language in ("", "sh", "bash", "console")]


def _without_blocks(text: str) -> str:
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def _lines(page: str, block: str) -> Iterator[Typed]:
    """Those after a `$ `, or where there is none, those that begin with a program; a backslash goes on."""
    line = ""
    shown: list[str] = []
    seen: set[str] = set()
    has_prompts = re.search(r"^\$ ", block, flags=re.MULTILINE)
    for text in block.replace("\\\n", " ").splitlines():
        bare = text.removeprefix("$ ")
        if bare != text if has_prompts else bare.split(" ", 1)[0] in _PROGRAMS:
            if line:
                yield Typed(page, line, tuple(shown), _is_new(line, seen))
            line, shown = _without_comment(bare), []
        else:
            shown.append(text)
    if line:
        yield Typed(page, line, tuple(shown), _is_new(line, seen))


def _is_new(line: str, seen: set[str]) -> bool:
    """Whether no earlier line is of the same command. Adds it to those seen."""
    name = " ".join(leaf(words)[1] for words in commands_in(line)) or line
    is_new = name not in seen
    seen.add(name)
    return is_new


def _without_comment(line: str) -> str:
    return re.sub(r"\s{2,}#\s.*$", "", line).strip()


def commands_in(line: str) -> list[list[str]]:
    """The words of each command of ours in a line of shell."""
    parts = re.split(r"\s(?:&&|\|\||\||;)\s|\$\(|\)", line)
    ours = re.compile(r"\s*(?:\w+=\S*\s+|sudo -u \S+\s+)*(?:\S*/)?parcelpost\s(.*)", re.DOTALL)
    found = [ours.fullmatch(re.sub(r"\s\d?>{1,2}\s*\S+", "", part)) for part in parts]
    return [shlex.split(match[1], comments=True) for match in found if match]


def leaf(words: list[str]) -> tuple[Any, str, list[str]]:
    """The command that the words lead to, its name, and what is left for it."""
    command: Any = get_command(app)
    name = "parcelpost"
    while words and not words[0].startswith("-") and (below := getattr(command, "commands", None)):
        if words[0] not in below and "list" in below:  # as `parcelpost platforms vgsi`
            words = ["list", *words]
        assert words[0] in below, f"there is no command {words[0]} in {name}"
        name, *words = words
        command = below[name].real() if isinstance(below[name], LazyCommand) else below[name]
    return command, name, words


def understood(words: list[str]) -> None:
    """Raises what the command line says of words that it does not understand. Runs nothing."""
    command, name, left = leaf(words)
    with contextlib.suppress(typer.Exit):  # --help, --version
        command.make_context(name, left, help_option_names=["-h", "--help"])
