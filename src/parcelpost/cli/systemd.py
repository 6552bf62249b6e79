"""Readiness, status and watchdog messages to systemd (sd_notify)."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Mapping, Sequence

from parcelpost import events
from parcelpost.clock import Clock
from parcelpost.events import Event
from parcelpost.log_lines import LINES, printable

_MOST_STATUS_CHARS = 200
_MAX_INTERVAL_SECONDS = 10.0
_PINGS_PER_WATCHDOG = 3


class ServiceSocket:
    """Does nothing if `NOTIFY_SOCKET` is not set. Never raises or blocks: messages that cannot be sent are dropped."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._address = _address(environment.get("NOTIFY_SOCKET", ""))
        self._watchdog = _watchdog_seconds(environment)

    @property
    def is_set(self) -> bool:
        return bool(self._address)

    @property
    def interval_seconds(self) -> float:
        """How often to notify: several times per watchdog timeout."""
        return (
            min(_MAX_INTERVAL_SECONDS, self._watchdog / _PINGS_PER_WATCHDOG)
            if self._watchdog
            else _MAX_INTERVAL_SECONDS
        )

    def send(self, *assignments: str) -> bool:
        """Sends `READY=1` and the like in one message. Returns whether it was sent."""
        if not self._address:
            return False
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
            out.setblocking(False)
            out.sendto("\n".join(assignments).encode(), self._address)
            return True
        return False


def status_line(text: str) -> str:
    """A STATUS assignment, always a single line."""
    return f"STATUS={printable(text)[:_MOST_STATUS_CHARS]}"


def extend_timeout(seconds: float) -> str:
    """Asks the service manager to wait this long, from now, before it kills the process."""
    return f"EXTEND_TIMEOUT_USEC={round(seconds * 1_000_000)}"


def _address(text: str) -> str:
    """A path, or an abstract socket name if it starts with @; empty if invalid."""
    return f"\0{text[1:]}" if text.startswith("@") else text if text.startswith("/") else ""


def _watchdog_seconds(environment: Mapping[str, str]) -> float:
    """0 if there is no watchdog or it is meant for another process."""
    length, pid = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID", "")
    if not length.isdecimal() or (pid and pid != str(os.getpid())):
        return 0.0
    return int(length) / 1_000_000


_CLOSING_SECONDS = 60.0
"""The next message, or the exit, comes within this time."""

_STATUS_EVENTS = (
    events.WorkerStarted,
    events.WorkProgress,
    events.GatewayStarted,
    events.LedgerLost,
    events.LedgerFound,
)
_STOP_EVENTS = (events.WorkerStopped, events.GatewayStopped)


class Service:
    """Reports ready at the first `step`, and alive while no loop is stuck. `emit` is an Emit.

    `stuck` returns the stuck loops, `problems` what blocks the work. A process whose event loop hangs sends nothing, so
    the watchdog detects it.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._socket = ServiceSocket(environment)
        self.stuck: Callable[[], Sequence[str]] = list
        self.problems: Callable[[], Sequence[str]] = list
        self._status = ""
        self._is_ready = False
        self._is_stopping = False

    @property
    def is_watched(self) -> bool:
        return self._socket.is_set

    async def step(self) -> float:
        """Sends one message. Returns the seconds until the next."""
        assignments = [status_line(self._status_text())]
        if not self.stuck():
            assignments += ["WATCHDOG=1", *self._state()]
        if self._socket.send(*assignments) and "READY=1" in assignments:
            self._is_ready = True
        return self._socket.interval_seconds

    async def run(self, clock: Clock) -> None:
        """Calls `step` until cancelled, for processes without a supervisor."""
        while True:
            await clock.sleep(await self.step())

    def emit(self, event: Event) -> None:
        if isinstance(event, _STATUS_EVENTS):
            self._status = LINES[type(event)][1](event)
        elif isinstance(event, events.WorkerDraining):
            self.leave(LINES[type(event)][1](event), event.seconds)
        elif isinstance(event, _STOP_EVENTS):
            self._socket.send(status_line(LINES[type(event)][1](event)), extend_timeout(_CLOSING_SECONDS))

    def leave(self, why: str, seconds: float) -> None:
        """Reports that the process is stopping and has this many seconds to finish."""
        self._is_stopping, self._status = True, why
        self._socket.send("STOPPING=1", status_line(why), extend_timeout(seconds + _CLOSING_SECONDS))

    def _status_text(self) -> str:
        if stuck := self.stuck():
            return f"stuck: {', '.join(stuck)}"
        return self._status if self._is_stopping else "; ".join(self.problems()) or self._status

    def _state(self) -> list[str]:
        if self._is_stopping:
            return [extend_timeout(_CLOSING_SECONDS)]
        return [] if self._is_ready else ["READY=1"]
