"""`parcelpost tasks list` and `tasks show`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from parcelpost.cli.options import DEFAULT_STORE, After, AsJson, Limit, StorePath, command_line
from parcelpost.cli.output import Cell, count, fields, moment, print_json, print_lines
from parcelpost.model import TaskInfo

if TYPE_CHECKING:
    from parcelpost.cli.mending.history import Story
    from parcelpost.storage.admin import Selection
    from parcelpost.storage.db import LocalDatabase

LIST_EXAMPLES = """
Examples:

\b
  parcelpost tasks list --status failed --platform vgsi
  parcelpost tasks list --error "no such parcel" --since 2d
  parcelpost tasks list --status pending --limit 1000 --after 2500 --json
"""
SHOW_EXAMPLES = """
Examples:

\b
  parcelpost tasks show 7f3a9c
  parcelpost tasks show 7f3a9c --json | jq .history
"""

_HEADERS = ("seq", "task", "status", "priority", "platform", "state", "county", "parcel", "retries", "updated", "error")
_SPARE = ("priority", "retries", "state", "updated", "county", "platform", "parcel")


def list_(
    which: Selection, limit: Limit = 100, after: After = 0, store: StorePath = DEFAULT_STORE, as_json: AsJson = False
) -> None:
    """List tasks in the order stored."""
    from parcelpost.cli import running
    from parcelpost.cli.mending.lists import Kind, print_list
    from parcelpost.storage.admin import tasks_page

    async def read(database: LocalDatabase, most: int, after: int) -> Sequence[TaskInfo]:
        return await database.read(tasks_page, which, most, after)

    kind = Kind("task", _HEADERS, _SPARE, read, _row, lambda one: one)
    running.run(store, print_list(store, kind, limit, after, as_json=as_json))


def show(
    task_id: Annotated[str, typer.Argument(help="Its id.", metavar="TASK_ID")],
    store: StorePath = DEFAULT_STORE,
    as_json: AsJson = False,
) -> None:
    """Show one task: what was ordered, what has happened to it, and what became of its result."""
    from parcelpost.cli import running
    from parcelpost.cli.mending.history import story

    found = running.run(store, story(store, task_id, f"list them with '{command_line('tasks list', store)}'"))
    print_json(_document(found)) if as_json else print_lines(_lines(found, store))


def _row(one: TaskInfo) -> tuple[Cell, ...]:
    task = one.task
    where = (task.platform, task.target.state, task.target.county, task.target.parcel_id)
    return (
        one.seq, task.task_id, one.status.label, task.priority.name.lower(), *where, one.retries,
        moment(one.updated_at), one.error_text,
    )  # fmt: skip


def _document(found: Story) -> dict[str, Any]:
    from msgspec import structs

    from parcelpost.cli.results.looks import document

    more = {"artifacts": found.artifacts, "page": found.page, "children": found.children, "history": found.history}
    result = document(found.result) if found.result else None
    return structs.asdict(found.task) | more | {"result": result}


def _lines(found: Story, store: Path) -> Iterator[str]:
    yield from fields(_facts(found, store))
    yield ""
    yield "History"
    yield from fields((f"  {moment(step.at)}", step.what) for step in found.history)


def _facts(found: Story, store: Path) -> Iterator[tuple[str, Cell]]:
    from msgspec.json import encode

    from parcelpost.cli.mending.history import artifact_text, page_facts
    from parcelpost.cli.results.looks import delivery

    one, kept = found.task, found.artifacts
    task, target = one.task, one.task.target
    yield "task", task.task_id
    yield "status", one.status.label
    yield "platform", task.platform
    yield "parcel", f"{target.parcel_id} in {target.county}, {target.state}"
    yield "url", target.url or None
    yield "also given", encode(target.extra).decode() if target.extra else None
    yield "priority", task.priority.name.lower()
    yield "source", task.source
    yield "type", task.type
    yield "a record of", one.parent_id
    yield "retries", f"{one.retries:,} of at most {task.max_retries:,}"
    yield "worker died", f"{one.recoveries:,} times while holding it" if one.recoveries else None
    yield "changed", moment(one.updated_at)
    yield "not before", moment(one.available_at)
    yield "lease ends", moment(task.lease_expires_at)
    yield "held by", one.claimed_by
    yield "browser", one.assigned_browser
    yield "error", one.error_text
    yield "result", delivery(found.result) if found.result else None
    yield from page_facts(found.page)
    yield "also on it", count(found.children, "further record") if found.children else None
    yield "screenshot", artifact_text(store, kept.screenshot_path) if kept else None
    yield "log", artifact_text(store, kept.log_path) if kept else None
