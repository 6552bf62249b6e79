"""The heartbeat tells the upstream how this worker is, whatever the other loops do, and brings back its commands."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from parcelpost.clock import Clock
from parcelpost.errors import StoreError, Unauthorized, Unavailable, UpstreamError
from parcelpost.events import CommandReceived, Emit
from parcelpost.model import Broken, Lease, QueueDepth
from parcelpost.settings.schema import HeartbeatSettings, SyncSettings
from parcelpost.storage.history import Window
from parcelpost.storage.lpm import LocalPersistenceManager
from parcelpost.upstream.base import Heartbeat, Upstream
from parcelpost.worker.backoff import Offline, UpstreamState
from parcelpost.worker.control import Control
from parcelpost.worker.identity import is_last_process
from parcelpost.worker.loop import HEARTBEAT
from parcelpost.worker.resources import Load
from parcelpost.worker.status import COMMANDS_STATE, Commands

_LONGEST_SILENCE_SECONDS = 240.0
"""Gateways forget a worker after 300 s."""
_NOT_ON_DUTY_SECONDS = 5.0
_COMMANDS_STATE = "commands"
_MOST_SHARED = 50


class _Commands(Struct, frozen=True):
    """The upstream's commands, for every process on the store."""

    count: int = 0
    """Of all that ever came."""
    last: tuple[str, ...] = ()
    """The newest of them."""


