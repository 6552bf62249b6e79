"""What a worker may expect of any upstream."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from parcelpost.errors import Refused, Unavailable
from parcelpost.model import Lease, OutboxEntry, Priority, QueueDepth, Signal, Target, Task, TaskStatus
from parcelpost.protocol.payloads import MetricsSample, queue_counts
from tests.conformance.stages import Place, UpstreamStage
from tests.upstream.factories import PAGE, a_beat, an_end, an_entry

PLACE: Place = ("echo", "CT", "hartford", "P1")
SOON = timedelta(minutes=1)


def _task(
    task_id: str, priority: Priority = Priority.NORMAL, platform: str = "echo", *, parcel_id: str = "", **extra: Any
) -> Task:
    target = Target(parcel_id=parcel_id or f"P-{task_id}", state="CT", county="hartford", extra=extra)
    return Task(task_id=task_id, platform=platform, target=target, priority=priority)


def _result(task_id: str, data: Any, minutes: int = 0, **changes: Any) -> OutboxEntry:
    body = msgspec.json.encode(data)
    scraped_at = datetime(2026, 11, 15, 12, tzinfo=UTC) + timedelta(minutes=minutes)
    key = f"{task_id}:{hashlib.sha256(body).hexdigest()}"
    fields = {"parcel_id": "P1", "data": body, "idempotency_key": key, "scraped_at": scraped_at, **changes}
    return an_entry(task_id, **fields)


async def test_tasks_come_by_priority_then_age_and_only_those_of_the_platforms(stage: UpstreamStage) -> None:
    await stage.add(_task("old"), _task("new"), _task("urgent", Priority.URGENT), _task("batch", Priority.BATCH))
    await stage.add(_task("other", Priority.URGENT, platform="vgsi"), _task("high", Priority.HIGH, note="a b", size=3))
    async with stage.worker("w-1") as worker:
        first = await worker.get_work(3, ["echo", "qpublic"])
        rest = await worker.get_work(100, ["echo"])
        none = await worker.get_work(100, ["echo"])
    assert [task.task_id for task in first.tasks] == ["urgent", "high", "old"]
    assert [task.task_id for task in rest.tasks] == ["new", "batch"]
    assert (list(none.tasks), list(none.bad)) == ([], [])
    high = first.tasks[1]
    assert high.target == Target(parcel_id="P-high", state="CT", county="hartford", extra={"note": "a b", "size": 3})
    assert (high.platform, high.priority, high.type) == ("echo", Priority.HIGH, "scrape")
    assert high.lease_expires_at is not None
    assert high.lease_expires_at > datetime.now(UTC) + SOON


async def test_no_task_is_given_to_two_workers(stage: UpstreamStage) -> None:
    await stage.add(*(_task(f"t{number:02}") for number in range(24)))
    async with AsyncExitStack() as stack:
        workers = [await stack.enter_async_context(stage.worker(f"w-{number}")) for number in range(4)]

        async def all_of(worker: Any) -> list[str]:
            found: list[str] = []
            while True:
                try:
                    tasks = (await worker.get_work(3, ["echo"])).tasks
                except Unavailable:  # others took each task that this one tried for: there may be more
                    continue
                if not tasks:
                    return found
                found += [task.task_id for task in tasks]

        taken = [task_id for found in await asyncio.gather(*map(all_of, workers)) for task_id in found]
    assert sorted(taken) == [f"t{number:02}" for number in range(24)]


async def test_what_a_dead_worker_had_comes_back_until_it_was_tried_often_enough(stage: UpstreamStage) -> None:
    await stage.add(_task("t1"))
    async with stage.worker("w-1") as one, stage.worker("w-2") as other:
        for worker in (one, other, one, other, one):
            assert [task.task_id for task in (await worker.get_work(5, ["echo"])).tasks] == ["t1"]
            assert not (await other.get_work(5, ["echo"])).tasks
            await stage.end_leases()
        assert not (await other.get_work(5, ["echo"])).tasks
    state, error = await stage.state("t1")
    assert state == "failed"
    assert "without a report" in (error or "")


async def test_a_result_is_kept_as_it_is_and_completes_its_task(stage: UpstreamStage) -> None:
    record = {
        "owner_names": ["Ann", "Bö"],
        "tax": 12.5,
        "year": 2026,
        "whole": 3.0,
        "due": None,
        "ok": True,
        "liens": [{"amount": -1, "holder": ""}, {}],
        "": "a field without a name",
        "a.b `c`": {"__x__": [[1, [2]], []]},
        "large": 2**70,
    }
    await stage.add(_task("t1", parcel_id="P1"))
    async with stage.worker("w-1") as worker:
        await worker.get_work(1, ["echo"])
        answer = await worker.submit_results([_result("t1", record), _result("local", {"a": 1}, parcel_id="P2")])
    assert (answer.stored, answer.failed, answer.errors) == (2, 0, [])
    assert {task_id: receipt.is_stored for task_id, receipt in answer.receipts.items()} == {"t1": True, "local": True}
    assert await stage.results(PLACE) == {"t1": record}
    assert await stage.results((*PLACE[:3], "P2")) == {"local": {"a": 1}}
    assert await stage.state("t1") == ("done", None)


async def test_sending_again_changes_nothing(stage: UpstreamStage) -> None:
    await stage.add(_task("t1", parcel_id="P1"))
    entries = [_result("t1", {"v": 1}), _result("t1~child", {"v": 2}, parcel_id="P2")]
    async with stage.worker("w-1") as worker, stage.worker("w-2") as other:
        await worker.get_work(1, ["echo"])
        for one in (worker, other, worker):
            answer = await one.submit_results(entries)
            assert (answer.stored, answer.failed) == (2, 0)
            assert all(receipt.is_stored for receipt in answer.receipts.values())
    assert await stage.results(PLACE) == {"t1": {"v": 1}}
    assert await stage.results((*PLACE[:3], "P2")) == {"t1~child": {"v": 2}}


async def test_an_older_scrape_never_takes_a_newer_ones_place(stage: UpstreamStage) -> None:
    async with stage.worker("w-1") as worker:
        for entry in (_result("t2", {"v": 2}, 2), _result("t1", {"v": 1}, 1), _result("t2", {"v": 0}, 0)):
            answer = await worker.submit_results([entry])
            assert (answer.stored, answer.receipts[entry.task_id].is_stored) == (1, True)
        assert await stage.newest(PLACE) == {"v": 2}
        assert await stage.results(PLACE) == {"t1": {"v": 1}, "t2": {"v": 2}}
        await worker.submit_results([_result("t1", {"v": 3}, 3)])
        assert await stage.newest(PLACE) == {"v": 3}
        await worker.submit_results([_result("t0", {"v": 4}, 3), _result("t9", {"v": 5}, 3)])
        assert await stage.newest(PLACE) == {"v": 5}, "of the same moment, the greater id counts"


async def test_a_bad_entry_is_rejected_alone(stage: UpstreamStage) -> None:
    entries = [_result("a", {"v": 1}, parcel_id="A"), _result("b", [1]), _result("c", {"v": 3}, parcel_id="C")]
    async with stage.worker("w-1") as worker:
        answer = await worker.submit_results(entries)
    assert (answer.stored, answer.failed, len(answer.errors)) == (2, 1, 1)
    assert {task_id: receipt.is_stored for task_id, receipt in answer.receipts.items()} == {
        "a": True,
        "b": False,
        "c": True,
    }
    assert answer.receipts["b"].error
    assert await stage.results((*PLACE[:3], "C")) == {"c": {"v": 3}}


async def test_large_records_are_kept_whole(stage: UpstreamStage) -> None:
    records = {f"t{number}": {"text": "é" * 700_000, "number": number} for number in range(8)}
    async with stage.worker("w-1") as worker:
        answer = await worker.submit_results(
            [_result(task_id, record, parcel_id=task_id) for task_id, record in records.items()]
        )
    assert (answer.stored, answer.failed) == (8, 0)
    for task_id, record in records.items():
        assert await stage.newest((*PLACE[:3], task_id)) == record


ENDS = [
    (TaskStatus.FAILED, "failed", "no luck"),
    (TaskStatus.EXPIRED, "queued", "no luck"),
    (TaskStatus.COMPLETED, "done", None),
]


@pytest.mark.parametrize(("status", "state", "error"), ENDS)
async def test_the_end_of_a_task_is_noted(
    stage: UpstreamStage, status: TaskStatus, state: str, error: str | None
) -> None:
    await stage.add(_task("t1"))
    async with stage.worker("w-1") as worker, stage.worker("w-2") as other:
        (task,) = (await worker.get_work(1, ["echo"])).tasks
        end = an_end("t1", status, lease_id=task.lease_id or None)
        await other.report_end(an_end("t1", status))
        assert (await stage.state("t1"))[0] == "leased", "only who has it can end it"
        for _ in range(2):
            await worker.report_end(end)
            assert await stage.state("t1") == (state, error)
        await worker.report_end(an_end("unknown", status))


async def test_commands_are_heard_once_and_in_order(stage: UpstreamStage) -> None:
    async with stage.worker("w-1") as worker, stage.worker("w-2") as other:
        assert (await worker.heartbeat(a_beat())).commands == []
        for command in ("pause", "platforms:a,b"):
            await stage.order("w-1", command)
        assert (await other.heartbeat(a_beat())).commands == []
        assert (await worker.heartbeat(a_beat())).commands == ["pause", "platforms:a,b"]
        assert (await worker.heartbeat(a_beat())).commands == []
        await stage.order("w-1", "stop")
        leaving = msgspec.structs.replace(a_beat(), leaving=True)
        assert (await worker.heartbeat(leaving)).commands == []
        assert (await worker.heartbeat(a_beat())).commands == []


async def test_a_heartbeat_says_until_when_leases_run(stage: UpstreamStage) -> None:
    """Of all that was granted since a moment, or of those that have names and were extended."""
    nothing = msgspec.structs.replace(a_beat(), active_tasks=0, queue=queue_counts(QueueDepth()))
    await stage.add(_task("t1"))
    async with stage.worker("w-1") as worker:
        (task,) = (await worker.get_work(1, ["echo"])).tasks
        nearly_over = Lease(task_id="t1", lease_id=task.lease_id, expires_at=datetime.now(UTC) + SOON)
        named = [nearly_over] if task.lease_id else []
        extended = await worker.extend_leases(named)
        reply = await worker.heartbeat(a_beat())
        empty = await worker.heartbeat(nothing)
    if task.lease_id:
        (until,) = [lease.expires_at for lease in extended if lease.lease_id == task.lease_id]
    else:
        assert reply.leases_since is not None
        assert reply.lease_expires_at is not None
        assert reply.leases_since < datetime.now(UTC) - SOON
        until = reply.lease_expires_at
    assert until > datetime.now(UTC) + SOON
    assert (empty.lease_expires_at, empty.leases_since) == (None, None)


async def test_a_page_is_kept_and_one_that_is_damaged_is_not(stage: UpstreamStage, tmp_path: Path) -> None:
    good, bad = tmp_path / "good.html.gz", tmp_path / "bad.html.gz"
    good.write_bytes(gzip.compress(PAGE))
    bad.write_bytes(gzip.compress(b"another page"))
    entry = an_entry("t1", page=True)
    async with stage.worker("w-1") as worker:
        for path in (bad, tmp_path / "gone.html.gz"):
            with pytest.raises(Refused):
                await worker.upload_raw_file(entry, path)
        assert await stage.page(entry.raw_sha256 or "") is None
        for _ in range(2):
            await worker.upload_raw_file(entry, good)
        assert await stage.page(entry.raw_sha256 or "") == PAGE
        assert (await worker.submit_results([entry])).stored == 1


async def test_signals_become_the_fleets_experience(stage: UpstreamStage) -> None:
    signal = Signal(platform="echo", field="owner", selector="td.owner", selector_type="css", success=True)
    worse = msgspec.structs.replace(signal, selector="//td[1]", selector_type="xpath", success=False)
    async with stage.worker("w-1") as worker, stage.worker("w-2") as other:
        await worker.submit_signals([signal, signal, worse], "of w-1")
        await other.submit_signals([worse, msgspec.structs.replace(worse, success=True)], "of w-2")
        found = await other.get_selectors("echo")
        assert await worker.get_selectors("vgsi") == []
    ranked = [(one.field, one.selector, one.selector_type, round(one.success_rate, 2), one.samples) for one in found]
    assert ranked == [("owner", "td.owner", "css", 1.0, 2), ("owner", "//td[1]", "xpath", 0.33, 3)]


async def test_figures_are_taken_again_and_again(stage: UpstreamStage) -> None:
    sample = MetricsSample(at=datetime(2026, 11, 15, 12, tzinfo=UTC), values={"cpu_percent": 1.5, "ram_used_gb": None})
    async with stage.worker("w-1") as worker:
        for _ in range(2):
            await worker.submit_metrics([sample])
