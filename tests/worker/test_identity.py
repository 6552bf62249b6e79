"""One store is one worker upstream, whichever of its processes speaks."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from parcelpost.clock import SystemClock
from parcelpost.errors import AnotherGateway, InvalidSettings
from parcelpost.events import Event, WorkerIdChanged, ignore
from parcelpost.model import Result, Source, Target, Task
from parcelpost.settings.schema import GatewaySettings
from parcelpost.storage.lpm import LocalPersistenceManager
from parcelpost.upstream.gateway import GatewayClient
from parcelpost.upstream.http import base_url
from parcelpost.worker.backoff import SYNC
from parcelpost.worker.identity import GATEWAY_STATE, KnownGateway, process_name, settle_worker_id
from parcelpost.worker.sync import SyncManager
from tests.gateway.served import Served, served
from tests.hostile import HostileGateway
from tests.worker.rig import a_context

CLOCK = SystemClock()


def opened(store: Path) -> AbstractAsyncContextManager[LocalPersistenceManager]:
    return LocalPersistenceManager.open(store, worker="worker")


async def test_the_first_process_decides_the_id_and_every_other_has_the_same(tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    async with opened(store) as first, opened(store) as second:
        made = await settle_worker_id(first, "", ignore)
        assert await settle_worker_id(second, "", ignore) == made
        assert [process_name(one, made) for one in (first, second)] == [made, f"{made}-2"]
        with pytest.raises(
            InvalidSettings, match=f"worker.id is another, but the store .* uses the worker ID {made} upstream"
        ):
            await settle_worker_id(second, "another", ignore)
    async with opened(store) as later:
        assert await settle_worker_id(later, "", ignore) == made, "kept over restarts"


async def test_another_id_waits_until_nothing_is_held_under_the_old_one(tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    target = Target(parcel_id="1", state="CT", county="hartford")
    events: list[Event] = []
    async with opened(store) as lpm:
        assert await settle_worker_id(lpm, "old", events.append) == "old"
        await lpm.add_task(Task(task_id="t1", platform="echo", target=target, source=Source.GATEWAY))
        with pytest.raises(InvalidSettings, match="collected under that ID") as refused:
            await settle_worker_id(lpm, "new", events.append)
        assert "worker.id=old" in refused.value.hint
        assert "store upstream --worker-id new" in refused.value.hint
        (claim,) = await lpm.claim(1)
        result_id = await lpm.save_result(claim, Result(data={}, scraped_at=SystemClock().now()))
        with pytest.raises(InvalidSettings, match="collected under that ID"):
            await settle_worker_id(lpm, "new", events.append)
        await lpm.mark_synced([result_id or ""])
        assert events == []
        assert await settle_worker_id(lpm, "new", events.append) == "new"
        assert events == [WorkerIdChanged(old="old", new="new")]
        await lpm.add_task(Task(task_id="t2", platform="echo", target=target, source=Source.CLI))
        assert await settle_worker_id(lpm, "newer", events.append) == "newer", "a task of its own is no gateway's"


class Place:
    """A store, and the address at which it has its gateway. Who answers there changes."""

    def __init__(self, lpm: LocalPersistenceManager, port: int) -> None:
        self.lpm = lpm
        self.port = port
        self.settings = GatewaySettings(url=f"http://127.0.0.1:{port}", timeout_seconds=30)
        self.known = KnownGateway(lpm, base_url(self.settings), CLOCK)

    async def deliver(self, task_id: str, client: GatewayClient) -> str:
        """Why it could not be; '' if it was."""
        if await self.lpm.get_result(task_id) is None:
            target = Target(parcel_id=task_id, state="CT", county="hartford")
            await self.lpm.add_task(Task(task_id=task_id, platform="echo", target=target, source=Source.CLI))
            (claim,) = await self.lpm.claim(1)
            await self.lpm.save_result(claim, Result(data={"parcel_id": task_id}, scraped_at=CLOCK.now()))
        context = a_context(self.lpm, client, CLOCK)
        await SyncManager(context).step()
        offline = context.upstream_state.offline(SYNC)
        assert bool(offline) == bool(await self.lpm.get_unsynced_results(1))
        return offline.reason if offline else ""


@asynccontextmanager
async def place(folder: Path, port: int) -> AsyncIterator[tuple[Place, GatewayClient]]:
    async with opened(folder / "store.db") as lpm:
        found = Place(lpm, port)
        async with GatewayClient.open(found.settings, "a-token", "w", CLOCK.now, found.known) as client:
            yield found, client


async def stored(gateway: Served) -> int:
    return (await gateway.ledger.counts())["results"]


async def test_a_new_gateway_in_the_place_of_the_known_one_gets_nothing_until_it_is_accepted(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    async with served(first) as gateway:
        port = urlsplit(gateway.address).port or 0
        ledger_id = await gateway.ledger.ledger_id()
        async with place(tmp_path, port) as (here, client):
            assert await here.deliver("t1", client) == ""
            assert (await here.known.expected(), await stored(gateway)) == (ledger_id, 1)
    async with served(second, port=port) as other, place(tmp_path, port) as (here, client):
        assert await other.ledger.ledger_id() != ledger_id
        why = await here.deliver("t2", client)
        assert "returned 421" in why
        assert f"the request is for the one with ledger {ledger_id}" in why
        with pytest.raises(AnotherGateway, match="421") as refused:
            await client.get_work(1, ["echo"])
        assert "store upstream --accept-gateway" in refused.value.hint
        assert await stored(other) == 0
    shutil.copytree(first, tmp_path / "restored")
    async with served(tmp_path / "restored", port=port) as gateway, place(tmp_path, port) as (here, client):
        assert await here.deliver("t2", client) == "", "a ledger from a backup is the same one"
        assert await stored(gateway) == 2
    async with served(second, port=port) as other, place(tmp_path, port) as (here, client):
        assert await here.deliver("t3", client)
        await here.lpm.state.delete_prefix(GATEWAY_STATE)
        assert await here.deliver("t3", client) == "", "accepted, while the worker runs"
        assert await stored(other) == 1


async def test_a_gateway_without_an_id_works_as_ever_and_is_not_exchanged_for_one_that_has_one_unnoticed(
    tmp_path: Path,
) -> None:
    async with HostileGateway(token="a-token") as plain:
        async with place(tmp_path, plain.port) as (here, client):
            assert await here.deliver("t1", client) == ""
            assert await here.deliver("t2", client) == ""
            assert [request.name for request in plain.requests] == ["results", "results"], "nothing more is asked"
        await plain.stop()
        async with served(tmp_path / "new", port=plain.port) as new, place(tmp_path, plain.port) as (here, client):
            assert "the request is for one without a ledger ID" in await here.deliver("t3", client)
            assert await stored(new) == 0
        await plain.start()
        async with place(tmp_path, plain.port) as (here, client):
            assert await here.deliver("t3", client) == ""


async def test_what_a_gateway_without_an_id_took_in_the_place_of_the_known_one_is_not_delivered(tmp_path: Path) -> None:
    async with served(tmp_path / "known") as gateway:
        port = urlsplit(gateway.address).port or 0
        async with place(tmp_path, port) as (here, client):
            assert await here.deliver("t1", client) == ""
            gateway.stop.set()
            plain = HostileGateway(token="a-token")
            plain.port = port
            await until_started(plain)
            try:
                assert "a different gateway responds" in await here.deliver("t2", client)
                tried = plain.count("results")
                assert tried <= 1, "it is known only by its answer"
                assert "a different gateway responds" in await here.deliver("t2", client)
                assert plain.count("results") == tried, "from then on it is asked which it is, and gets nothing"
            finally:
                await plain.stop()
    async with served(tmp_path / "known", port=port) as gateway, place(tmp_path, port) as (here, client):
        assert await here.deliver("t2", client) == ""
        assert await stored(gateway) == 2


async def until_started(gateway: HostileGateway) -> None:
    """The one before it may not have left its port yet."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await gateway.start()
            except OSError:
                await asyncio.sleep(0.05)
