"""Who has a task, and for how long, whatever clocks say and whoever dies."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from parcelpost.clock import SystemClock
from parcelpost.errors import Unavailable
from parcelpost.model import Lease, OutboxEntry, QueueDepth, TaskStatus
from parcelpost.protocol.payloads import queue_counts
from parcelpost.upstream.firestore.client import FirestoreClient
from tests.firestore.conftest import ROOT, Open, ServersClock
from tests.firestore.documents import Code
from tests.firestore.making import BEGIN, add_tasks, lease_of, task
from tests.firestore.server import FirestoreServer, fails, lost
from tests.upstream.factories import a_beat, an_end, an_entry

NOTHING = msgspec.structs.replace(a_beat(), active_tasks=0, queue=queue_counts(QueueDepth()))
MINUTE = timedelta(minutes=1)


async def _ids(client: FirestoreClient, capacity: int = 100) -> list[str]:
    return [task.task_id for task in (await client.get_work(capacity, ["echo"])).tasks]


async def _take(client: FirestoreClient, capacity: int = 100) -> list[Lease]:
    """As the worker's store has them then."""
    return [lease_of(one) for one in (await client.get_work(capacity, ["echo"])).tasks]


async def test_a_heartbeat_extends_the_leases_that_are_half_over(
    server: FirestoreServer, client: FirestoreClient
) -> None:
    add_tasks(server, "old", "young")
    (old,) = await _take(client, 1)
    first = task(server, "old")["lease_expires_at"]
    server.documents.ahead = 5 * MINUTE
    (young,) = await _take(client, 1)
    assert await client.extend_leases([old, young]) == []
    assert task(server, "old")["lease_expires_at"] == first, "not yet: that would cost a write for each beat"
    server.documents.ahead = 8 * MINUTE
    before = task(server, "young")
    (kept,) = await client.extend_leases([old, young])
    assert (kept.task_id, kept.lease_id) == ("old", old.lease_id)
    assert abs(kept.expires_at - old.expires_at - 8 * MINUTE) < MINUTE
    assert abs(task(server, "old")["lease_expires_at"] - first - 8 * MINUTE) < MINUTE
    assert task(server, "young") == before


async def test_what_was_claimed_and_never_arrived_is_not_extended(server: FirestoreServer, open_worker: Open) -> None:
    add_tasks(server, "lost")
    async with open_worker("w-1") as busy, open_worker("w-2") as other:
        server.play("Commit", lost())
        with pytest.raises(Unavailable):
            await busy.get_work(1, ["echo"])
        assert (task(server, "lost")["status"], task(server, "lost")["worker"]) == ("leased", "w-1")
        add_tasks(server, "here")
        here = await _take(busy)
        for minutes in range(0, 15, 5):
            server.documents.ahead = minutes * MINUTE
            here = list(await busy.extend_leases(here)) or here
        server.documents.ahead = 16 * MINUTE
        assert await _ids(other) == ["lost"]
        assert task(server, "here")["worker"] == "w-1"


async def test_a_worker_that_starts_again_keeps_what_is_in_its_store(
    server: FirestoreServer, open_worker: Open
) -> None:
    add_tasks(server, "stored", "on its way")
    async with open_worker("w-1") as before:
        stored = await _take(before, 1)
        await _take(before, 1)  # and it died before these were stored
    async with open_worker("w-1") as after, open_worker("w-2") as other:
        server.documents.ahead = 10 * MINUTE
        (kept,) = await after.extend_leases(stored)
        server.documents.ahead = 16 * MINUTE
        assert await _ids(other) == ["on its way"]
        assert kept.expires_at > datetime.now(UTC) + 24 * MINUTE
        assert task(server, "stored")["lease_expires_at"] > server.documents.now()


async def test_only_what_was_extended_is_told(server: FirestoreServer, open_worker: Open) -> None:
    add_tasks(server, "ended", "gone", "mine", "taken", "mine again")
    async with open_worker("w-1") as one, open_worker("w-2") as other:
        leases = {lease.task_id: lease for lease in await _take(one)}
        await other.submit_results([an_entry("ended")])
        del server.documents.all[f"{ROOT}/tasks/gone"]
        for task_id, client in (("taken", other), ("mine again", one)):
            await one.report_end(_expired(leases[task_id]))
            assert await _ids(client) == [task_id]
        before = {task_id: task(server, task_id) for task_id in ("ended", "taken", "mine again")}
        server.documents.ahead = 8 * MINUTE
        extended = await one.extend_leases(list(leases.values()))
        assert [lease.task_id for lease in extended] == ["mine"]
        assert {task_id: task(server, task_id) for task_id in before} == before


