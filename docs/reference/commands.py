"""The page of commands: each command's help, examples and options, as --help prints them.

Options that many commands share are listed once. Handwritten are the text before the first command and the notes below
a list of options.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from itertools import dropwhile
from typing import Any, get_args

from docs.reference.tables import joined, sections
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
_ALSO = "- Also: "


def commands() -> dict[str, Any]:
    """Every command that can be run, by its full name."""
    return {
        name: command
        for lazy in COMMANDS
        if not lazy.hidden
        for name, command in _commands_below(lazy.real(), f"parcelpost {lazy.name}")
    }


def rendered(text: str) -> str:
    every = commands()
    listed = {title: _shared_list(title, every.values()) for title in _SHARED if title != _COMMON}
    parts = sections(text)
    handwritten = [(title, body) for title, body in parts if not title.startswith("parcelpost ")]
    notes = {title: _notes(body) for title, body in parts}
    return joined(
        [
            *((title, _with_list(body, listed[title]) if title in listed else body) for title, body in handwritten),
            *((name, _section(command, notes.get(name, ""))) for name, command in every.items()),
        ]
    )


def _shared_list(title: str, commands: Iterable[Any]) -> str:
    lines = {
        parameter.help: _line(parameter)
        for command in commands
        for parameter in command.params
        if _section_of(parameter, command) == title
    }
    return "\n".join(lines[get_args(option)[1].help] for option in _SHARED[title])


def _with_list(body: str, lines: str) -> str:
    """Replaces the list at the end of a section."""
    handwritten = body.partition("\n- ")[0].rstrip()
    return f"{handwritten}\n\n{lines}\n\n"


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
    return "\n".join(dropwhile(lambda line: not line or line.startswith(("- `", _ALSO)), after_examples)).strip()


def _section(command: Any, notes: str) -> str:
    about = "\n\n".join(" ".join(paragraph.split()) for paragraph in command.help.replace("\b\n", "").split("\n\n"))
    parts = [about, f"```\n{_examples(command)}\n```", _options(command), notes]
    return "\n" + "\n\n".join(part for part in parts if part) + "\n\n"


def _examples(command: Any) -> str:
    lines = [line.strip() for line in (command.epilog or "").splitlines()]
    return "\n".join(line for line in lines if line not in ("", "\b", "Examples:"))


def _options(command: Any) -> str:
    shown = [parameter for parameter in command.params if not parameter.hidden]
    own = [_line(parameter) for parameter in shown if not _section_of(parameter, command)]
    also = [_also(title, [p for p in shown if _section_of(p, command) == title]) for title in _SHARED]
    return "\n".join([*own, *([_ALSO + "; ".join(filter(None, also)) + "."] if any(also) else [])])


def _also(title: str, parameters: list[Any]) -> str:
    link = f"[{title.lower()}](#{title.lower().replace(' ', '-')})"
    if title == _COMMON:
        return ", ".join(f"`{parameter.opts[0]}`" for parameter in parameters) + f" ({link})" if parameters else ""
    return link if parameters else ""


def _section_of(parameter: Any, command: Any) -> str:
    """The section that lists the parameter; '' if it is the command's own. One filter alone is a command's own."""
    title = _SECTION_OF.get(parameter.help or "", "")
    if title in ("", _COMMON):
        return title
    shared = sum(_SECTION_OF.get(other.help or "") == title for other in command.params)
    return title if shared >= len(_SHARED[title]) // 2 else ""


def _line(parameter: Any) -> str:
    return f"- {_names(parameter)}: {' '.join(_meaning(parameter).split())}"


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
