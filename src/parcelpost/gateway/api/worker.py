"""The routes that workers call, with their rate limits, and how long a worker waits between polls."""

from __future__ import annotations

import math
from collections import OrderedDict
from datetime import timedelta
from typing import Annotated, Any

from msgspec import Meta, Struct
from msgspec.structs import asdict, replace
from starlette.requests import Request

from parcelpost.clock import Clock
from parcelpost.events import WorkerJoined
from parcelpost.gateway import uploads
from parcelpost.gateway.auth import Access, WorkerIds
from parcelpost.gateway.context import Context
from parcelpost.gateway.errors import ApiError
from parcelpost.gateway.ingest import ingest_results
from parcelpost.gateway.models import Artifact, TaskState, WorkerHeartbeat
from parcelpost.gateway.routes import Caller, Role, Route
from parcelpost.gateway.uploads import parse_body
from parcelpost.model import Signal
from parcelpost.protocol import payloads, server
from parcelpost.protocol.payloads import Completion, Failure, Heartbeat, ParcelResult

_MAX_WORKERS = 20_000
_ALIVE_SECONDS = 300.0
_RECOUNT_SECONDS = 5.0
_BURST_SECONDS = 2.0
_MAX_DELAY_SECONDS = 1.0
_MAX_EMPTY_POLLS_PER_SECOND = 20
_RETRY_WITH_TASKS, _RETRY_WITHOUT, _MAX_RETRY = 5, 30, 600


class _Bucket(Struct):
    tokens: float
    at: float


class RateLimiter:
    """A token bucket for each worker token, holding up to two seconds of requests. Worker ids are not limited:
    a worker can claim any id.

    Slightly fast workers (several parallel uploads) are delayed, much faster ones are rejected. The table of workers is
    bounded: the one that has been silent longest is dropped, and counts as new when it returns.
    """

    def __init__(self, requests_per_second: float, clock: Clock) -> None:
        self._rate = requests_per_second
        self._most = max(requests_per_second * _BURST_SECONDS, 1.0)
        self._clock = clock
        self._buckets: dict[str, _Bucket] = {}
        self._workers: OrderedDict[str, float] = OrderedDict()
        """Worker ID -> time of its last request."""
        self._alive = 0
        self._counted_at = -math.inf

    def is_new(self, worker_id: str) -> bool:
        """Records a request. Returns whether it is the worker's first."""
        is_new = worker_id not in self._workers
        self._workers[worker_id] = self._clock.monotonic()
        self._workers.move_to_end(worker_id)
        if len(self._workers) > _MAX_WORKERS:
            self._workers.popitem(last=False)
        return is_new

    def take(self, token: str) -> float:
        """Counts a request and returns how many seconds to delay it. Raises ApiError (429) above the limit."""
        now = self._clock.monotonic()
        bucket = self._buckets.setdefault(token, _Bucket(self._most, now))  # the operator's tokens: not many
        bucket.tokens = min(self._most, bucket.tokens + (now - bucket.at) * self._rate)
        bucket.at = now
        wait = max(0.0, (1 - bucket.tokens) / self._rate)
        if wait > _MAX_DELAY_SECONDS:
            raise self._limit_error(wait)
        bucket.tokens -= 1
        return wait

    def retry_after(self, tasks: int) -> int:
        """Returns the seconds until the next poll, so that all workers together do not poll too often."""
        if tasks:
            return _RETRY_WITH_TASKS
        return min(max(_RETRY_WITHOUT, math.ceil(self._count() / _MAX_EMPTY_POLLS_PER_SECOND)), _MAX_RETRY)

    def _count(self) -> int:
        now = self._clock.monotonic()
        if now - self._counted_at >= _RECOUNT_SECONDS:
            self._counted_at = now
            self._alive = sum(now - at <= _ALIVE_SECONDS for at in self._workers.values())
        return self._alive

    def _limit_error(self, wait: float) -> ApiError:
        seconds = str(max(1, math.ceil(wait)))
        headers = {
            "Retry-After": seconds,
            "X-RateLimit-Limit": f"{self._rate:g}",
            "X-RateLimit-Remaining": "0",
            "X-RateLimit-Reset": seconds,
        }
        return ApiError(429, f"rate limit: this token allows {self._rate:g} requests per second", headers=headers)


