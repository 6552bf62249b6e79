"""What a worker and a gateway tell the service manager (systemd) that started them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from parcelpost import events
from parcelpost.cli.service_socket import ServiceSocket, extend, status
from parcelpost.clock import Clock
from parcelpost.events import Event
from parcelpost.log import LINES

_CLOSING_SECONDS = 60.0
"""Within which the next word comes, or the end."""

_TOLD = (events.WorkerStarted, events.WorkProgress, events.GatewayStarted, events.LedgerLost, events.LedgerFound)
_END = (events.WorkerStopped, events.GatewayStopped)


class Service:
    """Ready once `step` was taken for the first time, alive only while nothing is stuck. `emit` is an Emit.

    `stuck` names loops that do not turn, `problems` what keeps it from its work. A process whose event loop does not
    turn says nothing at all, and so is found by the watchdog.
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
        words = [status(self._said())]
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
            self._socket.tell(status(LINES[type(event)][1](event)), extend(_CLOSING_SECONDS))

    def leave(self, why: str, seconds: float) -> None:
        """What runs has so many seconds to end."""
        self._is_leaving, self._status = True, why
        self._socket.tell("STOPPING=1", status(why), extend(seconds + _CLOSING_SECONDS))

    def _said(self) -> str:
        if stuck := self.stuck():
            return f"stuck, does not turn: {', '.join(stuck)}"
        return self._status if self._is_leaving else "; ".join(self.problems()) or self._status

    def _state(self) -> list[str]:
        if self._is_leaving:
            return [extend(_CLOSING_SECONDS)]
        return [] if self._is_ready else ["READY=1"]
