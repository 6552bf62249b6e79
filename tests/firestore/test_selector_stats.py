"""Signals are counted once, however often they are sent, and by no two many workers in one document."""

from __future__ import annotations

from datetime import timedelta

import pytest

from parcelpost.errors import Unavailable
from parcelpost.model import Signal
from parcelpost.upstream.firestore.client import FirestoreClient
from parcelpost.upstream.firestore.fleet import SHARDS
from tests.firestore.conftest import ROOT, Open
from tests.firestore.documents import Code
from tests.firestore.server import FirestoreServer, fails, lost

FIRST = "019a00000000aaaaaaaaaaaaaaaaaaaa"


def _signals(number: int, selectors: int = 1) -> list[Signal]:
    return [
        Signal(platform="a", field=f"f{one % selectors}", selector="c", selector_type="css", success=one % 2 == 0)
        for one in range(number)
    ]


async def _samples(client: FirestoreClient) -> int:
    return sum(one.samples for one in await client.get_selectors("a"))


async def test_signals_whose_receipt_was_lost_count_once(server: FirestoreServer, client: FirestoreClient) -> None:
    server.play("Commit", lost())
    with pytest.raises(Unavailable):
        await client.submit_signals(_signals(5), FIRST)
    await client.submit_signals(_signals(5), FIRST)
    assert await _samples(client) == 5


async def test_what_came_since_is_counted_too_when_a_batch_is_sent_again(
    server: FirestoreServer, open_worker: Open
) -> None:
    async with open_worker("w-1") as client, open_worker("w-2") as peer:
        server.play("Commit", lost())
        with pytest.raises(Unavailable):
            await client.submit_signals(_signals(5), FIRST)
        await peer.submit_signals(_signals(8), FIRST)  # a process on the same store
        await client.submit_signals(_signals(8), FIRST)
        await client.submit_signals(_signals(2), "another")
        (ranked,) = await client.get_selectors("a")
        assert (ranked.samples, ranked.success_rate) == (10, 0.5)


async def test_a_batch_that_failed_halfway_is_counted_to_its_end(
    server: FirestoreServer, client: FirestoreClient
) -> None:
    signals = _signals(600, selectors=300)
    server.meanwhile("Commit", lambda: server.play("Commit", fails(Code.UNAVAILABLE)))
    with pytest.raises(Unavailable):
        await client.submit_signals(signals, FIRST)
    assert 0 < await _samples(client) < 600
    await client.submit_signals(signals, FIRST)
    assert await _samples(client) == 600


async def test_what_cannot_be_counted_is_passed_over(server: FirestoreServer, client: FirestoreClient) -> None:
    odd = Signal(platform="a", field="f", selector="x" * 2_000, selector_type="css", success=True)
    await client.submit_signals([odd, *_signals(1), odd], FIRST)
    await client.submit_signals([odd], "another")
    assert await _samples(client) == 1


async def test_batches_do_not_pile_up(server: FirestoreServer, client: FirestoreClient) -> None:
    await client.submit_signals(_signals(1), FIRST)
    ((name, batch),) = server.all(f"{ROOT}/signal_batches").items()
    assert batch["expires_at"] - server.documents.now() > timedelta(days=59), "Firestore removes it then"
    assert not name.startswith(FIRST[:4]), "ids that rise with time are a hot spot"


async def test_a_large_fleet_writes_to_many_documents_and_reads_their_sum(
    server: FirestoreServer, open_worker: Open
) -> None:
    for number in range(64):
        async with open_worker(f"w-{number}") as client:
            await client.submit_signals(_signals(2), f"{FIRST}-{number}")
    documents = server.all(f"{ROOT}/selectors")
    assert SHARDS // 2 < len(documents) <= SHARDS
    async with open_worker() as client:
        (ranked,) = await client.get_selectors("a")
        assert (ranked.samples, ranked.success_rate) == (128, 0.5)
        await client.submit_signals(_signals(2), "more")
        assert len(server.all(f"{ROOT}/selectors")) <= SHARDS, "a worker stays with its own"