class HeartbeatLoop:
    def __init__(
        self,
        lpm: LocalPersistenceManager,
        upstream: Upstream,
        settings: HeartbeatSettings,
        sync: SyncSettings,
        control: Control,
        *,
        worker_id: str,
        name: str,
        version: str,
        platforms: Callable[[], Sequence[str]],
        known_platforms: Callable[[], Sequence[str]],
        active: Callable[[], int],
        disk_free: Callable[[], int],
        load: Callable[[], Load],
        broken: Callable[[], Sequence[Broken]],
        sync_now: Callable[[], None],
        clock: Clock,
        emit: Emit,
    ) -> None:
        self._lpm = lpm
        self._upstream = upstream
        self._settings = settings
        self._control = control
        self._worker_id = worker_id
        self._name = name
        self._version = version
        self._platforms = platforms
        self._known_platforms = known_platforms
        self._active = active
        self._disk_free = disk_free
        self._load = load
        self._broken = broken
        self._sync_now = sync_now
        self._clock = clock
        self._emit = emit
        self._noted = self._orders()
        self._depth = QueueDepth()
        self._window = Window(completed=0, failed=0, average_execution_time_ms=None)
        self._blocked: Sequence[str] = ()
        self._leases: Sequence[Lease] = ()
        self._claimed_by_peers = 0
        self._heard: int | None = None
        """How many commands of the upstream this process has seen; None: it has not looked yet."""
        self._unshared: list[str] = []
        """Commands that peers cannot see yet."""
        self.absence = UpstreamState(HEARTBEAT, lpm, sync, clock, emit)

    @property
    def away(self) -> Offline | None:
        return self.absence.away

    async def step(self) -> float:
        """Of several processes on one store, one worker upstream, one beats; the others hear its commands of it."""
        await self._hear_of_peers()
        if not self._lpm.leader_locks.take("heartbeat"):
            return min(self._settings.seconds, _NOT_ON_DUTY_SECONDS)
        if self.absence.is_hastened and (wait := self.absence.remaining) > 0:
            return wait
        try:
            heard = await self._upstream.heartbeat(await self._beat())
        except (Unavailable, Unauthorized) as error:
            return await self._went_away(error)
        except UpstreamError as error:
            return await self._went_away(Unavailable(str(error)))
        await self.absence.worked()
        with contextlib.suppress(StoreError):  # the next beat says it again
            if heard.lease_expires_at and heard.leases_since:
                await self._lpm.leases.extend_all(heard.lease_expires_at, heard.leases_since)
            if heard.leases:
                await self._lpm.leases.extend(heard.leases)
        self._unshared += heard.commands
        await self._tell_peers()
        await self._follow(heard.commands)
        return self._settings.seconds

    async def goodbye(self) -> None:
        """Once everything has ended: that this worker leaves, and how its queue stands. Orders come too late for it.

        Not while the upstream is away or has asked for silence, and not while a peer process goes on.
        """
        if self.absence.remaining > 0 or not is_last_process(self._lpm):
            return
        with contextlib.suppress(UpstreamError):
            await self._upstream.heartbeat(replace(await self._beat(), active_tasks=0, leaving=True))

    async def _beat(self) -> Heartbeat:
        try:
            self._depth = await self._lpm.queue_depth()
            self._window = await self._lpm.metrics.window(60.0)
            paused = await self._lpm.paused_platforms()
            self._blocked = sorted(platform for platform, (until, _) in paused.items() if until)
            self._leases = await self._lpm.leases.list()
            self._claimed_by_peers = await self._lpm.claimed_by_peers()
        except StoreError:
            pass  # the store is in trouble: what was last known is sent, so that the upstream sees us alive
        load = self._load()
        return Heartbeat(
            active_tasks=self._active() + self._claimed_by_peers,
            completed_last_minute=self._window.completed,
            failed_last_minute=self._window.failed,
            platforms=self._platforms(),
            cpu_percent=load.cpu_percent,
            memory_percent=load.memory.percent,
            queue=self._depth,
            version=self._version,
            paused=self._control.paused,
            disk_free_bytes=self._disk_free(),
            blocked=self._blocked,
            broken=self._broken(),
            leases=self._leases,
        )

    async def _went_away(self, error: Unavailable | Unauthorized) -> float:
        """Never so long that the upstream forgets us, unless it does not want to know us."""
        pause = max(self._settings.seconds, await self.absence.failed(error))
        return pause if isinstance(error, Unauthorized) else min(pause, _LONGEST_SILENCE_SECONDS)

    async def _hear_of_peers(self) -> None:
        """What the upstream ordered since the last look, as the process that beats has noted it."""
        try:
            shared = await self._lpm.state.get(_COMMANDS_STATE, _Commands) or _Commands()
        except StoreError:
            return
        new = 0 if self._heard is None else shared.count - self._heard
        self._heard = shared.count
        await self._follow(shared.last[-new:] if new > 0 else ())

    async def _tell_peers(self) -> None:
        if not self._unshared:
            return
        with contextlib.suppress(StoreError):  # tried again at the next beat
            shared = await self._lpm.state.get(_COMMANDS_STATE, _Commands) or _Commands()
            count, last = shared.count + len(self._unshared), (*shared.last, *self._unshared)[-_MOST_SHARED:]
            await self._lpm.state.put(_COMMANDS_STATE, _Commands(count, last))
            self._heard = count
            self._unshared.clear()

    async def _follow(self, commands: Sequence[str]) -> None:
        for command in commands:
            self._emit(CommandReceived(command=command, known=self._obey(command)))
        await self._note_orders()

    def _orders(self) -> Commands:
        return Commands(
            worker_id=self._worker_id,
            owner=self._lpm.owner_id,
            since=self._clock.now(),
            paused=self._control.paused,
            platforms=tuple(sorted(self._control.platforms or ())),
        )

    async def _note_orders(self) -> None:
        """For those who look at the store, when they have changed; at the next beat, if the store cannot take it."""
        now, noted = self._orders(), self._noted
        if (now.paused, now.platforms) != (noted.paused, noted.platforms):
            with contextlib.suppress(StoreError):
                await self._lpm.state.put(f"{COMMANDS_STATE}{self._name}", now)
                self._noted = now

    def _obey(self, command: str) -> bool:
        """Whether the command is one that is known."""
        verb, colon, names = command.strip().partition(":")
        match verb.lower(), colon, names:
            case "pause", "", "":
                self._control.paused = True
            case "resume", "", "":
                self._control.paused = False
            case "drain", "", "":
                self._control.leave("the gateway's command drain")
            case "stop", "", "":
                self._control.leave("the gateway's command stop", at_once=True)
            case "sync-now", "", "":
                self._sync_now()
            case "platforms", ":", _:
                return self._restrict(names)
            case _:
                return False
        return True

    def _restrict(self, names: str) -> bool:
        wanted = frozenset(name.strip() for name in names.split(",") if name.strip())
        usable = wanted & frozenset(self._known_platforms())
        if wanted and not usable:
            return False
        self._control.platforms = usable or None
        return True
