"""What the store knows of one task, from its arrival to its receipt."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from msgspec import Struct

from parcelpost.cli.checking import page_sha256
from parcelpost.cli.output import Cell, size
from parcelpost.cli.running import looking
from parcelpost.errors import InvalidInput
from parcelpost.model import OutboxEntry, TaskInfo
from parcelpost.storage import artifacts, outbox, results, tasks
from parcelpost.storage.artifacts import StoredArtifacts
from parcelpost.storage.raw_files import inside, raw_folder


class Step(Struct, frozen=True):
    at: datetime
    what: str


class Page(Struct, frozen=True, kw_only=True):
    """The raw file of a result."""

    path: str
    bytes: int
    """On disk, packed."""
    state: str
    """whole, missing or damaged."""


class Story(Struct, frozen=True, kw_only=True):
    task: TaskInfo
    result: OutboxEntry | None
    artifacts: StoredArtifacts | None
    page: Page | None
    children: int
    """Tasks that stand for further records of its page."""
    history: list[Step]


async def story(store: Path, task_id: str, hint: str) -> Story:
    """Raises InvalidInput where there is no such task."""
    async with looking(store) as database:
        task = await database.read(tasks.get, task_id)
        if task is None:
            raise InvalidInput(f"there is no task {task_id!r}", hint=hint)
        result = await database.read(outbox.get, task_id)
        kept = await database.read(artifacts.get, task_id)
        children = await database.read(results.count_children, task_id)
    page = _page(store, result) if result else None
    steps = sorted(_steps(task, result, kept), key=lambda step: step.at)
    return Story(task=task, result=result, artifacts=kept, page=page, children=children, history=steps)


def page_facts(page: Page | None) -> Iterator[tuple[str, Cell]]:
    if page is not None:
        yield "page", page.path
        yield "page is", f"{page.state}{f', {size(page.bytes)}' if page.bytes else ''}"


def artifact_text(store: Path, path: str | None) -> str | None:
    """Where the file is; a path that a record brought itself may lead anywhere, and is shown as it is."""
    return str(raw_folder(store) / path) if path and path.startswith("artifacts/") else path


def _page(store: Path, entry: OutboxEntry) -> Page | None:
    if entry.html_path is None:
        return None
    path = inside(raw_folder(store), entry.html_path)
    if not path.is_file():
        return Page(path=str(path), bytes=0, state="missing")
    state = "whole" if page_sha256(path) == entry.raw_sha256 else "damaged"
    return Page(path=str(path), bytes=path.stat().st_size, state=state)


def _steps(task: TaskInfo, result: OutboxEntry | None, kept: StoredArtifacts | None) -> Iterator[Step]:
    known = [(task.created_at, f"stored, from {task.task.source}"), (task.started_at, "last started")]
    if kept:
        known.append((kept.created_at, "an attempt in a browser failed"))
    if task.available_at:
        known.append((task.available_at, f"next try, after {task.retries:,} that failed"))
    if task.completed_at:
        known.append((task.completed_at, f"ended: {task.status.label}{f', {task.error_text}' if task.error else ''}"))
    if result:
        known += [
            (result.scraped_at if result.data is not None else None, "page scraped"),
            (result.created_at, "record stored" if result.data is not None else "report stored"),
            (result.raw_synced_at, "page delivered"),
            (result.synced_at, "delivered"),
            (result.rejected_at, f"rejected: {result.last_error_text or 'no reason was given'}"),
        ]
    return (Step(at, what) for at, what in known if at is not None)
