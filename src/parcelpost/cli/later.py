"""Commands that are known by name, and imported when they are run: `--help` of the program needs none of them."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand
from typer.main import get_group

from parcelpost.cli.plain_values import spare_pydantic


class Later(TyperCommand):
    """Stands for a command of `parcelpost.cli`, or a group of them, until it is run.

    `place` is `module:name` there: of a function, whose module has EXAMPLES, or of a Typer. `help` is what the
    program's list of commands says of it, in half a line.
    """

    def __init__(self, name: str, place: str, help: str, *, takes_settings: bool = False) -> None:  # noqa: A002
        super().__init__(name, help=help, rich_markup_mode=None)
        self._called = name
        self._place = place
        self._takes_settings = takes_settings

    def make_context(self, *arguments: Any, **named: Any) -> Any:
        return self.real().make_context(*arguments, **named)

    @cache  # noqa: B019 - there is one of each for as long as the program runs
    def real(self) -> Any:
        """The TyperCommand or TyperGroup."""
        module_name, _, name = self._place.partition(":")
        module = import_module(f"parcelpost.cli.{module_name}")
        found = getattr(module, name)
        holder = typer.Typer(rich_markup_mode=None)
        if isinstance(found, typer.Typer):
            holder.add_typer(found, name=self._called)
        else:
            holder.command(self._called, epilog=module.EXAMPLES)(self._settled(found))
        made = get_group(holder).commands[self._called]
        spare_pydantic(made)
        return made

    def _settled(self, command: Any) -> Any:
        if not self._takes_settings:
            return command
        from parcelpost.cli.given import with_settings

        return with_settings(command)
