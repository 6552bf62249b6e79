"""The `parcelpost gateway schedule` commands."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from parcelpost.cli.importer.options import Maps
from parcelpost.cli.output import (
    Cell,
    age,
    confirm,
    count,
    examples,
    fields,
    moment,
    percentage,
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
    SetOption,
    Yes,
    gateway_settings,
)
from parcelpost.errors import InvalidInput, LedgerError

if TYPE_CHECKING:
    from parcelpost.gateway.ledger.base import Ledger
    from parcelpost.gateway.models import Scope
    from parcelpost.gateway.schedules import ScheduleDetail, ScheduleRun, ScheduleStatus
    from parcelpost.settings import Settings

_LIST_HINT = "see 'parcelpost gateway schedule list'"

ADD_EXAMPLES = examples(
    "parcelpost gateway schedule add columbia --platform grizzly_gis --state FL --county columbia \\",
    "    --every 7d --at 02:00 --timezone America/New_York",
    "parcelpost gateway schedule add late --platform grizzly_gis --state FL --county columbia \\",
    "    --every 1d --window 4h --filter delinquent",
    "parcelpost gateway schedule add few --platform grizzly_gis --state FL --county columbia \\",
    "    --every 12h --file parcels.csv",
    "parcelpost gateway schedule add auctions --platform govease --state AL --county mobile \\",
    "    --cron '0 6 * * 1-5' --list --url https://www.govease.com/mobile",
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The schedule's name.")]


def add(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Lower-case letters and digits, with . _ - between them.")
    ],
    platform: Annotated[str, typer.Option("--platform", help="The platform of the county's site.")],
    state: Annotated[str, typer.Option("--state", help="The state, such as FL.")],
    county: Annotated[str, typer.Option("--county", help="The county.")],
    every: Annotated[str, typer.Option("--every", metavar="INTERVAL", help="How often: 12h, 7d, 2w.")] = "",
    at: Annotated[str, typer.Option("--at", metavar="HH:MM", help="Time of day, for intervals of whole days.")] = "",
    timezone: Annotated[
        str, typer.Option("--timezone", metavar="ZONE", help="Time zone of --at and --cron. [default: this machine's]")
    ] = "",
    cron: Annotated[
        str,
        typer.Option("--cron", metavar="EXPRESSION", help="Cron expression, in place of --every."),
    ] = "",
    window: Annotated[
        str,
        typer.Option(
            "--window",
            metavar="DURATION",
            help="Spread each run over this time. [default: the interval, up to 1d; a list: up to 1h]",
        ),
    ] = "",
    pace: Annotated[
        float | None,
        typer.Option("--pace", metavar="SECONDS", help="Minimum time between two tasks. [default: the site's pace]"),
    ] = None,
    only: Annotated[str, typer.Option("--filter", metavar="delinquent", help="Only delinquent parcels.")] = "",
    file: Annotated[
        str,
        typer.Option(
            "--file",
            metavar="FILE",
            help="Only the parcels in this file, even if not in the ledger. The file is copied.",
        ),
    ] = "",
    list_: Annotated[
        bool, typer.Option("--list", help="Scrape a whole auction list or lien register, which adds new parcels.")
    ] = False,
    url: Annotated[str, typer.Option("--url", help="URL of the list, if the platform needs one.")] = "",
    maps: Maps = None,
    any_platform: AnyPlatform = False,
    database: Database = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    as_json: AsJson = False,
) -> None:
    """Scrape a county regularly: its known parcels, the parcels in a file, or a whole list.

    Pages are requested from the site, never taken from the page cache. Tasks are spread over the window, never queued
    faster than the site's pace, and all other tasks go first. A run starts only after the previous one has ended; runs
    missed while no gateway was running are made up by a single run. The first run starts immediately,
    unless --at is given.
    """
    import asyncio

    from parcelpost.cli.context import CLOCK, connect_ledger, needed_packages
    from parcelpost.cli.importer.importer import read_targets
    from parcelpost.cli.platform_names import KnownPlatforms

    settings = gateway_settings(database, config, set_)
    known = None if any_platform else KnownPlatforms(settings)
    with needed_packages():
        from parcelpost.gateway.schedules import NewSchedule, first_run, is_in_ledger, make_schedule

    now = CLOCK.now()
    new = NewSchedule(
        name=name,
        platform=platform,
        state=state,
        county=county,
        every=every,
        at=at,
        timezone=timezone,
        cron=cron,
        scope=_scope(only, file, is_list=list_),
        window=window,
        pace_seconds=pace,
        url=url,
    )

    async def ledger_has_it() -> bool:
        try:
            async with connect_ledger(settings.server) as opened:
                return await is_in_ledger(opened, new)
        except LedgerError:
            return False  # there is none yet, or `store` reports why it cannot be opened

    is_known = asyncio.run(ledger_has_it())
    place = (platform, state, county)
    targets = read_targets(file, maps or [], place, None if is_known else known) if file else []
    schedule, scraped = make_schedule(new, now, known, targets, is_known=is_known)

    async def store() -> ScheduleStatus:
        async with connect_ledger(settings.server, create=True) as opened:
            if not await opened.add_schedule(schedule, scraped, first_run(schedule, now)):
                raise InvalidInput(
                    f"a schedule named {name} already exists",
                    hint="choose another name, or delete the existing one first",
                )
            return (await _statuses(opened, name))[0]

    status = asyncio.run(store())
    if as_json:
        print_json(status)
        return
    print(
        printable(f"Added schedule {name}: {status.timing}, {_scope_text(status)} in {status.county}, {status.state}.")
    )
    print(f"Known parcels: {status.parcels:,}. First run: {_moment_or_now(status)}. A running gateway starts it.")


def _scope(only: str, file: str, *, is_list: bool) -> Scope:
    from parcelpost.gateway.models import Scope

    if only not in ("", "delinquent"):
        raise InvalidInput(f"unknown filter: {only!r:.40}", hint="use --filter delinquent")
    if only and (file or is_list):
        raise InvalidInput("--filter applies only to parcels in the ledger", hint="omit --file and --list")
    if is_list:
        return Scope.LIST
    return Scope.FILE if file else Scope.DELINQUENT if only else Scope.KNOWN


def list_schedules(
    database: Database = None, config: ConfigOption = None, set_: SetOption = None, as_json: AsJson = False
) -> None:
    """List schedules and how fresh their counties are."""
    from parcelpost.cli.context import with_ledger

    statuses = with_ledger(gateway_settings(database, config, set_).server, _statuses)
    if as_json:
        print_json({"schedules": statuses})
    elif statuses:
        print_lines(schedule_table(statuses))
    else:
        print("No schedules yet. Add one with 'parcelpost gateway schedule add'.")


def schedule_table(statuses: list[ScheduleStatus]) -> list[str]:
    headers = ("schedule", "site", "refreshes", "when", "status", "next run", "parcels", "fresh")
    return table(headers, map(_cells, statuses))


def _cells(status: ScheduleStatus) -> tuple[Cell, ...]:
    return (
        status.name,
        f"{status.platform} {status.state}/{status.county}",
        _scope_text(status),
        status.timing,
        status.status,
        moment(status.next_run_at) if status.next_run_at else "",
        status.parcels,
        percentage(status.fresh_share),
    )


def _scope_text(status: ScheduleStatus) -> str:
    return {"known": "known parcels", "delinquent": "delinquent parcels", "file": "a file", "list": "a list"}[
        status.scope
    ]


def show(
    name: Name,
    database: Database = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    as_json: AsJson = False,
) -> None:
    """Show a schedule with its freshness, its next run and its past runs."""
    from parcelpost.cli.context import CLOCK, with_ledger

    async def read(ledger: Ledger) -> ScheduleDetail | None:
        from parcelpost.gateway.schedules import FreshnessCache, schedule_detail

        return await schedule_detail(ledger, name, await ledger.workers(), CLOCK.now(), FreshnessCache())

    detail = with_ledger(gateway_settings(database, config, set_).server, read)
    if detail is None:
        raise _unknown(name)
    if as_json:
        print_json(detail)
        return
    print_lines(_detail_lines(detail))


def _detail_lines(detail: ScheduleDetail) -> Iterator[str]:
    status = detail.schedule
    fresh = f"{status.fresh:,} of {count(status.parcels, 'parcel')} ({percentage(status.fresh_share) or 'none yet'})"
    facts: list[tuple[str, Cell]] = [
        ("site", f"{status.platform} {status.state}/{status.county}"),
        ("refreshes", _scope_text(status)),
        ("when", status.timing),
        ("spread over", age(status.window_seconds)),
        ("pace", f"{status.pace_seconds:g} s between tasks"),
        ("status", f"{status.status}: {status.message}" if status.message else status.status),
        ("next run", moment(status.next_run_at) if status.next_run_at else ""),
        ("fresh", f"{fresh}, scraped in the last {age(status.max_age_seconds)}"),
        ("not found", f"{count(status.not_found, 'parcel')} that the site no longer has" if status.not_found else ""),
        ("oldest scrape", moment(status.oldest_at) if status.oldest_at else ""),
    ]
    yield from fields(facts)
    if detail.runs:
        yield ""
        headers = ("due", "outcome", "tasks", "queued", "done", "failed", "took")
        yield from table(headers, map(_run_cells, detail.runs))


def _run_cells(run: ScheduleRun) -> tuple[Cell, ...]:
    took = age((run.ended_at - run.started_at).total_seconds()) if run.ended_at and run.outcome == "ended" else ""
    return moment(run.due_at), run.outcome, run.total, run.queued, run.done, run.failed, took


def pause(
    name: Name, database: Database = None, config: ConfigOption = None, set_: SetOption = None, as_json: AsJson = False
) -> None:
    """Pause a schedule: it starts no runs, and a run in progress queues no more tasks."""
    _act(name, "pause", gateway_settings(database, config, set_), f"Paused schedule {name}.", as_json=as_json)


def resume(
    name: Name, database: Database = None, config: ConfigOption = None, set_: SetOption = None, as_json: AsJson = False
) -> None:
    """Resume a paused schedule. A run that was missed meanwhile starts immediately."""
    _act(name, "resume", gateway_settings(database, config, set_), f"Resumed schedule {name}.", as_json=as_json)


def run_now(
    name: Name, database: Database = None, config: ConfigOption = None, set_: SetOption = None, as_json: AsJson = False
) -> None:
    """Start a run now. Later runs stay as scheduled."""
    done = f"A running gateway starts a run of {name} within seconds."
    _act(name, "run-now", gateway_settings(database, config, set_), done, as_json=as_json)


def delete(
    name: Name,
    yes: Yes = False,
    database: Database = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    as_json: AsJson = False,
) -> None:
    """Delete a schedule with its runs and its tasks that no worker has taken. Asks for confirmation."""
    if not yes:
        confirm(f"Delete schedule {name}?")
    _act(name, "delete", gateway_settings(database, config, set_), f"Deleted schedule {name}.", as_json=as_json)


def _act(name: str, verb: str, settings: Settings, done: str, *, as_json: bool) -> None:
    from parcelpost.cli.context import CLOCK, with_ledger

    async def change(ledger: Ledger) -> list[ScheduleStatus] | None:
        from parcelpost.gateway.schedules import Action, act

        return await _statuses(ledger, name) if await act(ledger, name, Action(verb), CLOCK.now()) else None

    statuses = with_ledger(settings.server, change)
    if statuses is None:
        raise _unknown(name)
    if as_json:
        print_json({"schedule": statuses[0] if statuses else None})
    else:
        print(printable(done))
        sys.stdout.flush()


def _unknown(name: str) -> InvalidInput:
    return InvalidInput(f"no such schedule: {name!r:.80}", hint=_LIST_HINT)


def _moment_or_now(status: ScheduleStatus) -> str:
    from parcelpost.cli.context import CLOCK

    due_at = status.next_run_at
    return "now" if due_at is None or due_at <= CLOCK.now() else str(moment(due_at))


async def _statuses(ledger: Ledger, name: str = "") -> list[ScheduleStatus]:
    """Returns all schedules, or the one with this name."""
    from parcelpost.cli.context import CLOCK
    from parcelpost.gateway.schedules import FreshnessCache, schedule_statuses

    return await schedule_statuses(ledger, await ledger.workers(), CLOCK.now(), FreshnessCache(), name)


app = typer.Typer(
    help="Keep counties fresh: scrape their parcels again on a schedule.",
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog=examples(
        "parcelpost gateway schedule add columbia --platform grizzly_gis --state FL --county columbia --every 7d",
        "parcelpost gateway schedule list",
        "parcelpost gateway schedule run-now columbia",
    ),
)
app.command("add", epilog=ADD_EXAMPLES)(add)
app.command(
    "list",
    epilog=examples(
        "parcelpost gateway schedule list",
        "parcelpost gateway schedule list --json | jq '.schedules[] | select(.fresh_share < 0.9).name'",
    ),
)(list_schedules)
app.command(
    "show",
    epilog=examples("parcelpost gateway schedule show columbia", "parcelpost gateway schedule show columbia --json"),
)(show)
app.command("pause", epilog=examples("parcelpost gateway schedule pause columbia"))(pause)
app.command("resume", epilog=examples("parcelpost gateway schedule resume columbia"))(resume)
app.command("run-now", epilog=examples("parcelpost gateway schedule run-now columbia"))(run_now)
app.command(
    "delete",
    epilog=examples(
        "parcelpost gateway schedule delete columbia",
        "parcelpost gateway schedule delete columbia --yes",
    ),
)(delete)
