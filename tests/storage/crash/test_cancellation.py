"""A caller that is cancelled, at whatever moment, leaves the whole change or none of it, and harms nobody beside it."""

from __future__ import annotations

import asyncio
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from parcelpost.clock import ManualClock
from parcelpost.model import Claim, TaskStatus
from parcelpost.storage import LocalPersistenceManager
from parcelpost.storage.operator_actions import Selection
from tests.lengths import short_and_long
from tests.storage.crash.acknowledged import Acknowledged, Writer, rows_without_file
from tests.storage.crash.agreement import assert_whole
from tests.storage.factories import a_result, a_task, claim_one, list_results, list_tasks, look, requeue

ROOT = Path(__file__).parents[3]

Call = Callable[[LocalPersistenceManager, Claim, str], Coroutine[Any, Any, Any]]

# Turns of the event loop before the cancellation. The last ones are past the end of most calls, on a quick machine.
TURNS = [*range(31), 45, 70, 100, 150, 200, 300, 450, 700, 1_000]
FEWER_TURNS = [*range(0, 31, 5), 70, 200, 1_000]

CALLS: dict[str, Call] = {
    "add_task": lambda lpm, _, new: lpm.add_task(a_task(new)),
    "add_tasks": lambda lpm, _, new: lpm.add_tasks(a_task(f"{new}-{n}") for n in range(2_500)),
    "claim": lambda lpm, _claim, _new: lpm.claim(3),
    "finish": lambda lpm, claim, _: lpm.finish(claim),
    "give_up": lambda lpm, claim, _: lpm.give_up(claim, "no"),
    "retry_later": lambda lpm, claim, _: lpm.retry_later(claim, "no", timedelta(0)),
    "release": lambda lpm, claim, _: lpm.release(claim),
    "save_result": lambda lpm, claim, _: lpm.save_result(claim, a_result()),
    "save_result with a page": lambda lpm, claim, _: lpm.save_result(claim, a_result(body=b"<p>page</p>" * 3_000)),
    "expire_tasks": lambda lpm, _claim, _new: lpm.expire_tasks(timedelta(days=9)),
    "recover_abandoned": lambda lpm, _claim, _new: lpm.recover_abandoned(),
    "requeue": lambda lpm, _claim, _new: requeue(lpm, status=TaskStatus.FAILED),
    "pause_platform": lambda lpm, _claim, _new: lpm.pause_platform("nobody's"),
    "resume_platform": lambda lpm, _claim, _new: lpm.resume_platform("nobody's"),
    "pauses": lambda lpm, _claim, _new: lpm.pauses(),
    "queue_depth": lambda lpm, _claim, _new: lpm.queue_depth(),
    "get_task": lambda lpm, claim, _: lpm.get_task(claim.task.task_id),
    "list_tasks": lambda lpm, _claim, _new: list_tasks(lpm),
    "get_unsynced_results": lambda lpm, _claim, _new: lpm.get_unsynced_results(),
    "mark_synced": lambda lpm, _claim, _new: lpm.mark_synced(["none"]),
    "mark_raw_synced": lambda lpm, _claim, _new: lpm.mark_raw_synced(["none"]),
    "mark_rejected": lambda lpm, _claim, _new: lpm.mark_rejected(["none"], "no"),
    "count_attempt": lambda lpm, _claim, _new: lpm.count_attempt(["none"], "no"),
    "retry_results": lambda lpm, _claim, _new: lpm.operator.retry_results(Selection()),
    "list_results": lambda lpm, _claim, _new: list_results(lpm),
    "clean": lambda lpm, _claim, _new: lpm.maintenance.clean(),
    "vacuum": lambda lpm, _claim, _new: lpm.maintenance.vacuum(full=True),
    "backup": lambda lpm, _claim, _new: lpm.maintenance.backup(),
    "health": lambda lpm, _claim, _new: lpm.maintenance.health(),
}


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def cancelled(call: Awaitable[Any], after: int) -> asyncio.Future[Any]:
    """The call, which has ended: by itself, if it was quicker than the cancellation."""
    task = asyncio.ensure_future(call)
    await turns(after)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled() or task.exception() is None
    return task


