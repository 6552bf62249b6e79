"""Results stored per second: through the gateway, by the bare driver, through the peer, one right after the other."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from bench.gateway import bare, servers
from bench.gateway.posting import client, post
from bench.gateway.work import BATCH, batches_of_tasks, worker_of
from bench.store.work import PLATFORM
from bench.timing import Run
from parcelpost.clock import SystemClock
from parcelpost.gateway.opening import open_ledger

_ATTEMPTS = 5
_LEASE = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Trio:
    """Measured one after the other on the same disk."""

    ours: Run
    bare: Run
    peer: Run

    @property
    def to_bare(self) -> float:
        return self.ours.rate / self.bare.rate

    @property
    def to_peer(self) -> float:
        return self.ours.rate / self.peer.rate


def on_sqlite(folder: Path, batches: int, peer_batches: int) -> Trio:
    filled, empty = folder / "gateway.db", folder / "bare.db"
    asyncio.run(_lease(str(filled), batches))
    ours = _through(servers.gateway, str(filled), folder, batches)
    asyncio.run(_lease(str(empty), 0))
    inserted = bare.insert_sqlite(bare.sqlite_rows(filled), empty, batches)
    peer = _through(servers.peer, f"sqlite+aiosqlite:///{folder / 'peer.db'}", folder, peer_batches)
    return Trio(ours, inserted, peer)


def on_postgres(server: str, folder: Path, batches: int, peer_batches: int) -> Trio:
    filled = asyncio.run(servers.fresh_database(server, "gateway"))
    asyncio.run(_lease(filled, batches))
    ours = _through(servers.gateway, filled, folder, batches)
    rows = asyncio.run(bare.postgres_rows(filled))
    empty = asyncio.run(servers.fresh_database(server, "bare"))
    asyncio.run(_lease(empty, 0))
    inserted = asyncio.run(bare.insert_postgres(rows, empty, batches))
    other = asyncio.run(servers.fresh_database(server, "peer"))
    peer = _through(servers.peer, other.replace("postgresql://", "postgresql+asyncpg://"), folder, peer_batches)
    return Trio(ours, inserted, peer)


async def _lease(database: str, batches: int) -> None:
    """The tasks of the results to come, each held by the worker that will send its result, as in life."""
    clock = SystemClock()
    async with open_ledger(database, _ATTEMPTS, clock) as ledger:
        for batch, tasks in enumerate(batches_of_tasks(batches)):
            now = clock.now()
            await ledger.add_tasks(tasks, now)
            granted = await ledger.grant(worker_of(batch), [PLATFORM], BATCH, now, now + _LEASE)
            if len(granted) != BATCH:
                raise RuntimeError(f"{len(granted)} tasks were granted, not {BATCH}")


def _through(serve: servers.Serve, database: str, folder: Path, batches: int) -> Run:
    with serve(database, folder) as url, client(url, batches) as process:
        return post(process, batches)
