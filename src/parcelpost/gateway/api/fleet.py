"""Routes for workers, the queue, counties and the overview, and commands for workers."""

from __future__ import annotations

import asyncio

from msgspec import Struct

from parcelpost.gateway.api.params import (
    OverviewParams,
)
from parcelpost.gateway.api.responses import (
    CommandReply,
    Counties,
    Queue,
    ReleaseReply,
    Workers,
)
from parcelpost.gateway.context import Context
from parcelpost.gateway.counties import CountyCache, county_list
from parcelpost.gateway.errors import ApiError
from parcelpost.gateway.models import OFFLINE_AFTER
from parcelpost.gateway.overview import (
    AUTO,
    Overview,
    gather_overview,
    queue_entry,
    worker_response,
)
from parcelpost.gateway.routes import Role, Route
from parcelpost.gateway.schedules import schedule_statuses

_FRESH_SECONDS = 1.0


class OverviewCache:
    """Queries the ledger at most once a second for all readers."""

    def __init__(self, context: Context, counties: CountyCache) -> None:
        self._context = context
        self._counties = counties
        self._lock = asyncio.Lock()
        self._made: dict[int, tuple[float, Overview]] = {}

    async def overview(self, hours: int) -> Overview:
        async with self._lock:
            now = self._context.clock.monotonic()
            made_at, made = self._made.get(hours, (float("-inf"), None))
            if made is None or now - made_at >= _FRESH_SECONDS:
                made = await self._make(hours)
                self._made[hours] = (now, made)
            return made

    async def _make(self, hours: int) -> Overview:
        context, now = self._context, self._context.clock.now()
        ended = await self._counties.ended()
        return await gather_overview(context.ledger, now, hours, ended, context.version, context.freshness)


_MAX_WORKERS = 1_000
_COMMANDS = ("pause", "resume", "drain", "stop", "sync-now")


class CommandRequest(Struct, frozen=True, forbid_unknown_fields=True):
    command: str
    """pause, resume, drain, stop, sync-now, or `platforms:a,b`."""
    worker_id: str = ""
    all: bool = False
    """Send it to all live workers. Either this or `worker_id` is required, to prevent accidents."""


class ReleaseRequest(Struct, frozen=True, forbid_unknown_fields=True):
    worker_id: str


class FleetApi:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._ledger = context.ledger
        self._counties = CountyCache(context.ledger, context.clock)
        self._overview = OverviewCache(context, self._counties)

    def routes(self) -> list[Route]:
        return [
            Route("GET", "/v1/overview", self.overview, Role.READER),
            Route("GET", "/v1/workers", self.workers, Role.READER),
            Route("GET", "/v1/queue", self.queue, Role.READER),
            Route("GET", "/v1/counties", self.counties, Role.READER),
            Route("POST", "/v1/commands", self.send_command, Role.ADMIN, errors=(404,)),
            Route("POST", "/v1/workers/release", self.release_worker_id, Role.ADMIN, errors=(404,)),
        ]

    async def overview(self, query: OverviewParams) -> Overview:
        """Return everything the dashboard's first page shows."""
        return await self._overview.overview(AUTO if query.hours == "auto" else int(query.hours))

    async def workers(self) -> Workers:
        """List the 1,000 workers that reported last, by ID."""
        now = self._context.clock.now()
        return Workers([worker_response(row, now) for row in await self._ledger.workers(_MAX_WORKERS)])

    async def queue(self) -> Queue:
        """Count tasks by platform, priority and state."""
        now = self._context.clock.now()
        return Queue([queue_entry(row, now) for row in await self._ledger.queue()])

    async def counties(self) -> Counties:
        """List the counties of each platform: parcels, freshness, success, pace, blocks and failing selectors."""
        context, now = self._context, self._context.clock.now()
        workers = await self._ledger.workers(_MAX_WORKERS)
        schedules = await schedule_statuses(self._ledger, workers, now, context.freshness)
        return Counties(county_list(await self._counties.counts(), schedules, workers, now))

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
