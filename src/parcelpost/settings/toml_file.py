"""The file: where it is, what it says, and on which line."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from parcelpost.settings import field_maps, platforms
from parcelpost.settings.gathering import Gathering
from parcelpost.settings.keys import Settings

DEFAULT = Path("parcelpost.toml")
VARIABLE = "PARCELPOST_CONFIG"

_MAX_BYTES = 1024**2
_HEADER = re.compile(r"\s*\[\s*([^\[\]]+?)\s*\]\s*(?:#.*)?")
_ENTRY = re.compile(r"\s*([\w\-.\"' ]+?)\s*=")
_LINE = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")


def find(config: Path | None, environment: Mapping[str, str]) -> Path | None:
    """`config`, else what PARCELPOST_CONFIG names, else ./parcelpost.toml if it is there."""
    if config is not None:
        return config
    if named := environment.get(VARIABLE):
        return Path(named)
    return DEFAULT if os.path.lexists(DEFAULT) else None  # a link to nowhere is an error, not an absence


def gather(path: Path, into: Gathering) -> None:
    text = _text(path, into)
    if text is None:
        return
    try:
        document = tomllib.loads(text)
    except RecursionError:
        into.problem(f"{path}: not TOML: too deeply nested", _HOW_IT_LOOKS)
    except ValueError as error:
        found = _LINE.search(str(error))
        line = found[1] or len(text.splitlines()) if found else 0
        what = _LINE.sub("", str(error))
        into.problem(f"{path}:{line}: not TOML: {what}" if line else f"{path}: not TOML: {what}", _HOW_IT_LOOKS)
    else:
        _take(document, path, lines(text), into)


_HOW_IT_LOOKS = "a section is written [sync], a line below it batch_size = 50, text in quotes"


def _text(path: Path, into: Gathering) -> str | None:
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        into.problem(f"the settings file {path} cannot be read: {reason}", f"check --config and {VARIABLE}")
        return None
    if len(content) > _MAX_BYTES:
        into.problem(f"{path} is larger than 1 MiB", "name the settings file with --config")
        return None
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        into.problem(f"{path}:{line}: not UTF-8", "save the file as UTF-8")
        return None


def _take(document: dict[str, Any], path: Path, where: Mapping[str, int], into: Gathering) -> None:
    def origin(name: str) -> str:
        line = where.get(name) or where.get(name.rpartition(".")[0]) or where.get(name.partition(".")[0])
        return f"{path}:{line}" if line else str(path)

    for section, entries in document.items():
        if section == platforms.SECTION:
            platforms.gather(entries, origin, into)
        elif section == field_maps.SECTION:
            field_maps.gather(entries, origin, into)
        elif isinstance(entries, dict) and (entries or section in Settings.__struct_fields__):
            for field, value in entries.items():
                into.toml(f"{section}.{field}", value, origin(f"{section}.{field}"))
        elif section in Settings.__struct_fields__:
            into.problem(f"{origin(section)}: {section} is a section, not a setting", _HOW_IT_LOOKS)
        else:
            into.toml(section, entries, origin(section))


def lines(text: str) -> dict[str, int]:
    """The line on which each section and key stands first, as far as the lines alone tell."""
    found: dict[str, int] = {}
    section = ""
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.fullmatch(line):
            section = _bare(header[1])
            found.setdefault(section, number)
        elif entry := _ENTRY.match(line):
            name = _bare(entry[1])
            found.setdefault(f"{section}.{name}" if section else name, number)
    return found


def _bare(name: str) -> str:
    return ".".join(part.strip(" \t\"'") for part in name.split("."))
