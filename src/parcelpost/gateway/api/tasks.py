"""Routes for tasks: lists and failures, and what operators do with them: add, requeue, delete, refresh."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from parcelpost.errors import InvalidInput
from parcelpost.gateway.api.params import (
    AddTasksParams,
    ArtifactParams,
    BeforeTask,
    FailuresParams,
    TaskId,
    TaskListParams,
    checked_text,
    first_page,
    read_cursor,
    read_site,
)
from parcelpost.gateway.api.responses import (
    AddedTasks,
    DeleteReply,
    Failures,
    RefreshReply,
    RequeueReply,
    TaskDetail,
    Tasks,
    listed_task,
    task_detail,
)
from parcelpost.gateway.context import Context, Platforms
from parcelpost.gateway.downloads import NEVER_RENDERED, Download, shown_page
from parcelpost.gateway.errors import ApiError
from parcelpost.gateway.models import ParcelFilter, ParcelKey, RefreshFilter, TaskFilter, TaskRow, TaskState, Text
from parcelpost.gateway.routes import JSON, Role, Route
from parcelpost.gateway.uploads import parse_body, run_in_thread
from parcelpost.model import Priority
from parcelpost.object_store import RawPage
from parcelpost.places import county_slug, parcel_norm, parcel_number, state_or_text
from parcelpost.protocol.payloads import ArtifactKind
from parcelpost.protocol.server import BadNewTask, NewTask, NewTasks, read_new_tasks

_MAX_TASKS = 10_000
_MAX_WORKERS = 1_000
_PARCELS_AT_ONCE = 500
_MAX_PROBLEMS_SHOWN = 5

TaskIds = Annotated[list[TaskId], Meta(min_length=1, max_length=500)]

_STATES = Meta(max_length=len(TaskState))


class _Selection(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    task_ids: TaskIds | None = None
    platform: Text = ""
    site: Text = ""
    """State and county, such as FL/columbia."""
    reason: Text | None = None
    """As in /v1/failures."""
    dry_run: bool = False
    """Only count the tasks."""

    def filter(self, states: Sequence[str], default: Sequence[TaskState]) -> TaskFilter:
        """Raises ApiError (422) if nothing was selected."""
        if not states and not self.task_ids:
            raise ApiError(422, "select tasks by their states or by task_ids")
        return TaskFilter(
            states=[TaskState(name) for name in states] or default,
            task_ids=self.task_ids,
            platform=self.platform,
            site=read_site(self.site),
            reason=self.reason,
        )


class RequeueRequest(_Selection, frozen=True, kw_only=True):
    """All conditions must match; `states` or `task_ids` is required."""

    states: Annotated[list[Literal["failed", "dead", "not_found"]], _STATES] = msgspec.field(default_factory=list)


class DeleteRequest(_Selection, frozen=True, kw_only=True):
    """All conditions must match; `states` or `task_ids` is required. Leased tasks cannot be deleted."""

    states: Annotated[list[Literal["queued", "done", "failed", "dead", "not_found"]], _STATES] = msgspec.field(
        default_factory=list
    )


_WITHOUT_RECORD = (TaskState.FAILED, TaskState.DEAD, TaskState.NOT_FOUND)
_NOT_LEASED = (TaskState.QUEUED, TaskState.DONE, *_WITHOUT_RECORD)


class RefreshRequest(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All conditions must match; at least one is required."""

    task_ids: TaskIds | None = None
    """Only the parcels of these tasks."""
    task_states: Annotated[list[TaskState], _STATES] = msgspec.field(default_factory=list)
    """Only the parcels of tasks in these states: the newest 10,000 in each."""
    reason: Text | None = None
    """Only the parcels of tasks with this reason, as in /v1/failures; with `task_states`."""
    platform: str = ""
    state: str = ""
    county: str = ""
    parcel_id: str = ""
    delinquent: bool | None = None
    older_than_hours: Annotated[float, Meta(gt=0, le=1_000_000)] | None = None
    """Only parcels last scraped longer ago than this."""
    dry_run: bool = False
    """Only count the tasks that would be queued."""


