"""`parcelpost gateway workers`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parcelpost.cli.gateway_options import Database
from parcelpost.cli.options import AsJson
from parcelpost.cli.output import Cell, age, print_json, print_lines, table

if TYPE_CHECKING:
    from parcelpost.cli.gateway_overview import Worker

EXAMPLES = """
Examples:

\b
  parcelpost gateway workers
  parcelpost gateway workers --json | jq '.workers[] | select(.state == "away").worker_id'
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
