"""Which tasks a worker gets, whatever stands in their documents."""

from __future__ import annotations

from datetime import timedelta

import pytest

from parcelpost.model import Source
from parcelpost.upstream.firestore.client import FirestoreClient
from parcelpost.upstream.firestore.encoding import size
from tests.firestore.conftest import Open
from tests.firestore.documents import MOST_DOCUMENT_BYTES
from tests.firestore.making import BEGIN, add_tasks, lease_of, task
from tests.firestore.server import FirestoreServer
from tests.upstream.factories import an_entry

MINUTE = timedelta(minutes=1)


async def _ids(client: FirestoreClient) -> list[str]:
    return [task.task_id for task in (await client.get_work(100, ["echo"])).tasks]


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


@pytest.mark.parametrize("room", [1, 5_000])
async def test_a_task_without_room_for_a_lease_stands_in_nobodys_way(
    server: FirestoreServer, client: FirestoreClient, room: int
) -> None:
    add_tasks(server, "big", notes="")
    empty = size(task(server, "big")) + len("parcelpost/main/tasks/big/") + 16 + 32
    add_tasks(server, "big", notes="x" * (MOST_DOCUMENT_BYTES - empty - room))
    add_tasks(server, "good", notes=[{"numbers": list(range(1_000)), "at": BEGIN}, None, True])
    work = await client.get_work(10, ["echo"])
    assert [one.task_id for one in work.tasks] == ["good"]
    ((bad, problem),) = [(one.task_id, one.problem) for one in work.bad]
    assert (bad, "leaves no room for a lease" in problem) == ("big", True)
    assert task(server, "big")["status"] == "failed"


@pytest.mark.parametrize("name", ["税" * 500, "__id7__"], ids=["1,500 bytes", "a number"])
async def test_a_task_of_any_name_that_firestore_takes_is_extended_and_ended(
    server: FirestoreServer, client: FirestoreClient, name: str
) -> None:
    add_tasks(server, name)
    leases = [lease_of(one) for one in (await client.get_work(1, ["echo"])).tasks]
    server.documents.ahead = 8 * MINUTE
    assert [lease.task_id for lease in await client.extend_leases(leases)] == [name]
    await client.submit_results([an_entry(name)])
    assert task(server, name)["status"] == "done"


async def test_who_looks_for_tasks_is_sent_no_whole_document(server: FirestoreServer, open_worker: Open) -> None:
    add_tasks(server, "t1", notes="x" * 100_000)
    async with open_worker("w-1") as dead, open_worker("w-2") as other:
        assert await _ids(dead) == ["t1"]
        server.documents.ahead = 16 * MINUTE
        assert await _ids(other) == ["t1"]
    assert server.looked_at_bytes < 10_000


async def test_more_platforms_than_a_query_takes(server: FirestoreServer, client: FirestoreClient) -> None:
    for number in range(70):
        add_tasks(server, f"t{number:02}", platform=f"platform-{number}", priority=1 + number % 4)
    work = await client.get_work(5, [f"platform-{number}" for number in range(70)])
    assert [task.task_id for task in work.tasks] == ["t00", "t04", "t08", "t12", "t16"]


async def test_an_empty_queue_is_left_alone_for_a_while(client: FirestoreClient) -> None:
    assert (await client.get_work(10, ["echo"])).retry_after == 30.0