async def add_and_claim(lpm: LocalPersistenceManager, task_id: str, platform: str) -> Claim:
    await lpm.add_task(a_task(task_id, platform=platform))
    while not (claims := await lpm.claim(platforms=[platform])):
        pass  # a cancelled claim had it, and it is on its way back
    (claim,) = claims
    return claim


async def neighbour(lpm: LocalPersistenceManager, name: str, stop: asyncio.Event) -> int:
    """Another caller, whose own work must never suffer. Answers how many results it stored."""
    saved = 0
    while not stop.is_set():
        claim = await add_and_claim(lpm, f"{name}-{saved}", name)
        assert await lpm.save_result(claim, a_result(body=name.encode())) is not None
        saved += 1
    return saved


@pytest.mark.parametrize("name", CALLS)
@short_and_long("moments", (FEWER_TURNS,), (TURNS,))
async def test_a_cancelled_call_leaves_no_half_and_a_store_that_works(
    store: Path, name: str, moments: list[int]
) -> None:
    call = CALLS[name]
    async with LocalPersistenceManager.open(store, clock=ManualClock()) as lpm:
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            neighbours = [group.create_task(neighbour(lpm, f"neighbour{n}", stop)) for n in range(3)]
            for number, after in enumerate(moments):
                claim = await add_and_claim(lpm, f"held{number}", f"held{number}")
                ended = await cancelled(call(lpm, claim, f"new{number}"), after)
                given = ended.result() if name == "claim" and not ended.cancelled() else []
                for held in [claim, *given]:
                    await lpm.release(held)  # if it still is a claim
            stop.set()
        saved = sum(task.result() for task in neighbours)
        depth = await lpm.queue_depth()
        assert depth.processing == 0
    assert_whole(store)
    assert rows_without_file(store) == []
    by_neighbours = "SELECT count(*) FROM results WHERE platform LIKE 'neighbour%'"
    assert look(store, by_neighbours) == [(saved,)]
    assert look(store, "SELECT count(*) FROM tasks WHERE status = 'processing'") == [(0,)]


async def test_a_cancelled_claims_tasks_come_back_to_pending(lpm: LocalPersistenceManager) -> None:
    await lpm.add_tasks(a_task(f"t{number}") for number in range(10))
    for after in TURNS:
        ended = await cancelled(lpm.claim(10), after)
        claims = await lpm.claim(10) if ended.cancelled() else ended.result()
        assert len(claims) == 10, after
        for claim in claims:
            assert await lpm.release(claim)


async def test_a_claim_that_is_cancelled_when_its_tasks_have_just_come_loses_none(lpm: LocalPersistenceManager) -> None:
    await lpm.add_tasks(a_task(f"t{number}") for number in range(4))

    async def claim_and_cancel_the_other() -> list[Claim]:
        claims = await lpm.claim(2)
        other.cancel()
        return claims

    first = asyncio.create_task(claim_and_cancel_the_other())
    other = asyncio.create_task(lpm.claim(2))
    await asyncio.wait([first, other])
    given = first.result() + ([] if other.cancelled() else other.result())
    assert len(given) + len(await lpm.claim(4)) == 4


async def test_a_cancelled_save_is_stored_whole_or_not_at_all(lpm: LocalPersistenceManager) -> None:
    for number, after in enumerate(TURNS):
        task_id = f"t{number}"
        claim = await claim_one(lpm, a_task(task_id))
        ended = await cancelled(lpm.save_result(claim, a_result(body=b"<p>page</p>")), after)
        again = await lpm.save_result(claim, a_result(body=b"<p>again</p>"))
        entry = await lpm.get_result(task_id)
        assert entry is not None  # a save that did not happen can be made good with the same claim
        assert (entry.result_id == again) is (again is not None)
        assert ended.cancelled() or again is None


