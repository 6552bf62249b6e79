"""`parcelpost browser status`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from parcelpost.cli.options import DEFAULT_STORE, AsJson, StorePath
from parcelpost.cli.output import Cell, age, count, fields, print_json, print_lines, size, table
from parcelpost.cli.store_status import attention_lines

if TYPE_CHECKING:
    from parcelpost.cli.browser_report import BrowserReport
    from parcelpost.cli.browser_room import Room
    from parcelpost.cli.browser_seen import SeenBrowser

EXAMPLES = """
Examples:

\b
  parcelpost browser status
  parcelpost browser status --json | jq '.browsers[].memory_mb'
"""

_HEADERS = ("browser", "state", "task", "tasks done", "launches", "memory", "age", "worker")


def status(store: StorePath = DEFAULT_STORE, as_json: AsJson = False) -> None:
    """Show the browsers that workers run, and how many are safe here.

    The first line says that all is well, or what is wrong and what to do. Only looks: nothing is started or changed.
    """
    from parcelpost.cli import browser_report, running

    found = running.run(store, browser_report.gather(store))
    if as_json:
        print_json(found)
    else:
        print_lines(_lines(found, running.CLOCK.now()))


def _lines(found: BrowserReport, now: datetime) -> Iterator[str]:
    yield from attention_lines(found.problems)
    yield ""
    safe = "safe here" if found.chromium else "would be safe"
    yield from fields((("chromium", found.chromium or "none was found"), (safe, room_text(found.room))))
    yield ""
    if found.browsers:
        yield from table(_HEADERS, [_row(one, now) for one in found.browsers])
    else:
        yield "No browser runs: one is started when a task needs it."


def room_text(room: Room) -> str:
    each = f"{size(room.bytes_per_browser)} each, {'measured' if room.measured else 'as long as none was measured'}"
    memory = f"{size(room.memory_used_bytes)} of {size(room.memory_limit_bytes)} memory are used"
    return f"{count(room.safe, 'browser')} of at most {room.most:,} ({each}; {memory})"


def _row(one: SeenBrowser, now: datetime) -> tuple[Cell, ...]:
    return (
        one.browser_id,
        one.status,
        one.current_task_id,
        one.tasks_completed,
        one.launches,
        f"{one.memory_mb:,} MiB" if one.memory_mb else None,
        age((now - (one.restarted_at or one.created_at)).total_seconds()),
        f"{one.owner or 'unknown'} ({'alive' if one.owner_lives else 'dead'})",
    )
