"""The `parcelpost gateway` commands. `serve` is in `gateway_serve`."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from parcelpost import __version__
from parcelpost.cli.commands import gateway_schedule, gateway_serve, gateway_webhook
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
from parcelpost.cli.output import (
    Cell,
    age,
    confirm,
    count,
    examples,
    fields,
    moment,
    print_json,
    print_lines,
    printable,
    table,
)
from parcelpost.cli.settings_options import (
    AnyPlatform,
    AsJson,
    ConfigOption,
    Database,
    Platform,
    SetOption,
    Yes,
    gateway_settings,
    parse_moment,
)
from parcelpost.errors import InvalidInput

if TYPE_CHECKING:
    from parcelpost.cli.importer.importer import Sink
    from parcelpost.gateway.models import ChangeFilter, ChangeRow, WorkerRow
    from parcelpost.gateway.overview import Overview, WorkerEntry
    from parcelpost.settings import Settings


ADD_EXAMPLES = examples(
    "parcelpost gateway add parcels.csv --platform grizzly_gis --state FL --county columbia --dry-run",
    "parcelpost gateway add roll.csv.gz --platform beacon --map parcel_id='Tax Key' --errors bad.csv",
    "parcelpost gateway add tasks.jsonl --database postgresql://gateway@db.example.org/parcelpost",
)


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
    """Queue a task for every row of a file, for the gateway's workers. Existing tasks are not changed.

    Reads the same files as `parcelpost import`. Writes to the ledger directly, whether or not a gateway is running; an
    SQLite ledger is created if it does not exist. Invalid rows are listed and set the exit code to 1; all others are
    added.
    """
    import asyncio

    from parcelpost.cli.importer.importer import import_file
    from parcelpost.cli.platform_names import KnownPlatforms

    settings = gateway_settings(database, config, set_)
    options = ImportOptions(
        file=file,
        maps=maps,
        platform=platform,
        state=state,
        county=county,
        kind=kind,
        dry_run=dry_run,
        errors=errors,
        allow_bad=allow_bad,
        any_platform=any_platform,
        as_json=as_json,
    )
    import_file(options, KnownPlatforms(settings), partial(_open_sink, settings), asyncio.run)


@asynccontextmanager
async def _open_sink(settings: Settings) -> AsyncIterator[Sink]:
    from parcelpost.cli.context import CLOCK, connect_ledger
    from parcelpost.cli.importer.importer import LedgerSink

    async with connect_ledger(settings.server, create=True) as opened:
        yield LedgerSink(opened, CLOCK, settings.storage.max_target_bytes)


STATUS_EXAMPLES = examples(
    "parcelpost gateway status",
    "parcelpost gateway status --json | jq .totals.queued",
    "parcelpost gateway status --database postgresql://gateway@db.example.org/parcelpost",
)

_OUTCOMES = ("granted", "done", "not_found", "failed", "expired", "dead", "stored", "duplicate", "rejected")


def status(
    database: Database = None, config: ConfigOption = None, set_: SetOption = None, as_json: AsJson = False
) -> None:
    """Show the gateway's workers, queue, recent activity and problems.

    Reads the ledger directly, whether or not a gateway is running. Read-only.
    """
    import asyncio

    overview = asyncio.run(_gather_overview(gateway_settings(database, config, set_)))
    print_json(overview) if as_json else print_lines(_status_lines(overview))


async def _gather_overview(settings: Settings) -> Overview:
    from parcelpost.cli.context import CLOCK, connect_ledger
    from parcelpost.gateway.counties import last_day_outcomes
    from parcelpost.gateway.overview import gather_overview

    now = CLOCK.now()
    async with connect_ledger(settings.server, migrate=False) as opened:
        return await gather_overview(opened, now, 1, await last_day_outcomes(opened, now), __version__)


def _status_lines(overview: Overview) -> Iterator[str]:
    from parcelpost.cli.output import finding_lines

    yield from finding_lines(overview.findings)
    yield ""
    yield from fields(_status_facts(overview))
    if overview.queue:
        yield ""
        yield from _queue_lines(overview)
    if overview.schedules:
        yield ""
        yield from gateway_schedule.schedule_table(list(overview.schedules))
    series = overview.activity.series  # by minute
    recent = [name for name in _OUTCOMES if name in series]
    if recent:
        yield ""
        rows = ((name.replace("_", " "), sum(series[name][-5:]), sum(series[name])) for name in recent)
        yield from table(("event", "last 5 min", "last hour"), rows)


def _status_facts(overview: Overview) -> Iterator[tuple[str, Cell]]:
    fleet = overview.fleet
    gone = f"{fleet.stopped:,} stopped, {fleet.offline:,} offline"
    yield "workers", f"{fleet.alive:,} alive ({fleet.paused:,} paused), {gone}"
    leased = f"{overview.totals['leased']:,} tasks leased"
    yield "in progress", f"{leased}, {overview.sync.unsynced:,} results not delivered yet"
    yield "tasks", ", ".join(f"{number:,} {state.replace('_', ' ')}" for state, number in overview.totals.items())
    stored = overview.counts
    yield "stored", f"{count(stored.get('parcels', 0), 'parcel')}, {count(stored.get('liens', 0), 'lien')}"


def _queue_lines(overview: Overview) -> list[str]:
    tasks: defaultdict[tuple[str, int], Counter[str]] = defaultdict(Counter)
    oldest: dict[tuple[str, int], float] = {}
    for entry in overview.queue:
        key = entry.platform, entry.priority
        tasks[key][entry.state] += entry.tasks
        if entry.oldest_seconds is not None:
            oldest[key] = entry.oldest_seconds
    headers = ("platform", "priority", *(state.replace("_", " ") for state in overview.totals), "oldest")
    rows: list[list[Cell]] = []
    for (platform, priority), states in sorted(tasks.items()):
        waiting = age(oldest[platform, priority]) if states["queued"] else ""
        rows.append([platform, str(priority), *(states[state] for state in overview.totals), waiting])
    return table(headers, rows)


WORKERS_EXAMPLES = examples(
    "parcelpost gateway workers",
    "parcelpost gateway workers --json | jq '.workers[] | select(.state == \"offline\").worker_id'",
)

RELEASE_EXAMPLES = examples(
    "parcelpost gateway release hartford-1",
    "parcelpost gateway release hartford-1 --database postgresql://gateway@db.example.org/parcelpost",
)


def workers(
    database: Database = None, config: ConfigOption = None, set_: SetOption = None, as_json: AsJson = False
) -> None:
    """List all workers, including inactive ones, with their leases and backlog."""
    import asyncio

    listed = asyncio.run(_list_workers(gateway_settings(database, config, set_)))
    if as_json:
        print_json({"workers": listed})
    elif listed:
        headers = (
            "worker",
            "state",
            "last seen",
            "leased",
            "active",
            "done/min",
            "unsynced",
            "lag",
            "version",
            "commands",
        )
        print_lines(table(headers, map(_worker_cells, listed)))
    else:
        print("No worker has connected yet. Start one with 'parcelpost run --gateway URL'.")


async def _list_workers(settings: Settings) -> list[WorkerEntry]:
    from parcelpost.cli.context import CLOCK, connect_ledger
    from parcelpost.gateway.overview import worker_response

    async with connect_ledger(settings.server) as opened:
        now = CLOCK.now()
        return [worker_response(row, now) for row in await opened.workers()]


def _worker_cells(worker: WorkerEntry) -> tuple[Cell, ...]:
    return (
        worker.worker_id,
        "paused" if worker.alive and worker.paused else worker.state,
        f"{age(worker.silent_seconds)} ago",
        worker.leases,
        worker.active_tasks,
        worker.completed_last_minute,
        worker.unsynced,
        age(worker.lag_seconds),
        worker.version,
        ", ".join(worker.pending_commands),
    )


def release(
    worker_id: Annotated[str, typer.Argument(metavar="ID", help="The worker's ID.")],
    database: Database = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    as_json: AsJson = False,
) -> None:
    """Release a worker ID, so that a worker with another token can use it. Stop the worker that uses it first.

    A worker ID belongs to the first token that used it; other tokens get 403. Once released, it belongs to the next
    token that uses it. Its leased tasks and delivered results do not change.
    """
    import asyncio

    token, is_alive = asyncio.run(_release(worker_id, gateway_settings(database, config, set_)))
    if token is None:
        raise InvalidInput(
            f"worker ID {worker_id!r} does not belong to any token", hint="see 'parcelpost gateway workers'"
        )
    if is_alive:
        note = f"note: worker {worker_id!r} was active in the last five minutes; stop it, or it will claim its ID again"
        print(printable(note), file=sys.stderr)
    if as_json:
        print_json({"worker_id": worker_id, "token": token})
    else:
        owner = f"token {token!r}" if token else "an unnamed token"
        print(printable(f"Released {worker_id} from {owner}. It will belong to the next token that uses it."))


async def _release(worker_id: str, settings: Settings) -> tuple[str | None, bool]:
    """Returns the name of the token that it belonged to, and whether its worker is alive."""
    from parcelpost.cli.context import CLOCK, connect_ledger

    async with connect_ledger(settings.server) as opened:
        token = await opened.release_worker_id(worker_id)
        known = await opened.workers()
    return token, any(row.heartbeat.worker_id == worker_id and row.is_alive(CLOCK.now()) for row in known)


COMMAND_EXAMPLES = examples(
    "parcelpost gateway command pause --worker hartford-1",
    "parcelpost gateway command resume --all",
    "parcelpost gateway command platforms:vgsi,beacon --worker hartford-1",
)


def send_command(
    command: Annotated[
        str, typer.Argument(metavar="COMMAND", help="pause, resume, drain, stop, sync-now or platforms:A,B.")
    ],
    worker: Annotated[str, typer.Option("--worker", metavar="ID", help="Send the command to this worker.")] = "",
    all_: Annotated[bool, typer.Option("--all", help="Send the command to all active workers.")] = False,
    database: Database = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    as_json: AsJson = False,
) -> None:
    """Send a command to workers. Each receives it once, with its next heartbeat."""
    import asyncio

    from parcelpost.protocol.payloads import check_command

    check_command(command)
    if bool(worker) == all_:
        raise InvalidInput(
            "no worker was selected", hint="add --worker ID or --all; 'parcelpost gateway workers' lists them"
        )
    workers, unknown = asyncio.run(_send_command(command, worker, gateway_settings(database, config, set_)))
    for platform in unknown:
        print(printable(f"note: no active worker handles platform {platform!r}; check the name"), file=sys.stderr)
    if as_json:
        print_json({"command": command, "workers": workers})
    else:
        print(printable(f"Sent {command} to {count(workers, 'worker')}; it arrives with the next heartbeat."))


async def _send_command(command: str, worker: str, settings: Settings) -> tuple[int, list[str]]:
    """Returns how many workers will receive it, and the platforms it names that no active worker has reported."""
    from parcelpost.cli.context import CLOCK, connect_ledger

    now = CLOCK.now()
    async with connect_ledger(settings.server) as opened:
        from parcelpost.gateway.models import OFFLINE_AFTER

        known = await opened.workers()
        if worker:
            _refuse_stopped(worker, known, now)
        return await opened.add_command(command, worker, now, now - OFFLINE_AFTER), _unknown_platforms(
            command, known, now
        )


def _refuse_stopped(worker: str, known: Sequence[WorkerRow], now: datetime) -> None:
    row = next((row for row in known if row.heartbeat.worker_id == worker), None)
    if row is None:
        raise InvalidInput(f"no such worker: {worker!r}", hint="see 'parcelpost gateway workers'")
    if not row.is_alive(now):
        state = "stopped" if row.heartbeat.leaving else "offline"
        raise InvalidInput(f"worker {worker!r} is {state}", hint="only active workers receive commands")


def _unknown_platforms(command: str, known: Sequence[WorkerRow], now: datetime) -> list[str]:
    """A worker reports the platforms it works on now; after a platforms: command it may know more."""
    reported = {name for row in known if row.is_alive(now) for name in row.heartbeat.platforms}
    named = command.partition(":")[2].split(",")
    return [name for name in named if name and name not in reported] if reported else []


REQUEUE_EXAMPLES = examples(
    "parcelpost gateway requeue --state dead",
    "parcelpost gateway requeue --state failed --platform vgsi",
    "parcelpost gateway requeue --state dead --state failed --yes",
)


class RequeueState(StrEnum):
    FAILED = "failed"
    DEAD = "dead"
    NOT_FOUND = "not_found"


def requeue(
    states: Annotated[
        list[RequeueState] | None,
        typer.Option(
            "--state",
            help="failed: workers gave up; dead: all leases expired; not_found: no such parcel. Repeatable.",
        ),
    ] = None,
    platform: Platform = None,
    yes: Yes = False,
    database: Database = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    as_json: AsJson = False,
) -> None:
    """Requeue failed, dead or not-found tasks, with their attempts reset. Asks for confirmation."""
    from parcelpost.cli.context import with_ledger
    from parcelpost.gateway.models import TaskFilter, TaskState

    if not states:
        raise InvalidInput("no state was given", hint="add --state failed or --state dead")
    names = [state.value for state in dict.fromkeys(states)]
    server = gateway_settings(database, config, set_).server
    rows = with_ledger(server, lambda ledger: ledger.queue())
    tasks = sum(row.tasks for row in rows if row.state in names and platform in (None, row.platform))
    if tasks and not yes:
        confirm(f"Requeue {count(tasks, 'task')} ({', '.join(names)})?")
    wanted = TaskFilter(states=[TaskState(name) for name in names], platform=platform or "")
    changed = with_ledger(server, lambda ledger: ledger.requeue(wanted)) if tasks else 0
    print_json({"requeued": changed}) if as_json else print(f"{count(changed, 'task')} requeued.")


REFRESH_EXAMPLES = examples(
    "parcelpost gateway refresh --platform grizzly_gis --state FL --county columbia --older-than 7d",
    "parcelpost gateway refresh --state FL --county columbia --parcel 00-00-00-01234-000",
    "parcelpost gateway refresh --delinquent --yes",
)


def refresh(
    platform: Platform = None,
    state: Annotated[str, typer.Option("--state", help="Only parcels in this state.")] = "",
    county: Annotated[str, typer.Option("--county", help="Only parcels in this county.")] = "",
    parcel: Annotated[str, typer.Option("--parcel", metavar="NUMBER", help="Only this parcel ID.")] = "",
    older_than: Annotated[
        str | None,
        typer.Option(
            "--older-than",
            metavar="AGE",
            help="Only parcels last scraped before this time, or longer ago: 2026-11-15, 12h or 7d.",
        ),
    ] = None,
    delinquent: Annotated[bool, typer.Option("--delinquent", help="Only delinquent parcels.")] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most this many, oldest scrape first.")] = 1_000_000,
    yes: Yes = False,
    database: Database = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    as_json: AsJson = False,
) -> None:
    """Queue tasks that scrape known parcels again. Asks for confirmation.

    Pages are requested from the site, never taken from the page cache. Skips parcels that are already being refreshed
    and parcels known only from a list: scrape the list again instead.
    """
    from parcelpost.cli.context import CLOCK, with_ledger
    from parcelpost.gateway.models import ParcelFilter, RefreshFilter
    from parcelpost.model import Priority
    from parcelpost.places import county_name, parcel_number, state_code

    wanted = RefreshFilter(
        parcels=ParcelFilter(
            platform=platform or "", state=state_code(state), county=county_name(county), delinquent=delinquent or None
        ),
        norm=parcel_number(parcel),
        scraped_before=parse_moment(older_than, CLOCK.now()) if older_than else None,
    )
    if wanted == RefreshFilter():
        raise InvalidInput(
            "nothing was selected", hint="add --platform, --state, --county, --parcel, --older-than or --delinquent"
        )
    server = gateway_settings(database, config, set_).server
    matching = min(limit, with_ledger(server, lambda ledger: ledger.refreshable(wanted)))
    if matching and not yes:
        confirm(f"Refresh {count(matching, 'parcel')}?")
    queued = 0
    if matching:
        queued = with_ledger(server, lambda ledger: ledger.refresh(wanted, Priority.NORMAL, CLOCK.now(), limit))
    if as_json:
        print_json({"queued": queued})
    elif queued:
        print(f"{count(queued, 'task')} queued.")
    else:
        print("0 tasks queued: no parcel matches, or all that do are being refreshed or known only from a list.")


CHANGES_EXAMPLES = examples(
    "parcelpost gateway changes --since 1d",
    "parcelpost gateway changes --kind lien --state FL --county columbia --follow",
    "parcelpost gateway changes --since 1042 --json | jq -r .kind",
)

_FOLLOW_SECONDS = 2.0
_MOST_AT_ONCE = 500
_MOST_DIGITS = 19


def changes(
    since: Annotated[
        str,
        typer.Option(
            "--since",
            metavar="WHEN",
            help="Only changes after this change number, or since a time such as 2026-11-15, 2h or 3d.",
        ),
    ] = "1d",
    kinds: Annotated[
        list[str] | None,
        typer.Option(
            "--kind",
            metavar="KIND",
            help="Only this kind, such as lien.new; lien selects them all. Repeatable.",
        ),
    ] = None,
    platform: Platform = None,
    state: Annotated[str, typer.Option("--state", help="Only parcels in this state.")] = "",
    county: Annotated[str, typer.Option("--county", help="Only parcels in this county.")] = "",
    field: Annotated[str, typer.Option("--field", help="Only changes to this field, such as market_value.")] = "",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep printing new changes until Ctrl-C.")] = False,
    database: Database = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    as_json: AsJson = False,
) -> None:
    """Show what changed: new parcels, owners, values, taxes, sales and liens.

    A running gateway detects changes within seconds of a result's arrival. The order of rows, the spelling of a name
    and unreadable fields do not count as changes.
    """
    import asyncio

    from parcelpost.changes import checked_field, checked_kinds
    from parcelpost.cli.context import CLOCK
    from parcelpost.gateway.models import ChangeFilter
    from parcelpost.places import county_name, state_code

    number = int(since) if since.isascii() and since.isdecimal() and len(since) < _MOST_DIGITS else None
    wanted = ChangeFilter(
        kinds=checked_kinds(kinds or ()),
        platform=platform or "",
        state=state_code(state),
        county=county_name(county),
        field=checked_field(field),
        found_since=parse_moment(since, CLOCK.now()) if number is None else None,
    )
    settings = gateway_settings(database, config, set_)
    try:
        shown = asyncio.run(_show_changes(settings, wanted, number or 0, follow=follow, as_json=as_json))
    except KeyboardInterrupt:
        if not follow:
            raise
        return
    if not shown and not as_json:
        print("No changes.")


async def _show_changes(settings: Settings, wanted: ChangeFilter, after: int, *, follow: bool, as_json: bool) -> int:
    """Returns how many changes it showed."""
    from parcelpost.cli.context import CLOCK, connect_ledger
    from parcelpost.gateway.history import change_response

    shown = 0
    async with connect_ledger(settings.server) as opened:
        while True:
            page = await opened.changes(wanted, after, _MOST_AT_ONCE)
            if after > page.last:
                raise InvalidInput(
                    f"the last change is {page.last:,}",
                    hint="was the ledger restored from a backup? use a time instead",
                )
            for row in page.rows:
                print_json(change_response(row)) if as_json else print(printable(_change_line(row)))
            sys.stdout.flush()
            shown += len(page.rows)
            after = page.next
            if page.next == page.last:
                if not follow:
                    return shown
                await CLOCK.sleep(_FOLLOW_SECONDS)


def _change_line(row: ChangeRow) -> str:
    before, after = row.before.decode(), row.after.decode()
    values = after if before == "{}" else before if after == "{}" else f"{before} -> {after}"
    place = f"{row.parcel.state}/{row.parcel.county}"
    return f"{row.change_no:>8}  {moment(row.found_at)}  {row.kind:<15}  {place}  {row.parcel_id}  {values}"


TOKEN_EXAMPLES = examples(
    "parcelpost gateway token",
    "parcelpost gateway token >> worker_tokens",
    'echo "hartford-1: $(parcelpost gateway token)" >> worker_tokens',
)

_TOKEN_BYTES = 32
_USAGE = """
How to use it:
  for workers   add it to the file named by server.worker_tokens_file, one per line, or to
                PARCELPOST_WORKER_TOKENS; on the worker, set PARCELPOST_GATEWAY_TOKEN to the same token
  for people    server.admin_tokens_file or PARCELPOST_ADMIN_TOKENS: commands, and everything readers can do
                server.read_tokens_file or PARCELPOST_READ_TOKENS: dashboard, parcels, exports