async def test_an_end_is_that_of_its_lease_and_of_no_later_one(server: FirestoreServer, open_worker: Open) -> None:
    add_tasks(server, "t1")
    async with open_worker("w-1") as client:
        (first,) = await _take(client)
        server.documents.ahead = 16 * MINUTE
        (second,) = await _take(client)
        assert first.lease_id != second.lease_id
        for status in (TaskStatus.EXPIRED, TaskStatus.FAILED, TaskStatus.COMPLETED):
            for stale in (first.lease_id, "", None):
                await client.report_end(an_end("t1", status, lease_id=stale))
        assert task(server, "t1")["status"] == "leased"
        await client.report_end(an_end("t1", lease_id=second.lease_id))
        assert task(server, "t1")["status"] == "failed"


async def test_a_parcel_that_the_site_does_not_have_is_not_found(
    server: FirestoreServer, client: FirestoreClient
) -> None:
    add_tasks(server, "t1")
    (lease,) = await _take(client)
    await client.report_end(an_end("t1", TaskStatus.NOT_FOUND, lease_id=lease.lease_id))
    assert (task(server, "t1")["status"], task(server, "t1")["error"]) == ("not_found", "no luck")
    assert await _ids(client) == [], "it has ended"
    await client.submit_results([an_entry("t1")])
    assert (task(server, "t1")["status"], task(server, "t1")["error"]) == ("done", None), "it was there after all"


async def test_nobody_ends_a_lease_that_has_no_name(server: FirestoreServer, client: FirestoreClient) -> None:
    add_tasks(server, "t1", status="leased", worker="w-1", leased_at=BEGIN, lease_expires_at=BEGIN)
    for nameless in ("", None):
        await client.report_end(an_end("t1", lease_id=nameless))
    assert task(server, "t1")["status"] == "leased"


async def test_an_end_whose_receipt_was_lost_does_not_end_the_task_again(
    server: FirestoreServer, client: FirestoreClient
) -> None:
    add_tasks(server, "t1")
    (lease,) = await _take(client)
    server.play("Commit", lost())
    with pytest.raises(Unavailable):
        await client.report_end(_expired(lease))
    assert task(server, "t1")["status"] == "queued"
    (again,) = await _take(client)
    await client.report_end(_expired(lease))
    assert (task(server, "t1")["status"], task(server, "t1")["lease_id"]) == ("leased", again.lease_id)


EXTENDED = {"lease_expires_at": datetime.now(UTC) + timedelta(days=1)}


@pytest.mark.parametrize("change", [EXTENDED, {"status": "done"}], ids=["extended", "ended"])
async def test_a_lease_that_is_over_is_looked_at_once_more_before_the_task_comes_back(
    server: FirestoreServer, open_worker: Open, change: dict[str, Any]
) -> None:
    add_tasks(server, "t1")
    async with open_worker("w-1") as slow, open_worker("w-2") as other:
        await _take(slow)
        server.documents.ahead = 16 * MINUTE
        changed = {**task(server, "t1"), **change}
        server.meanwhile("RunQuery", lambda: server.put({f"{ROOT}/tasks/t1": changed}))
        assert await _ids(other) == []
        assert task(server, "t1") == changed


def _expired(lease: Lease) -> OutboxEntry:
    return an_end(lease.task_id, TaskStatus.EXPIRED, lease_id=lease.lease_id)


async def test_a_conflict_over_leases_does_not_keep_a_worker_from_its_commands(
    server: FirestoreServer, client: FirestoreClient
) -> None:
    add_tasks(server, "t1")
    leases = await _take(client)
    server.documents.ahead = 8 * MINUTE
    server.put({f"{ROOT}/workers/w-1/commands/c1": {"command": "pause", "sent_at": server.documents.now()}})
    server.play("Commit", fails(Code.ABORTED, "Too much contention on these documents."), times=4)
    assert await client.extend_leases(leases) == []
    assert (await client.heartbeat(a_beat())).commands == ["pause"]
    assert len(await client.extend_leases(leases)) == 1


async def test_no_lease_is_extended_for_longer_than_a_day(server: FirestoreServer, client: FirestoreClient) -> None:
    add_tasks(server, "t1")
    leases = await _take(client)
    for minutes in range(0, 25 * 60, 10):
        server.documents.ahead = timedelta(minutes=minutes)
        leases = list(await client.extend_leases(leases)) or leases
    assert leases[0].expires_at > datetime.now(UTC) + timedelta(hours=23)
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
        server.documents.ahead = 8 * MINUTE
        half_over = msgspec.structs.replace(lease_of(other), expires_at=tomorrow() + 7 * MINUTE)
        (kept,) = await wrong.extend_leases([half_over])
        assert abs(kept.expires_at - tomorrow() - 15 * MINUTE) < MINUTE
        assert await _ids(right) == []
    assert abs(task(server, "t2")["lease_expires_at"] - datetime.now(UTC) - 23 * MINUTE) < MINUTE


