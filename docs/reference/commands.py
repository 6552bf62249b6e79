"""The page of commands: each command's help, examples and options, as --help prints them.

Handwritten are the text before the first command and the notes below a table of options.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any, get_args

from docs.reference.tables import joined, sections, table
from parcelpost.cli.main import COMMANDS
from parcelpost.cli.settings_options import AsJson, ConfigOption, SetOption, StoreOption

HEADER = ("option", "meaning")
_SHARED = {get_args(option)[1].help for option in (StoreOption, ConfigOption, SetOption, AsJson)}


def commands() -> dict[str, Any]:
    """Every command that can be run, by its full name."""
    return {
        name: command
        for lazy in COMMANDS
        if not lazy.hidden
        for name, command in _commands_below(lazy.real(), f"parcelpost {lazy.name}")
    }


def rendered(text: str) -> str:
    parts = sections(text)
    handwritten = [(title, body) for title, body in parts if not title.startswith("parcelpost ")]
    notes = {title: _notes(body) for title, body in parts}
    return joined(
        [*handwritten, *((name, _section(command, notes.get(name, ""))) for name, command in commands().items())]
    )


def _commands_below(command: Any, full_name: str) -> Iterator[tuple[str, Any]]:
    subcommands = getattr(command, "commands", {})
    for name, subcommand in subcommands.items():
        if not subcommand.hidden:
            yield from _commands_below(subcommand, f"{full_name} {name}")
    if not subcommands:
        yield full_name, command


def _notes(body: str) -> str:
    """Returns what follows the table of options in a section."""
    _, header, after = body.partition(f"| {' | '.join(HEADER)} |\n")
    lines = after.splitlines() if header else []
    while lines and lines[0].startswith("|"):
        lines.pop(0)
    return "\n".join(lines).strip()


def _section(command: Any, notes: str) -> str:
    parts = [command.help.replace("\b\n", "").strip(), f"```\n{_examples(command)}\n```", _options(command), notes]
    return "\n" + "\n\n".join(part for part in parts if part) + "\n\n"


def _examples(command: Any) -> str:
    lines = [line.strip() for line in (command.epilog or "").splitlines()]
    return "\n".join(line for line in lines if line not in ("", "\b", "Examples:"))


def _options(command: Any) -> str:
    shown = [parameter for parameter in command.params if not parameter.hidden]
    shared = [parameter for parameter in shown if _is_shared(parameter)]
    rows = [(_names(parameter), _meaning(parameter)) for parameter in shown if not _is_shared(parameter)]
    if shared:
        rows.append((", ".join(map(_names, shared)), "See [common options](#common-options)."))
    return table(HEADER, rows).rstrip() if rows else ""


def _is_shared(parameter: Any) -> bool:
    return parameter.help in _SHARED


def _names(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{parameter.metavar or parameter.name.upper()}`"
    value = f" {parameter.metavar}" if parameter.metavar and not parameter.is_flag else ""
    return ", ".join(f"`{name}{value}`" for name in parameter.opts)


def _meaning(parameter: Any) -> str:
    return " ".join(part for part in (parameter.help, _choices(parameter), _default(parameter)) if part)


def _choices(parameter: Any) -> str:
    """The allowed values, unless the help names them."""
    described = parameter.type_descriptor
    info = described.parameter_info
    if info.min is not None and info.max is not None:
        return f"{info.min:,} to {info.max:,}."
    names = [choice.value if isinstance(choice, Enum) else str(choice) for choice in described.choices or ()]
    if not names or all(name in (parameter.help or "") for name in names):
        return ""
    return f"One of {', '.join(f'`{name}`' for name in names)}."


def _default(parameter: Any) -> str:
    default = parameter.default.value if isinstance(parameter.default, Enum) else parameter.default
    if default in (None, False, "", [], ()) or callable(default) or parameter.name == "store":
        return ""
    return f"Default: `{default}`."
