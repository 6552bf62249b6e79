"""The `parcelpost` command."""

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
from parcelpost.cli.commands import COMMANDS
from parcelpost.cli.output import printable
from parcelpost.cli.plain_values import spare_pydantic
from parcelpost.errors import ParcelpostError

_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Of an output that is a file on a full disk, or a terminal that is gone."""


class _Program(TyperGroup):
    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        spare_pydantic(self)
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
