"""The fleet and its queue: what is to be seen, and an operator's word to it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Annotated, Literal, TypeVar

import msgspec
from fastapi import APIRouter, Depends, Query, Request
from msgspec import Struct
from starlette.responses import Response

from parcelpost.errors import InvalidInput
from parcelpost.gateway.access import Access
from parcelpost.gateway.bodies import in_thread, parse, read_body
from parcelpost.gateway.declared import BODIES
from parcelpost.gateway.parts import Parts, Platforms
from parcelpost.gateway.read_api.answers import (
    AddedTasks,
    BadTask,
    OneTask,
    Ordered,
    Queue,
    Released,
    Requeued,
    Tasks,
    json_answer,
    listed_task,
    queue_answer,
    task_answer,
)
from parcelpost.gateway.read_api.asking import ListedTasks, before_row, task_cursor
from parcelpost.gateway.read_api.declaring import answers, body_of
from parcelpost.gateway.read_api.fleet_answers import Overview, Workers, worker_answer
from parcelpost.gateway.read_api.overview import OverviewDesk
from parcelpost.gateway.refusals import Refusal
from parcelpost.gateway.words import AWAY_AFTER
from parcelpost.protocol.server import BadNewTask, NewTask, NewTasks, read_new_tasks

T = TypeVar("T")

_MOST_TASKS = 10_000
_MOST_WORKERS = 1_000
_MOST_TOLD = 5
_MOST_SMALL_BYTES = 64 * 1024
_BODY = (400, *BODIES)
_COMMANDS = ("pause", "resume", "drain", "stop", "sync-now")


class Order(Struct, frozen=True, forbid_unknown_fields=True):
    command: str
    """pause, resume, drain, stop, sync-now, or `platforms:a,b`."""
    worker_id: str = ""
    all: bool = False
    """All workers that are alive. One of the two must be given: nobody stops a fleet by leaving something out."""


class Release(Struct, frozen=True, forbid_unknown_fields=True):
    worker_id: str


class Requeue(Struct, frozen=True, forbid_unknown_fields=True):
    states: list[Literal["failed", "dead", "not_found"]]
    platform: str = ""


def add_views(routes: APIRouter, parts: Parts) -> None:
    ledger, desk = parts.ledger, OverviewDesk(parts)

    @routes.get("/overview", responses=answers(Overview))
    async def overview(hours: Literal["1", "3", "6", "24"] = "3") -> Response:
        """Everything the dashboard's live part shows, with the activity of the last hours."""
        return json_answer(await desk.overview(int(hours)))

    @routes.get("/workers", responses=answers(Workers))
    async def workers() -> Response:
        """The workers that reported last, up to 1,000, by id."""
        now = parts.clock.now()
        return json_answer(Workers([worker_answer(row, now) for row in await ledger.workers(_MOST_WORKERS)]))

    @routes.get("/queue", responses=answers(Queue))
    async def queue() -> Response:
        """How many tasks of each platform and priority are in each state."""
        now = parts.clock.now()
        return json_answer(Queue([queue_answer(row, now) for row in await ledger.queue()]))

    @routes.get("/tasks", responses=answers(Tasks))
    async def tasks(asked: Annotated[ListedTasks, Query()]) -> Response:
        """Tasks that ended without a record, the last one first, a page at a time."""
        found = await ledger.ended_tasks(asked.state, asked.platform, asked.limit + 1, before_row(asked.cursor))
        page = found[: asked.limit]
        more = task_cursor(page[-1]) if len(found) > asked.limit else None
        return json_answer(Tasks([listed_task(one.row) for one in page], more))

    @routes.get("/tasks/{task_id:path}", responses=answers(OneTask, 404))
    async def task(task_id: str) -> Response:
        """A task, and who held it when."""
        row = await ledger.task(task_id) if "\0" not in task_id else None
        if row is None:
            raise Refusal(404, "no such task is known here")
        return json_answer(task_answer(row))