_MAX_TASKS = 100
_MAX_PLATFORMS = 500
_MAX_SELECTORS = 10_000
_SELECTORS_WINDOW = timedelta(days=30)
_MAX_HEARTBEAT_BYTES = 1024 * 1024
_IN_FLIGHT_SECONDS = 30.0
"""A task granted more recently than this may not be in the worker's store yet."""
_NOT_EXPECTED = "no report of this worker named this artifact"
_OUTCOMES = {
    TaskState.DONE: "done",
    TaskState.NOT_FOUND: "not_found",
    TaskState.QUEUED: "failed",
    TaskState.FAILED: "failed",
    TaskState.DEAD: "dead",
}
"""Name of the outcome by the task's state after a worker ended it."""


class WorkParams(Struct, frozen=True, kw_only=True):
    platforms: Annotated[
        list[str],
        Meta(
            min_length=1,
            max_length=_MAX_PLATFORMS,
            description="Platforms to get tasks for; repeat the parameter for each",
        ),
    ]
    capacity: Annotated[
        int, Meta(description="Maximum number of tasks to return; values outside 1 to 100 are clamped")
    ] = 1


class SelectorsParams(Struct, frozen=True):
    platform: Annotated[str, Meta(max_length=512, description="Only for this platform")] = ""


class RawFileForm(Struct, frozen=True):
    """The form of an upload. `metadata` is a JSON object: see RawMetadata, and ArtifactMetadata for artifacts."""

    file: Annotated[str, Meta(extra_json_schema={"format": "binary"})]
    metadata: Annotated[str, Meta(extra_json_schema={"contentMediaType": "application/json"})]


Sample = dict[str, float | str | None]
"""`timestamp`, and a number for each metric."""


