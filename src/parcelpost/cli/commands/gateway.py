"""The `parcelpost gateway` commands. `serve` is in `gateway_serve`."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from parcelpost.cli.commands import gateway_serve
from parcelpost.cli.importer.options import (
    AllowBad,
    CountyOfAll,
    DryRun,
    Errors,
    File,
    ImportOptions,
    Kind,
    Maps,
    PlatformOfAll,
    StateOfAll,
)
from parcelpost.cli.options import AnyPlatform, AsJson, ConfigOption, Database, Platform, SetOption, Yes, load_settings
from parcelpost.cli.output import Cell, age, confirm, count, fields, print_json, print_lines, printable, table
from parcelpost.errors import InvalidInput

if TYPE_CHECKING:
    from pathlib import Path

    from parcelpost.cli.health.gateway_overview import GatewayOverview, WorkerSummary
    from parcelpost.cli.importer.importer import Sink
    from parcelpost.gateway.models import WorkerRow
    from parcelpost.settings import Settings


ADD_EXAMPLES = """
Examples:

\b
  parcelpost gateway add parcels.csv --platform grizzly_gis --state FL --county columbia --dry-run
  parcelpost gateway add roll.csv.gz --platform beacon --map parcel_id='Tax Key' --errors bad.csv
  parcelpost gateway add tasks.jsonl --database postgresql://gateway@db.example.org/parcelpost
"""


def add(
    file: File,
    maps: Maps = None,
    platform: PlatformOfAll = "",
    state: StateOfAll = "",
    county: CountyOfAll = "",
    kind: Kind = None,
    dry_run: DryRun = False,
    errors: Errors = None,
    allow_bad: AllowBad = False,
    any_platform: AnyPlatform = False,
    database: Database = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    as_json: AsJson = False,
) -> None:
    """Queue a task for every row of a file, for the gateway's workers. Tasks that are known change nothing.

    Reads files as `parcelpost import` does. Goes into the ledger directly, whether a gateway runs on it or not; an
    SQLite ledger is made if it is not there. Bad rows are listed and the others added; the exit code is 1 then.
    """
    import asyncio

    from parcelpost.cli.importer.import_job import import_file
    from parcelpost.cli.platform_names import KnownPlatforms

    settings = _load_settings(database, config, set_)
    wishes = ImportOptions(
        file=file,
        maps=maps or [],
        same={"platform": platform, "state": state, "county": county},
        kind=kind,
        dry_run=dry_run,
        errors=errors,
        allow_bad=allow_bad,
        platforms=None if any_platform else KnownPlatforms(settings),
        as_json=as_json,
    )
    import_file(wishes, partial(_open_sink, settings), asyncio.run)


@asynccontextmanager
async def _open_sink(settings: Settings) -> AsyncIterator[Sink]:
    from parcelpost.cli.context import CLOCK, connect_ledger
    from parcelpost.cli.importer.importer import LedgerSink

    async with connect_ledger(settings.server, create=True) as opened:
        yield LedgerSink(opened, CLOCK, settings.storage.max_target_bytes)


def _load_settings(database: str | None, config: Path | None, set_: list[str] | None) -> Settings:
    return load_settings(config, set_, {"--database": ("server.database", database)})


STATUS_EXAMPLES = """
Examples:

\b
  parcelpost gateway status
  parcelpost gateway status --json | jq .totals.queued
  parcelpost gateway status --database postgresql://gateway@db.example.org/parcelpost
"""

_OUTCOMES = ("granted", "done", "not_found", "failed", "expired", "dead", "stored", "duplicate", "rejected")


def status(
    database: Database = None, config: ConfigOption = None, set_: SetOption = None, as_json: AsJson = False
) -> None:
    """Show how the gateway is: workers, queue, what came in lately, and what needs attention.

    The first line says that all is well, or what is wrong and what to do. Reads the ledger directly, whether a gateway
    runs on it or not, and changes nothing.
    """
    import asyncio

    found = asyncio.run(_gather_overview(_load_settings(database, config, set_)))
    if as_json:
        print_json(found)
    else:
        print_lines(_status_lines(found))


async def _gather_overview(settings: Settings) -> GatewayOverview:
    from parcelpost.cli.context import CLOCK, connect_ledger
    from parcelpost.cli.health.gateway_overview import gather_gateway

    async with connect_ledger(settings.server) as opened:
        return await gather_gateway(opened, CLOCK.now())


def _status_lines(found: GatewayOverview) -> Iterator[str]:
    from parcelpost.cli.health.summary import attention_lines

    yield from attention_lines(found.problems)
    yield ""
    yield from fields(_status_facts(found))
    if found.queue:
        yield ""
        yield from _queue_lines(found)
    happened = [one for one in _OUTCOMES if one in found.last_hour]
    if happened:
        yield ""
        rows = ((one.replace("_", " "), found.last_minutes.get(one, 0), found.last_hour[one]) for one in happened)
        yield from table(("what happened", "last 5 min", "last hour"), rows)


def _status_facts(found: GatewayOverview) -> Iterator[tuple[str, Cell]]:
    alive = [one for one in found.workers if one.alive]
    states = Counter[str](one.state for one in found.workers)
    gone = f"{states['stopped']:,} stopped, {states['away']:,} away"
    yield "workers", f"{len(alive):,} alive ({sum(one.paused for one in alive):,} paused), {gone}"
    working = f"{sum(one.leases for one in found.workers):,} tasks in their hands"
    yield "at work", f"{working}, {sum(one.unsynced for one in alive):,} results on their way here"
    yield "tasks", ", ".join(f"{number:,} {state.replace('_', ' ')}" for state, number in found.totals.items())
    kept = found.counts
    yield "kept", f"{count(kept.get('parcels', 0), 'parcel')}, {count(kept.get('liens', 0), 'lien')}"


def _queue_lines(found: GatewayOverview) -> list[str]:
    headers = ("platform", "priority", "queued", "leased", "done", "not found", "failed", "dead", "oldest")
    rows = (
        (
            one.platform, str(one.priority), one.queued, one.leased, one.done, one.not_found, one.failed,
            one.dead, age(one.oldest_queued_seconds) if one.queued else "",
        )
        for one in found.queue
    )  # fmt: skip
    return table(headers, rows)


WORKERS_EXAMPLES = """
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


