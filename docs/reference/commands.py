"""The options of every command, as its own --help tells them."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any

from docs.reference.tables import joined, sections, with_table
from parcelpost.cli.main import COMMANDS

HEADER = ("option", "meaning")
_SHARED = ("--store", "--config", "--set", "--json")
_SHARED_HELP = (
    "The store's file; else storage.path.",
    "The settings file. Else $PARCELPOST_CONFIG, else parcelpost.toml.",
    "Set one setting, as in",
    "Print one JSON document instead of text.",
)


def commands() -> dict[str, Any]:
    """Every command that can be run, by its full name."""
    return {name: one for later in COMMANDS for name, one in _below(later.real(), f"parcelpost {later.name}")}


def rendered(text: str) -> str:
    known = commands()
    return joined(
        (title, _with_options(body, known[title]) if title in known else body) for title, body in sections(text)
    )


def _below(command: Any, words: str) -> Iterator[tuple[str, Any]]:
    below = getattr(command, "commands", {})
    for part, one in below.items():
        yield from _below(one, f"{words} {part}")
    if not below:
        yield words, command


def _with_options(text: str, command: Any) -> str:
    own = [one for one in command.params if not one.hidden and not _is_shared(one)]
    shared = [one for one in command.params if _is_shared(one)]
    rows = [(_names(one), _meaning(one)) for one in own]
    if shared:
        rows.append((", ".join(map(_names, shared)), "As [everywhere](#what-they-share)."))
    return with_table(text, HEADER, rows) if rows else text


def _is_shared(parameter: Any) -> bool:
    return parameter.opts[0] in _SHARED and (parameter.help or "").startswith(_SHARED_HELP)


def _names(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{parameter.metavar or parameter.name.upper()}`"
    value = f" {parameter.metavar}" if parameter.metavar and not parameter.is_flag else ""
    return ", ".join(f"`{name}{value}`" for name in parameter.opts)


def _meaning(parameter: Any) -> str:
    return " ".join(part for part in (parameter.help, _choices(parameter), _default(parameter)) if part)


def _choices(parameter: Any) -> str:
    """What may be given, where the words before have not said so."""
    described = parameter.type_descriptor
    info = described.parameter_info
    if info.min is not None and info.max is not None:
        return f"{info.min:,} to {info.max:,}."
    names = [one.value if isinstance(one, Enum) else str(one) for one in described.choices or ()]
    if not names or all(name in (parameter.help or "") for name in names):
        return ""
    return f"One of {', '.join(f'`{name}`' for name in names)}."


def _default(parameter: Any) -> str:
    default = parameter.default.value if isinstance(parameter.default, Enum) else parameter.default
    if default in (None, False, "", [], ()) or callable(default) or parameter.name == "store":
        return ""
    return f"Default: `{default}`."
