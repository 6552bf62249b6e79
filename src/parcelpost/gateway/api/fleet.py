"""Routes for workers, tasks and the overview, and the admin actions on them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from parcelpost.errors import InvalidInput
from parcelpost.gateway.api.params import (
    AddTasksParams,
    BeforeRow,
    OverviewParams,
    TaskListParams,
    first_page,
    read_cursor,
)
from parcelpost.gateway.api.responses import (
    AddedTasks,
    CommandReply,
    Queue,
    RefreshReply,
    ReleaseReply,
    RequeueReply,
    TaskDetail,
    Tasks,
    Workers,
    listed_task,
    task_detail,
)
from parcelpost.gateway.context import Context, Platforms
from parcelpost.gateway.errors import ApiError
from parcelpost.gateway.models import OFFLINE_AFTER, ParcelFilter, RefreshFilter
from parcelpost.gateway.overview import (
    Outcomes,
    Overview,
    gather_overview,
    last_day_outcomes,
    queue_entry,
    worker_response,
)
from parcelpost.gateway.routes import JSON, Role, Route
from parcelpost.gateway.uploads import parse_body, run_in_thread
from parcelpost.model import Priority
from parcelpost.places import county_slug, parcel_norm, state_or_text
from parcelpost.protocol.server import BadNewTask, NewTask, NewTasks, read_new_tasks

_FRESH_SECONDS = 1.0
_DAY_FRESH_SECONDS = 60.0


class OverviewCache:
    """Queries the ledger at most once a second for all readers, and for the last day's sums once a minute."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._lock = asyncio.Lock()
        self._made: dict[int, tuple[float, Overview]] = {}
        self._day_at = float("-inf")
        self._outcomes: Outcomes = {}

    async def overview(self, hours: int) -> Overview:
        async with self._lock:
            now = self._context.clock.monotonic()
            made_at, made = self._made.get(hours, (float("-inf"), None))
            if made is None or now - made_at >= _FRESH_SECONDS:
                made = await self._make(hours)
                self._made[hours] = (now, made)
            return made

    async def _make(self, hours: int) -> Overview:
        ledger, now = self._context.ledger, self._context.clock.now()
        if self._context.clock.monotonic() - self._day_at >= _DAY_FRESH_SECONDS:
            self._outcomes = await last_day_outcomes(ledger, now)
            self._day_at = self._context.clock.monotonic()
        return await gather_overview(ledger, now, hours, self._outcomes, self._context.version, self._context.freshness)


_MAX_TASKS = 10_000
_MAX_WORKERS = 1_000
_MAX_PROBLEMS_SHOWN = 5
_COMMANDS = ("pause", "resume", "drain", "stop", "sync-now")


class CommandRequest(Struct, frozen=True, forbid_unknown_fields=True):
    command: str
    """pause, resume, drain, stop, sync-now, or `platforms:a,b`."""
    worker_id: str = ""
    all: bool = False
    """Send it to all live workers. Either this or `worker_id` is required, to prevent accidents."""


class ReleaseRequest(Struct, frozen=True, forbid_unknown_fields=True):
    worker_id: str


class RequeueRequest(Struct, frozen=True, forbid_unknown_fields=True):
    states: list[Literal["failed", "dead", "not_found"]]
    platform: str = ""


