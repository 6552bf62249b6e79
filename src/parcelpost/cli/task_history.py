"""The history of one task, from its creation to the delivery of its result."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from msgspec import Struct

from parcelpost.cli.context import open_for_reading
from parcelpost.cli.health.integrity import page_sha256
from parcelpost.cli.options import StoreContext
from parcelpost.cli.output import Cell, count, size
from parcelpost.errors import InvalidInput
from parcelpost.model import OutboxEntry, TaskInfo
from parcelpost.storage import artifacts, outbox, results, tasks
from parcelpost.storage.artifacts import StoredArtifacts
from parcelpost.storage.raw_files import inside, raw_folder


class HistoryStep(Struct, frozen=True):
    at: datetime
    what: str


class RawPage(Struct, frozen=True, kw_only=True):
    """The raw file of a result."""

    path: str
    bytes: int
    """Compressed size on disk."""
    state: str
    """whole, missing or damaged."""


class TaskHistory(Struct, frozen=True, kw_only=True):
    task: TaskInfo
    result: OutboxEntry | None
    artifacts: StoredArtifacts | None
    page: RawPage | None
    children: int
    """Child tasks, one for each further record on its page."""
    history: list[HistoryStep]


async def task_history(store: StoreContext, task_id: str, hint: str) -> TaskHistory:
    """Raises InvalidInput if there is no such task."""
    async with open_for_reading(store) as database:
        task = await database.read(tasks.get, task_id)
        if task is None:
            raise InvalidInput(f"there is no task {task_id!r}", hint=hint)
        result = await database.read(outbox.get, task_id)
        stored_artifacts = await database.read(artifacts.get, task_id)
        children = await database.read(results.count_children, task_id)
    page = _raw_page(store, result) if result else None
    steps = sorted(_steps(task, result, stored_artifacts), key=lambda step: step.at)
    return TaskHistory(
        task=task, result=result, artifacts=stored_artifacts, page=page, children=children, history=steps
    )


def page_facts(page: RawPage | None) -> Iterator[tuple[str, Cell]]:
    if page is not None:
        yield "page", page.path
        yield "page is", f"{page.state}{f', {size(page.bytes)}' if page.bytes else ''}"


def artifact_text(store: StoreContext, path: str | None) -> str | None:
    """The full path of a stored artifact; a path from the record itself is untrusted and returned unchanged."""
    return str(raw_folder(store.path) / path) if path and path.startswith("artifacts/") else path


def _raw_page(store: StoreContext, entry: OutboxEntry) -> RawPage | None:
    if entry.html_path is None:
        return None
    path = inside(raw_folder(store.path), entry.html_path)
    if not path.is_file():
        return RawPage(path=str(path), bytes=0, state="missing")
    state = "whole" if page_sha256(path) == entry.raw_sha256 else "damaged"
    return RawPage(path=str(path), bytes=path.stat().st_size, state=state)


def _steps(task: TaskInfo, result: OutboxEntry | None, failure: StoredArtifacts | None) -> Iterator[HistoryStep]:
    known = [(task.created_at, f"stored, from {task.task.source}"), (task.started_at, "last started")]
    if failure:
        known.append((failure.created_at, "browser attempt failed"))
    if task.available_at:
        known.append((task.available_at, f"next retry, after {count(task.retries, 'failed attempt')}"))
    if task.completed_at:
        known.append((task.completed_at, f"ended: {task.status.label}{f', {task.error_text}' if task.error else ''}"))
    if result:
        known += [
            (result.scraped_at if result.data is not None else None, "page scraped"),
            (result.created_at, "record stored" if result.data is not None else "report stored"),
            (result.raw_synced_at, "page delivered"),
            (result.synced_at, "delivered"),
            (result.rejected_at, f"rejected: {result.last_error_text or 'no reason given'}"),
        ]
    return (HistoryStep(at, what) for at, what in known if at is not None)