def workers(
    database: Database = None, config: ConfigOption = None, set_: SetOption = None, as_json: AsJson = False
) -> None:
    """List all workers, also those that have stopped or are away: what each holds, and how far behind it is."""
    import asyncio

    found = asyncio.run(_gather_overview(_load_settings(database, config, set_))).workers
    if as_json:
        print_json({"workers": found})
    elif found:
        headers = ("worker", "state", "seen", "holds", "active", "done/min", "to send", "lag", "version", "waiting")
        print_lines(table(headers, map(_worker_cells, found)))
    else:
        print("No worker has called yet. Start one with 'parcelpost run --gateway URL'.")


def _worker_cells(one: WorkerSummary) -> tuple[Cell, ...]:
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
    config: ConfigOption = None,
    set_: SetOption = None,
    as_json: AsJson = False,
) -> None:
    """Free a worker id, so that a worker with another token may use it. Stop the worker that uses it now first.

    An id belongs to the token that used it first; with another token it is answered 403. Freed, it belongs to the next
    token that uses it. Tasks that its worker holds and results that it delivered stay as they are.
    """
    import asyncio

    token, is_alive = asyncio.run(_release(worker_id, _load_settings(database, config, set_)))
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


async def _release(worker_id: str, settings: Settings) -> tuple[str | None, bool]:
    """The name of the token that it belonged to, and whether its worker is alive."""
    from parcelpost.cli.context import CLOCK, connect_ledger

    async with connect_ledger(settings.server) as opened:
        token = await opened.release_worker_id(worker_id)
        known = await opened.workers()
    return token, any(row.beat.worker_id == worker_id and row.is_alive(CLOCK.now()) for row in known)


ORDER_EXAMPLES = """
Examples:

\b
  parcelpost gateway order pause --worker hartford-1
  parcelpost gateway order resume --all
  parcelpost gateway order platforms:vgsi,beacon --worker hartford-1
"""

_WORKER_COMMANDS = ("pause", "resume", "drain", "stop", "sync-now")
_PLATFORMS = re.compile(r"platforms:([\w.-]+(,[\w.-]+)*)?", re.ASCII)


def send_command(
    command: Annotated[
        str, typer.Argument(metavar="COMMAND", help="pause, resume, drain, stop, sync-now or platforms:A,B.")
    ],
    worker: Annotated[str, typer.Option("--worker", metavar="ID", help="This worker.")] = "",
    all_: Annotated[bool, typer.Option("--all", help="All workers that are alive.")] = False,
    database: Database = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    as_json: AsJson = False,
) -> None:
    """Give workers an order. Each hears it with its next heartbeat, and once."""
    import asyncio

    if command not in _WORKER_COMMANDS and not _PLATFORMS.fullmatch(command):
        raise InvalidInput(
            f"{command!r} is no order", hint=f"give one of {', '.join(_WORKER_COMMANDS)} or platforms:A,B"
        )
    if bool(worker) == all_:
        raise InvalidInput("which workers?", hint="add --worker ID or --all; 'parcelpost gateway workers' lists them")
    told, unknown = asyncio.run(_send_command(command, worker, _load_settings(database, config, set_)))
    for platform in unknown:
        print(printable(f"note: no worker that is alive works on {platform!r}; is that its name?"), file=sys.stderr)
    if as_json:
        print_json({"command": command, "workers": told})
    else:
        print(printable(f"{command}: {count(told, 'worker')} will hear it with the next heartbeat."))