The gateway rereads a changed file within a second. Removing a line revokes its token."""


def token() -> None:
    """Print a new random token (usage notes go to stderr). Nothing is stored."""
    import secrets

    print(secrets.token_urlsafe(_TOKEN_BYTES), flush=True)
    print(_USAGE, file=sys.stderr)


app = typer.Typer(
    help="Run a gateway, fill its queue and manage its workers.",
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog=examples(
        "parcelpost gateway serve",
        "parcelpost gateway add parcels.csv --platform grizzly_gis --state FL",
        "parcelpost gateway status",
    ),
)
app.command("serve", epilog=gateway_serve.EXAMPLES)(gateway_serve.serve)
app.command("add", epilog=ADD_EXAMPLES)(add)
app.command("status", epilog=STATUS_EXAMPLES)(status)
app.command("workers", epilog=WORKERS_EXAMPLES)(workers)
app.command("release", epilog=RELEASE_EXAMPLES)(release)
app.command("command", epilog=COMMAND_EXAMPLES)(send_command)
app.command("requeue", epilog=REQUEUE_EXAMPLES)(requeue)
app.command("refresh", epilog=REFRESH_EXAMPLES)(refresh)
app.add_typer(gateway_schedule.app, name="schedule")
app.command("changes", epilog=CHANGES_EXAMPLES)(changes)
app.add_typer(gateway_webhook.app, name="webhook")
app.command("token", epilog=TOKEN_EXAMPLES)(token)