class WorkerApi:
    """The worker contract: the tasks a worker gets, and everything it reports."""

    def __init__(self, context: Context, access: Access) -> None:
        self._context = context
        self._settings = context.settings
        self._ledger = context.ledger
        self._ledger_id = ""
        """Empty until it has been read."""
        self._access = access
        self._worker_ids = WorkerIds(
            context.ledger, context.tokens.worker, self._settings.workers_per_token, context.clock
        )
        self._limits = RateLimiter(self._settings.requests_per_second, context.clock)

    def routes(self) -> list[Route]:
        base, max_bytes = self._settings.base_path.rstrip("/"), self._settings.max_body_bytes
        large: dict[str, Any] = {"max_body_bytes": max_bytes}
        heartbeat: dict[str, Any] = {"max_body_bytes": min(_MAX_HEARTBEAT_BYTES, max_bytes)}
        form: dict[str, Any] = {"body_type": RawFileForm, "body_media_types": ("multipart/form-data",)}

        def end(body_type: type[Struct]) -> dict[str, Any]:
            return {"body_type": body_type, "body_required": False, "errors": (404,)}

        return [
            Route("GET", f"{base}/work", self.work, Role.WORKER),
            Route("POST", f"{base}/results", self.results, Role.WORKER, body_type=list[ParcelResult], **large),
            Route("POST", f"{base}/raw-files", self.raw_file, Role.WORKER, errors=(422,), **form),
            Route("POST", f"{base}/artifacts", self.artifact, Role.WORKER, errors=(404, 413, 422), **form),
            Route("POST", f"{base}/tasks/{{task_id:path}}/complete", self.complete, Role.WORKER, **end(Completion)),
            Route("POST", f"{base}/tasks/{{task_id:path}}/fail", self.fail, Role.WORKER, **end(Failure)),
            Route("POST", f"{base}/heartbeat", self.heartbeat, Role.WORKER, body_type=Heartbeat, **heartbeat),
            Route("POST", f"{base}/signals", self.signals, Role.WORKER, body_type=list[Signal], **large),
            Route("POST", f"{base}/metrics", self.metrics, Role.WORKER, body_type=list[Sample], **large),
            Route("GET", f"{base}/selectors", self.selectors, Role.WORKER),
        ]

    async def authorize(self, request: Request, needs_id: bool) -> Caller:
        """Admits a worker with a valid token and an id of its own, that expects this ledger and keeps its rate limit.

        Raises ApiError. A request without an id is fine where none is needed: `parcelpost doctor` sends such requests.
        """
        caller = self._access.worker(request)
        await self._check_ledger(request)
        admitted = Caller(caller.worker_id, {payloads.LEDGER_HEADER: self._ledger_id})
        if wait := self._limits.take(caller.token):
            await self._context.clock.sleep(wait)
        if not needs_id and "x-worker-id" not in request.headers:
            return admitted
        await self._worker_ids.check(caller)
        if self._limits.is_new(caller.worker_id):
            self._context.emit(WorkerJoined(worker_id=caller.worker_id, token=caller.token))
        return admitted

    async def _check_ledger(self, request: Request) -> None:
        """Rejects a worker that works with another ledger: its results belong there."""
        self._ledger_id = self._ledger_id or await self._ledger.ledger_id()
        expected = request.headers.get(payloads.LEDGER_HEADER, self._ledger_id)
        if expected != self._ledger_id:
            own, meant = payloads.ledger_name(self._ledger_id), payloads.ledger_name(expected)
            headers = {payloads.LEDGER_HEADER: self._ledger_id}
            raise ApiError(421, f"this gateway is {own}, but the request is for {meant}", headers=headers)

    async def work(self, query: WorkParams, worker_id: str) -> payloads.WorkReply:
        """Return tasks for this worker, each under a lease."""
        platforms = [_name("platforms", name) for name in dict.fromkeys(query.platforms) if name]
        if not platforms:
            raise ApiError(422, "platforms: at least one is required, as in ?platforms=a&platforms=b")
        now = self._context.clock.now()
        until = now + timedelta(seconds=self._settings.lease_seconds)
        capacity = min(max(query.capacity, 1), _MAX_TASKS)
        grants = await self._ledger.grant(worker_id, platforms, capacity, now, until)
        for grant in grants:
            self._context.counters.count(grant.task.platform, "granted")
        tasks = [payloads.granted_task(grant.task, grant.attempt, grant.created_at) for grant in grants]
        return payloads.WorkReply(tasks, self._limits.retry_after(len(tasks)))

    async def results(self, body: bytes, worker_id: str) -> payloads.ResultsReply:
        """Store a batch of results, with a receipt for each."""
        return await ingest_results(self._context, body, worker_id)

    async def raw_file(self, request: Request) -> payloads.RawFileReply:
        """Store a scraped page."""
        limit = self._settings.max_raw_bytes
        upload = await uploads.receive_file(request, limit, server.read_raw_metadata)
        sha256 = upload.metadata.sha256
        with upload.file, await uploads.verified_page(upload, limit) as page:
            path = await self._context.raw_store.put(sha256, page, upload.name or sha256, upload.metadata_json)
        return payloads.RawFileReply("ok", path, sha256)

    async def artifact(self, request: Request, worker_id: str) -> payloads.ArtifactReply:
        """Store what a failed attempt saw: a screenshot or a page, once the reply to the report has asked for it."""
        context, limit = self._context, payloads.MAX_ARTIFACT_BYTES
        upload = await uploads.receive_file(request, limit, server.read_artifact_metadata)
        task_id, kind = upload.metadata.task_id, upload.metadata.kind
        reply = payloads.ArtifactReply("ok", upload.metadata.sha256)
        with upload.file as file:
            if (await self._artifact(task_id, kind, worker_id)).stored_at is not None:
                return reply  # an upload whose reply was lost
            media_type = await uploads.verified_artifact(upload, self._settings.max_raw_bytes)
            await context.raw_store.put_artifact(task_id, kind, file)
        if not await self._ledger.set_artifact_stored(task_id, kind, worker_id, media_type, context.clock.now()):
            if all(artifact.kind != kind for artifact in await self._ledger.artifacts(task_id)):
                await context.raw_store.delete_artifact(task_id, kind)  # its task was deleted meanwhile
            await self._artifact(task_id, kind, worker_id)  # stored by the same upload, sent twice
        return reply

    async def complete(self, task_id: str, body: bytes, worker_id: str) -> payloads.EndReply:
        """End a task that has no result: the parcel does not exist, or the task expired and is queued again."""
        completion = server.read_completion(body)
        if completion.not_found:
            return await self._end(task_id, worker_id, error=completion.error, not_found=True)
        if completion.expired:
            return await self._end(
                task_id, worker_id, error=completion.error or "expired before it was started", again=True
            )
        return await self._end(task_id, worker_id, error=None)

    async def fail(self, task_id: str, body: bytes, worker_id: str) -> payloads.EndReply:
        """Report that a task failed, permanently or so that another worker may retry it."""
        failure = server.read_failure(body)
        reply = await self._end(task_id, worker_id, error=failure.error, again=not failure.permanent)
        if not reply.success:
            return reply
        wanted = [kind for kind in payloads.ARTIFACT_KINDS if kind in failure.artifacts]
        if wanted or await self._ledger.artifacts(task_id):
            await self._ledger.name_artifacts(task_id, wanted, worker_id, self._context.clock.now())
        return replace(reply, wanted_artifacts=wanted) if wanted else reply

    async def heartbeat(self, body: bytes, worker_id: str) -> payloads.HeartbeatReply:
        """Report a worker's state, extend its leases and return its pending commands."""
        sent = await parse_body(server.read_heartbeat, body)
        now = self._context.clock.now()
        heartbeat = WorkerHeartbeat(worker_id=worker_id, **asdict(sent))
        until = now + timedelta(seconds=self._settings.lease_seconds)
        oldest = now - timedelta(hours=self._settings.max_lease_hours)
        commands = await self._ledger.record_heartbeat(heartbeat, now, until, oldest)
        if not heartbeat.holds_nothing:
            return payloads.HeartbeatReply(commands=commands, lease_expires_at=until, leases_since=oldest)
        in_flight = min(_IN_FLIGHT_SECONDS, self._settings.lease_seconds / 2)
        await self._ledger.release_leases(worker_id, now - timedelta(seconds=in_flight), now)
        return payloads.HeartbeatReply(commands=commands)

    async def signals(self, body: bytes) -> payloads.AcceptedReply:
        """Report which selectors worked."""
        signals, bad = await parse_body(server.read_signals, body)
        if signals:
            await self._ledger.add_signals(signals, self._context.clock.now())
        return payloads.AcceptedReply(len(signals), bad)

    async def metrics(self, body: bytes, worker_id: str) -> payloads.AcceptedReply:
        """Report a worker's own metrics."""
        samples, bad = await parse_body(server.read_samples, body, self._context.clock.now())
        if samples:
            await self._ledger.add_metrics(worker_id, samples)
        return payloads.AcceptedReply(len(samples), bad)

    async def selectors(self, query: SelectorsParams) -> payloads.SelectorsReply:
        """Return the fleet's selectors, best first."""
        platform = _name("platform", query.platform)
        since = self._context.clock.now() - _SELECTORS_WINDOW
        return payloads.SelectorsReply(await self._ledger.selectors(platform, since, _MAX_SELECTORS))

    async def _artifact(self, task_id: str, kind: payloads.ArtifactKind, worker_id: str) -> Artifact:
        """Raises ApiError (404) unless that worker's report named it."""
        named = await self._ledger.artifacts(task_id) if _is_name(task_id) else ()
        for artifact in named:
            if (artifact.kind, artifact.worker_id) == (kind, worker_id):
                return artifact
        raise ApiError(404, _NOT_EXPECTED)

    async def _end(
        self, task_id: str, worker_id: str, *, error: str | None, again: bool = False, not_found: bool = False
    ) -> payloads.EndReply:
        if not _is_name(task_id):
            return payloads.EndReply("reported", False, task_id)  # no task has such an id
        ended = await self._ledger.end_task(
            task_id, worker_id, error=error, again=again, now=self._context.clock.now(), not_found=not_found
        )
        if ended:
            self._context.counters.count(ended.platform, _OUTCOMES[ended.state])
        return payloads.EndReply("reported", ended is not None, task_id)


def _name(field: str, given: str) -> str:
    if not _is_name(given):
        raise ApiError(422, f"{field}: too long, or contains control characters")
    return given


def _is_name(given: str) -> bool:
    return len(given.encode()) <= server.MAX_NAME_BYTES and not server.CONTROL.search(given)