@short_and_long("moments", ([*range(0, 31, 5), 70, 1_000],), ([*range(0, 31, 3), 45, 70, 100, 200, 400, 1_000, 3_000],))
async def test_an_opening_that_is_cancelled_leaves_no_thread_and_no_trace(tmp_path: Path, moments: list[int]) -> None:
    for after in moments:
        await open_and_cancel(tmp_path / f"{after}" / "store.db", after)


async def open_and_cancel(store: Path, after: int) -> None:
    before = set(threading.enumerate())

    async def open_and_wait() -> None:
        async with LocalPersistenceManager.open(store) as lpm:
            await lpm.add_task(a_task())
            await asyncio.Event().wait()

    await cancelled(open_and_wait(), after)
    assert_threads_end(before)
    async with LocalPersistenceManager.open(store) as lpm:
        await lpm.add_task(a_task())
        assert len(await lpm.claim()) == 1
    assert [path.name for path in store.with_name(store.name + "-live").glob("*.lock")] == []


@short_and_long("moments", (FEWER_TURNS,), ([*range(31), 45, 70, 100, 200, 400],))
def test_a_closing_that_is_cancelled_still_ends_every_thread(tmp_path: Path, moments: list[int]) -> None:
    """Else the interpreter would wait for them for ever when it ends."""
    command = [sys.executable, "-m", "tests.storage.crash.closing_process", str(tmp_path), *map(str, moments)]
    ended = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    turns_and_threads_left = [line.split() for line in ended.stdout.splitlines()]
    assert turns_and_threads_left == [[str(turns), "0"] for turns in moments]


async def test_what_is_saved_after_every_task_was_cancelled_is_journalled_whole(store: Path, tmp_path: Path) -> None:
    left = tmp_path / "left" / store.name
    command = [sys.executable, "-m", "tests.storage.crash.cancelled_tasks_process", str(store), str(left.parent)]
    assert subprocess.run(command, cwd=ROOT, check=False, timeout=60).returncode == 0
    shutil.rmtree(left.parent / "data")
    async with LocalPersistenceManager.open(left) as lpm:
        assert (await lpm.queue_depth()).unsynced == 300
    assert rows_without_file(left) == []  # all of them from the journal


@short_and_long("reads", ([0, 4, 14],), ([2 * number for number in range(8)],))
def test_two_signals_end_a_process_at_once_and_lose_nothing(store: Path, reads: list[int]) -> None:
    """The second comes as a KeyboardInterrupt in whatever line is running, be it in the middle of the closing."""
    acknowledged = Acknowledged()
    for number in reads:
        with Writer(store, f"w{number}") as writer:
            writer.read(acknowledged, number)
            writer.process.send_signal(signal.SIGINT)
            writer.process.send_signal(signal.SIGINT)
            patience = threading.Timer(60, writer.process.kill)
            patience.start()
            for line in writer.lines():
                acknowledged.note(line)
            patience.cancel()
            assert writer.process.wait() not in (0, -signal.SIGKILL)
    assert acknowledged.missing_rows(store) == []
    assert acknowledged.missing_files(store) == []


FORGETFUL = """
import asyncio, sys
from parcelpost.storage import LocalPersistenceManager
opened = LocalPersistenceManager.open(sys.argv[1])
async def main():
    await opened.__aenter__()
asyncio.run(main())
"""


def test_a_process_that_never_closed_its_store_still_ends(store: Path) -> None:
    """As when a KeyboardInterrupt tears it out of its closing: what it held comes back at the next opening (I9)."""
    subprocess.run([sys.executable, "-c", FORGETFUL, str(store)], cwd=ROOT, check=False, timeout=60)


def assert_threads_end(before: set[threading.Thread]) -> None:
    for thread in set(threading.enumerate()) - before:
        if not thread.name.startswith("asyncio_"):  # the event loop's own pool, which asyncio ends itself
            thread.join(timeout=60)
            assert not thread.is_alive(), thread