class TasksApi:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._ledger = context.ledger

    def routes(self) -> list[Route]:
        tasks: dict[str, Any] = {"body_type": list[NewTask], "body_media_types": (JSON, "application/x-ndjson")}
        large = self._context.settings.max_body_bytes
        return [
            Route("GET", "/v1/tasks", self.tasks, Role.READER),
            Route("GET", "/v1/failures", self.failures, Role.READER),
            Route("GET", "/v1/tasks/{task_id:path}", self.task, Role.READER, errors=(404,)),
            Route("GET", "/v1/artifacts/screenshot", self.screenshot, Role.READER, errors=(404,), media_type="image/*"),
            Route("GET", "/v1/artifacts/page", self.page, Role.READER, errors=(404,), media_type="text/html"),
            Route("POST", "/v1/tasks", self.add_tasks, Role.ADMIN, max_body_bytes=large, **tasks),
            Route("POST", "/v1/tasks/requeue", self.requeue, Role.ADMIN),
            Route("POST", "/v1/tasks/delete", self.delete, Role.ADMIN),
            Route("POST", "/v1/refresh", self.refresh, Role.ADMIN),
        ]

    async def tasks(self, query: TaskListParams) -> Tasks:
        """List tasks in one state, with their total: those that ended, most recent first; others, last added first."""
        before = read_cursor(query.cursor, BeforeTask)
        wanted = query.filter()
        found = await self._ledger.tasks(wanted, query.limit + 1, before)
        page, more = first_page(found, query.limit, lambda row: (row.ended_at, row.seq))
        return Tasks([listed_task(row) for row in page], more, await self._ledger.count_tasks(wanted))

    async def failures(self, query: FailuresParams) -> Failures:
        """Group tasks that ended without a record by outcome, reason, platform and county, the largest groups first."""
        wanted = query.filter()
        groups = await self._ledger.failures(wanted, query.limit)
        return Failures(groups, await self._ledger.count_tasks(wanted))

    async def task(self, task_id: str) -> TaskDetail:
        """Return a task with all its leases, and paths of what its last failed attempt saw."""
        row = await self._ledger.task(task_id) if "\0" not in task_id else None
        if row is None:
            raise ApiError(404, "no such task")
        parcel, artifacts = await self._ledger.parcel(_parcel_key(row)), await self._ledger.artifacts(task_id)
        return task_detail(row, parcel, artifacts)

    async def screenshot(self, request: Request, query: ArtifactParams) -> Response:
        """Return the screenshot of a task's last failed attempt: a PNG, JPEG or WebP image."""
        image, media_type = await self._artifact(query.task_id, "screenshot")
        headers = {"Content-Length": str(image.size), "Content-Security-Policy": NEVER_RENDERED}
        return Download(image.chunks, self._context, _download_name(request), headers=headers, media_type=media_type)

    async def page(self, request: Request, query: ArtifactParams) -> Response:
        """Show the last page that a task's last failed attempt saw, without its scripts and what it loads."""
        page, _ = await self._artifact(query.task_id, "page")
        return shown_page(page, self._context, _download_name(request))

    async def _artifact(self, task_id: str, kind: ArtifactKind) -> tuple[RawPage, str]:
        stored = [artifact for artifact in await self._ledger.artifacts(task_id) if artifact.stored_at is not None]
        artifact = next((artifact for artifact in stored if artifact.kind == kind), None)
        file = await self._context.raw_store.open_artifact(task_id, kind) if artifact else None
        if artifact is None or file is None:
            raise ApiError(404, f"no {kind} of this task is stored")
        return file, artifact.media_type

    async def add_tasks(self, body: bytes, query: AddTasksParams) -> AddedTasks:
        """Queue up to 10,000 tasks, sent as a JSON array or as JSON lines.

        Invalid tasks are listed in the reply and the others are queued; 422 if all of them are invalid. Tasks for
        unknown platforms or counties are invalid unless `any_platform` is set.
        """
        new = await parse_body(read_new_tasks, body, _MAX_TASKS)
        platforms = self._context.platforms
        if platforms is not None and not query.any_platform:
            reported = await self._reported_platforms(new, platforms)
            new = await run_in_thread(_check_platforms, new, platforms, reported)
        if new.bad and not new.tasks:
            raise ApiError(422, _all_rejected(new.bad))
        added = await self._ledger.add_tasks([task for _, task in new.tasks], self._context.clock.now())
        return AddedTasks(new=added.new, known=added.known, bad=new.bad)

    async def _reported_platforms(self, new: NewTasks, platforms: Platforms) -> set[str]:
        """The platforms that workers have reported, if a new task is for a platform that is not known here."""
        if all(task.platform in platforms.names for _, task in new.tasks):
            return set()
        return {name for row in await self._ledger.workers(_MAX_WORKERS) for name in row.heartbeat.platforms}

    async def refresh(self, body: RefreshRequest) -> RefreshReply:
        """Queue tasks that scrape known parcels again, oldest scrape first, at most 10,000 at a time.

        Pages are requested from the site, never taken from a page cache. Parcels that are already being refreshed, and
        parcels known only from a list, are skipped.
        """
        if body in (RefreshRequest(), RefreshRequest(dry_run=True)):
            known = "platform, state, county, parcel_id, delinquent, older_than_hours, task_ids or task_states"
            raise ApiError(422, f"specify what to refresh: {known}")
        if body.reason is not None and not body.task_states:
            raise ApiError(422, "reason: needs task_states")
        now = self._context.clock.now()
        hours = body.older_than_hours
        wanted = RefreshFilter(
            parcels=ParcelFilter(
                platform=checked_text("platform", body.platform),
                state=state_or_text(checked_text("state", body.state)),
                county=county_slug(body.county) or checked_text("county", body.county),
                delinquent=body.delinquent,
            ),
            norm=parcel_number(checked_text("parcel_id", body.parcel_id)),
            scraped_before=None if hours is None else now - timedelta(hours=hours),
        )
        queued = 0
        is_of_tasks = body.task_ids is not None or body.task_states
        for each in await self._of_tasks(wanted, body) if is_of_tasks else [wanted]:
            if body.dry_run:
                queued += await self._ledger.refreshable(each)
            else:
                queued += await self._ledger.refresh(each, Priority.NORMAL, now, _MAX_TASKS - queued)
        return RefreshReply(min(queued, _MAX_TASKS))

    async def _of_tasks(self, wanted: RefreshFilter, body: RefreshRequest) -> list[RefreshFilter]:
        """Returns the filter for the parcels that these tasks are for: some of one county in each."""
        parcels = wanted.parcels
        site = read_site(f"{parcels.state}/{parcels.county}") if parcels.state and parcels.county else ""
        norms: defaultdict[tuple[str, str, str], set[str]] = defaultdict(set)
        for state in dict.fromkeys(body.task_states) or TaskState:
            tasks = TaskFilter(
                states=[state], task_ids=body.task_ids, platform=parcels.platform, site=site, reason=body.reason
            )
            for row in await self._ledger.tasks(tasks, _MAX_TASKS):
                key = _parcel_key(row)
                if key.norm:
                    norms[row.task.platform, key.state, key.county].add(key.norm)
        return [
            msgspec.structs.replace(
                wanted,
                parcels=msgspec.structs.replace(parcels, platform=platform, state=state, county=county),
                norms=sorted(of_county)[start : start + _PARCELS_AT_ONCE],
            )
            for (platform, state, county), of_county in sorted(norms.items())
            if parcels.platform in ("", platform) and parcels.state in ("", state) and parcels.county in ("", county)
            for start in range(0, len(of_county), _PARCELS_AT_ONCE)
        ]

    async def requeue(self, body: RequeueRequest) -> RequeueReply:
        """Requeue tasks that ended without a record, with their attempts reset."""
        wanted = body.filter(body.states, _WITHOUT_RECORD)
        change = self._ledger.count_tasks if body.dry_run else self._ledger.requeue
        return RequeueReply(await change(wanted))

    async def delete(self, body: DeleteRequest) -> DeleteReply:
        """Delete tasks that no worker holds. Their results stay."""
        wanted = body.filter(body.states, _NOT_LEASED)
        change = self._ledger.count_tasks if body.dry_run else self._ledger.delete_tasks
        return DeleteReply(await change(wanted))


