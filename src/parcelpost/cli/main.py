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

COMMANDS = (
    LazyCommand(
        "demo",
        "demo:demo",
        "Scrape four simulated counties, with kill -9 on the way.",
    ),
    LazyCommand(
        "init",
        "init:init",
        "Write a settings file with every key in it, parcelpost.toml.",
    ),
    LazyCommand("run", "run:run", "Fetch tasks, scrape, store every result and deliver it."),
    LazyCommand("add", "add:add", "Store a task for one parcel."),
    LazyCommand("import", "import_file:import_", "Store a task for every row of a file."),
    LazyCommand(
        "status",
        "status:status",
        "Show whether all is well, and otherwise what to do.",
    ),
    LazyCommand(
        "top",
        "top:top",
        "Show a live screen of the worker.",
    ),
    LazyCommand(
        "doctor",
        "doctor:doctor",
        "Check everything, and say what mends what is wrong.",
    ),
    LazyCommand(
        "tasks",
        "tasks:app",
        "List tasks, show one, try again, reject, delete.",
    ),
    LazyCommand(
        "results",
        "results:app",
        "List results, show one, send again, reject, delete.",
    ),
    LazyCommand(
        "log",
        "log:log",
        "Show the last rounds of sync.",
    ),
    LazyCommand(
        "export",
        "export:export",
        "Write the stored records as CSV, Excel, Parquet or a map.",
    ),
    LazyCommand("platforms", "platforms:app", "Show the platforms and how they do."),
    LazyCommand("scrape", "scrape:scrape", "Fetch one parcel's page and print its record as JSON."),
    LazyCommand("parse", "parse:parse", "Print the records of saved pages, one JSON line each."),
    LazyCommand(
        "reparse",
        "reparse:reparse",
        "Read the stored pages again with the parsers of now.",
    ),
    LazyCommand("store", "store:app", "Look at and care for the local store."),
    LazyCommand("config", "config:app", "Show and check the settings."),
    LazyCommand("gateway", "gateway:app", "Serve a gateway, fill its queue, and look after its workers."),
    LazyCommand("browser", "browser:app", "Look at the browsers, and save sessions for them."),
    LazyCommand(
        "firestore",
        "firestore:app",
        "What Firestore must know to be an upstream.",
    ),
    LazyCommand("simulate", "simulate:app", "What a worker deals with, on this machine and invented."),
)


_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Of an output that is a file on a full disk, or a terminal that is gone."""


class _Program(TyperGroup):
    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        skip_pydantic(self)
        for command in COMMANDS:
            self.add_command(command)


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
        print(f"error: what it prints cannot be written: {error.strerror}", file=sys.stderr)
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
