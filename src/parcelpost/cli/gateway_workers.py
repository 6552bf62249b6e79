"""`parcelpost gateway workers` and `release`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from parcelpost.cli.gateway_options import Database
from parcelpost.cli.options import AsJson
from parcelpost.cli.output import Cell, age, print_json, print_lines, printable, table
from parcelpost.errors import InvalidInput

if TYPE_CHECKING:
    from parcelpost.cli.gateway_overview import Worker

EXAMPLES = """
Examples:

\b
  parcelpost gateway workers
  parcelpost gateway workers --json | jq '.workers[] | select(.state == "away").worker_id'
"""

RELEASE_EXAMPLES = """
Examples:

\b
  parcelpost gateway release hartford-1
  parcelpost gateway release hartford-1 --database postgresql://gateway@db.example.org/parcelpost
"""


def workers(database: Database = None, as_json: AsJson = False) -> None:
    """List all workers, also those that have stopped or are away: what each holds, and how far behind it is."""
    import asyncio

    from parcelpost.cli.gateway_status import gather_overview

    found = asyncio.run(gather_overview(database)).workers
    if as_json:
        print_json({"workers": found})
    elif found:
        headers = ("worker", "state", "seen", "holds", "active", "done/min", "to send", "lag", "version", "waiting")
        print_lines(table(headers, map(_cells, found)))
    else:
        print("No worker has called yet. Start one with 'parcelpost run --gateway URL'.")


def _cells(one: Worker) -> tuple[Cell, ...]:
    return (
        one.worker_id,
        "paused" if one.alive and one.paused else one.state,
        f"{age(one.last_seen_seconds)} ago",
        one.leases,
        one.active_tasks,
        one.completed_last_minute,
        one.unsynced,
        age(one.oldest_unsynced_seconds),
        one.version,
        ", ".join(one.pending_commands),
    )


def release(
    worker_id: Annotated[str, typer.Argument(metavar="ID", help="The worker's id.")],
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Free a worker id, so that a worker with another token may use it. Stop the worker that uses it now first.

    An id belongs to the token that used it first; with another token it is answered 403. Freed, it belongs to the next
    token that uses it. Tasks that its worker holds and results that it delivered stay as they are.
    """
    import asyncio

    token, is_alive = asyncio.run(_release(worker_id, database))
    if token is None:
        raise InvalidInput(f"no token uses worker id {worker_id!r}", hint="see 'parcelpost gateway workers'")
    if is_alive:
        note = f"note: worker {worker_id!r} was alive in the last five minutes; stop it, or it takes its id again"
        print(printable(note), file=sys.stderr)
    if as_json:
        print_json({"worker_id": worker_id, "token": token})
    else:
        owner = f"token {token!r}" if token else "the tokens without a name"
        print(printable(f"{worker_id} no longer belongs to {owner}: the next token that uses it has it."))


async def _release(worker_id: str, database: str | None) -> tuple[str | None, bool]:
    """The name of the token that it belonged to, and whether its worker is alive."""
    from parcelpost.cli.gateway_options import ledger
    from parcelpost.cli.running import CLOCK

    async with ledger(database) as opened:
        token = await opened.release_worker_id(worker_id)
        known = await opened.workers()
    return token, any(row.beat.worker_id == worker_id and row.is_alive(CLOCK.now()) for row in known)
