"""A real store and a real HTTP client against the hostile gateway, with a clock that a test turns."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path

from parcelpost.clock import Clock, ManualClock
from parcelpost.events import Emit, Event, ignore
from parcelpost.model import Claim, Page, Result, Source, Target, Task
from parcelpost.scrapers.factory import ScraperFactory
from parcelpost.scrapers.learning.ranking import Ranking
from parcelpost.settings import Settings
from parcelpost.settings.schema import GatewaySettings, SyncSettings
from parcelpost.storage.lpm import LocalPersistenceManager
from parcelpost.storage.options import StoreOptions
from parcelpost.upstream.base import Upstream
from parcelpost.upstream.gateway import GatewayClient
from parcelpost.upstream.null import NullUpstream
from parcelpost.worker.backoff import SYNC, Offline
from parcelpost.worker.context import Context
from parcelpost.worker.control import Control
from parcelpost.worker.janitor import Janitor
from parcelpost.worker.learning import Learning
from parcelpost.worker.resources import Resources
from parcelpost.worker.status import Publisher, WorkerStatus, publish
from parcelpost.worker.sync import SyncManager
from tests.hostile import HostileGateway

TIMEOUT_SECONDS = 3.0
DEFAULTS = Settings()
SOON_BUSY = StoreOptions(busy_timeout_seconds=0.01)
"""For `nobody_writes`."""


def a_context(
    lpm: LocalPersistenceManager,
    upstream: Upstream,
    clock: Clock,
    emit: Emit = ignore,
    settings: Settings = DEFAULTS,
    *,
    factory: ScraperFactory | None = None,
    control: Control | None = None,
    name: str = "worker-1",
) -> Context:
    """Of a worker with the id `worker-1`; the only platform is `echo`, unless a factory knows others."""
    return Context(
        lpm,
        upstream,
        factory or ScraperFactory(clock, installed=list),
        settings,
        control=control or Control(),
        clock=clock,
        emit=emit,
        worker_id="worker-1",
        name=name,
    )


class Rig:
    def __init__(
        self, lpm: LocalPersistenceManager, gateway: HostileGateway, client: GatewayClient, clock: ManualClock
    ) -> None:
        self.lpm = lpm
        self.gateway = gateway
        self.client = client
        self.clock = clock
        self.events: list[Event] = []
        self.context = self.new_context()
        self.sync = SyncManager(self.context)

    def new_context(self, settings: Settings = DEFAULTS) -> Context:
        return a_context(self.lpm, self.client, self.clock, self.events.append, settings)

    def new_sync(self, **settings: float | int) -> SyncManager:
        """As after a restart, with nothing remembered but what the store holds."""
        self.context = self.new_context(Settings(sync=SyncSettings(**settings)))  # type: ignore[arg-type]
        return SyncManager(self.context)

    async def publish(self, name: str = "worker-1") -> None:
        """As the janitor does it."""
        now = self.clock.now()
        status = WorkerStatus(
            name=name,
            worker_id="worker-1",
            owner=self.lpm.owner_id,
            published_at=now,
            started_at=now,
            mode="ondemand",
            outages=self.context.upstream_state.outages,
            slow=self.sync.batch_size.slow,
        )
        await publish(self.lpm.state, status)

    @property
    def offline(self) -> Offline | None:
        """Why nothing is delivered."""
        return self.context.upstream_state.offline(SYNC)

    def seen(self, kind: type[Event]) -> list[Event]:
        return [event for event in self.events if isinstance(event, kind)]

    async def claim(self, task_id: str, parcel_id: str = "") -> Claim:
        await self.lpm.add_task(self._task(task_id, parcel_id))
        (claim,) = await self.lpm.claim(1)
        self.gateway.handed_out.append(task_id)
        return claim

    def _task(self, task_id: str, parcel_id: str) -> Task:
        target = Target(parcel_id=parcel_id or f"parcel-{task_id}", state="CT", county="hartford")
        return Task(task_id=task_id, platform="echo", target=target, source=Source.GATEWAY)

    async def save(self, *task_ids: str, parcel_id: str = "", page: bytes | None = None, fill: int = 0) -> None:
        """Results of finished tasks, waiting to be sent in this order."""
        await self.lpm.add_tasks([self._task(task_id, parcel_id) for task_id in task_ids])
        claims = {claim.task.task_id: claim for claim in await self.lpm.claim(len(task_ids))}
        self.gateway.handed_out += task_ids
        for task_id in task_ids:
            claim = claims[task_id]
            data = {"task": task_id, "fill": "x" * fill}
            kept = None if page is None else Page(body=page)
            await self.lpm.save_result(claim, Result(data=data, scraped_at=self.clock.now(), page=kept))

    async def settle(self, turns: int = 200) -> None:
        """Turns of the sync, with time going by as it wishes, until the outbox is empty. Fails if that never comes."""
        for _ in range(turns):
            self.clock.advance(await self.sync.step())
            if not await self.lpm.get_unsynced_results(1):
                return
        waiting = [(entry.task_id, entry.last_error) for entry in await self.lpm.get_unsynced_results(20)]
        raise AssertionError(f"still waiting after {turns} turns: {waiting}, offline: {self.offline}")


@contextmanager
def nobody_writes(rig: Rig) -> Iterator[None]:
    """Another program holds the store's file."""
    with closing(sqlite3.connect(rig.lpm.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


@asynccontextmanager
async def rigged(
    folder: Path,
    gateway: HostileGateway,
    options: StoreOptions = StoreOptions(),
    *,
    timeout_seconds: float = TIMEOUT_SECONDS,
    waits: bool = False,
) -> AsyncIterator[Rig]:
    clock = ManualClock()
    settings = GatewaySettings(url=gateway.url, timeout_seconds=timeout_seconds)
    async with (
        LocalPersistenceManager.open(folder / "store.db", clock=clock, options=options, waits=waits) as lpm,
        GatewayClient.open(settings, gateway.token, "worker-1", clock.now) as client,
    ):
        yield Rig(lpm, gateway, client, clock)


def a_janitor(lpm: LocalPersistenceManager, clock: Clock, emit: Emit, settings: Settings = DEFAULTS) -> Janitor:
    """Of a worker that publishes nothing but its name."""
    context = a_context(lpm, NullUpstream(), clock, emit, settings)
    resources = Resources(context, browsers=None, most_browsers=0)
    started_at = clock.now()

    def status() -> WorkerStatus:
        return WorkerStatus(
            name=context.name,
            worker_id=context.worker_id,
            owner=lpm.owner_id,
            published_at=clock.now(),
            started_at=started_at,
            mode="standalone",
        )

    learning, publisher = Learning(context, Ranking()), Publisher(context, status)
    return Janitor(context, resources, learning, publisher, progress_seconds=60.0)
