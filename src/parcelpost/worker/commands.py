"""The upstream's commands: applied to this worker, and shared with all processes on its store."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

from parcelpost.errors import StoreError
from parcelpost.events import CommandReceived
from parcelpost.worker.backoff import SYNC
from parcelpost.worker.context import Context
from parcelpost.worker.sync import SyncManager

_STATE = "commands"
_MOST_SHARED = 50


class _Shared(Struct, frozen=True):
    count: int = 0
    """How many commands have been received in total."""
    last: tuple[str, ...] = ()
    """The newest commands."""


class Commands:
    """One process on a store receives the commands; the others read them from the store."""

    def __init__(self, context: Context, sync: SyncManager) -> None:
        self._context = context
        self._state = context.lpm.state
        self._control = context.control
        self._sync = sync
        self._seen: int | None = None
        """How many commands this process has seen; None before the first step."""
        self._unshared: list[str] = []
        """Received commands that are not in the store yet."""
        self.paused_since: datetime | None = None

    async def follow(self, received: Sequence[str]) -> None:
        """Applies commands of the upstream, and shares them."""
        self._unshared += received
        await self._share()
        self._follow(received)

    async def follow_shared(self) -> None:
        """Applies commands that a peer process has received since the last call."""
        try:
            shared = await self._read()
        except StoreError:
            return
        new = 0 if self._seen is None else shared.count - self._seen
        self._seen = shared.count
        self._follow(shared.last[-new:] if new > 0 else ())

    async def _read(self) -> _Shared:
        return await self._state.get(_STATE, _Shared) or _Shared()

    async def _share(self) -> None:
        if not self._unshared:
            return
        with contextlib.suppress(StoreError):  # tried again at the next heartbeat
            shared = await self._read()
            count, last = shared.count + len(self._unshared), (*shared.last, *self._unshared)[-_MOST_SHARED:]
            await self._state.put(_STATE, _Shared(count, last))
            self._seen = count
            self._unshared.clear()

    def _follow(self, commands: Sequence[str]) -> None:
        for command in commands:
            self._context.emit(CommandReceived(command=command, known=self._apply(command)))
        if not self._control.paused:
            self.paused_since = None
        elif self.paused_since is None:
            self.paused_since = self._context.clock.now()

    def _apply(self, command: str) -> bool:
        """Returns whether the command is known."""
        verb, colon, names = command.strip().partition(":")
        match verb.lower(), colon, names:
            case "pause", "", "":
                self._control.paused = True
            case "resume", "", "":
                self._control.paused = False
            case "drain", "", "":
                self._control.leave("drain command from the gateway")
            case "stop", "", "":
                self._control.leave("stop command from the gateway", at_once=True)
            case "sync-now", "", "":
                self._sync.try_now()
                self._control.wake(SYNC)
            case "platforms", ":", _:
                return self._restrict(names)
            case _:
                return False
        return True

    def _restrict(self, names: str) -> bool:
        wanted = frozenset(name.strip() for name in names.split(",") if name.strip())
        usable = wanted & frozenset(self._context.factory.names())
        if wanted and not usable:
            return False
        self._control.platforms = usable or None
        return True
