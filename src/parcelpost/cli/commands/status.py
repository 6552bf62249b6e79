"""`parcelpost status`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import Struct

from parcelpost.cli.output import (
    Cell,
    age,
    count,
    examples,
    fields,
    finding_lines,
    fitted,
    moment,
    opener_text,
    outbox_text,
    pause_lines,
    percentage,
    print_json,
    print_lines,
    printable,
    queue_lines,
    record_noun,
    table,
    terminal_width,
    used_text,
)
from parcelpost.cli.settings_options import AsJson, ConfigOption, SetOption, StoreContext, StoreOption, store_context
from parcelpost.errors import InvalidInput, StoreError

if TYPE_CHECKING:
    from datetime import datetime

    from parcelpost.cli.health.overview import CountyFreshness, StoreOverview, SyncedRound
    from parcelpost.health_checks import Finding
    from parcelpost.worker.status import WorkerStatus


EXAMPLES = examples("parcelpost status", "parcelpost status --watch 5", "parcelpost status --json | jq .queue.unsynced")

_WATCH_SECONDS = 2.0


def status(
    seconds: Annotated[
        float | None,
        typer.Argument(metavar="SECONDS", help="With --watch: the interval (default: 2).", min=0.1, max=86_400),
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Refresh until Ctrl-C.")] = False,
    store_path: StoreOption = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    as_json: AsJson = False,
) -> None:
    """Show the state of the worker: queue, outbox, sync, storage, and what needs attention.

    Starts with the problems found and their fixes, or `No problems found.` Read-only.
    """
    from parcelpost.cli import context

    store = store_context(store_path, config, set_)
    if watch:
        try:
            context.run_async(store, _watch(store, seconds or _WATCH_SECONDS, as_json=as_json))
        except KeyboardInterrupt:
            return
    if seconds is not None:
        raise InvalidInput("SECONDS can only be used with --watch", hint=f"parcelpost status --watch {seconds:g}")
    state = context.run_async(store, _gather(store))
    print_json(state) if as_json else print_lines(fitted(status_lines(state, context.CLOCK.now()), terminal_width()))
    if isinstance(state, UnreadableStore):
        raise typer.Exit(1)


class UnreadableStore(Struct, frozen=True, kw_only=True):
    """The store cannot be opened."""

    ok: bool = False
    findings: list[Finding]
    store: str


async def _gather(store: StoreContext) -> StoreOverview | UnreadableStore:
    from parcelpost.cli.health import overview

    try:
        return await overview.gather_store_overview(store)
    except (StoreError, OSError) as error:
        from parcelpost.cli.health.store_files import open_finding

        return UnreadableStore(findings=[open_finding(store, error)], store=str(store.path))


async def _watch(store: StoreContext, seconds: float, *, as_json: bool) -> None:
    """Until it is cancelled."""
    from parcelpost.cli.context import CLOCK

    if sys.stdout.isatty() and not as_json:
        await _watch_on_terminal(store, seconds)
    while True:
        state = await _gather(store)
        if as_json:
            print_json(state)
        else:
            now = CLOCK.now()
            print_lines([f"{now:%Y-%m-%d %H:%M:%S} UTC", *status_lines(state, now), ""])
        sys.stdout.flush()
        await CLOCK.sleep(seconds)


async def _watch_on_terminal(store: StoreContext, seconds: float) -> None:
    from rich.live import Live
    from rich.text import Text

    from parcelpost.cli.context import CLOCK

    with Live(auto_refresh=False) as live:
        while True:
            now = CLOCK.now()
            block = [*status_lines(await _gather(store), now), "", f"{now:%H:%M:%S} UTC, Ctrl-C to quit"]
            live.update(Text("\n".join(block)), refresh=True)
            await CLOCK.sleep(seconds)


def status_lines(state: StoreOverview | UnreadableStore, now: datetime) -> Iterator[str]:
    yield from finding_lines(state.findings)
    if isinstance(state, UnreadableStore):
        return
    yield ""
    yield from fields(_facts(state, now))
    yield ""
    yield from queue_lines(state.queue, state.platforms if len(state.platforms) > 1 else {})
    yield from pause_lines(state.paused)
    if state.schedules:
        yield ""
        headers = ("schedule", "site", "when", "next run", "parcels", "fresh", "not found")
        yield from table(headers, map(_schedule_cells, state.schedules))


def _schedule_cells(schedule: CountyFreshness) -> tuple[Cell, ...]:
    next_run = moment(schedule.next_run_at) if schedule.next_run_at else "when a standalone worker runs"
    next_run = "paused" if schedule.is_paused else next_run
    fresh = percentage(schedule.fresh / schedule.parcels if schedule.parcels else None)
    parcels = "a list" if schedule.is_list else schedule.parcels
    not_found = 0 if schedule.is_list else schedule.not_found
    return schedule.schedule, schedule.site, schedule.timing, next_run, parcels, fresh, not_found


def _facts(overview: StoreOverview, now: datetime) -> Iterator[tuple[str, str | None]]:
    from parcelpost.worker.findings import failures_text

    yield "worker", ", ".join(map(opener_text, overview.workers)) or _stopped_text(overview.statuses, now)
    yield "crashed", ", ".join(map(opener_text, overview.crashed)) or None
    yield "also open in", ", ".join(map(opener_text, overview.commands)) or None
    if overview.workers:
        yield "commands", "; ".join(filter(None, map(_commands, overview.statuses))) or None
    yield "failed", failures_text(overview.failures) if overview.failures.failed else None
    yield "outbox", outbox_text(overview.queue)
    yield "last delivery", _round_text(overview.sync.last_upload, now)
    yield "last tasks", _round_text(overview.sync.last_download, now)
    yield "next attempt", _outage_text(overview, now)
    yield "storage", used_text(overview.storage, overview.used_percent)
    yield "backup", f"{overview.backup.path}, {age(overview.backup.age_seconds)} old" if overview.backup else "none"
    yield "store", overview.store


def _stopped_text(statuses: list[WorkerStatus], now: datetime) -> str:
    """Of the last run, if all of its processes were stopped on purpose."""
    stops = [status.stopped_at for status in statuses]
    if not stops or not all(stops):
        return "no worker is running"
    names = ", ".join(status.name for status in statuses)
    return printable(f"stopped {age((now - max(filter(None, stops))).total_seconds())} ago: {names}")


def _commands(status: WorkerStatus) -> str:
    pause = ["pause"] if status.paused_since else []
    only = [f"only {', '.join(status.platforms)}"] if status.platforms else []
    return printable(f"{', '.join(pause + only)} (from the gateway, for {status.name})") if pause or only else ""


def _round_text(done: SyncedRound | None, now: datetime) -> str:
    if done is None:
        return "none yet"
    ago = age((now - done.at).total_seconds())
    return printable(f"{ago} ago, {done.record_count:,} {record_noun(done.record_type, done.record_count)}")


def _outage_text(overview: StoreOverview, now: datetime) -> str | None:
    outage = overview.sync.outage
    if outage is None:
        return None
    remaining = (outage.until - now).total_seconds()
    due = "now" if overview.workers else "when a worker runs"
    when = f"{outage.until:%H:%M:%S} UTC, in {age(remaining)}" if remaining > 0 else due
    failures = count(outage.failures, "failure")
    return f"{when}; {failures} in {age((now - outage.since).total_seconds())}: {outage.reason}"
