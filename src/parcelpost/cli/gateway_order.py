"""`parcelpost gateway order`."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from parcelpost.cli.gateway_options import Database
from parcelpost.cli.options import AsJson
from parcelpost.cli.output import count, print_json, printable
from parcelpost.errors import InvalidInput

if TYPE_CHECKING:
    from parcelpost.gateway.words import WorkerRow

EXAMPLES = """
Examples:

\b
  parcelpost gateway order pause --worker hartford-1
  parcelpost gateway order resume --all
  parcelpost gateway order platforms:vgsi,beacon --worker hartford-1
"""

_COMMANDS = ("pause", "resume", "drain", "stop", "sync-now")
_PLATFORMS = re.compile(r"platforms:([\w.-]+(,[\w.-]+)*)?", re.ASCII)


def order(
    command: Annotated[
        str, typer.Argument(metavar="COMMAND", help="pause, resume, drain, stop, sync-now or platforms:A,B.")
    ],
    worker: Annotated[str, typer.Option("--worker", metavar="ID", help="This worker.")] = "",
    all_: Annotated[bool, typer.Option("--all", help="All workers that are alive.")] = False,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Give workers an order. Each hears it with its next heartbeat, and once."""
    import asyncio

    if command not in _COMMANDS and not _PLATFORMS.fullmatch(command):
        raise InvalidInput(f"{command!r} is no order", hint=f"give one of {', '.join(_COMMANDS)} or platforms:A,B")
    if bool(worker) == all_:
        raise InvalidInput("which workers?", hint="add --worker ID or --all; 'parcelpost gateway workers' lists them")
    told, unknown = asyncio.run(_order(command, worker, database))
    for platform in unknown:
        print(printable(f"note: no worker that is alive works on {platform!r}; is that its name?"), file=sys.stderr)
    if as_json:
        print_json({"command": command, "workers": told})
    else:
        print(printable(f"{command}: {count(told, 'worker')} will hear it with the next heartbeat."))


async def _order(command: str, worker: str, database: str | None) -> tuple[int, list[str]]:
    """How many workers will hear it, and the platforms it names that none of those alive has told of."""
    from parcelpost.cli.gateway_options import ledger
    from parcelpost.cli.running import CLOCK

    now = CLOCK.now()
    async with ledger(database) as opened:
        from parcelpost.gateway.words import AWAY_AFTER

        known = await opened.workers()
        if worker:
            _refuse_the_gone(worker, known, now)
        return await opened.order(command, worker, now, now - AWAY_AFTER), _unknown(command, known, now)


def _refuse_the_gone(worker: str, known: Sequence[WorkerRow], now: datetime) -> None:
    found = next((row for row in known if row.beat.worker_id == worker), None)
    if found is None:
        raise InvalidInput(f"no worker {worker!r} has called here", hint="see 'parcelpost gateway workers'")
    if not found.is_alive(now):
        state = "has stopped" if found.beat.leaving else "is away"
        raise InvalidInput(f"worker {worker!r} {state}", hint="an order is for workers that are alive")


def _unknown(command: str, known: Sequence[WorkerRow], now: datetime) -> list[str]:
    """A worker tells what it works on now: one that was told less before may know them all the same."""
    told = {name for row in known if row.is_alive(now) for name in row.beat.platforms}
    named = command.partition(":")[2].split(",")
    return [name for name in named if name and name not in told] if told else []
