"""The `parcelpost` program: its list of commands, imported when they are run, and the exit codes."""

from __future__ import annotations

import errno
import io
import os
import re
import sys
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

from parcelpost import __version__
from parcelpost.cli.output import examples, printable
from parcelpost.errors import ParcelpostError

_PLAIN_TYPES = (str, Path)


def _prepare(command: Any) -> None:
    """A group lists the whole first sentence of each command, not as much of it as fits on one line."""
    for below in getattr(command, "commands", {}).values():
        below.short_help = re.split(r"(?<=\.)\s", below.help or "", maxsplit=1)[0]
        _prepare(below)
    skip_pydantic(command)


def skip_pydantic(command: Any) -> None:
    """Takes texts, paths and defaults of the command as they are, and leaves everything else to typer.

    Reaches into typer (0.29). If another version works differently, this has no effect.
    """
    of_typer = command.get_params

    def get_params(context: Any) -> Any:
        parameters = of_typer(context)
        for parameter in parameters:
            if getattr(parameter, "_runtime_param", of_typer) is None:
                parameter._runtime_param = _PlainConverter(parameter.type_descriptor.annotation)
        return parameters

    command.get_params = get_params


class _PlainConverter:
    """Replaces typer's converter of a parameter's value."""

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
        _prepare(command)
        return command


GROUPS = {
    "Run": (
        LazyCommand("demo", "demo:demo", "Scrape four simulated counties while processes are killed."),
        LazyCommand("init", "init:init", "Write a settings file, parcelpost.toml."),
        LazyCommand("add", "add:add", "Add a task for one parcel."),
        LazyCommand("import", "import_file:import_", "Add a task for every row of a file."),
        LazyCommand("run", "run:run", "Run a worker: fetch tasks, scrape, store and deliver."),
    ),
    "Monitor": (
        LazyCommand("status", "status:status", "Show the state of the worker and any problems."),
        LazyCommand("top", "top:top", "Show a live view of the worker."),
        LazyCommand("log", "log:log", "Show recent deliveries and downloads."),
        LazyCommand("doctor", "doctor:doctor", "Run all checks and print a fix for each problem."),
        LazyCommand("chaos", "chaos:app", "Kill real processes and check that nothing is lost."),
    ),
    "Data": (
        LazyCommand("tasks", "tasks:app", "List, show, retry, reject or delete tasks."),
        LazyCommand("results", "results:app", "List, show, retry, reject or delete results."),
        LazyCommand("export", "export:export", "Export records to CSV, Excel, Parquet or map files."),
        LazyCommand("reparse", "reparse:reparse", "Re-parse stored pages with the current parsers."),
    ),
    "Platforms": (
        LazyCommand("platforms", "platforms:app", "List the platforms and their health; pause and resume them."),
        LazyCommand("scrape", "scrape:scrape", "Scrape one parcel and print its record as JSON."),
        LazyCommand("parse", "parse:parse", "Parse saved pages and print their records as JSON lines."),
        LazyCommand("browser", "browser:app", "Show and check browsers, and save sessions for them."),
        LazyCommand("simulate", "simulate:app", "Serve simulated county sites on this machine."),
    ),
    "Administration": (
        LazyCommand("store", "store:app", "Check, clean, back up and restore the local store."),
        LazyCommand("config", "config:app", "Show and check the settings."),
        LazyCommand("gateway", "gateway:app", "Run a gateway, fill its queue and manage its workers."),
        LazyCommand("firestore", "firestore:app", "Print what a Firestore project needs: rules, indexes, layout."),
    ),
}
COMMANDS = tuple(command for commands in GROUPS.values() for command in commands)

_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""The output is a file on a full disk, or a terminal that is gone."""


class _Program(TyperGroup):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        skip_pydantic(self)
        for command in COMMANDS:
            self.add_command(command)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        longest = max(len(command.name or "") for command in COMMANDS)
        for heading, commands in GROUPS.items():
            with formatter.section(heading):
                formatter.write_dl([(f"{command.name:<{longest}}", command.help or "") for command in commands])


app = typer.Typer(
    name="parcelpost",
    cls=_Program,
    help="An offline-first worker for tax-lien data.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"parcelpost {__version__}")
        raise typer.Exit


@app.callback(
    epilog=examples(
        "parcelpost demo",
        "parcelpost add echo 1-23-4 --state CT --county hartford",
        "parcelpost run --mode standalone --until-empty",
        "parcelpost status",
        "parcelpost run --help",
    )
)
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    pass


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Runs one command and ends the process.

    0: done. 1: an error, or a check that found something. 2: the command line or the settings were not understood.
    3: the upstream was away for too long. 130: interrupted.
    """
    try:
        _run(arguments)
    except ParcelpostError as error:
        print(f"error: {printable(str(error))}", file=sys.stderr)
        if error.hint:
            print(f"hint: {printable(error.hint)}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        _drop_output()  # nobody reads any more
        sys.exit(1)
    except OSError as error:
        if error.errno not in _UNWRITABLE or error.filename is not None:
            raise
        _drop_output()
        print(f"error: cannot write the output: {error.strerror}", file=sys.stderr)
        sys.exit(1)
    sys.exit(0)


def _drop_output() -> None:
    """Discards buffered output, so that the exit does not fail on it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(arguments: Sequence[str] | None) -> None:
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal that cannot show a letter is no reason to fail
    code: int | str | None = 0
    try:
        app(arguments, prog_name="parcelpost")
    except SystemExit as end:
        code = end.code
    sys.stdout.flush()
    sys.exit(code)
