"""The map of the commands: what each does and an example of it, from its --help.

There is a table for each group of `parcelpost --help`, and one of the filters. All other text is handwritten.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from typing import Any, get_args

from docs.reference.tables import joined, sections, with_table
from parcelpost.cli import task_filters
from parcelpost.cli.main import GROUPS
from parcelpost.cli.settings_options import Platform

_PROGRAM = "parcelpost"
_FILTERS = "Filters of tasks and results"
_FILTER_OPTIONS = (
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
)


def commands() -> dict[str, Any]:
    """Every command that can be run, by its full name."""
    return {name: command for group in GROUPS for name, command in _commands_of(group)}


def examples(command: Any) -> str:
    """The lines of the examples in a command's help."""
    lines = [line.strip() for line in (command.epilog or "").splitlines()]
    return "\n".join(line for line in lines if line not in ("", "\b", "Examples:"))


def rendered(text: str) -> str:
    return joined((title, _with_tables(title, body)) for title, body in sections(text))


def _with_tables(title: str, body: str) -> str:
    if title == _FILTERS:
        return with_table(body, ("option", "meaning"), _filter_rows())
    if title not in GROUPS:
        return body
    rows = (
        (f"`{name.removeprefix(_PROGRAM).strip()}`", _summary(command), f"`{_example(name, command)}`")
        for name, command in _commands_of(title)
    )
    return with_table(body, ("command", "what it does", "example"), rows)


def _commands_of(group: str) -> Iterator[tuple[str, Any]]:
    for lazy in GROUPS[group]:
        if not lazy.hidden:
            yield from _commands_below(lazy.real(), f"{_PROGRAM} {lazy.name}")


def _commands_below(command: Any, full_name: str) -> Iterator[tuple[str, Any]]:
    subcommands = getattr(command, "commands", {})
    for name, subcommand in subcommands.items():
        if not subcommand.hidden:
            yield from _commands_below(subcommand, f"{full_name} {name}")
    if not subcommands:
        yield full_name, command


def _summary(command: Any) -> str:
    """The first sentence of its help."""
    return re.split(r"(?<=\.)\s", " ".join(command.help.replace("\b\n", "").split()), maxsplit=1)[0]


def _example(name: str, command: Any) -> str:
    """The first one that runs the command itself, on one line; others of its help may run its neighbours."""
    lines = examples(command).replace("\\\n", "").splitlines()
    own = (name, name.removesuffix(" list"))
    return next(line for line in lines if line in own or line.startswith(tuple(f"{one} " for one in own)))


def _filter_rows() -> Iterator[tuple[str, str]]:
    every = commands()
    takers = [every[f"{_PROGRAM} {name}"] for name in ("tasks list", "tasks retry", "results list")]
    parameters = {parameter.help: parameter for command in takers for parameter in command.params}
    for option in _FILTER_OPTIONS:
        parameter = parameters[get_args(option)[1].help]
        yield _names(parameter), " ".join(filter(None, (parameter.help, _choices(parameter))))


def _names(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{parameter.metavar or parameter.name.upper()}`"
    value = f" {parameter.metavar}" if parameter.metavar and not parameter.is_flag else ""
    return ", ".join(f"`{name}{value}`" for name in parameter.opts)


def _choices(parameter: Any) -> str:
    choices = parameter.type_descriptor.choices or ()
    names = [choice.value if isinstance(choice, Enum) else str(choice) for choice in choices]
    return f"One of {', '.join(f'`{name}`' for name in names)}." if names else ""
