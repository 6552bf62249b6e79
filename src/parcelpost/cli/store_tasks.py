"""`parcelpost store tasks`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from parcelpost.cli.options import DEFAULT_STORE, After, AsJson, Limit, Parcel, Platform, StorePath, store_command
from parcelpost.cli.output import Cell, fields, moment, print_json, print_lines, print_page
from parcelpost.errors import InvalidInput
from parcelpost.model import Source, TaskInfo, TaskStatus

if TYPE_CHECKING:
    from parcelpost.storage.evidence import KeptEvidence

EXAMPLES = """
Examples:

\b
  parcelpost store tasks --status failed --platform vgsi
  parcelpost store tasks --status pending --limit 1000 --after 2500 --json
  parcelpost store tasks 7f3a9c
"""

_HEADERS = ("seq", "task", "status", "priority", "platform", "state", "county", "parcel", "retries", "updated", "error")


def tasks(
    task_id: Annotated[str | None, typer.Argument(help="Show this one in detail.", metavar="TASK_ID")] = None,
    status: Annotated[TaskStatus | None, typer.Option("--status", help="Only in this status.")] = None,
    platform: Platform = None,
    state: Annotated[
        str | None, typer.Option("--state", metavar="STATE", help="Only of this state, such as CT.")
    ] = None,
    county: Annotated[str | None, typer.Option("--county", metavar="COUNTY", help="Only of this county.")] = None,
    source: Annotated[Source | None, typer.Option("--source", help="Only from this source.")] = None,
    parcel: Parcel = None,
    limit: Limit = 100,
    after: After = 0,
    store: StorePath = DEFAULT_STORE,
    as_json: AsJson = False,
) -> None:
    """List tasks in the order stored, or show one in detail."""
    from parcelpost.cli import running

    if task_id is not None:
        one, kept = running.run(store, _get(store, task_id))
        print_json(_document(one, kept)) if as_json else print_lines(_lines(one, kept, store))
        return
    filters = {
        "status": status, "platform": platform, "state": state, "county": county, "source": source, "parcel_id": parcel
    }  # fmt: skip
    found = running.run(store, _search(store, filters, limit + 1, after))
    if as_json:
        more = len(found) > limit
        print_json({"tasks": found[:limit], "next_after": found[limit - 1].seq if more else None})
    else:
        print_page("task", _HEADERS, [_row(one) for one in found], limit)


async def _get(store: Path, task_id: str) -> tuple[TaskInfo, KeptEvidence | None]:
    from parcelpost.cli.running import looking
    from parcelpost.storage import evidence
    from parcelpost.storage import tasks as queue

    async with looking(store) as database:
        found = await database.read(queue.get, task_id)
        kept = await database.read(evidence.look, task_id)
    if found is None:
        raise InvalidInput(f"there is no task {task_id!r}", hint=f"list them with '{store_command('tasks', store)}'")
    return found, kept


async def _search(store: Path, filters: dict[str, Any], limit: int, after: int) -> list[TaskInfo]:
    from parcelpost.cli.running import looking
    from parcelpost.storage import tasks as queue

    async with looking(store) as database:
        return await database.read(queue.search, filters, limit, after)


def _row(one: TaskInfo) -> tuple[Cell, ...]:
    task = one.task
    where = (task.platform, task.target.state, task.target.county, task.target.parcel_id)
    return (
        one.seq, task.task_id, one.status, task.priority.name.lower(), *where, one.retries, moment(one.updated_at),
        one.error,
    )  # fmt: skip


def _document(one: TaskInfo, kept: KeptEvidence | None) -> dict[str, Any]:
    from msgspec import structs

    return structs.asdict(one) | {"evidence": kept}


def _lines(one: TaskInfo, kept: KeptEvidence | None, store: Path) -> Iterator[str]:
    from msgspec.json import encode

    from parcelpost.cli.store_results import evidence_text

    task, target = one.task, one.task.target
    yield from fields(
        (
            ("task", task.task_id),
            ("status", one.status),
            ("platform", task.platform),
            ("parcel", f"{target.parcel_id} in {target.county}, {target.state}"),
            ("url", target.url or None),
            ("also given", encode(target.extra).decode() if target.extra else None),
            ("priority", task.priority.name.lower()),
            ("source", task.source),
            ("type", task.type),
            ("retries", f"{one.retries:,} of at most {task.max_retries:,}"),
            ("worker died", f"{one.recoveries:,} times while holding it" if one.recoveries else None),
            ("stored", moment(one.created_at)),
            ("changed", moment(one.updated_at)),
            ("not before", moment(one.available_at)),
            ("lease ends", moment(task.lease_expires_at)),
            ("held by", one.claimed_by),
            ("browser", one.assigned_browser),
            ("started", moment(one.started_at)),
            ("ended", moment(one.completed_at)),
            ("error", one.error),
            ("screenshot", evidence_text(store, kept.screenshot_path) if kept else None),
            ("log", evidence_text(store, kept.log_path) if kept else None),
        )
    )
