"""Leases that have names: which are held here, and which of them the upstream has extended."""

from __future__ import annotations

from datetime import timedelta

from msgspec.structs import replace

from parcelpost.clock import ManualClock
from parcelpost.model import Lease
from parcelpost.storage.lpm import LocalPersistenceManager
from tests.storage.factories import NOW, a_result, a_task, claim_one, requeue, the_task

MINUTE = timedelta(minutes=1)
SOON, LATER = NOW + 10 * MINUTE, NOW + 20 * MINUTE


def _lease(task_id: str, lease_id: str = "a", expires_at: object = SOON) -> Lease:
    return Lease(task_id=task_id, lease_id=lease_id, expires_at=expires_at)  # type: ignore[arg-type]


async def test_held_are_open_tasks_and_ends_that_wait_to_be_sent(
    lpm: LocalPersistenceManager, clock: ManualClock
) -> None:
    for name in ("sent", "unsent", "rejected", "failed", "held"):
        claim = await claim_one(lpm, a_task(name, lease_expires_at=SOON, lease_id="a"))
        assert claim.task.lease_id == "a"
        if name in {"sent", "unsent", "rejected"}:
            result_id = await lpm.save_result(claim, a_result())
            if name == "sent":
                await lpm.mark_raw_synced([result_id or ""])
                await lpm.mark_synced([result_id or ""])
            elif name == "rejected":
                await lpm.mark_rejected([result_id or ""], "no")
        elif name == "failed":
            await lpm.give_up(claim, "no")
    await lpm.add_tasks(
        [
            a_task("waits", lease_expires_at=SOON - MINUTE, lease_id="b"),
            a_task("over", lease_expires_at=NOW, lease_id="b"),
            a_task("without a name", lease_expires_at=SOON),
            a_task("own"),
        ]
    )
    found = await lpm.leases.list()
    assert found[0] == _lease("waits", "b", SOON - MINUTE), "what ends next comes first"
    assert sorted(lease.task_id for lease in found) == ["failed", "held", "unsent", "waits"]
    assert {entry.task_id: entry.lease_id for entry in await lpm.get_unsynced_results()} == {
        "unsent": "a",
        "failed": "a",
    }


async def test_only_the_lease_that_is_meant_is_extended(lpm: LocalPersistenceManager, clock: ManualClock) -> None:
    await lpm.add_tasks([a_task(name, lease_expires_at=SOON, lease_id="a") for name in ("one", "anew", "over")])
    await lpm.add_tasks([a_task("anew", lease_expires_at=SOON + MINUTE, lease_id="b")], leased=True)
    clock.advance(60)
    extended = [_lease(name, expires_at=LATER) for name in ("one", "anew", "unknown")]
    assert await lpm.leases.extend(extended) == 1
    assert await lpm.leases.extend([]) == 0
    assert await lpm.leases.extend([replace(extended[0], expires_at=SOON)]) == 0, "never shorter"
    clock.advance(10 * 60)
    assert await lpm.leases.extend([_lease("over", expires_at=LATER)]) == 0
    found = {name: (await the_task(lpm, name)).task for name in ("one", "anew", "over")}
    assert {name: task.lease_expires_at for name, task in found.items()} == {
        "one": LATER,
        "anew": SOON + MINUTE,
        "over": SOON,
    }
    assert found["anew"].lease_id == "b"


async def test_a_task_that_is_granted_once_more_has_the_new_leases_name(
    lpm: LocalPersistenceManager, clock: ManualClock
) -> None:
    await lpm.add_tasks([a_task("t1", lease_expires_at=SOON, lease_id="a")])
    clock.advance(11 * 60)
    assert await lpm.expire_tasks() == 1
    await lpm.add_tasks([a_task("t1", lease_expires_at=LATER, lease_id="b")], leased=True)
    assert [(lease.task_id, lease.lease_id) for lease in await lpm.leases.list()] == [("t1", "b")]
    clock.advance(10 * 60)
    assert await lpm.expire_tasks() == 1
    (end,) = await lpm.get_unsynced_results()
    assert end.lease_id == "b"
    assert await requeue(lpm, ["t1"]) == 1
    assert (await the_task(lpm, "t1")).task.lease_id == "", "it is done for its own sake"


async def test_a_new_lease_counts_though_our_clock_was_set_back(
    lpm: LocalPersistenceManager, clock: ManualClock
) -> None:
    await lpm.add_tasks([a_task("open", lease_expires_at=LATER, lease_id="a")])
    await lpm.add_tasks([a_task("expired", lease_expires_at=SOON, lease_id="a")])
    clock.advance(11 * 60)
    assert await lpm.expire_tasks() == 1
    clock.advance(-3_600)
    earlier = SOON - 30 * MINUTE
    for lease_id in ("b", "b", "c", "c"):
        granted = [a_task(name, lease_expires_at=earlier, lease_id=lease_id) for name in ("open", "expired")]
        await lpm.add_tasks(granted, leased=True)
    assert {(lease.lease_id, lease.expires_at) for lease in await lpm.leases.list()} == {("c", earlier)}
    assert await lpm.get_unsynced_results() == []
