"""An outbox full of results, drained by the real sync, and the same bodies posted by a bare loop."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from bench.store.contenders import OPTIONS, store_path
from bench.store.work import make_tasks, make_work
from bench.timing import Run, run_coroutines
from parcelpost.clock import SystemClock
from parcelpost.events import ignore
from parcelpost.protocol import client
from parcelpost.scrapers.factory import ScraperFactory
from parcelpost.settings import Settings
from parcelpost.settings.schema import GatewaySettings
from parcelpost.storage.lpm import LocalPersistenceManager
from parcelpost.upstream.gateway import GatewayClient
from parcelpost.upstream.http import open_client
from parcelpost.worker.context import Context
from parcelpost.worker.control import Control
from parcelpost.worker.sync import SyncManager

_SETTINGS = Settings()
_TOKEN, _WORKER = "token", "bench"
_CALLERS = 256
_RECORDS = 1_000


async def fill(folder: Path, results: int) -> None:
    """Finished tasks, each of another parcel, with records of 2 KB that wait to be sent."""
    records = make_work(_RECORDS).results
    async with LocalPersistenceManager.open(store_path(folder), options=OPTIONS) as lpm:
        await lpm.add_tasks(make_tasks(results))

        async def save(number: int) -> None:
            (claim,) = await lpm.claim(1)
            await lpm.save_result(claim, records[number % _RECORDS])

        await run_coroutines(_CALLERS, results, float("inf"), save)


async def bodies(folder: Path) -> list[bytes]:
    """What the sync would post, batch by batch, encoded before any clock starts."""
    made: list[bytes] = []
    after, now, most = 0, SystemClock().now(), _SETTINGS.sync
    async with LocalPersistenceManager.open(store_path(folder), options=OPTIONS) as lpm:
        while batch := await lpm.get_unsynced_results(most.batch_size, most.batch_bytes, after=after):
            made.append(client.results_body(batch, now))
            after = batch[-1].seq
    return made


async def post(posted: Sequence[bytes], url: str, results: int) -> Run:
    """The bare loop: one body after the other, with the client that a worker has."""
    async with open_client(_TOKEN, _WORKER) as client:
        start = time.perf_counter()
        for body in posted:
            headers = {"Content-Type": "application/json"}
            answer = await client.post(f"{url}/internal/results", content=body, headers=headers)
            answer.raise_for_status()
        return Run(results, time.perf_counter() - start)


async def drain(folder: Path, url: str, results: int) -> Run:
    """The sync itself, from its first step until it has seen that nothing is left."""
    clock = SystemClock()
    async with (
        LocalPersistenceManager.open(store_path(folder), options=OPTIONS) as lpm,
        GatewayClient.open(GatewaySettings(url=url), _TOKEN, _WORKER, clock.now) as upstream,
    ):
        context = Context(lpm, upstream, ScraperFactory(clock), _SETTINGS, control=Control(), clock=clock, emit=ignore)
        sync = SyncManager(context)
        start = time.perf_counter()
        while await sync.step() == 0:
            pass
        run = Run(results, time.perf_counter() - start)
        if await lpm.get_unsynced_results(1):
            raise RuntimeError(f"not everything was delivered: {context.upstream_state.outages}")
    return run
