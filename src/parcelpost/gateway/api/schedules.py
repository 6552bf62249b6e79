"""Routes for schedules, which keep counties fresh."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from parcelpost.gateway.context import Context
from parcelpost.gateway.errors import ApiError
from parcelpost.gateway.routes import Role, Route
from parcelpost.gateway.schedules import (
    Action,
    NewSchedule,
    ScheduleDetail,
    ScheduleStatus,
    act,
    first_run,
    is_in_ledger,
    make_schedule,
    schedule_detail,
    schedule_statuses,
)

_NONE = "no such schedule"


class ScheduleList(Struct, frozen=True):
    schedules: Sequence[ScheduleStatus]


class ActionRequest(Struct, frozen=True, forbid_unknown_fields=True):
    action: Action


class ActionReply(Struct, frozen=True):
    schedule: ScheduleStatus | None
    """null if the schedule was deleted."""


class SchedulesApi:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._ledger = context.ledger

    def routes(self) -> list[Route]:
        large = self._context.settings.max_body_bytes
        return [
            Route("GET", "/v1/schedules", self.schedules, Role.READER),
            Route("GET", "/v1/schedules/{name}", self.schedule, Role.READER, errors=(404,)),
            Route("POST", "/v1/schedules", self.add_schedule, Role.ADMIN, errors=(409,), max_body_bytes=large),
            Route("POST", "/v1/schedules/{name}", self.act_on_schedule, Role.ADMIN, errors=(404,)),
        ]

    async def schedules(self) -> ScheduleList:
        """List schedules by name, each with how fresh its county is."""
        return ScheduleList(await self._statuses())

    async def schedule(self, name: str) -> ScheduleDetail:
        """Return a schedule with its newest runs."""
        context = self._context
        workers = await self._ledger.workers() if "\0" not in name else ()
        detail = await schedule_detail(self._ledger, name, workers, context.clock.now(), context.freshness)
        if detail is None:
            raise ApiError(404, _NONE)
        return detail

    async def add_schedule(self, body: NewSchedule) -> ScheduleStatus:
        """Add a schedule. Its first run starts at once, unless it has a time of day or a cron expression."""
        now = self._context.clock.now()
        reported = {name for row in await self._ledger.workers() for name in row.heartbeat.platforms}
        is_known = await is_in_ledger(self._ledger, body)
        schedule, targets = make_schedule(body, now, self._context.platforms, reported=reported, is_known=is_known)
        if not await self._ledger.add_schedule(schedule, targets, first_run(schedule, now)):
            raise ApiError(409, f"a schedule named {schedule.name} already exists")
        (status,) = await self._statuses(schedule.name)
        return status

    async def act_on_schedule(self, name: str, body: ActionRequest) -> ActionReply:
        """Pause, resume, run or delete a schedule. Deleting also removes its tasks that no worker has taken."""
        if "\0" in name or not await act(self._ledger, name, body.action, self._context.clock.now()):
            raise ApiError(404, _NONE)
        statuses = await self._statuses(name)
        return ActionReply(statuses[0] if statuses else None)

    async def _statuses(self, name: str = "") -> list[ScheduleStatus]:
        context = self._context
        workers = await self._ledger.workers()
        return await schedule_statuses(self._ledger, workers, context.clock.now(), context.freshness, name)
