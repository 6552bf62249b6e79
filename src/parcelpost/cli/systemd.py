"""Readiness, status and watchdog messages to systemd (sd_notify)."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Mapping, Sequence

from parcelpost import events
from parcelpost.clock import Clock
from parcelpost.events import Event
from parcelpost.log import LINES, printable

_MOST_STATUS_CHARS = 200
_OFTEN_SECONDS = 10.0
_PINGS_PER_WATCHDOG = 3


class ServiceSocket:
    """Says nothing where `NOTIFY_SOCKET` is not set. Never raises, never waits: a word that cannot be sent is lost."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._address = _address(environment.get("NOTIFY_SOCKET", ""))
        self._watchdog = _watchdog_seconds(environment)

    @property
    def is_there(self) -> bool:
        return bool(self._address)

    @property
    def every_seconds(self) -> float:
        """How often to say that all is well: several times within the watchdog's patience."""
        return min(_OFTEN_SECONDS, self._watchdog / _PINGS_PER_WATCHDOG) if self._watchdog else _OFTEN_SECONDS

    def tell(self, *words: str) -> bool:
        """`READY=1` and its like, in one message. Whether it was taken."""
        if not self._address:
            return False
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
            out.setblocking(False)
            out.sendto("\n".join(words).encode(), self._address)
            return True
        return False


def status_line(text: str) -> str:
    """One line, whatever the text holds."""
    return f"STATUS={printable(text)[:_MOST_STATUS_CHARS]}"


def extend_timeout(seconds: float) -> str:
    """The service manager waits so much longer from now on before it kills."""
    return f"EXTEND_TIMEOUT_USEC={round(seconds * 1_000_000)}"


def _address(text: str) -> str:
    """A path, or with a leading @ a name that is in no folder."""
    return f"\0{text[1:]}" if text.startswith("@") else text if text.startswith("/") else ""


def _watchdog_seconds(environment: Mapping[str, str]) -> float:
    """0: there is none, or it is meant for another process."""
    length, pid = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID", "")
    if not length.isdecimal() or (pid and pid != str(os.getpid())):
        return 0.0
    return int(length) / 1_000_000


_CLOSING_SECONDS = 60.0
"""Within which the next word comes, or the end."""

_TOLD = (events.WorkerStarted, events.WorkProgress, events.GatewayStarted, events.LedgerLost, events.LedgerFound)
_END = (events.WorkerStopped, events.GatewayStopped)


class Service:
    """Ready once `step` was taken for the first time, alive only while nothing is stuck. `emit` is an Emit.

    `stuck` returns the loops that are stuck, `problems` what keeps it from its work. A process whose event loop hangs
    sends nothing at all, and so is found by the watchdog.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._socket = ServiceSocket(environment)
        self.stuck: Callable[[], Sequence[str]] = list
        self.problems: Callable[[], Sequence[str]] = list
        self._status = ""
        self._is_ready = False
        self._is_leaving = False

    @property
    def is_watched(self) -> bool:
        return self._socket.is_there

    async def step(self) -> float:
        """One word. Answers the seconds until the next."""
        words = [status_line(self._said())]
        if not self.stuck():
            words += ["WATCHDOG=1", *self._state()]
        if self._socket.tell(*words) and "READY=1" in words:
            self._is_ready = True
        return self._socket.every_seconds

    async def run(self, clock: Clock) -> None:
        """For who has no loops of its own. Until it is cancelled."""
        while True:
            await clock.sleep(await self.step())

    def emit(self, event: Event) -> None:
        if isinstance(event, _TOLD):
            self._status = LINES[type(event)][1](event)
        elif isinstance(event, events.WorkerDraining):
            self.leave(LINES[type(event)][1](event), event.seconds)
        elif isinstance(event, _END):
            self._socket.tell(status_line(LINES[type(event)][1](event)), extend_timeout(_CLOSING_SECONDS))

    def leave(self, why: str, seconds: float) -> None:
        """What runs has so many seconds to end."""
        self._is_leaving, self._status = True, why
        self._socket.tell("STOPPING=1", status_line(why), extend_timeout(seconds + _CLOSING_SECONDS))

    def _said(self) -> str:
        if stuck := self.stuck():
            return f"stuck: {', '.join(stuck)}"
        return self._status if self._is_leaving else "; ".join(self.problems()) or self._status

    def _state(self) -> list[str]:
        if self._is_leaving:
            return [extend_timeout(_CLOSING_SECONDS)]
        return [] if self._is_ready else ["READY=1"]
