"""Routes for workers, tasks and the overview, and the admin actions on them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Annotated, Literal, TypeVar

import msgspec
from fastapi import APIRouter, Depends, Query, Request
from msgspec import Struct
from starlette.responses import Response

from parcelpost.errors import InvalidInput
from parcelpost.gateway.api.params import TaskListParams, before_row, task_cursor
from parcelpost.gateway.api.responses import (
    AddedTasks,
    BadTask,
    CommandReply,
    Overview,
    Queue,
    ReleaseReply,
    RequeueReply,
    TaskDetail,
    Tasks,
    Workers,
    activity_series,
    count_outcomes,
    json_response,
    listed_task,
    platform_health,
    queue_entry,
    sync_summary,
    task_detail,
    worker_response,
)
from parcelpost.gateway.auth import Access
from parcelpost.gateway.context import Context, Platforms
from parcelpost.gateway.errors import ApiError
from parcelpost.gateway.models import OFFLINE_AFTER
from parcelpost.gateway.openapi import BODY_ERRORS, request_body, responses
from parcelpost.gateway.uploads import parse_body, read_body, run_in_thread
from parcelpost.protocol.server import BadNewTask, NewTask, NewTasks, read_new_tasks

BUCKET_SECONDS = {1: 60, 3: 120, 6: 300, 24: 900}
"""By the hours that are shown."""

_FRESH_SECONDS = 1.0
_DAY_FRESH_SECONDS = 60.0
_HIDDEN_AFTER = timedelta(days=7)
_MOST_SHOWN_WORKERS = 500


class OverviewCache:
    """Asks the ledger at most once a second for all who look, and for the last day's sums once a minute."""

    def __init__(self, parts: Context) -> None:
        self._parts = parts
        self._lock = asyncio.Lock()
        self._made: dict[int, tuple[float, Overview]] = {}
        self._day_at = float("-inf")
        self._outcomes: Mapping[str, Counter[str]] = {}

    async def overview(self, hours: int) -> Overview:
        async with self._lock:
            now = self._parts.clock.monotonic()
            made_at, made = self._made.get(hours, (float("-inf"), None))
            if made is None or now - made_at >= _FRESH_SECONDS:
                made = await self._make(hours)
                self._made[hours] = (now, made)
            return made

    async def _make(self, hours: int) -> Overview:
        ledger, now = self._parts.ledger, self._parts.clock.now()
        bucket = BUCKET_SECONDS[hours]
        buckets = hours * 3_600 // bucket
        last = int(now.timestamp() // bucket) * bucket
        since = now.fromtimestamp(last - (buckets - 1) * bucket, now.tzinfo)
        await self._sum_up_the_day()
        rows = await ledger.workers(_MOST_SHOWN_WORKERS)
        workers = [worker_response(row, now) for row in rows if now - row.last_seen_at <= _HIDDEN_AFTER]
        return Overview(
            now=now,
            version=self._parts.version,
            counts=await ledger.counts(),
            workers=workers,
            queue=[queue_entry(row, now) for row in await ledger.queue()],
            activity=activity_series(await ledger.activity(since), since, buckets, bucket),
            sync=sync_summary(workers),
            platforms=platform_health(self._outcomes, workers),
        )

    async def _sum_up_the_day(self) -> None:
        if self._parts.clock.monotonic() - self._day_at < _DAY_FRESH_SECONDS:
            return
        since = self._parts.clock.now() - timedelta(days=1)
        self._outcomes = count_outcomes(await self._parts.ledger.activity(since))
        self._day_at = self._parts.clock.monotonic()


T = TypeVar("T")

_MOST_TASKS = 10_000
_MOST_WORKERS = 1_000
_MOST_PROBLEMS_SHOWN = 5
_MOST_SMALL_BYTES = 64 * 1024
_ADMIN_BODY_ERRORS = (400, *BODY_ERRORS)
_COMMANDS = ("pause", "resume", "drain", "stop", "sync-now")


class CommandRequest(Struct, frozen=True, forbid_unknown_fields=True):
    command: str
    """pause, resume, drain, stop, sync-now, or `platforms:a,b`."""
    worker_id: str = ""
    all: bool = False
    """All workers that are alive. One of the two must be given: nobody stops a fleet by leaving something out."""


class ReleaseRequest(Struct, frozen=True, forbid_unknown_fields=True):
    worker_id: str


class RequeueRequest(Struct, frozen=True, forbid_unknown_fields=True):
    states: list[Literal["failed", "dead", "not_found"]]
    platform: str = ""


def add_read_routes(routes: APIRouter, parts: Context) -> None:
    ledger, desk = parts.ledger, OverviewCache(parts)

    @routes.get("/overview", responses=responses(Overview))
    async def overview(hours: Literal["1", "3", "6", "24"] = "3") -> Response:
        """Everything the dashboard's live part shows, with the activity of the last hours."""
        return json_response(await desk.overview(int(hours)))

    @routes.get("/workers", responses=responses(Workers))
    async def workers() -> Response:
        """The workers that reported last, up to 1,000, by id."""
        now = parts.clock.now()
        return json_response(Workers([worker_response(row, now) for row in await ledger.workers(_MOST_WORKERS)]))

    @routes.get("/queue", responses=responses(Queue))
    async def queue() -> Response:
        """How many tasks of each platform and priority are in each state."""
        now = parts.clock.now()
        return json_response(Queue([queue_entry(row, now) for row in await ledger.queue()]))

    @routes.get("/tasks", responses=responses(Tasks))
    async def tasks(asked: Annotated[TaskListParams, Query()]) -> Response:
        """Tasks that ended without a record, the last one first, a page at a time."""
        found = await ledger.ended_tasks(asked.state, asked.platform, asked.limit + 1, before_row(asked.cursor))
        page = found[: asked.limit]
        more = task_cursor(page[-1]) if len(found) > asked.limit else None
        return json_response(Tasks([listed_task(one.row) for one in page], more))

    @routes.get("/tasks/{task_id:path}", responses=responses(TaskDetail, 404))
    async def task(task_id: str) -> Response:
        """A task, and who held it when."""
        row = await ledger.task(task_id) if "\0" not in task_id else None
        if row is None:
            raise ApiError(404, "no such task is known here")
        return json_response(task_detail(row))


def add_admin_routes(routes: APIRouter, parts: Context, access: Access) -> None:
    ledger = parts.ledger

    async def admin(request: Request) -> None:
        access.admin(request)

    only_admins = [Depends(admin)]

    @routes.post(
        "/commands",
        dependencies=only_admins,
        responses=responses(CommandReply, 404, *_ADMIN_BODY_ERRORS),
        openapi_extra=request_body(CommandRequest),
    )
    async def command(request: Request) -> Response:
        """Waits for the worker's next heartbeat, or for that of each worker that is alive."""
        order = _read_request(await read_body(request, _MOST_SMALL_BYTES), CommandRequest)
        now = parts.clock.now()
        told = await ledger.order(_command(order), _worker_id(order), now, now - OFFLINE_AFTER)
        if not told and order.worker_id:
            raise ApiError(404, "no such worker is alive")
        return json_response(CommandReply(told))

    @routes.post(
        "/workers/release",
        dependencies=only_admins,
        responses=responses(ReleaseReply, 404, *_ADMIN_BODY_ERRORS),
        openapi_extra=request_body(ReleaseRequest),
    )
    async def release(request: Request) -> Response:
        """Frees a worker id: it belongs to the next token that uses it."""
        worker_id = _read_request(await read_body(request, _MOST_SMALL_BYTES), ReleaseRequest).worker_id
        token = await ledger.release_worker_id(_checked_text("worker_id", worker_id))
        if token is None:
            raise ApiError(404, "no token uses that worker id")
        return json_response(ReleaseReply(worker_id, token))

    @routes.post(
        "/tasks",
        dependencies=only_admins,
        responses=responses(AddedTasks, *_ADMIN_BODY_ERRORS),
        openapi_extra=request_body(list[NewTask], "application/x-ndjson"),
    )
    async def add(request: Request, any_platform: bool = False) -> Response:
        """Tasks as a JSON array or as JSONL, up to 10,000. Bad ones are listed, the rest is queued; 422 where all are
        bad. A task of a platform or county that nobody knows is bad, unless `any_platform` is set.
        """
        body = await read_body(request, parts.settings.max_body_bytes)
        orders = await parse_body(_read_tasks, body)
        if parts.platforms is not None and not any_platform:
            orders = await run_in_thread(
                _check_platforms, orders, parts.platforms, await reported(orders, parts.platforms)
            )
        if orders.bad and not orders.tasks:
            raise ApiError(422, _all_rejected(orders.bad))
        added = await ledger.add_tasks([task for _, task in orders.tasks], parts.clock.now())
        bad = [BadTask(position=one.position, task_id=one.task_id, problem=one.problem) for one in orders.bad]
        return json_response(AddedTasks(new=added.new, known=added.known, bad=bad))

    async def reported(orders: NewTasks, platforms: Platforms) -> set[str]:
        """The platforms that workers have reported, if any of these orders may need to know them."""
        if all(task.platform in platforms.names for _, task in orders.tasks):
            return set()
        return {name for row in await ledger.workers(_MOST_WORKERS) for name in row.beat.platforms}

    @routes.post(
        "/tasks/requeue",
        dependencies=only_admins,
        responses=responses(RequeueReply, *_ADMIN_BODY_ERRORS),
        openapi_extra=request_body(RequeueRequest),
    )
    async def requeue(request: Request) -> Response:
        """Tasks that failed, died or were not found are queued again, their attempts forgotten."""
        asked = _read_request(await read_body(request, _MOST_SMALL_BYTES), RequeueRequest)
        platform = _checked_text("platform", asked.platform)
        return json_response(RequeueReply(await ledger.requeue(asked.states, platform, parts.clock.now())))


def _read_request(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except (ValueError, RecursionError) as error:
        raise ApiError(422, f"the body: {error}") from None


def _read_tasks(body: bytes) -> NewTasks:
    try:
        return read_new_tasks(body, _MOST_TASKS)
    except InvalidInput as error:
        raise ApiError(422, str(error)) from None


def _check_platforms(orders: NewTasks, platforms: Platforms, reported: Collection[str]) -> NewTasks:
    """The same, with tasks of unknown platforms and counties among the bad ones."""
    tasks, bad = [], list(orders.bad)
    for position, task in orders.tasks:
        try:
            tasks.append((position, platforms.checked(task, reported)))
        except InvalidInput as error:
            bad.append(BadNewTask(position=position, task_id=task.task_id, problem=f"{error}; {error.hint}"))
    return NewTasks(tasks=tasks, bad=sorted(bad, key=lambda one: one.position))


def _all_rejected(bad: Sequence[BadNewTask]) -> str:
    told = [f"task {one.position} {one.task_id!r}: {one.problem}" for one in bad[:_MOST_PROBLEMS_SHOWN]]
    more = [f"and {len(bad) - _MOST_PROBLEMS_SHOWN:,} more"] if len(bad) > _MOST_PROBLEMS_SHOWN else []
    return "no task can be queued. " + ". ".join([*told, *more])


def _command(order: CommandRequest) -> str:
    verb, colon, names = order.command.partition(":")
    if order.command in _COMMANDS:
        return order.command
    if verb == "platforms" and colon and names.isprintable() and len(names) <= 900:
        return order.command
    raise ApiError(422, f"command: one of {', '.join(_COMMANDS)} or platforms:a,b")


def _worker_id(order: CommandRequest) -> str:
    if bool(order.worker_id) == order.all:
        raise ApiError(422, 'which workers? give a worker_id, or "all": true for all that are alive')
    return _checked_text("worker_id", order.worker_id)


def _checked_text(field: str, given: str) -> str:
    """As a ledger takes it."""
    if "\0" in given:
        raise ApiError(422, f"{field}: holds a NUL character")
    return given