async def test_a_clock_that_jumps_takes_nobodys_task(server: FirestoreServer, open_worker: Open) -> None:
    add_tasks(server, "t1", "t2")
    jump = timedelta(0)
    async with open_worker("w-1") as steady, open_worker("w-2", lambda: datetime.now(UTC) + jump) as jumping:
        assert await _ids(steady, 1) == ["t1"]
        leases = await _take(jumping, 1)
        jump = timedelta(hours=1)
        assert await _ids(jumping) == []
        jump = timedelta(hours=-1)
        (kept,) = await jumping.extend_leases(leases)
        assert abs(kept.expires_at - datetime.now(UTC) - jump - 15 * MINUTE) < MINUTE, "by its own clock"
    assert (task(server, "t1")["worker"], task(server, "t1")["attempts"]) == ("w-1", 1)


@pytest.mark.parametrize("is_busy", [False, True])
async def test_what_was_claimed_and_never_arrived_is_given_back_at_the_next_beat(
    server: FirestoreServer, client: FirestoreClient, is_busy: bool
) -> None:
    add_tasks(server, "here")
    await _take(client)
    add_tasks(server, "t1", "t2")
    server.play("Commit", lost())
    with pytest.raises(Unavailable):
        await _ids(client)
    assert task(server, "t1")["status"] == "leased"
    server.play("Commit", fails(Code.ABORTED), times=4)
    beat = a_beat() if is_busy else NOTHING
    await client.heartbeat(beat)
    assert task(server, "t1")["status"] == "leased", "others were at it"
    await client.heartbeat(beat)
    assert (task(server, "t1")["status"], task(server, "t1")["attempts"]) == ("queued", 1)
    assert task(server, "here")["status"] == "leased"
    assert await _ids(client) == ["t1", "t2"]
    await client.heartbeat(beat)
    assert task(server, "t1")["status"] == "leased", "it is given back once"


async def test_what_others_have_by_now_is_not_given_back(server: FirestoreServer, open_worker: Open) -> None:
    add_tasks(server, "t1")
    async with open_worker("w-1") as client:
        server.play("Commit", lost())
        with pytest.raises(Unavailable):
            await _ids(client)
        taken = {**task(server, "t1"), "worker": "w-2", "lease_id": "another"}
        server.put({f"{ROOT}/tasks/t1": taken})
        await client.heartbeat(NOTHING)
    assert task(server, "t1") == taken


async def test_a_claim_is_never_given_back_because_it_is_slow_to_be_stored(
    server: FirestoreServer, open_worker: Open
) -> None:
    """Neither by who has it, nor by another worker of the same name: no beat that knows of nothing takes a task."""
    add_tasks(server, "t1")

    def later() -> None:
        server.documents.ahead += MINUTE

    async with open_worker("w-1") as slow, open_worker("w-1") as namesake, open_worker("w-2") as other:
        await slow.heartbeat(NOTHING)
        server.meanwhile("BeginTransaction", later)
        server.meanwhile("Commit", later)
        (lease,) = await _take(slow)
        assert task(server, "t1")["leased_at"] > datetime.now(UTC) + MINUTE / 2, (
            "since it was read, not since asked for"
        )
        for worker in (slow, namesake):
            server.documents.ahead += MINUTE
            await worker.heartbeat(NOTHING)
        assert await _ids(other) == []
        assert task(server, "t1")["lease_id"] == lease.lease_id


async def test_a_machine_that_slept_extends_by_firestores_time(
    server: FirestoreServer, open_worker: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its monotonic clock stood meanwhile."""
    add_tasks(server, "t1")
    monkeypatch.setattr(ServersClock, "monotonic", SystemClock.monotonic)
    async with open_worker("w-1") as client:
        leases = await _take(client)
        server.documents.ahead = 14 * MINUTE
        (kept,) = await client.extend_leases(leases)
    until = datetime.now(UTC) + 29 * MINUTE
    assert abs(task(server, "t1")["lease_expires_at"] - until) < MINUTE
    assert abs(kept.expires_at - until) < MINUTE


async def test_hundreds_of_leases_are_looked_after(server: FirestoreServer, client: FirestoreClient) -> None:
    add_tasks(server, *(f"t{number:04}" for number in range(500)))
    taken = [lease for _ in range(5) for lease in await _take(client)]
    assert len({lease.task_id for lease in taken}) == 500
    server.documents.ahead = 8 * MINUTE
    assert len(await client.extend_leases(taken)) == 500
    until = min(one["lease_expires_at"] for one in server.all(f"{ROOT}/tasks").values())
    assert until > datetime.now(UTC) + 20 * MINUTE