async def _send_command(command: str, worker: str, settings: Settings) -> tuple[int, list[str]]:
    """How many workers will hear it, and the platforms it names that none of those alive has told of."""
    from parcelpost.cli.context import CLOCK, connect_ledger

    now = CLOCK.now()
    async with connect_ledger(settings.server) as opened:
        from parcelpost.gateway.models import OFFLINE_AFTER

        known = await opened.workers()
        if worker:
            _refuse_stopped(worker, known, now)
        return await opened.order(command, worker, now, now - OFFLINE_AFTER), _unknown_platforms(command, known, now)


def _refuse_stopped(worker: str, known: Sequence[WorkerRow], now: datetime) -> None:
    found = next((row for row in known if row.beat.worker_id == worker), None)
    if found is None:
        raise InvalidInput(f"no worker {worker!r} has called here", hint="see 'parcelpost gateway workers'")
    if not found.is_alive(now):
        state = "has stopped" if found.beat.leaving else "is away"
        raise InvalidInput(f"worker {worker!r} {state}", hint="an order is for workers that are alive")


def _unknown_platforms(command: str, known: Sequence[WorkerRow], now: datetime) -> list[str]:
    """A worker tells what it works on now: one that was told less before may know them all the same."""
    told = {name for row in known if row.is_alive(now) for name in row.beat.platforms}
    named = command.partition(":")[2].split(",")
    return [name for name in named if name and name not in told] if told else []


REQUEUE_EXAMPLES = """
Examples:

\b
  parcelpost gateway requeue --state dead
  parcelpost gateway requeue --state failed --platform vgsi
  parcelpost gateway requeue --state dead --state failed --yes
"""


class RequeueState(StrEnum):
    FAILED = "failed"
    DEAD = "dead"
    NOT_FOUND = "not_found"


def requeue(
    states: Annotated[
        list[RequeueState] | None,
        typer.Option(
            "--state",
            help="failed: workers gave up; dead: none came back; not_found: the site had no such parcel. Repeatable.",
        ),
    ] = None,
    platform: Platform = None,
    yes: Yes = False,
    database: Database = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    as_json: AsJson = False,
) -> None:
    """Queue tasks again that have failed, are dead or were not found, with their attempts forgotten. Asks first."""
    import asyncio

    if not states:
        raise InvalidInput("which tasks?", hint="add --state failed or --state dead")
    names = [state.value for state in dict.fromkeys(states)]
    settings = _load_settings(database, config, set_)
    found = asyncio.run(_count_requeued(names, platform, settings))
    if found and not yes:
        confirm(f"Requeue {count(found, 'task')} ({', '.join(names)})?")
    changed = asyncio.run(_requeue(names, platform, settings)) if found else 0
    print_json({"requeued": changed}) if as_json else print(f"{count(changed, 'task')} queued again.")


async def _count_requeued(states: list[str], platform: str | None, settings: Settings) -> int:
    from parcelpost.cli.context import connect_ledger

    async with connect_ledger(settings.server) as opened:
        rows = await opened.queue()
    return sum(row.tasks for row in rows if row.state in states and platform in (None, row.platform))


async def _requeue(states: list[str], platform: str | None, settings: Settings) -> int:
    from parcelpost.cli.context import CLOCK, connect_ledger

    async with connect_ledger(settings.server) as opened:
        return await opened.requeue(states, platform or "", CLOCK.now())


TOKEN_EXAMPLES = """
Examples:

\b
  parcelpost gateway token
  parcelpost gateway token >> worker_tokens
  echo "hartford-1: $(parcelpost gateway token)" >> worker_tokens
"""  # noqa: S105

_TOKEN_BYTES = 32
_USAGE = """
How to use it:
  for workers   add it to the file that server.worker_tokens_file names, one a line, or to
                PARCELPOST_WORKER_TOKENS; give the worker the same as PARCELPOST_GATEWAY_TOKEN
  for people    server.admin_tokens_file or PARCELPOST_ADMIN_TOKENS: orders, and all that readers may
                server.read_tokens_file or PARCELPOST_READ_TOKENS: dashboard, parcels, exports
The gateway sees a changed file within a second. Take a line out, and that token is no longer good."""


def token() -> None:
    """Print a fresh random token, and on stderr how to use it. Nothing is stored."""
    import secrets

    print(secrets.token_urlsafe(_TOKEN_BYTES), flush=True)
    print(_USAGE, file=sys.stderr)


app = typer.Typer(
    help="Serve a gateway, fill its queue, and look after its workers.",
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog="""
    Examples:

    \b
      parcelpost gateway serve
      parcelpost gateway add parcels.csv --platform grizzly_gis --state FL
      parcelpost gateway status
    """,
)
app.command("serve", epilog=gateway_serve.EXAMPLES)(gateway_serve.serve)
app.command("add", epilog=ADD_EXAMPLES)(add)
app.command("status", epilog=STATUS_EXAMPLES)(status)
app.command("workers", epilog=WORKERS_EXAMPLES)(workers)
app.command("release", epilog=RELEASE_EXAMPLES)(release)
app.command("order", epilog=ORDER_EXAMPLES)(send_command)
app.command("requeue", epilog=REQUEUE_EXAMPLES)(requeue)
app.command("token", epilog=TOKEN_EXAMPLES)(token)
