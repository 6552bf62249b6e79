"""Platform code that does not end: cancelled when its time is up, left behind when even that does not help."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from parcelpost.model import NotFound, Outcome, Retry, Task
from parcelpost.scrapers.platform import Scrape
from parcelpost.worker.sandbox import Sandbox
from tests.worker.sandboxes import (
    DONE,
    LONG,
    TASK,
    answering,
    blocks_in_a_helper_thread,
    blocks_in_a_plain_function,
    blocks_its_loop,
    hang,
    is_usable,
    leaves_a_helper_thread_blocked,
    refuse,
    run,
)


@pytest.fixture
async def patient() -> AsyncIterator[Sandbox]:
    """For what ends when it is told to."""
    made = Sandbox("patient", grace=LONG)
    yield made
    assert await made.close()


@pytest.fixture
async def stage() -> AsyncIterator[Sandbox]:
    """For what does not."""
    made = Sandbox("tested", grace=0.05)
    yield made
    await made.close()


async def test_a_hang_is_cancelled_when_its_time_is_up(patient: Sandbox) -> None:
    assert await run(patient, hang, timeout=0.02) == Retry("took longer than 0.02 s")
    assert await is_usable(patient)


async def test_it_may_clean_up_within_the_grace_and_is_not_cancelled_twice(patient: Sandbox) -> None:
    cleaned = threading.Event()

    async def scrape(task: Task) -> Outcome:
        try:
            return await hang(task)
        finally:
            await asyncio.sleep(0.005)
            cleaned.set()

    assert await run(patient, scrape, timeout=0.5) == Retry("took longer than 0.5 s")
    assert cleaned.is_set()
    assert await is_usable(patient)


async def test_a_record_that_comes_within_the_grace_is_kept(patient: Sandbox) -> None:
    async def scrape(task: Task) -> Outcome:
        try:
            return await hang(task)
        except asyncio.CancelledError:
            return DONE

    assert await run(patient, scrape, timeout=0.5) == DONE


async def test_what_will_not_be_cancelled_is_left_and_its_thread_ends() -> None:
    stage = Sandbox("tested", grace=1.0)  # of which its thread's end takes one, and has two
    assert await run(stage, refuse, timeout=0.5) == Retry("took longer than 0.5 s and did not stop")
    assert not stage.is_free
    assert await stage.close()


Blocking = Callable[[threading.Event], Scrape]


BLOCKING = [blocks_its_loop, blocks_in_a_plain_function, blocks_in_a_helper_thread]


@pytest.mark.parametrize("blocking", BLOCKING)
async def test_a_thread_that_is_held_is_left_behind_until_it_comes_back(stage: Sandbox, blocking: Blocking) -> None:
    release = threading.Event()
    try:
        assert await run(stage, blocking(release), 0.5) == Retry("took longer than 0.5 s and did not stop")
        assert not stage.is_free
        assert stage.is_stuck
        assert not await stage.close()
    finally:
        release.set()
    async with asyncio.timeout(60):
        while stage.is_stuck:
            await asyncio.sleep(0)


async def test_a_helper_thread_that_is_left_behind_makes_the_stage_no_good_for_others(stage: Sandbox) -> None:
    release = threading.Event()
    try:
        assert await run(stage, leaves_a_helper_thread_blocked(release)) == DONE
        assert not stage.is_free
        assert stage.is_stuck
    finally:
        release.set()


async def test_helper_threads_that_have_ended_leave_the_stage_as_good_as_new(patient: Sandbox) -> None:
    async def scrape(_: Task) -> Outcome:
        names = await asyncio.gather(*(asyncio.to_thread(threading.current_thread) for _ in range(100)))
        with pytest.raises(SystemExit):
            await asyncio.to_thread(sys.exit, 3)
        return NotFound(str(all(thread.daemon for thread in names) and len(set(names)) <= 32))

    for _ in range(20):
        assert await run(patient, scrape) == NotFound("True")
        assert patient.is_free


async def test_tasks_left_running_end_with_the_attempt(patient: Sandbox) -> None:
    left: list[asyncio.Task[Outcome]] = []

    async def scrape(task: Task) -> Outcome:
        left.append(asyncio.create_task(hang(task)))
        return DONE

    assert await run(patient, scrape) == DONE
    assert left[0].cancelled()
    assert await is_usable(patient)


async def test_a_task_left_running_that_will_not_end_makes_the_stage_no_good_for_others(stage: Sandbox) -> None:
    kept: list[object] = []

    async def scrape(task: Task) -> Outcome:
        kept.append(asyncio.create_task(refuse(task)))
        await asyncio.sleep(0)
        return DONE

    assert await run(stage, scrape) == DONE
    assert not stage.is_free


async def test_an_interrupted_call_is_answered_none_at_once(patient: Sandbox) -> None:
    patient.interrupt()
    begun, release = threading.Event(), threading.Event()

    def scrape(_: Task) -> Outcome:
        begun.set()
        release.wait(LONG)
        return DONE

    caller = asyncio.create_task(patient.run(scrape, TASK, LONG))
    try:
        assert await asyncio.to_thread(begun.wait, LONG)
        patient.interrupt()
        assert await caller is None
        assert not patient.is_free
    finally:
        release.set()


async def test_an_interrupted_call_leaves_no_coroutine_that_never_ran(patient: Sandbox) -> None:
    """Platform code is cancelled at its first await, not before its first step: what it was to await would be left."""
    home, interrupted, began = asyncio.get_running_loop(), threading.Event(), threading.Event()

    async def inner() -> Outcome:
        began.set()
        return await hang(TASK)

    async def outer(waiting: Awaitable[Outcome]) -> Outcome:
        return await waiting

    def interrupt() -> None:
        patient.interrupt()
        interrupted.set()

    def scrape(_: Task) -> Awaitable[Outcome]:
        home.call_soon_threadsafe(interrupt)
        interrupted.wait(LONG)
        return outer(inner())

    assert await patient.run(scrape, TASK, LONG) is None
    assert await asyncio.to_thread(began.wait, LONG)
    assert await patient.close()


async def test_a_call_that_is_interrupted_before_it_began_never_begins(patient: Sandbox) -> None:
    release, begun = threading.Event(), threading.Event()
    first = asyncio.create_task(patient.run(blocks_its_loop(release), TASK, LONG))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait([first])

    def scrape(_: Task) -> Outcome:
        begun.set()
        return DONE

    second = asyncio.create_task(patient.run(scrape, TASK, LONG))
    await asyncio.sleep(0)
    patient.interrupt()
    assert await second is None
    release.set()
    assert await run(patient, answering(DONE)) == DONE
    assert not begun.is_set()


async def test_a_blocked_stage_does_not_slow_the_one_beside_it(patient: Sandbox) -> None:
    beside = Sandbox("beside", grace=LONG)
    release = threading.Event()
    blocked = asyncio.create_task(patient.run(blocks_its_loop(release), TASK, LONG))
    try:
        for _ in range(100):
            assert await run(beside, answering(DONE)) == DONE
        assert not blocked.done()
    finally:
        release.set()
    assert await blocked == DONE
    assert await beside.close()


STUCK_PROCESS = """
import asyncio, threading, time
from parcelpost.model import Target, Task
from parcelpost.worker.sandbox import Sandbox

async def blocks(task):
    time.sleep(600)

async def blocks_aside(task):
    await asyncio.to_thread(time.sleep, 600)

async def leaves_tasks(task):
    tasks.append(asyncio.create_task(asyncio.sleep(600)))
    await asyncio.sleep(600)

tasks = []

async def main():
    task = Task(task_id="t", platform="p", target=Target(parcel_id="1", state="FL", county="lee"))
    for scrape, grace in ((blocks, 0.02), (blocks_aside, 0.02), (leaves_tasks, 20)):
        stage = Sandbox(grace=grace)
        print((await stage.run(scrape, task, 1.0)).reason)
        await stage.close()
    running = Sandbox()
    asyncio.create_task(running.run(leaves_tasks, task, 600))
    await asyncio.sleep(0)

asyncio.run(main())
"""


def test_stuck_threads_do_not_keep_the_program_from_ending() -> None:
    ended = subprocess.run(
        [sys.executable, "-X", "dev", "-c", STUCK_PROCESS], capture_output=True, text=True, timeout=60, check=True
    )
    stuck = "took longer than 1 s and did not stop"
    assert ended.stdout.splitlines() == [stuck, stuck, "took longer than 1 s"]
    assert ended.stderr == ""
