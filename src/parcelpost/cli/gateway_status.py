"""`parcelpost gateway status`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from parcelpost.cli.gateway_options import Database
from parcelpost.cli.options import AsJson
from parcelpost.cli.output import Cell, age, count, fields, print_json, print_lines, table

if TYPE_CHECKING:
    from parcelpost.cli.gateway_overview import Overview

EXAMPLES = """
Examples:

\b
  parcelpost gateway status
  parcelpost gateway status --json | jq .totals.queued
  parcelpost gateway status --database postgresql://gateway@db.example.org/parcelpost
"""

_OUTCOMES = ("granted", "done", "not_found", "failed", "expired", "dead", "stored", "duplicate", "rejected")


def status(database: Database = None, as_json: AsJson = False) -> None:
    """Show how the gateway is: workers, queue, what came in lately, and what needs attention.

    The first line says that all is well, or what is wrong and what to do. Reads the ledger directly, whether a gateway
    runs on it or not, and changes nothing.
    """
    import asyncio

    found = asyncio.run(gather_overview(database))
    if as_json:
        print_json(found)
    else:
        print_lines(lines(found))


async def gather_overview(database: str | None) -> Overview:
    from parcelpost.cli.gateway_options import ledger
    from parcelpost.cli.gateway_overview import gather
    from parcelpost.cli.running import CLOCK

    async with ledger(database) as opened:
        return await gather(opened, CLOCK.now())


def lines(found: Overview) -> Iterator[str]:
    from parcelpost.cli.store_status import attention_lines

    yield from attention_lines(found.problems)
    yield ""
    yield from fields(_facts(found))
    if found.queue:
        yield ""
        yield from _queue_lines(found)
    happened = [one for one in _OUTCOMES if one in found.last_hour]
    if happened:
        yield ""
        rows = ((one.replace("_", " "), found.last_minutes.get(one, 0), found.last_hour[one]) for one in happened)
        yield from table(("what happened", "last 5 min", "last hour"), rows)


def _facts(found: Overview) -> Iterator[tuple[str, Cell]]:
    alive = [one for one in found.workers if one.alive]
    states = Counter[str](one.state for one in found.workers)
    gone = f"{states['stopped']:,} stopped, {states['away']:,} away"
    yield "workers", f"{len(alive):,} alive ({sum(one.paused for one in alive):,} paused), {gone}"
    working = f"{sum(one.leases for one in found.workers):,} tasks in their hands"
    yield "at work", f"{working}, {sum(one.unsynced for one in alive):,} results on their way here"
    yield "tasks", ", ".join(f"{number:,} {state.replace('_', ' ')}" for state, number in found.totals.items())
    kept = found.counts
    yield "kept", f"{count(kept.get('parcels', 0), 'parcel')}, {count(kept.get('liens', 0), 'lien')}"


def _queue_lines(found: Overview) -> list[str]:
    headers = ("platform", "priority", "queued", "leased", "done", "not found", "failed", "dead", "oldest")
    rows = (
        (
            one.platform, str(one.priority), one.queued, one.leased, one.done, one.not_found, one.failed,
            one.dead, age(one.oldest_queued_seconds) if one.queued else "",
        )
        for one in found.queue
    )  # fmt: skip
    return table(headers, rows)
