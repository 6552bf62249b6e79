"""`parcelpost status`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import Struct

from parcelpost.cli.health.summary import (
    attention_lines,
    failed_text,
    opener_text,
    outbox_text,
    pause_lines,
    queue_lines,
    used_text,
)
from parcelpost.cli.options import (
    AsJson,
    ConfigOption,
    SetOption,
    StoreContext,
    StoreOption,
    store_context,
)
from parcelpost.cli.output import (
    age,
    count,
    fields,
    fitted,
    print_json,
    print_lines,
    printable,
    record_noun,
    size,
    terminal_width,
)
from parcelpost.errors import InvalidInput, StoreError

if TYPE_CHECKING:
    from datetime import datetime

    from parcelpost.cli.health.overview import BrokenField, Overview, SyncedRound
    from parcelpost.cli.health.store_status import Problem
    from parcelpost.worker.status import WorkerStatus


EXAMPLES = """
Examples:

\b
  parcelpost status
  parcelpost status --watch 5
  parcelpost status --json | jq .outbox.unsynced
"""

_WATCH_SECONDS = 2.0


def status(
    seconds: Annotated[
        float | None,
        typer.Argument(metavar="SECONDS", help="With --watch: how often, 2 unless told.", min=0.1, max=86_400),
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Show it again and again, until Ctrl-C.")] = False,
    store_path: StoreOption = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    as_json: AsJson = False,
) -> None:
    """Show how the worker is: queue, outbox, sync, storage, and what needs attention.

    The first line says that all is well, or what is wrong and what to do. Only looks: nothing is created or changed.
    """
    from parcelpost.cli import context

    store = store_context(store_path, config, set_)
    if watch:
        try:
            context.run_async(store, _watch(store, seconds or _WATCH_SECONDS, as_json=as_json))
        except KeyboardInterrupt:
            return
    if seconds is not None:
        raise InvalidInput("SECONDS goes with --watch", hint=f"parcelpost status --watch {seconds:g}")
    found = context.run_async(store, _gather(store))
    print_json(found) if as_json else print_lines(fitted(status_lines(found, context.CLOCK.now()), terminal_width()))
    if isinstance(found, UnreadableStore):
        raise typer.Exit(1)


class UnreadableStore(Struct, frozen=True, kw_only=True):
    """The verdict where the store cannot be looked at."""

    well: bool = False
    problems: list[Problem]
    store: str


async def _gather(store: StoreContext) -> Overview | UnreadableStore:
    from parcelpost.cli.health import overview

    try:
        return await overview.gather_overview(store)
    except (StoreError, OSError) as error:
        from parcelpost.cli.health.integrity import open_problem
        from parcelpost.storage.errors import os_error

        meant = error if isinstance(error, StoreError) else os_error(error, Path(error.filename or store.path))
        return UnreadableStore(problems=[open_problem(store, meant)], store=str(store.path))


async def _watch(store: StoreContext, seconds: float, *, as_json: bool) -> None:
    """Until it is cancelled."""
    from parcelpost.cli.context import CLOCK

    if sys.stdout.isatty() and not as_json:
        await _watch_on_terminal(store, seconds)
    while True:
        found = await _gather(store)
        if as_json:
            print_json(found)
        else:
            now = CLOCK.now()
            print_lines([f"{now:%Y-%m-%d %H:%M:%S} UTC", *status_lines(found, now), ""])
        sys.stdout.flush()
        await CLOCK.sleep(seconds)


async def _watch_on_terminal(store: StoreContext, seconds: float) -> None:
    from rich.live import Live
    from rich.text import Text

    from parcelpost.cli.context import CLOCK

    with Live(auto_refresh=False) as live:
        while True:
            now = CLOCK.now()
            block = [*status_lines(await _gather(store), now), "", f"{now:%H:%M:%S} UTC, Ctrl-C ends"]
            live.update(Text("\n".join(block)), refresh=True)
            await CLOCK.sleep(seconds)


def status_lines(found: Overview | UnreadableStore, now: datetime) -> Iterator[str]:
    if isinstance(found, UnreadableStore):
        yield from attention_lines(found.problems)
        return
    from parcelpost.cli.health.overview import overview_remark

    yield from attention_lines(found.problems, overview_remark(found, now))
    yield ""
    yield from fields(_facts(found, now))
    yield ""
    yield from queue_lines(found.queue, found.platforms if len(found.platforms) > 1 else {})
    yield from pause_lines(found.paused)
    yield from selector_lines(found.broken)


def selector_lines(broken: list[BrokenField]) -> Iterator[str]:
    """Selectors that fail though their field is found: nothing is lost yet."""
    from parcelpost.cli.health.overview import broken_text

    outdated = [one.field for one in broken if one.field.found_otherwise]
    if outdated:
        yield ""
        yield "Selectors that no longer work:"
        yield from (f"  {broken_text(field)}" for field in outdated)


def _facts(found: Overview, now: datetime) -> Iterator[tuple[str, str | None]]:
    from parcelpost.cli.health.overview import slow_text

    usage = found.storage
    yield "worker", ", ".join(map(opener_text, found.workers)) or "no worker is running"
    yield "died", ", ".join(map(opener_text, found.left_by_dead)) or None
    yield "also open in", ", ".join(map(opener_text, found.commands)) or None
    yield "commands", "; ".join(filter(None, map(_commands, found.statuses))) or None
    short = [(one.name, one.memory.summary) for one in found.statuses if one.memory]
    yield "memory", "; ".join(printable(f"{name}: {summary}") for name, summary in short) or None
    yield "failed", failed_text(found.failures)
    yield "outbox", outbox_text(found.queue)
    yield "last delivery", _round_text(found.sync.last_upload, now)
    yield "last tasks", _round_text(found.sync.last_download, now)
    yield "backing off", _offline_text(found, now)
    yield "slow", slow_text(found.sync.upstream, found.sync.slow, now) if found.sync.slow else None
    yield "storage", f"{used_text(usage, found.used_percent)}; {size(usage.disk_free)} free on the disk"
    yield "backup", f"{found.backup.path}, {age(found.backup.age_seconds)} old" if found.backup else "none"
    yield "store", found.store


def _commands(one: WorkerStatus) -> str:
    pause = ["pause"] if one.paused_since else []
    only = [f"only {', '.join(one.platforms)}"] if one.platforms else []
    return printable(f"{' and '.join(pause + only)}, by the gateway for {one.name}") if pause or only else ""


def _round_text(one: SyncedRound | None, now: datetime) -> str:
    if one is None:
        return "none yet"
    ago = age((now - one.at).total_seconds())
    return printable(f"{ago} ago, {one.record_count:,} {record_noun(one.record_type, one.record_count)}")


def _offline_text(found: Overview, now: datetime) -> str | None:
    away = found.sync.away
    if away is None:
        return None
    remaining = (away.until - now).total_seconds()
    due = "when a worker runs" if not found.workers else "now"
    when = f"until {away.until:%H:%M:%S} UTC, in {age(remaining)}" if remaining > 0 else f"next try {due}"
    return f"{when}; {count(away.failures, 'failure')} in {age((now - away.since).total_seconds())}: {away.reason}"
