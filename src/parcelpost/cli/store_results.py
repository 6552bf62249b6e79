"""`parcelpost store results`."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from parcelpost.cli.options import DEFAULT_STORE, After, AsJson, Limit, Parcel, Platform, StorePath, Yes, store_command
from parcelpost.cli.output import Cell, confirm, count, fields, moment, print_json, print_lines, print_page, printable
from parcelpost.errors import InvalidInput
from parcelpost.model import OutboxEntry

EXAMPLES = """
Examples:

\b
  parcelpost store results --state unsynced --limit 20
  parcelpost store results 7f3a9c --json | jq .data
  parcelpost store results --state rejected
  parcelpost store results --retry-rejected 7f3a9c
"""

_HEADERS = ("seq", "task", "end", "delivery", "attempts", "platform", "state", "county", "parcel", "stored", "error")


class Delivery(StrEnum):
    UNSYNCED = "unsynced"
    SYNCED = "synced"
    REJECTED = "rejected"


def results(
    task_ids: Annotated[
        list[str] | None, typer.Argument(help="Show this task's result with its data.", metavar="TASK_ID")
    ] = None,
    state: Annotated[Delivery | None, typer.Option("--state", help="Only in this state of delivery.")] = None,
    platform: Platform = None,
    parcel: Parcel = None,
    failed: Annotated[bool, typer.Option("--failed", help="Only reports of tasks that failed or expired.")] = False,
    limit: Limit = 100,
    after: After = 0,
    retry_rejected: Annotated[
        bool, typer.Option("--retry-rejected", help="Send rejected results again: those of the tasks named, or all.")
    ] = False,
    yes: Yes = False,
    store: StorePath = DEFAULT_STORE,
    as_json: AsJson = False,
) -> None:
    """List results in the order stored, show one with its data, or send rejected ones again."""
    from parcelpost.cli import running

    if retry_rejected:
        named = running.run(store, _rejected_ids(store, task_ids)) if task_ids else None
        rejected = running.run(store, _count_rejected(store)) if named is None else len(named)
        if rejected and not yes:
            confirm(f"Send {count(rejected, 'rejected result')} again?")
        reset = running.run(store, _reset(store, named)) if rejected else 0
        print_json({"reset": reset}) if as_json else print(f"{count(reset, 'result')} will be sent again.")
        return
    if task_ids:
        if len(task_ids) > 1:
            raise InvalidInput("one result can be shown at a time", hint="name one task")
        one = running.run(store, _get(store, task_ids[0]))
        print_json(_document(one)) if as_json else print_lines(_lines(one, store))
        return
    filters = {"sync": state, "platform": platform, "parcel_id": parcel, "success": False if failed else None}
    found = running.run(store, _search(store, filters, limit + 1, after))
    if as_json:
        more = len(found) > limit
        documents = [_document(one) for one in found[:limit]]
        print_json({"results": documents, "next_after": found[limit - 1].seq if more else None})
    else:
        print_page("result", _HEADERS, [_row(one) for one in found], limit)


async def _get(store: Path, task_id: str) -> OutboxEntry:
    from parcelpost.cli.running import looking
    from parcelpost.storage import outbox

    async with looking(store) as database:
        found = await database.read(outbox.get, task_id)
    if found is None:
        raise InvalidInput(
            f"there is no result of a task {task_id!r}",
            hint=f"list them with '{store_command('results', store)}', or look for the task with 'store tasks'",
        )
    return found


async def _search(store: Path, filters: dict[str, Any], limit: int, after: int) -> list[OutboxEntry]:
    from parcelpost.cli.running import looking
    from parcelpost.storage import outbox

    async with looking(store) as database:
        return await database.read(outbox.search, filters, limit, after)


async def _rejected_ids(store: Path, task_ids: list[str]) -> list[str]:
    """The rejected results of these tasks. Raises InvalidInput for a task that has none."""
    from parcelpost.cli.running import looking
    from parcelpost.storage import outbox

    async with looking(store) as database:
        found = {task_id: await database.read(outbox.get, task_id) for task_id in task_ids}
    rejected = {task_id: entry.result_id for task_id, entry in found.items() if entry and entry.rejected_at}
    if len(rejected) < len(found):
        raise InvalidInput(
            f"no rejected result of: {', '.join(sorted(found.keys() - rejected))}",
            hint=f"nothing was changed; list them with '{store_command('results --state rejected', store)}'",
        )
    return list(rejected.values())


async def _count_rejected(store: Path) -> int:
    from parcelpost.cli.running import looking
    from parcelpost.storage import outbox

    async with looking(store) as database:
        return (await database.read(outbox.depth))[1]


async def _reset(store: Path, result_ids: list[str] | None) -> int:
    from parcelpost.cli.running import changing

    async with changing(store) as lpm:
        return await lpm.reset_rejected(result_ids)


def _document(one: OutboxEntry) -> dict[str, Any]:
    from msgspec import Raw, structs

    return structs.asdict(one) | {"data": None if one.data is None else Raw(one.data)}


def _delivery(one: OutboxEntry) -> Delivery:
    if one.synced_at:
        return Delivery.SYNCED
    return Delivery.REJECTED if one.rejected_at else Delivery.UNSYNCED


def _row(one: OutboxEntry) -> tuple[Cell, ...]:
    where = (one.platform, one.state, one.county, one.parcel_id)
    stored = moment(one.created_at)
    return (
        one.seq,
        one.task_id,
        one.status,
        _delivery(one),
        one.sync_attempts,
        *where,
        stored,
        one.last_error or one.error,
    )


def evidence_text(store: Path, path: str | None) -> str | None:
    """Where the file is; a path that a record brought itself may lead anywhere, and is shown as it is."""
    return str(store.parent / "data" / path) if path and path.startswith("evidence/") else path


def _lines(one: OutboxEntry, store: Path) -> Iterator[str]:
    from msgspec.json import format as indented

    yield from fields(
        (
            ("task", one.task_id),
            ("result", one.result_id),
            ("task ended", one.status),
            ("delivery", _delivery(one)),
            ("platform", one.platform),
            ("parcel", f"{one.parcel_id} in {one.county}, {one.state}"),
            ("scraped", moment(one.scraped_at)),
            ("took", f"{one.execution_time_ms:,} ms"),
            ("stored", moment(one.created_at)),
            ("attempts", one.sync_attempts),
            ("page delivered", moment(one.raw_synced_at)),
            ("delivered", moment(one.synced_at)),
            ("rejected", moment(one.rejected_at)),
            ("last answer", one.last_error),
            ("error", one.error),
            ("page", str(store.parent / "data" / one.html_path) if one.html_path else None),
            ("screenshot", evidence_text(store, one.screenshot_path)),
            ("log", evidence_text(store, one.log_path)),
            ("page's SHA-256", one.raw_sha256),
            ("sent as", one.idempotency_key),
        )
    )
    if one.data is not None:
        yield ""
        yield from (printable(line) for line in indented(one.data, indent=2).decode().splitlines())
