"""`parcelpost log`."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterable
from enum import StrEnum
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from parcelpost.cli.output import examples, moment, print_json, printable, record_noun
from parcelpost.cli.settings_options import ConfigOption, Limit, SetOption, StoreContext, StoreOption, store_context

if TYPE_CHECKING:
    from parcelpost.storage.history import LoggedRound

    _Query = Callable[[int], Awaitable[list[LoggedRound]]]
    _Show = Callable[[Iterable[LoggedRound]], None]

EXAMPLES = examples(
    "parcelpost log",
    "parcelpost log --follow",
    "parcelpost log --failed --limit 100",
    "parcelpost log --direction upload --json | jq .record_count",
)

_FOLLOW_SECONDS = 1.0
_MOST_AT_ONCE = 1_000


class Direction(StrEnum):
    UPLOAD = "upload"
    DOWNLOAD = "download"


def log(
    limit: Limit = 20,
    failed: Annotated[bool, typer.Option("--failed", help="Show only failed rounds.")] = False,
    direction: Annotated[
        Direction | None, typer.Option("--direction", help="Show only rounds in this direction.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep printing new rounds until Ctrl-C.")] = False,
    store_path: StoreOption = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print each round as one line of JSON.")] = False,
) -> None:
    """Show recent sync rounds, newest last: what was sent or fetched, how long it took, and any error."""
    from parcelpost.cli import context

    store = store_context(store_path, config, set_)
    show = _show_json if as_json else _show_text
    query = partial(_recent, store, direction, failed=failed)
    try:
        shown = context.run_async(store, _follow(query, limit, show) if follow else _once(query, limit, show))
    except KeyboardInterrupt:
        if not follow:
            raise
        return
    if not shown and not as_json:
        print("No sync rounds yet.")


async def _recent(store: StoreContext, direction: str | None, limit: int, *, failed: bool) -> list[LoggedRound]:
    """Newest first."""
    from parcelpost.cli.context import CLOCK, open_for_reading
    from parcelpost.storage.history import SyncLog

    async with open_for_reading(store) as database:
        return await SyncLog(database, CLOCK).recent(limit, direction=direction, failed=failed)


async def _once(query: _Query, limit: int, show: _Show) -> int:
    """Returns how many rounds it showed."""
    rounds = await query(limit)
    show(reversed(rounds))
    return len(rounds)


async def _follow(query: _Query, limit: int, show: _Show) -> NoReturn:
    """Shows existing rounds, then new ones, until cancelled."""
    from parcelpost.cli.context import CLOCK

    fresh = await query(limit)
    newest = ""
    while True:
        if fresh:
            show(reversed(fresh))
            newest = fresh[0].sync_id
        await CLOCK.sleep(_FOLLOW_SECONDS)
        fresh = _until(newest, await query(_MOST_AT_ONCE))


def _until(sync_id: str, rounds: list[LoggedRound]) -> list[LoggedRound]:
    return list(takewhile(lambda entry: entry.sync_id != sync_id, rounds))


def _show_json(rounds: Iterable[LoggedRound]) -> None:
    from msgspec import structs

    for entry in rounds:
        print_json({"sync_id": entry.sync_id, "created_at": entry.created_at, **structs.asdict(entry)})
    sys.stdout.flush()


def _show_text(rounds: Iterable[LoggedRound]) -> None:
    """Column widths are fixed, so that later lines align with earlier ones."""
    for sync in rounds:
        took = "-" if sync.duration_ms is None else f"{sync.duration_ms:,} ms"
        outcome = "ok" if sync.success else "failed"
        records = f"{sync.record_count:>7,} {record_noun(sync.record_type, sync.record_count):<16}"
        line = (
            f"{moment(sync.created_at)}  {sync.direction:<8}  {records}  {took:>10}  {outcome:<6}  {sync.error or ''}"
        )
        print(printable(line.rstrip()))
    sys.stdout.flush()
