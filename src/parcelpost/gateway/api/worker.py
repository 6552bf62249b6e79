"""The routes that workers use."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

import msgspec
from fastapi import APIRouter
from msgspec import Struct
from msgspec.structs import asdict
from starlette.requests import Request
from starlette.responses import Response

from parcelpost.errors import InvalidInput
from parcelpost.events import WorkerJoined
from parcelpost.gateway import uploads
from parcelpost.gateway.auth import Access, WorkerIds
from parcelpost.gateway.context import Context
from parcelpost.gateway.errors import ApiError
from parcelpost.gateway.ingest import ingest_results
from parcelpost.gateway.limits import RateLimiter
from parcelpost.gateway.models import TaskState, WorkerHeartbeat
from parcelpost.gateway.openapi import (
    BODY_ERRORS,
    WORKER_TOKEN,
    PlainRoute,
    json_body,
    query_param,
    schema_of,
    worker_route,
)
from parcelpost.gateway.uploads import parse_body, read_body
from parcelpost.model import Signal
from parcelpost.protocol import payloads, server
from parcelpost.protocol.payloads import Completion, Failure, Heartbeat, ParcelResult, RawMetadata

_NAME_SCHEMA = {"type": "string", "minLength": 1, "maxLength": 500}


_RESULT_SCHEMA = schema_of(ParcelResult)
_RESULT_SCHEMA = {
    **_RESULT_SCHEMA,
    "properties": {
        **_RESULT_SCHEMA["properties"],
        "data": {"type": "object"},
        "raw_html_hash": {"type": ["string", "null"], "pattern": "^[0-9a-fA-F]{64}$"},
    },
}
_SAMPLE_SCHEMA = {
    "type": "object",
    "properties": {"timestamp": {"type": "string", "format": "date-time"}},
    "additionalProperties": {"type": ["number", "null"]},
    "required": ["timestamp"],
}
_HEARTBEAT_SCHEMA = {**schema_of(Heartbeat), "required": []}

_WORK_SUMMARY = "Hand out tasks"
_WORK_PARAMS = (
    query_param("capacity", {"type": "integer", "default": 1}, "How many at most; taken as 1 to 100"),
    query_param(
        "platforms", {"type": "array", "items": _NAME_SCHEMA, "minItems": 1}, "Once for each platform", required=True
    ),
)
_SELECTORS_PARAMS = (
    query_param("platform", {"type": "string", "maxLength": 512}, "Of this platform; without it of all"),
)
_TASK_PARAMS = ({"in": "path", "name": "task_id", "schema": _NAME_SCHEMA, "required": True},)


def _array_body(schema: dict[str, Any]) -> dict[str, Any]:
    return {"required": True, "content": {"application/json": {"schema": {"type": "array", "items": schema}}}}


_RESULTS_BODY = _array_body(_RESULT_SCHEMA)
_SIGNALS_BODY = _array_body(schema_of(Signal))
_SAMPLES_BODY = _array_body(_SAMPLE_SCHEMA)
_HEARTBEAT_BODY = {"required": True, "content": {"application/json": {"schema": _HEARTBEAT_SCHEMA}}}
_FAILURE_BODY = json_body(Failure, required=False)
_COMPLETION_BODY = json_body(Completion, required=False)
_RAW_FILE_BODY = {
    "required": True,
    "content": {
        "multipart/form-data": {
            "schema": {
                "type": "object",
                "properties": {
                    "file": {"type": "string", "format": "binary"},
                    "metadata": {"type": "string", "contentMediaType": "application/json"},
                },
                "required": ["file", "metadata"],
                "description": f"metadata: {', '.join(RawMetadata.__struct_fields__)}",
            }
        }
    },
}


T = TypeVar("T")

_MOST_TASKS = 100
_MOST_PLATFORMS = 500
_MOST_SELECTORS = 10_000
_SELECTORS_WINDOW = timedelta(days=30)
_MOST_SMALL_BYTES = 64 * 1024
_MOST_HEARTBEAT_BYTES = 1024 * 1024
_NUMBER = re.compile(r"[+-]?\d{1,100}", re.ASCII)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def router(parts: Context) -> APIRouter:
    prefix = parts.settings.base_path.rstrip("/")
    routes = APIRouter(prefix=prefix, tags=["workers"], route_class=PlainRoute, dependencies=[WORKER_TOKEN])
    api = _WorkerApi(parts)
    get: dict[str, Any] = {"methods": ["GET"]}
    post: dict[str, Any] = {"methods": ["POST"]}
    add = routes.add_api_route
    add(
        "/work",
        api.work,
        **get,
        **worker_route(payloads.WorkReply, 422, parameters=_WORK_PARAMS, summary=_WORK_SUMMARY),
    )
    add("/results", api.results, **post, **worker_route(payloads.ResultsReply, *BODY_ERRORS, body=_RESULTS_BODY))
    add(
        "/raw-files",
        api.raw_file,
        **post,
        **worker_route(payloads.RawFileReply, *BODY_ERRORS, 422, body=_RAW_FILE_BODY),
    )
    complete = worker_route(payloads.EndReply, *BODY_ERRORS, 404, parameters=_TASK_PARAMS, body=_COMPLETION_BODY)
    add("/tasks/{task_id:path}/complete", api.complete, **post, **complete)
    fail = worker_route(payloads.EndReply, *BODY_ERRORS, 404, parameters=_TASK_PARAMS, body=_FAILURE_BODY)
    add("/tasks/{task_id:path}/fail", api.fail, **post, **fail)
    add(
        "/heartbeat", api.heartbeat, **post, **worker_route(payloads.HeartbeatReply, *BODY_ERRORS, body=_HEARTBEAT_BODY)
    )
    add("/signals", api.signals, **post, **worker_route(payloads.AcceptedReply, *BODY_ERRORS, body=_SIGNALS_BODY))
    add("/metrics", api.metrics, **post, **worker_route(payloads.AcceptedReply, *BODY_ERRORS, body=_SAMPLES_BODY))
    add("/selectors", api.selectors, **get, **worker_route(payloads.SelectorsReply, 422, parameters=_SELECTORS_PARAMS))
    return routes


_IN_FLIGHT_SECONDS = 30.0
"""A task granted so lately may not be in the worker's store yet."""
_OUTCOMES = {
    TaskState.DONE: "done",
    TaskState.NOT_FOUND: "not_found",
    TaskState.QUEUED: "failed",
    TaskState.FAILED: "failed",
    TaskState.DEAD: "dead",
}
"""By what a worker's word made of its task."""


