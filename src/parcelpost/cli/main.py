"""The `parcelpost` program: its list of commands, and the exit codes."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from parcelpost import __version__
from parcelpost.cli.lazy import LazyCommand, skip_pydantic
from parcelpost.cli.output import printable
from parcelpost.errors import ParcelpostError

GROUPS = {
    "Run": (
        LazyCommand("demo", "demo:demo", "Scrape four simulated counties, with kill -9 on the way."),
        LazyCommand("init", "init:init", "Write a settings file, parcelpost.toml."),
        LazyCommand("add", "add:add", "Add a task for one parcel."),
        LazyCommand("import", "import_file:import_", "Add a task for every row of a file."),
        LazyCommand("run", "run:run", "Run a worker: fetch tasks, scrape, store and deliver."),
    ),
    "Monitor": (
        LazyCommand("status", "status:status", "Show the state of the worker and any problems."),
        LazyCommand("top", "top:top", "Show a live screen of the worker."),
        LazyCommand("log", "log:log", "Show recent deliveries and downloads."),
        LazyCommand("doctor", "doctor:doctor", "Run all checks and print a fix for each problem."),
    ),
    "Data": (
        LazyCommand("tasks", "tasks:app", "List, show, retry, reject or delete tasks."),
        LazyCommand("results", "results:app", "List, show, retry, reject or delete results."),
        LazyCommand("export", "export:export", "Write the records as CSV, Excel, Parquet or a map."),
        LazyCommand("reparse", "reparse:reparse", "Parse the stored pages again with the current parsers."),
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
    epilog="""
    Examples:

    \b
      parcelpost demo
      parcelpost add echo 1-23-4 --state CT --county hartford
      parcelpost run --mode standalone --until-empty
      parcelpost status
      parcelpost run --help
    """
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
    """What is still buffered goes nowhere, so that the exit does not fail on it."""
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
