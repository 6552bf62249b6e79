"""Workers, commands, selectors, metrics and activity, in both ledgers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from parcelpost.gateway.ledger.base import Ledger
from parcelpost.gateway.models import ActivityRow, WorkerHeartbeat
from parcelpost.model import PausedSite, Signal
from parcelpost.protocol.payloads import MetricsSample
from tests.gateway.factories import task

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


def signal(selector: str, success: bool, field: str = "owner", platform: str = "echo") -> Signal:
    return Signal(platform=platform, field=field, selector=selector, selector_type="css", success=success)


async def beat(ledger: Ledger, worker_id: str, now: datetime) -> list[str]:
    return list(await ledger.record_heartbeat(WorkerHeartbeat(worker_id=worker_id), now, now + HOUR, now - DAY))


async def test_a_worker_is_known_by_its_last_beat(ledger: Ledger, now: datetime) -> None:
    await beat(ledger, "w1", now)
    last = WorkerHeartbeat(
        worker_id="w1",
        active_tasks=2,
        platforms=("echo", "\u2028\0"),
        queue={"pending": 3},
        cpu_percent=1.5,
        version="0.1",
        blocked=(PausedSite("x", "FL", "union"),),
    )
    await ledger.record_heartbeat(last, now + HOUR, now + 2 * HOUR, now)
    await ledger.add_tasks([task("a"), task("b")], now)
    await ledger.grant("w1", ["echo"], 2, now, now + HOUR)
    await ledger.add_command("pause", "w1", now, now)
    (row,) = await ledger.workers()
    assert row.heartbeat == last
    assert (row.first_seen_at, row.last_seen_at, row.leases) == (now, now + HOUR, 2)
    assert row.pending_commands == ("pause",)


async def test_a_command_is_answered_once_in_order(ledger: Ledger, now: datetime) -> None:
    await beat(ledger, "w1", now)
    for command in ("pause", "resume", "pause", "platforms:a,b"):
        assert await ledger.add_command(command, "w1", now, now) == 1
    assert await beat(ledger, "w1", now) == ["pause", "resume", "pause", "platforms:a,b"]
    assert await beat(ledger, "w1", now) == []


async def test_a_command_for_all_goes_to_those_alive(ledger: Ledger, now: datetime) -> None:
    await beat(ledger, "silent", now - HOUR)
    await beat(ledger, "w1", now)
    await beat(ledger, "w2", now)
    assert await ledger.add_command("drain", "", now, now - timedelta(minutes=5)) == 2
    assert await ledger.add_command("drain", "never seen", now, now) == 0
    assert await beat(ledger, "silent", now) == []
    assert await beat(ledger, "w1", now) == ["drain"]
    assert await beat(ledger, "w2", now) == ["drain"]


async def test_a_command_is_not_for_a_workers_next_start(ledger: Ledger, now: datetime) -> None:
    await beat(ledger, "w1", now)
    await ledger.add_command("stop", "", now + 4 * MINUTE, now)
    assert await beat(ledger, "w1", now + 10 * MINUTE) == [], "it was ordered too long ago"
    assert await beat(ledger, "w1", now + 10 * MINUTE) == []
    await ledger.add_command("pause", "w1", now + 30 * MINUTE, now + 25 * MINUTE)
    assert await beat(ledger, "w1", now + 30 * MINUTE) == [], "it was gone when that was ordered"


async def test_a_worker_that_leaves_is_gone_at_once_and_leaves_no_command(ledger: Ledger, now: datetime) -> None:
    await beat(ledger, "w1", now)
    await ledger.add_command("pause", "w1", now, now)
    goodbye = WorkerHeartbeat(worker_id="w1", leaving=True)
    assert await ledger.record_heartbeat(goodbye, now, now + HOUR, now - DAY) == []
    assert [await ledger.add_command("stop", name, now, now) for name in ("", "w1")] == [0, 0]
    (row,) = await ledger.workers()
    assert (row.is_alive(now), row.pending_commands) == (False, ())
    assert await beat(ledger, "w1", now + MINUTE) == []
    assert await ledger.add_command("stop", "", now + MINUTE, now) == 1, "it is back"


async def test_selectors_are_ranked_over_the_fleet(ledger: Ledger, now: datetime) -> None:
    await ledger.add_signals([signal("old", True)], now - 10 * DAY)
    await ledger.add_signals([signal("a", True), signal("a", False), signal("b", True), signal("b", True)], now)
    await ledger.add_signals([signal("b", False), signal("c", True, "situs"), signal("d", True, platform="z")], now)
    found = await ledger.selectors("echo", now - DAY, 10)
    assert [(row.field, row.selector, row.samples) for row in found] == [
        ("owner", "b", 3),
        ("owner", "a", 2),
        ("situs", "c", 1),
    ]
    assert found[0].success_rate == 2 / 3
    assert [row.selector for row in await ledger.selectors("", now - DAY, 2)] == ["b", "a"]
    assert [row.selector for row in await ledger.selectors("z", now - DAY, 10)] == ["d"]


async def test_what_is_no_selector_is_not_counted_and_harms_no_other(ledger: Ledger, now: datetime) -> None:
    await ledger.add_signals([signal("x" * 5_000, True), signal("x\0", True), signal("good", True)], now)
    assert [row.selector for row in await ledger.selectors("", now, 10)] == ["good"]
    await ledger.add_signals([], now)


async def test_a_sample_of_the_same_moment_changes_nothing(ledger: Ledger, now: datetime) -> None:
    first = [MetricsSample(at=now + n * HOUR, values={"tasks": n, "nothing": None}) for n in range(4)]
    await ledger.add_metrics("w1", [first[2], *first])
    await ledger.add_metrics("w1", [MetricsSample(at=now, values={"tasks": 99})])
    assert await ledger.metrics("w1", now, 10) == first
    assert await ledger.metrics("w1", now + HOUR, 2) == first[2:], "the newest of them, oldest first"
    assert await ledger.metrics("w2", now, 10) == []


async def test_activity_adds_up(ledger: Ledger, now: datetime) -> None:
    minute = now.replace(second=0, microsecond=0)
    await ledger.add_activity({("echo", "stored"): 2, ("echo", "failed"): 1}, minute)
    await ledger.add_activity({("echo", "stored"): 5}, minute)
    await ledger.add_activity({("echo", "stored"): 1}, minute - HOUR)
    await ledger.add_activity({}, minute)
    assert await ledger.activity(minute) == [
        ActivityRow(minute=minute, platform="echo", outcome="failed", count=1),
        ActivityRow(minute=minute, platform="echo", outcome="stored", count=7),
    ]
    assert len(await ledger.activity(minute - HOUR)) == 3


async def test_what_is_old_is_pruned(ledger: Ledger, now: datetime) -> None:
    for at in (now - 3 * DAY, now):
        await ledger.add_activity({("echo", "stored"): 1}, at)
        await ledger.add_metrics("w1", [MetricsSample(at=at, values={})])
        await ledger.add_signals([signal("a", True)], at)
    assert [await ledger.prune(now - DAY, now - DAY, 2) for _ in range(3)] == [2, 1, 0]
    assert len(await ledger.activity(now - 9 * DAY)) == 1
    assert len(await ledger.metrics("w1", now - 9 * DAY, 10)) == 1
    assert [row.samples for row in await ledger.selectors("", now - 9 * DAY, 10)] == [1]


async def test_a_worker_id_belongs_to_the_token_that_used_it_first(ledger: Ledger, now: datetime) -> None:
    async def claim(
        worker_id: str, token: str, names: Sequence[str] = ("ann", "bob"), at: datetime = now
    ) -> str | None:
        return await ledger.claim_worker_id(worker_id, token, names, 2, at, at - HOUR)

    assert [await claim("w1", "ann"), await claim("w1", "bob"), await claim("w1", "ann")] == ["ann"] * 3
    assert await claim("w1", "bob", ["bob"]) == "bob", "a token that is gone leaves its ids"
    assert [await claim("w2", ""), await claim("w2", "ann")] == ["", "ann"], (
        "so do those without names, once all have one"
    )
    assert [await claim("w3", ""), await claim("w3", "ann", ["ann", ""])] == ["", ""]


async def test_a_released_worker_id_belongs_to_the_next_token_that_uses_it(ledger: Ledger, now: datetime) -> None:
    async def claim(token: str) -> str | None:
        return await ledger.claim_worker_id("w1", token, ["ann", "bob"], 2, now, now - HOUR)

    assert [await claim("ann"), await claim("bob")] == ["ann", "ann"]
    assert [await ledger.release_worker_id("w1"), await claim("bob"), await claim("ann")] == ["ann", "bob", "bob"]
    assert await ledger.release_worker_id("nobody") is None


async def test_a_token_has_so_many_workers_and_a_new_one_takes_an_idle_ones_place(
    ledger: Ledger, now: datetime
) -> None:
    async def claim(worker_id: str, at: datetime) -> str | None:
        return await ledger.claim_worker_id(worker_id, "ann", ["ann"], 2, at, at - HOUR)

    await ledger.add_tasks([task("a")], now)
    for worker_id in ("holder", "idle"):
        assert await claim(worker_id, now) == "ann"
        await beat(ledger, worker_id, now)
    await ledger.add_command("pause", "idle", now, now)
    await ledger.grant("holder", ["echo"], 1, now, now + DAY)
    assert await claim("new", now + HOUR / 2) is None
    assert await claim("idle", now + HOUR / 2) == "ann"
    assert await claim("new", now + 3 * HOUR) == "ann"
    assert [row.heartbeat.worker_id for row in await ledger.workers()] == ["holder"]
    assert await claim("another", now + 3 * HOUR) is None, "one is new, one holds a task"
    assert [await ledger.prune(now, now + 9 * DAY, 10) for _ in range(2)] == [1, 0]


async def test_the_workers_heard_of_last_are_told_first(ledger: Ledger, now: datetime) -> None:
    for number, worker_id in enumerate(("c", "a", "b")):
        await beat(ledger, worker_id, now + number * HOUR)
    assert [row.heartbeat.worker_id for row in await ledger.workers(2)] == ["a", "b"]


async def test_workers_silent_for_long_are_forgotten(ledger: Ledger, now: datetime) -> None:
    for worker_id, at in (("gone", now - 9 * DAY), ("ordered", now - 9 * DAY), ("holder", now - 9 * DAY), ("w1", now)):
        await beat(ledger, worker_id, at)
    await ledger.add_tasks([task("a")], now)
    await ledger.grant("holder", ["echo"], 1, now, now + HOUR)
    await ledger.add_command("pause", "ordered", now, now - 9 * DAY)
    await ledger.add_command("pause", "w1", now - 2 * DAY, now)
    assert [await ledger.prune(now - DAY, now - 7 * DAY, 10) for _ in range(2)] == [2, 0]
    left = {row.heartbeat.worker_id: row.pending_commands for row in await ledger.workers()}
    assert left == {"holder": (), "ordered": ("pause",), "w1": ()}, "an undelivered command is old at some time, too"
    await beat(ledger, "gone", now)
    assert len(await ledger.workers()) == 4


async def test_a_database_that_answers_is_well(ledger: Ledger) -> None:
    await ledger.check()
    assert await ledger.counts() == {"parcels": 0, "liens": 0, "results": 0}