class _WorkerApi:
    def __init__(self, parts: Context) -> None:
        self._parts = parts
        self._settings = parts.settings
        self._ledger = parts.ledger
        self._ledger_id = ""
        """As the ledger says; '': it has not been asked yet."""
        self._access = Access(parts.settings, parts.tokens)
        self._worker_ids = WorkerIds(parts.ledger, parts.tokens.worker, parts.settings.workers_per_token, parts.clock)
        self._limits = RateLimiter(parts.settings.requests_per_second, parts.clock)

    async def work(self, request: Request) -> Response:
        """Tasks for this worker, each under a lease."""
        worker_id = await self._caller(request)
        capacity, platforms = _work_params(request)
        now = self._parts.clock.now()
        until = now + timedelta(seconds=self._settings.lease_seconds)
        granted = await self._ledger.grant(worker_id, platforms, capacity, now, until)
        for grant in granted:
            self._parts.tally.count(grant.task.platform, "granted")
        tasks = [payloads.granted_task(grant.task, grant.attempt, grant.created_at) for grant in granted]
        return self._answer(payloads.WorkReply(tasks, self._limits.rest(len(tasks))))

    async def results(self, request: Request) -> Response:
        """A batch of results: stored, and answered for one by one."""
        worker_id = await self._caller(request)
        body = await self._body(request, self._settings.max_body_bytes)
        try:
            return self._answer(await ingest_results(self._parts, body, worker_id))
        except InvalidInput as error:
            raise ApiError(400, str(error)) from None

    async def raw_file(self, request: Request) -> Response:
        """A page, with what is told about it."""
        await self._caller(request)
        most = self._settings.max_raw_bytes
        upload = await uploads.receive_raw_file(request, most)
        with upload.file, await uploads.verified_page(upload, most) as page:
            path = await self._parts.raw_store.put(upload.metadata.sha256, page, upload.name, upload.told)
        return self._answer(payloads.RawFileReply("ok", path))

    async def complete(self, request: Request) -> Response:
        """A task ended with nothing to send: there is nothing, or it expired and is queued again."""
        self._access.worker(request)
        completion = server.read_completion(await self._body(request, _MOST_SMALL_BYTES))
        if completion.not_found:
            return await self._end(request, error=completion.error, not_found=True)
        if completion.expired:
            return await self._end(request, error=completion.error or "it expired before it was started", again=True)
        return await self._end(request, error=None)

    async def fail(self, request: Request) -> Response:
        """A task failed, for good or for now."""
        self._access.worker(request)
        failure = server.read_failure(await self._body(request, _MOST_SMALL_BYTES))
        return await self._end(request, error=failure.error, again=not failure.permanent)

    async def heartbeat(self, request: Request) -> Response:
        """How a worker is; answers what it is to do."""
        worker_id = await self._caller(request)
        body = await self._body(request, min(_MOST_HEARTBEAT_BYTES, self._settings.max_body_bytes))
        sent = await _read_request(server.read_heartbeat, body)
        now = self._parts.clock.now()
        beat = WorkerHeartbeat(worker_id=worker_id, **asdict(sent))
        until = now + timedelta(seconds=self._settings.lease_seconds)
        oldest = now - timedelta(hours=self._settings.max_lease_hours)
        commands = await self._ledger.beat(beat, now, until, oldest)
        if not beat.holds_nothing:
            return self._answer(payloads.HeartbeatReply(commands=commands, lease_expires_at=until, leases_since=oldest))
        on_its_way = min(_IN_FLIGHT_SECONDS, self._settings.lease_seconds / 2)
        await self._ledger.let_go(worker_id, now - timedelta(seconds=on_its_way), now)
        return self._answer(payloads.HeartbeatReply(commands=commands))

    async def signals(self, request: Request) -> Response:
        """How selectors did."""
        await self._caller(request)
        signals, bad = await _read_request(
            server.read_signals, await self._body(request, self._settings.max_body_bytes)
        )
        if signals:
            await self._ledger.add_signals(signals, self._parts.clock.now())
        return self._answer(payloads.AcceptedReply(len(signals), bad))

    async def metrics(self, request: Request) -> Response:
        """What a worker measured of itself."""
        worker_id = await self._caller(request)
        body = await self._body(request, self._settings.max_body_bytes)
        samples, bad = await _read_request(lambda given: server.read_samples(given, self._parts.clock.now()), body)
        if samples:
            await self._ledger.add_metrics(worker_id, samples)
        return self._answer(payloads.AcceptedReply(len(samples), bad))

    async def selectors(self, request: Request) -> Response:
        """The fleet's selectors of a platform, the best first."""
        await self._caller(request, needs_id=False)
        platform = _name("platform", request.query_params.get("platform", ""))
        since = self._parts.clock.now() - _SELECTORS_WINDOW
        selectors = await self._ledger.selectors(platform, since, _MOST_SELECTORS)
        return self._answer(payloads.SelectorsReply(selectors))

    def _answer(self, reply: Struct) -> Response:
        headers = {payloads.LEDGER_HEADER: self._ledger_id}
        return Response(msgspec.json.encode(reply), media_type="application/json", headers=headers)

    async def _check_ledger(self, request: Request) -> None:
        """Refuses a worker that works with another ledger: its results belong there."""
        self._ledger_id = self._ledger_id or await self._ledger.ledger_id()
        expected = request.headers.get(payloads.LEDGER_HEADER, self._ledger_id)
        if expected != self._ledger_id:
            own, meant = payloads.ledger_name(self._ledger_id), payloads.ledger_name(expected)
            headers = {payloads.LEDGER_HEADER: self._ledger_id}
            raise ApiError(421, f"this gateway is {own}, and the request is for {meant}", headers=headers)

    async def _caller(self, request: Request, *, needs_id: bool = True) -> str:
        """The worker's id, once it may ask, means this gateway, has not asked too often, and the id is its own.

        Where no id is needed, one who gives none is no worker: `parcelpost doctor` looks that way.
        """
        caller = self._access.worker(request)
        await self._check_ledger(request)
        if wait := self._limits.take(caller.token):
            await self._parts.clock.sleep(wait)
        if not needs_id and "x-worker-id" not in request.headers:
            return caller.worker_id
        await self._worker_ids.check(caller)
        if self._limits.is_new(caller.worker_id):
            self._parts.emit(WorkerJoined(worker_id=caller.worker_id, token=caller.token))
        return caller.worker_id

    async def _body(self, request: Request, most_bytes: int) -> bytes:
        return await read_body(request, most_bytes)

    async def _end(
        self, request: Request, *, error: str | None, again: bool = False, not_found: bool = False
    ) -> Response:
        worker_id = await self._caller(request)
        task_id = request.path_params["task_id"]
        if not _is_name(task_id):
            return self._answer(payloads.EndReply("reported", False))  # no task has such an id
        ended = await self._ledger.end_task(
            task_id, worker_id, error=error, again=again, now=self._parts.clock.now(), not_found=not_found
        )
        if ended:
            self._parts.tally.count(ended.platform, _OUTCOMES[ended.state])
        return self._answer(payloads.EndReply("reported", ended is not None))


async def _read_request(reader: Callable[[bytes], T], body: bytes) -> T:
    try:
        return await parse_body(reader, body)
    except InvalidInput as error:
        raise ApiError(400, str(error)) from None


def _work_params(request: Request) -> tuple[int, list[str]]:
    """Capacity and platforms. Raises ApiError."""
    given = request.query_params.get("capacity", "1")
    if not _NUMBER.fullmatch(given):
        raise ApiError(422, "capacity must be a whole number; it is taken as 1 to 100")
    platforms = [name for name in request.query_params.getlist("platforms") if name]
    if not platforms:
        raise ApiError(422, "platforms must be given, once for each: ?platforms=a&platforms=b")
    if len(platforms) > _MOST_PLATFORMS:
        raise ApiError(422, f"at most {_MOST_PLATFORMS} platforms can be asked for")
    wanted = [_name("platforms", name) for name in dict.fromkeys(platforms)]
    return min(max(int(given), 1), _MOST_TASKS), wanted


def _name(field: str, given: str) -> str:
    if not _is_name(given):
        raise ApiError(422, f"{field} is too long or holds control characters")
    return given


def _is_name(given: str) -> bool:
    return len(given.encode()) <= server.MAX_NAME_BYTES and not _CONTROL.search(given)
