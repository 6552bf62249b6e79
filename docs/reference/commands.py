"""The page of commands: what each does, its examples and options, as --help prints them.

Every command has a section; those of a group share one. Options that many commands share are listed once. Handwritten
are the text before the first command and the notes at the end of a section.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from itertools import dropwhile
from typing import Any, get_args

from docs.reference.tables import joined, sections, table, with_table
from parcelpost.cli import task_filters
from parcelpost.cli.importer import options as import_options
from parcelpost.cli.main import COMMANDS
from parcelpost.cli.settings_options import (
    AnyPlatform,
    AsJson,
    ConfigOption,
    Database,
    Platform,
    SetOption,
    StoreOption,
    Yes,
)

_PROGRAM = "parcelpost"
_COMMON = "Common options"
_SHARED: dict[str, tuple[Any, ...]] = {
    _COMMON: (StoreOption, ConfigOption, SetOption, Database, AnyPlatform, Yes, AsJson),
    "Filters of tasks and results": (
        task_filters.TaskIds,
        task_filters.Everything,
        task_filters.Status,
        Platform,
        task_filters.State,
        task_filters.County,
        task_filters.Parcel,
        task_filters.FromSource,
        task_filters.WithPriority,
        task_filters.WithDelivery,
        task_filters.Error,
        task_filters.Since,
        task_filters.DryRun,
    ),
    "Import options": (
        import_options.File,
        import_options.Maps,
        import_options.PlatformOfAll,
        import_options.StateOfAll,
        import_options.CountyOfAll,
        import_options.Kind,
        import_options.DryRun,
        import_options.Errors,
        import_options.AllowBad,
    ),
}
"""Options by the section that lists them."""
_SECTION_OF = {get_args(option)[1].help: title for title, options in _SHARED.items() for option in options}
_HEADER = ("option", "meaning")


def commands() -> dict[str, Any]:
    """Every command that can be run, by its full name."""
    return {
        name: command
        for lazy in COMMANDS
        if not lazy.hidden
        for name, command in _commands_below(lazy.real(), f"{_PROGRAM} {lazy.name}")
    }


def section_of(name: str) -> str:
    """The section that describes the command: that of its group, unless it is the only one there."""
    group = name.rpartition(" ")[0]
    is_alone = sum(other.rpartition(" ")[0] == group for other in commands()) == 1
    return name if group == _PROGRAM or is_alone else group


def rendered(text: str) -> str:
    every = commands()
    groups: dict[str, dict[str, Any]] = {}
    for name, command in every.items():
        groups.setdefault(section_of(name), {})[name] = command
    listed = {title: _shared_rows(title, every.values()) for title in _SHARED if title != _COMMON}
    parts = sections(text)
    handwritten = [(title, body) for title, body in parts if not title.startswith(f"{_PROGRAM} ")]
    notes = {title: _notes(body) for title, body in parts}
    return joined(
        [
            *(
                (title, with_table(body, _HEADER, listed[title]) if title in listed else body)
                for title, body in handwritten
            ),
            *((title, _section(title, group, notes.get(title, ""))) for title, group in groups.items()),
        ]
    )


def _shared_rows(title: str, commands: Iterable[Any]) -> list[tuple[str, str]]:
    rows = {
        parameter.help: (_names(parameter), _meaning(parameter))
        for command in commands
        for parameter in command.params
        if _section_of(parameter, command) == title
    }
    return [rows[get_args(option)[1].help] for option in _SHARED[title]]


def _commands_below(command: Any, full_name: str) -> Iterator[tuple[str, Any]]:
    subcommands = getattr(command, "commands", {})
    for name, subcommand in subcommands.items():
        if not subcommand.hidden:
            yield from _commands_below(subcommand, f"{full_name} {name}")
    if not subcommands:
        yield full_name, command


def _notes(body: str) -> str:
    """Returns what follows the options in a section."""
    after_examples = body.rpartition("\n```\n")[2].splitlines()
    return "\n".join(dropwhile(lambda line: not line or line.startswith("|"), after_examples)).strip()


def _section(title: str, group: dict[str, Any], notes: str) -> str:
    examples = "\n".join(dict.fromkeys(_examples(command) for command in group.values()))
    parts = [*_description(title, group), f"```\n{examples}\n```", *_options(group), notes]
    return "\n" + "\n\n".join(part.strip() for part in parts if part) + "\n\n"


def _description(title: str, group: dict[str, Any]) -> Iterator[str]:
    if title in group:
        yield _about(group[title])
        return
    rows = ((_last(name), _about(command), _shared_options(command)) for name, command in group.items())
    yield table(("command", "what it does", "common options"), rows)


def _options(group: dict[str, Any]) -> Iterator[str]:
    """A row for each option; in a group, with the commands that take it."""
    own: dict[tuple[str, str], list[str]] = {}
    for name, command in group.items():
        for parameter in command.params:
            if not parameter.hidden and not _section_of(parameter, command):
                own.setdefault((_names(parameter), _meaning(parameter)), []).append(_last(name))
    if len(group) == 1:
        (command,) = group.values()
        also = _shared_options(command)
        yield table(_HEADER, [*own, *([("common options", also)] if also else [])])
    elif own:
        yield table(
            ("option", "commands", "meaning"),
            ((names, ", ".join(users), meaning) for (names, meaning), users in own.items()),
        )


def _last(name: str) -> str:
    return f"`{name.rpartition(' ')[2]}`"


def _about(command: Any) -> str:
    return " ".join(command.help.replace("\b\n", "").split())


def _examples(command: Any) -> str:
    lines = [line.strip() for line in (command.epilog or "").splitlines()]
    return "\n".join(line for line in lines if line not in ("", "\b", "Examples:"))


def _shared_options(command: Any) -> str:
    found = [(_section_of(parameter, command), parameter) for parameter in command.params if not parameter.hidden]
    common = ", ".join(f"`{parameter.opts[0]}`" for title, parameter in found if title == _COMMON)
    titles = dict.fromkeys(title for title, _ in found if title not in ("", _COMMON))
    return "; ".join(
        [*filter(None, [common]), *(f"[{title.lower()}](#{title.lower().replace(' ', '-')})" for title in titles)]
    )


def _section_of(parameter: Any, command: Any) -> str:
    """The section that lists the parameter; '' if it is the command's own. One filter alone is a command's own."""
    title = _SECTION_OF.get(parameter.help or "", "")
    if title in ("", _COMMON):
        return title
    shared = sum(_SECTION_OF.get(other.help or "") == title for other in command.params)
    return title if shared >= len(_SHARED[title]) // 2 else ""


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
    if default in (None, False, "", [], ()) or callable(default):
        return ""
    return f"Default: `{default}`."