def _download_name(request: Request) -> str:
    return f"GET {request.url.path}"


def _parcel_key(row: TaskRow) -> ParcelKey:
    target = row.task.target
    county = county_slug(target.county) or target.county
    return ParcelKey(state_or_text(target.state), county, parcel_norm(target.parcel_id))


def _check_platforms(new: NewTasks, platforms: Platforms, reported: Collection[str]) -> NewTasks:
    """Moves tasks for unknown platforms and counties to the bad ones."""
    tasks, bad = [], list(new.bad)
    for position, task in new.tasks:
        try:
            tasks.append((position, platforms.checked(task, reported)))
        except InvalidInput as error:
            bad.append(BadNewTask(position=position, task_id=task.task_id, problem=f"{error}; {error.hint}"))
    return NewTasks(tasks=tasks, bad=sorted(bad, key=lambda task: task.position))


def _all_rejected(bad: Sequence[BadNewTask]) -> str:
    shown = [f"task {task.position} {task.task_id!r}: {task.problem}" for task in bad[:_MAX_PROBLEMS_SHOWN]]
    more = [f"and {len(bad) - _MAX_PROBLEMS_SHOWN:,} more"] if len(bad) > _MAX_PROBLEMS_SHOWN else []
    return "no task was queued. " + ". ".join([*shown, *more])
