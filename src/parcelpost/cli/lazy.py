"""Commands that are imported when they are run, so that `parcelpost --help` stays fast."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand
from typer.main import get_group

_PLAIN_TYPES = (str, Path)


def skip_pydantic(command: Any) -> None:
    """Texts, paths and defaults of the command are taken as they are; typer sees to all else, as it would have.

    Reaches into typer (0.29). Where another version does this otherwise, nothing is gained and nothing lost.
    """
    for below in getattr(command, "commands", {}).values():
        skip_pydantic(below)
    of_typer = command.get_params

    def get_params(context: Any) -> Any:
        parameters = of_typer(context)
        for parameter in parameters:
            if getattr(parameter, "_runtime_param", of_typer) is None:
                parameter._runtime_param = _PlainConverter(parameter.type_descriptor.annotation)
        return parameters

    command.get_params = get_params


class _PlainConverter:
    """What typer asks for a parameter's value."""

    def __init__(self, annotation: Any) -> None:
        self._annotation = annotation

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        is_several = param.multiple or param.nargs == -1
        if value is None:
            return () if is_several else None
        if self._annotation in _PLAIN_TYPES and isinstance(value, _PLAIN_TYPES):
            return self._annotation(value)
        if self._annotation == list[str] and is_several and not isinstance(value, str):
            return list(value)
        if isinstance(self._annotation, type) and type(value) is self._annotation and value == param.default:
            return value
        param._runtime_param = None
        return param.get_runtime_param().coerce(value, param=param, ctx=ctx)


class LazyCommand(TyperCommand):
    """Stands for a command of `parcelpost.cli.commands`, or a group of them, until it is run.

    `place` is `module:name`: a function, whose module has EXAMPLES, or a Typer. `help` is its line in the list.
    """

    def __init__(self, name: str, place: str, help: str) -> None:  # noqa: A002
        super().__init__(name, help=help, rich_markup_mode=None)
        self._called = name
        self._place = place

    def make_context(self, *arguments: Any, **named: Any) -> Any:
        return self.real().make_context(*arguments, **named)

    @cache  # noqa: B019 - there is one of each for as long as the program runs
    def real(self) -> Any:
        """The TyperCommand or TyperGroup."""
        module_name, _, name = self._place.partition(":")
        module = import_module(f"parcelpost.cli.commands.{module_name}")
        target = getattr(module, name)
        holder = typer.Typer(rich_markup_mode=None)
        if isinstance(target, typer.Typer):
            holder.add_typer(target, name=self._called)
        else:
            holder.command(self._called, epilog=module.EXAMPLES)(target)
        command = get_group(holder).commands[self._called]
        skip_pydantic(command)
        return command