class RefreshRequest(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All conditions must match; at least one is required."""

    platform: str = ""
    state: str = ""
    county: str = ""
    parcel_id: str = ""
    delinquent: bool | None = None
    older_than_hours: Annotated[float, Meta(gt=0, le=1_000_000)] | None = None
    """Only parcels last scraped longer ago than this."""


class FleetApi:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._ledger = context.ledger
        self._overview = OverviewCache(context)

    def routes(self) -> list[Route]:
        tasks: dict[str, Any] = {"body_type": list[NewTask], "body_media_types": (JSON, "application/x-ndjson")}
        large = self._context.settings.max_body_bytes
        return [
            Route("GET", "/v1/overview", self.overview, Role.READER),
            Route("GET", "/v1/workers", self.workers, Role.READER),
            Route("GET", "/v1/queue", self.queue, Role.READER),
            Route("GET", "/v1/tasks", self.tasks, Role.READER),
            Route("GET", "/v1/tasks/{task_id:path}", self.task, Role.READER, errors=(404,)),
            Route("POST", "/v1/commands", self.send_command, Role.ADMIN, errors=(404,)),
            Route("POST", "/v1/workers/release", self.release_worker_id, Role.ADMIN, errors=(404,)),
            Route("POST", "/v1/tasks", self.add_tasks, Role.ADMIN, max_body_bytes=large, **tasks),
            Route("POST", "/v1/tasks/requeue", self.requeue, Role.ADMIN),
            Route("POST", "/v1/refresh", self.refresh, Role.ADMIN),
        ]

    async def overview(self, query: OverviewParams) -> Overview:
        """Return everything the dashboard's first page shows."""
        return await self._overview.overview(int(query.hours))

    async def workers(self) -> Workers:
        """List the 1,000 workers that reported last, by ID."""
        now = self._context.clock.now()
        return Workers([worker_response(row, now) for row in await self._ledger.workers(_MAX_WORKERS)])

    async def queue(self) -> Queue:
        """Count tasks by platform, priority and state."""
        now = self._context.clock.now()
        return Queue([queue_entry(row, now) for row in await self._ledger.queue()])

    async def tasks(self, query: TaskListParams) -> Tasks:
        """List tasks that ended without a record, most recent first."""
        before = read_cursor(query.cursor, BeforeRow)
        rows = await self._ledger.ended_tasks(query.state, query.platform, query.limit + 1, before)
        page, more = first_page(rows, query.limit, lambda row: (row.ended_at, row.seq))
        return Tasks([listed_task(row) for row in page], more)

    async def task(self, task_id: str) -> TaskDetail:
        """Return a task with all its leases."""
        row = await self._ledger.task(task_id) if "\0" not in task_id else None
        if row is None:
            raise ApiError(404, "no such task")
        return task_detail(row)

    async def send_command(self, body: CommandRequest) -> CommandReply:
        """Send a command to a worker, or to all live workers. Each receives it with its next heartbeat."""
        now = self._context.clock.now()
        workers = await self._ledger.add_command(_command(body), _worker_id(body), now, now - OFFLINE_AFTER)
        if not workers and body.worker_id:
            raise ApiError(404, "no such worker, or it is offline")
        return CommandReply(workers)

    async def release_worker_id(self, body: ReleaseRequest) -> ReleaseReply:
        """Release a worker ID, so that the next token that uses it owns it."""
        token = await self._ledger.release_worker_id(_checked_text("worker_id", body.worker_id))
        if token is None:
            raise ApiError(404, "this worker ID does not belong to any token")
        return ReleaseReply(body.worker_id, token)

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
        if body == RefreshRequest():
            raise ApiError(
                422, "specify what to refresh: platform, state, county, parcel_id, delinquent or older_than_hours"
            )
        now = self._context.clock.now()
        hours = body.older_than_hours
        wanted = RefreshFilter(
            parcels=ParcelFilter(
                platform=_checked_text("platform", body.platform),
                state=state_or_text(_checked_text("state", body.state)),
                county=county_slug(body.county) or _checked_text("county", body.county),
                delinquent=body.delinquent,
            ),
            norm=parcel_norm(_checked_text("parcel_id", body.parcel_id)),
            scraped_before=None if hours is None else now - timedelta(hours=hours),
        )
        return RefreshReply(await self._ledger.refresh(wanted, Priority.NORMAL, now, _MAX_TASKS))

    async def requeue(self, body: RequeueRequest) -> RequeueReply:
        """Requeue ended tasks, with their attempts reset."""
        platform = _checked_text("platform", body.platform)
        return RequeueReply(await self._ledger.requeue(body.states, platform))


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


def _command(request: CommandRequest) -> str:
    verb, colon, names = request.command.partition(":")
    if request.command in _COMMANDS:
        return request.command
    if verb == "platforms" and colon and names.isprintable() and len(names) <= 900:
        return request.command
    raise ApiError(422, f"command: must be one of {', '.join(_COMMANDS)}, or platforms:a,b")


def _worker_id(request: CommandRequest) -> str:
    if bool(request.worker_id) == request.all:
        raise ApiError(422, 'specify either a worker_id, or "all": true for all live workers')
    return _checked_text("worker_id", request.worker_id)


def _checked_text(field: str, given: str) -> str:
    if "\0" in given:
        raise ApiError(422, f"{field}: contains a NUL character")
    return given