def add_orders(routes: APIRouter, parts: Parts, access: Access) -> None:
    ledger, patience = parts.ledger, parts.patience

    async def admin(request: Request) -> None:
        access.admin(request)

    only_admins = [Depends(admin)]

    @routes.post(
        "/commands",
        dependencies=only_admins,
        responses=answers(Ordered, 404, *_BODY),
        openapi_extra=body_of(Order),
    )
    async def command(request: Request) -> Response:
        """Waits for the worker's next heartbeat, or for that of each worker that is alive."""
        order = _read(await read_body(request, _MOST_SMALL_BYTES, patience), Order)
        now = parts.clock.now()
        told = await ledger.order(_command(order), _worker_id(order), now, now - AWAY_AFTER)
        if not told and order.worker_id:
            raise Refusal(404, "no such worker is alive")
        return json_answer(Ordered(told))

    @routes.post(
        "/workers/release",
        dependencies=only_admins,
        responses=answers(Released, 404, *_BODY),
        openapi_extra=body_of(Release),
    )
    async def release(request: Request) -> Response:
        """Frees a worker id: it belongs to the next token that uses it."""
        worker_id = _read(await read_body(request, _MOST_SMALL_BYTES, patience), Release).worker_id
        token = await ledger.release_worker_id(_text("worker_id", worker_id))
        if token is None:
            raise Refusal(404, "no token uses that worker id")
        return json_answer(Released(worker_id, token))

    @routes.post(
        "/tasks",
        dependencies=only_admins,
        responses=answers(AddedTasks, *_BODY),
        openapi_extra=body_of(list[NewTask], "application/x-ndjson"),
    )
    async def add(request: Request, any_platform: bool = False) -> Response:
        """Tasks as a JSON array or as JSONL, up to 10,000. Bad ones are listed, the rest is queued; 422 where all are
        bad. A task of a platform or county that nobody knows is bad, unless `any_platform` is set.
        """
        body = await read_body(request, parts.settings.max_body_bytes, patience)
        orders = await parse(_orders, body)
        if parts.platforms is not None and not any_platform:
            orders = await in_thread(_known, orders, parts.platforms, await reported(orders, parts.platforms))
        if orders.bad and not orders.tasks:
            raise Refusal(422, _none_is_good(orders.bad))
        added = await ledger.add_tasks([task for _, task in orders.tasks], parts.clock.now())
        bad = [BadTask(position=one.position, task_id=one.task_id, problem=one.problem) for one in orders.bad]
        return json_answer(AddedTasks(new=added.new, known=added.known, bad=bad))

    async def reported(orders: NewTasks, platforms: Platforms) -> set[str]:
        """The platforms that workers have reported, if any of these orders may need to know them."""
        if all(task.platform in platforms.names for _, task in orders.tasks):
            return set()
        return {name for row in await ledger.workers(_MOST_WORKERS) for name in row.beat.platforms}

    @routes.post(
        "/tasks/requeue",
        dependencies=only_admins,
        responses=answers(Requeued, *_BODY),
        openapi_extra=body_of(Requeue),
    )
    async def requeue(request: Request) -> Response:
        """Tasks that failed, died or were not found are queued again, their attempts forgotten."""
        asked = _read(await read_body(request, _MOST_SMALL_BYTES, patience), Requeue)
        platform = _text("platform", asked.platform)
        return json_answer(Requeued(await ledger.requeue(asked.states, platform, parts.clock.now())))


def _read(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except (ValueError, RecursionError) as error:
        raise Refusal(422, f"the body: {error}") from None


def _orders(body: bytes) -> NewTasks:
    try:
        return read_new_tasks(body, _MOST_TASKS)
    except InvalidInput as error:
        raise Refusal(422, str(error)) from None


def _known(orders: NewTasks, platforms: Platforms, reported: Collection[str]) -> NewTasks:
    """The same, with tasks of unknown platforms and counties among the bad ones."""
    tasks, bad = [], list(orders.bad)
    for position, task in orders.tasks:
        try:
            tasks.append((position, platforms.checked(task, reported)))
        except InvalidInput as error:
            bad.append(BadNewTask(position=position, task_id=task.task_id, problem=f"{error}; {error.hint}"))
    return NewTasks(tasks=tasks, bad=sorted(bad, key=lambda one: one.position))


def _none_is_good(bad: Sequence[BadNewTask]) -> str:
    told = [f"task {one.position} {one.task_id!r}: {one.problem}" for one in bad[:_MOST_TOLD]]
    more = [f"and {len(bad) - _MOST_TOLD:,} more"] if len(bad) > _MOST_TOLD else []
    return "no task can be queued. " + ". ".join([*told, *more])


def _command(order: Order) -> str:
    verb, colon, names = order.command.partition(":")
    if order.command in _COMMANDS:
        return order.command
    if verb == "platforms" and colon and names.isprintable() and len(names) <= 900:
        return order.command
    raise Refusal(422, f"command: one of {', '.join(_COMMANDS)} or platforms:a,b")


def _worker_id(order: Order) -> str:
    if bool(order.worker_id) == order.all:
        raise Refusal(422, 'which workers? give a worker_id, or "all": true for all that are alive')
    return _text("worker_id", order.worker_id)


def _text(field: str, given: str) -> str:
    """As a ledger takes it."""
    if "\0" in given:
        raise Refusal(422, f"{field}: holds a NUL character")
    return given
