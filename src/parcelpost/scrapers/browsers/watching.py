"""Hearing at once of the death of a process that is not our child."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from parcelpost.clock import Clock
from parcelpost.scrapers.browsers import processes
from parcelpost.scrapers.browsers.processes import Process

_LOOK_EVERY_SECONDS = 0.1


class Watch:
    """Calls `on_death` once, as soon as the process is gone, unless it is stopped before."""

    def __init__(self, process: Process, on_death: Callable[[], None], clock: Clock) -> None:
        self._process = process
        self._on_death = on_death
        self._loop = asyncio.get_running_loop()
        self._handle = -1
        self._looking: asyncio.Task[None] | None = None
        try:
            self._handle = os.pidfd_open(process.pid)
        except (AttributeError, OSError):  # another system, an old kernel, or it is gone already
            self._looking = self._loop.create_task(self._look(clock))
            return
        self._loop.add_reader(self._handle, self._died)
        if not processes.is_running(process.pid, process.started):
            self._loop.call_soon(self._died)

    def stop(self) -> None:
        if self._handle >= 0:
            self._loop.remove_reader(self._handle)
            os.close(self._handle)
            self._handle = -1
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None

    async def _look(self, clock: Clock) -> None:
        while processes.is_running(self._process.pid, self._process.started):
            await clock.sleep(_LOOK_EVERY_SECONDS)
        self._looking = None
        self._on_death()

    def _died(self) -> None:
        if self._handle >= 0:
            self.stop()
            self._on_death()
