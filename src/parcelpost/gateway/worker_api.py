"""What workers ask for: the contract's routes."""

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
from parcelpost.gateway import raw_uploads, worker_forms
from parcelpost.gateway.access import Access, WorkerIds
from parcelpost.gateway.arriving import take_results
from parcelpost.gateway.bodies import parse, read_body
from parcelpost.gateway.declared import BODIES, WORKER_TOKEN, declared
from parcelpost.gateway.limits import Limits
from parcelpost.gateway.parts import Parts
from parcelpost.gateway.plain_route import PlainRoute
from parcelpost.gateway.refusals import Refusal
from parcelpost.gateway.words import Beat, TaskState
from parcelpost.protocol import payloads, server

T = TypeVar("T")

_MOST_TASKS = 100
_MOST_PLATFORMS = 500
_MOST_SELECTORS = 10_000
_SELECTORS_OF = timedelta(days=30)
_MOST_SMALL_BYTES = 64 * 1024
_MOST_BEAT_BYTES = 1024 * 1024
_NUMBER = re.compile(r"[+-]?\d{1,100}", re.ASCII)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def router(parts: Parts) -> APIRouter:
    prefix = parts.settings.base_path.rstrip("/")
    routes = APIRouter(prefix=prefix, tags=["workers"], route_class=PlainRoute, dependencies=[WORKER_TOKEN])
    api = _WorkerApi(parts)
    forms = worker_forms
    get: dict[str, Any] = {"methods": ["GET"]}
    post: dict[str, Any] = {"methods": ["POST"]}
    add = routes.add_api_route
    add("/work", api.work, **get, **declared(payloads.WorkReply, 422, parameters=forms.WORK, summary=forms.WORK_IS))
    add("/results", api.results, **post, **declared(payloads.ResultsReply, *BODIES, body=forms.RESULTS))
    add("/raw-files", api.raw_file, **post, **declared(payloads.RawFileReply, *BODIES, 422, body=forms.RAW_FILE))
    complete = declared(payloads.EndReply, *BODIES, 404, parameters=forms.TASK, body=forms.COMPLETION)
    add("/tasks/{task_id:path}/complete", api.complete, **post, **complete)
    fail = declared(payloads.EndReply, *BODIES, 404, parameters=forms.TASK, body=forms.FAILURE)
    add("/tasks/{task_id:path}/fail", api.fail, **post, **fail)
    add("/heartbeat", api.heartbeat, **post, **declared(payloads.HeartbeatReply, *BODIES, body=forms.BEAT))
    add("/signals", api.signals, **post, **declared(payloads.AcceptedReply, *BODIES, body=forms.SIGNALS))
    add("/metrics", api.metrics, **post, **declared(payloads.AcceptedReply, *BODIES, body=forms.SAMPLES))
    add("/selectors", api.selectors, **get, **declared(payloads.SelectorsReply, 422, parameters=forms.SELECTORS))
    return routes


_ON_ITS_WAY_SECONDS = 30.0
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
    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._settings = parts.settings
        self._ledger = parts.ledger
        self._ledger_id = ""
        """As the ledger says; '': it has not been asked yet."""
        self._access = Access(parts.settings, parts.tokens)
        self._worker_ids = WorkerIds(parts.ledger, parts.tokens.worker, parts.settings.workers_per_token, parts.clock)
        self._limits = Limits(parts.settings.requests_per_second, parts.clock)

    async def work(self, request: Request) -> Response:
        """Tasks for this worker, each under a lease."""
        worker_id = await self._caller(request)
        capacity, platforms = _wish(request)
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
            return self._answer(await take_results(self._parts, body, worker_id))
        except InvalidInput as error:
            raise Refusal(400, str(error)) from None

    async def raw_file(self, request: Request) -> Response:
        """A page, with what is told about it."""
        await self._caller(request)
        most = self._settings.max_raw_bytes
        upload = await raw_uploads.receive(request, most, self._parts.patience)
        with upload.file, await raw_uploads.checked(upload, most) as page:
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
        body = await self._body(request, min(_MOST_BEAT_BYTES, self._settings.max_body_bytes))
        sent = await _read(server.read_heartbeat, body)
        now = self._parts.clock.now()
        beat = Beat(worker_id=worker_id, **asdict(sent))
        until = now + timedelta(seconds=self._settings.lease_seconds)
        oldest = now - timedelta(hours=self._settings.max_lease_hours)
        commands = await self._ledger.beat(beat, now, until, oldest)
        if not beat.holds_nothing:
            return self._answer(payloads.HeartbeatReply(commands=commands, lease_expires_at=until, leases_since=oldest))
        on_its_way = min(_ON_ITS_WAY_SECONDS, self._settings.lease_seconds / 2)
        await self._ledger.let_go(worker_id, now - timedelta(seconds=on_its_way), now)
        return self._answer(payloads.HeartbeatReply(commands=commands))

    async def signals(self, request: Request) -> Response:
        """How selectors did."""
        await self._caller(request)
        signals, bad = await _read(server.read_signals, await self._body(request, self._settings.max_body_bytes))
        if signals:
            await self._ledger.add_signals(signals, self._parts.clock.now())
        return self._answer(payloads.AcceptedReply(len(signals), bad))

    async def metrics(self, request: Request) -> Response:
        """What a worker measured of itself."""
        worker_id = await self._caller(request)
        body = await self._body(request, self._settings.max_body_bytes)
        samples, bad = await _read(lambda given: server.read_samples(given, self._parts.clock.now()), body)
        if samples:
            await self._ledger.add_metrics(worker_id, samples)
        return self._answer(payloads.AcceptedReply(len(samples), bad))

    async def selectors(self, request: Request) -> Response:
        """The fleet's selectors of a platform, the best first."""
        await self._caller(request, needs_id=False)
        platform = _name("platform", request.query_params.get("platform", ""))
        since = self._parts.clock.now() - _SELECTORS_OF
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
            raise Refusal(421, f"this gateway is {own}, and the request is for {meant}", headers=headers)

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
        return await read_body(request, most_bytes, self._parts.patience)

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


async def _read(reader: Callable[[bytes], T], body: bytes) -> T:
    try:
        return await parse(reader, body)
    except InvalidInput as error:
        raise Refusal(400, str(error)) from None


def _wish(request: Request) -> tuple[int, list[str]]:
    """Capacity and platforms. Raises Refusal."""
    given = request.query_params.get("capacity", "1")
    if not _NUMBER.fullmatch(given):
        raise Refusal(422, "capacity must be a whole number; it is taken as 1 to 100")
    platforms = [name for name in request.query_params.getlist("platforms") if name]
    if not platforms:
        raise Refusal(422, "platforms must be given, once for each: ?platforms=a&platforms=b")
    if len(platforms) > _MOST_PLATFORMS:
        raise Refusal(422, f"at most {_MOST_PLATFORMS} platforms can be asked for")
    wanted = [_name("platforms", name) for name in dict.fromkeys(platforms)]
    return min(max(int(given), 1), _MOST_TASKS), wanted


def _name(field: str, given: str) -> str:
    if not _is_name(given):
        raise Refusal(422, f"{field} is too long or holds control characters")
    return given


def _is_name(given: str) -> bool:
    return len(given.encode()) <= server.MAX_NAME_BYTES and not _CONTROL.search(given)
