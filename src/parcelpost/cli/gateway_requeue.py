"""`parcelpost gateway requeue`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from parcelpost.cli.gateway_options import Database
from parcelpost.cli.options import AsJson, Platform, Yes
from parcelpost.cli.output import confirm, count, print_json
from parcelpost.errors import InvalidInput

EXAMPLES = """
Examples:

\b
  parcelpost gateway requeue --state dead
  parcelpost gateway requeue --state failed --platform vgsi
  parcelpost gateway requeue --state dead --state failed --yes
"""


class Ended(StrEnum):
    FAILED = "failed"
    DEAD = "dead"
    NOT_FOUND = "not_found"


def requeue(
    states: Annotated[
        list[Ended] | None,
        typer.Option(
            "--state",
            help="failed: workers gave up; dead: none came back; not_found: the site had no such parcel. Repeatable.",
        ),
    ] = None,
    platform: Platform = None,
    yes: Yes = False,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Queue tasks again that have failed, are dead or were not found, with their attempts forgotten. Asks first."""
    import asyncio

    if not states:
        raise InvalidInput("which tasks?", hint="add --state failed or --state dead")
    names = [state.value for state in dict.fromkeys(states)]
    found = asyncio.run(_count(names, platform, database))
    if found and not yes:
        confirm(f"Requeue {count(found, 'task')} ({', '.join(names)})?")
    changed = asyncio.run(_requeue(names, platform, database)) if found else 0
    print_json({"requeued": changed}) if as_json else print(f"{count(changed, 'task')} queued again.")


async def _count(states: list[str], platform: str | None, database: str | None) -> int:
    from parcelpost.cli.gateway_options import ledger

    async with ledger(database) as opened:
        rows = await opened.queue()
    return sum(row.tasks for row in rows if row.state in states and platform in (None, row.platform))


async def _requeue(states: list[str], platform: str | None, database: str | None) -> int:
    from parcelpost.cli.gateway_options import ledger
    from parcelpost.cli.running import CLOCK

    async with ledger(database) as opened:
        return await opened.requeue(states, platform or "", CLOCK.now())
