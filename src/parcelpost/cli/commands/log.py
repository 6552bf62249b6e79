"""`parcelpost log`."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterable
from enum import StrEnum
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from parcelpost.cli.options import (
    ConfigOption,
    Limit,
    SetOption,
    StoreContext,
    StoreOption,
    store_context,
)
from parcelpost.cli.output import moment, print_json, printable, record_noun

if TYPE_CHECKING:
    from parcelpost.storage.history import LoggedRound

    _Look = Callable[[int], Awaitable[list[LoggedRound]]]
    _Show = Callable[[Iterable[LoggedRound]], None]

EXAMPLES = """
Examples:

\b
  parcelpost log
  parcelpost log --follow
  parcelpost log --failed --limit 100
  parcelpost log --direction upload --json | jq .record_count
"""

_FOLLOW_SECONDS = 1.0
_MOST_AT_ONCE = 1_000


class Direction(StrEnum):
    UPLOAD = "upload"
    DOWNLOAD = "download"


def log(
    limit: Limit = 20,
    failed: Annotated[bool, typer.Option("--failed", help="Only rounds that failed.")] = False,
    direction: Annotated[Direction | None, typer.Option("--direction", help="Only rounds of this direction.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with new ones, until Ctrl-C.")] = False,
    store_path: StoreOption = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document a round and line.")] = False,
) -> None:
    """Show the last rounds of sync, the newest last: what was sent or fetched, how long it took, what went wrong."""
    from parcelpost.cli import context

    store = store_context(store_path, config, set_)
    show = _show_json if as_json else _show_text
    look = partial(_recent, store, direction, failed=failed)
    try:
        found = context.run_async(store, _follow(look, limit, show) if follow else _once(look, limit, show))
    except KeyboardInterrupt:
        if not follow:
            raise
        return
    if not found and not as_json:
        print("No rounds of sync.")


async def _recent(store: StoreContext, direction: str | None, limit: int, *, failed: bool) -> list[LoggedRound]:
    """The newest first."""
    from parcelpost.cli.context import CLOCK, open_for_reading
    from parcelpost.storage.history import SyncLog

    async with open_for_reading(store) as database:
        return await SyncLog(database, CLOCK).recent(limit, direction=direction, failed=failed)


async def _once(look: _Look, limit: int, show: _Show) -> int:
    """Answers how many there were."""
    rounds = await look(limit)
    show(reversed(rounds))
    return len(rounds)


async def _follow(look: _Look, limit: int, show: _Show) -> NoReturn:
    """Those there are, then what comes, until it is cancelled."""
    from parcelpost.cli.context import CLOCK

    fresh = await look(limit)
    newest = ""
    while True:
        if fresh:
            show(reversed(fresh))
            newest = fresh[0].sync_id
        await CLOCK.sleep(_FOLLOW_SECONDS)
        fresh = _until(newest, await look(_MOST_AT_ONCE))


def _until(sync_id: str, rounds: list[LoggedRound]) -> list[LoggedRound]:
    return list(takewhile(lambda one: one.sync_id != sync_id, rounds))


def _show_json(rounds: Iterable[LoggedRound]) -> None:
    from msgspec import structs

    for one in rounds:
        print_json({"sync_id": one.sync_id, "created_at": one.created_at, **structs.asdict(one.round)})
    sys.stdout.flush()


def _show_text(rounds: Iterable[LoggedRound]) -> None:
    """Widths are fixed, so that lines which come later stand under those before."""
    for one in rounds:
        what = one.round
        took = "-" if what.duration_ms is None else f"{what.duration_ms:,} ms"
        end = "ok" if what.success else "failed"
        kind = f"{what.record_count:>7,} {record_noun(what.record_type, what.record_count):<16}"
        line = f"{moment(one.created_at)}  {what.direction:<8}  {kind}  {took:>10}  {end:<6}  {what.error or ''}"
        print(printable(line.rstrip()))
    sys.stdout.flush()
