"""Who has a task, and for how long, whatever clocks say and whoever dies."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from parcelpost.client.firestore import FirestoreClient
from parcelpost.errors import NotNow
from parcelpost.model import QueueDepth, Source
from tests.client.making import a_beat
from tests.firestore.conftest import ROOT, Open
from tests.firestore.making import add_tasks, task
from tests.firestore.server import FirestoreServer, lost

NOTHING = msgspec.structs.replace(a_beat(), active_tasks=0, queue=QueueDepth())
MINUTE = timedelta(minutes=1)


async def _ids(client: FirestoreClient, capacity: int = 100) -> list[str]:
    return [task.task_id for task in (await client.get_work(capacity, ["echo"])).tasks]


async def test_a_heartbeat_extends_the_leases_that_are_half_over(
    server: FirestoreServer, client: FirestoreClient
) -> None:
    add_tasks(server, "old", "young")
    assert await _ids(client, 1) == ["old"]
    first = task(server, "old")["lease_expires_at"]
    server.documents.ahead = 5 * MINUTE
    assert await _ids(client, 1) == ["young"]
    await client.heartbeat(a_beat())
    assert task(server, "old")["lease_expires_at"] == first, "not yet: that would cost a write for each beat"
    server.documents.ahead = 8 * MINUTE
    young = task(server, "young")
    for _ in range(2):  # by the first it learns how late it is
        await client.heartbeat(a_beat())
    assert task(server, "old")["lease_expires_at"] - first > 7 * MINUTE
    assert task(server, "young") == young


async def test_no_lease_is_extended_for_longer_than_a_day(server: FirestoreServer, client: FirestoreClient) -> None:
    add_tasks(server, "t1")
    assert await _ids(client) == ["t1"]
    for minutes in range(0, 25 * 60, 7):
        server.documents.ahead = timedelta(minutes=minutes)
        await client.heartbeat(a_beat())
    assert await _ids(client) == ["t1"], "it came back"
    assert task(server, "t1")["attempts"] == 2


async def test_a_worker_whose_clock_is_wrong_takes_nobodys_task(server: FirestoreServer, open_worker: Open) -> None:
    add_tasks(server, "t1", "t2")

    def tomorrow() -> datetime:
        return datetime.now(UTC) + timedelta(days=1)

    async with open_worker("w-1") as right, open_worker("w-2", tomorrow) as wrong:
        assert await _ids(right, 1) == ["t1"]
        (other,) = (await wrong.get_work(10, ["echo"])).tasks
        assert other.task_id == "t2"
        assert other.lease_expires_at is not None
        assert abs(other.lease_expires_at - tomorrow() - 15 * MINUTE) < MINUTE, "by its own clock"
        heard = await wrong.heartbeat(a_beat())
        assert heard.lease_expires_at is not None
        assert abs(heard.lease_expires_at - tomorrow() - 7.5 * MINUTE) < MINUTE
        assert await _ids(right) == []
    assert abs(task(server, "t2")["lease_expires_at"] - datetime.now(UTC) - 15 * MINUTE) < MINUTE


async def test_a_clock_that_jumps_takes_nobodys_task(server: FirestoreServer, open_worker: Open) -> None:
    add_tasks(server, "t1", "t2")
    jump = timedelta(0)
    async with open_worker("w-1") as steady, open_worker("w-2", lambda: datetime.now(UTC) + jump) as jumping:
        assert await _ids(steady, 1) == ["t1"]
        assert await _ids(jumping, 1) == ["t2"]
        jump = timedelta(hours=1)
        assert await _ids(jumping) == []
        heard = await jumping.heartbeat(a_beat())
        assert heard.lease_expires_at is not None
        assert abs(heard.lease_expires_at - datetime.now(UTC) - jump - 7.5 * MINUTE) < MINUTE, "by its own clock"
    assert (task(server, "t1")["worker"], task(server, "t1")["attempts"]) == ("w-1", 1)


async def test_what_never_reached_the_store_of_a_worker_that_died_comes_back(
    server: FirestoreServer, open_worker: Open
) -> None:
    add_tasks(server, "stored", "unknown")
    async with open_worker("w-1") as before:
        assert await _ids(before, 1) == ["stored"]
        assert await _ids(before, 1) == ["unknown"]  # whoever asks again has stored the first
        await before.heartbeat(a_beat())
    async with open_worker("w-1") as after, open_worker("w-2") as other:
        server.documents.ahead = 10 * MINUTE
        await after.heartbeat(a_beat())
        server.documents.ahead = 16 * MINUTE
        assert await _ids(other) == ["unknown"]
        server.documents.ahead = 24 * MINUTE
        assert await _ids(other) == []


async def test_what_was_claimed_long_enough_ago_counts_as_stored(server: FirestoreServer, open_worker: Open) -> None:
    add_tasks(server, "t1")
    async with open_worker("w-1") as before:
        assert await _ids(before) == ["t1"]
        server.documents.ahead = MINUTE
        for _ in range(2):
            await before.heartbeat(a_beat())
    async with open_worker("w-1") as after, open_worker("w-2") as other:
        server.documents.ahead = 10 * MINUTE
        await after.heartbeat(a_beat())
        server.documents.ahead = 16 * MINUTE
        assert await _ids(other) == []


async def test_a_worker_that_has_nothing_gives_back_what_it_never_got(
    server: FirestoreServer, client: FirestoreClient
) -> None:
    add_tasks(server, "t1")
    server.play("Commit", lost())
    with pytest.raises(NotNow):
        await _ids(client)
    assert task(server, "t1")["status"] == "leased"
    await client.heartbeat(NOTHING)
    assert task(server, "t1")["status"] == "leased", "it may be on its way still"
    server.documents.ahead = MINUTE
    for _ in range(2):
        await client.heartbeat(NOTHING)
    assert (task(server, "t1")["status"], task(server, "t1")["attempts"]) == ("queued", 1)
    assert await _ids(client) == ["t1"]


async def test_a_task_that_cannot_be_read_fails_alone(server: FirestoreServer, client: FirestoreClient) -> None:
    add_tasks(server, "a-bad", target="none")
    add_tasks(server, "b-good", "c-unordered", target={"parcel_id": 7.0, "state": "CT", "county": ""})
    add_tasks(server, "c-unordered", priority=...)
    work = await client.get_work(10, ["echo"])
    assert [(bad.task_id, bad.problem) for bad in work.bad] == [("a-bad", "target is not an object")]
    (good,) = work.tasks
    assert (good.task_id, good.target.parcel_id, good.source) == ("b-good", "7", Source.FIRESTORE)
    assert task(server, "a-bad")["status"] == "failed"
    assert task(server, "a-bad")["error"] == "the task cannot be read: target is not an object"
    assert task(server, "c-unordered")["status"] == "queued", "Firestore leaves it out of the query"


async def test_more_platforms_than_a_query_takes(server: FirestoreServer, client: FirestoreClient) -> None:
    for number in range(70):
        add_tasks(server, f"t{number:02}", platform=f"platform-{number}", priority=1 + number % 4)
    work = await client.get_work(5, [f"platform-{number}" for number in range(70)])
    assert [task.task_id for task in work.tasks] == ["t00", "t04", "t08", "t12", "t16"]


async def test_hundreds_of_leases_are_looked_after(server: FirestoreServer, client: FirestoreClient) -> None:
    add_tasks(server, *(f"t{number:04}" for number in range(500)))
    taken = [task_id for _ in range(5) for task_id in await _ids(client)]
    assert len(set(taken)) == 500
    server.documents.ahead = 8 * MINUTE
    for _ in range(2):
        await client.heartbeat(a_beat())
    until = min(one["lease_expires_at"] for one in server.all(f"{ROOT}/tasks").values())
    assert until > datetime.now(UTC) + 20 * MINUTE


async def test_an_empty_queue_is_left_alone_for_a_while(client: FirestoreClient) -> None:
    assert (await client.get_work(10, ["echo"])).retry_after == 30.0
