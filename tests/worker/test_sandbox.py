"""Platform code may do what it wants on its stage: it is answered for in time, and the stage's owner never suffers."""

from __future__ import annotations

import asyncio
import decimal
import gc
import sys
import threading
import weakref
from collections.abc import AsyncIterator
from typing import Any

import pytest

from parcelpost.model import Blocked, Done, GiveUp, NotFound, Outcome, Retry, Task
from parcelpost.worker.sandbox import Sandbox
from tests.worker.sandboxes import DONE, LONG, TASK, answering, hang, is_usable, run


@pytest.fixture
async def stage() -> AsyncIterator[Sandbox]:
    made = Sandbox("tested", grace=LONG)
    yield made
    assert await made.close()


# What it answers


@pytest.mark.parametrize("outcome", [DONE, Retry("r", 3.0), GiveUp("g"), Blocked("b", 60.0), NotFound("n")])
async def test_an_outcome_comes_back_from_both_kinds_of_function(stage: Sandbox, outcome: Outcome) -> None:
    assert await run(stage, answering(outcome)) == outcome
    assert await run(stage, lambda _: outcome) == outcome


async def test_an_awaitable_that_is_no_coroutine_is_awaited_too(stage: Sandbox) -> None:
    class Later:
        def __await__(self) -> Any:
            yield from asyncio.sleep(0).__await__()
            return DONE

    assert await run(stage, lambda _: Later()) == DONE


async def test_both_kinds_run_on_the_stages_own_thread(stage: Sandbox) -> None:
    async def name(_: Task) -> Outcome:
        return NotFound(threading.current_thread().name)

    assert await run(stage, name) == NotFound("tested")
    assert await run(stage, lambda _: NotFound(threading.current_thread().name)) == NotFound("tested")


async def test_a_plain_function_may_run_an_event_loop_of_its_own(stage: Sandbox) -> None:
    async def inner() -> Outcome:
        return DONE

    assert await run(stage, answering(DONE)) == DONE
    assert await run(stage, lambda _: asyncio.run(inner())) == DONE
    assert await is_usable(stage)


async def test_what_a_call_sets_for_its_context_does_not_reach_the_next(stage: Sandbox) -> None:
    def careless(_: Task) -> Outcome:
        decimal.getcontext().prec = 2
        return DONE

    assert await run(stage, careless) == DONE
    assert await run(stage, lambda _: NotFound(str(decimal.getcontext().prec))) == NotFound("28")


# What it raises


class Unspeakable(BaseException):
    def __str__(self) -> str:
        raise RuntimeError("no words")


RAISED = {
    "ValueError: no table": ValueError("no table"),
    "KeyError: 'owner'": KeyError("owner"),
    "SystemExit: 3": SystemExit(3),
    "KeyboardInterrupt": KeyboardInterrupt(),
    "CancelledError": asyncio.CancelledError(),
    "GeneratorExit": GeneratorExit(),
    "MemoryError": MemoryError(),
    "Unspeakable": Unspeakable(),
    f"ValueError: {'x' * 500}": ValueError("x" * 9_000_000),
}


@pytest.mark.parametrize(("reason", "error"), RAISED.items(), ids=[reason[:30] for reason in RAISED])
async def test_whatever_is_raised_is_a_retry(stage: Sandbox, reason: str, error: BaseException) -> None:
    async def later(_: Task) -> Outcome:
        await asyncio.sleep(0)
        raise error

    def at_once(_: Task) -> Outcome:
        raise error

    assert await run(stage, later) == Retry(reason)
    assert await run(stage, at_once) == Retry(reason)
    assert await is_usable(stage)


async def test_a_stop_iteration_is_a_retry(stage: Sandbox) -> None:
    def run_out(_: Task) -> Outcome:
        raise StopIteration

    assert await run(stage, run_out) == Retry("StopIteration")


async def _exit() -> None:
    sys.exit(3)


async def test_an_exit_in_another_task_or_callback_of_the_platform_does_not_end_the_stage(stage: Sandbox) -> None:
    async def scrape(_: Task) -> Outcome:
        loop = asyncio.get_running_loop()
        loop.call_soon(sys.exit, 3)
        aside = asyncio.create_task(_exit())
        await asyncio.sleep(0.001)
        assert aside.done()
        loop.stop()
        await asyncio.sleep(0.001)
        return DONE

    assert await run(stage, scrape) == DONE
    assert await is_usable(stage)


async def test_an_exit_in_a_task_that_is_awaited_is_a_retry(stage: Sandbox) -> None:
    async def scrape(_: Task) -> Outcome:
        await asyncio.gather(_exit(), asyncio.sleep(LONG))
        return DONE

    assert await run(stage, scrape) == Retry("SystemExit: 3")
    assert await is_usable(stage)


# Who waits for it


async def test_cancelling_the_caller_cancels_the_work(stage: Sandbox) -> None:
    begun, cancelled = threading.Event(), threading.Event()

    async def scrape(task: Task) -> Outcome:
        begun.set()
        try:
            return await hang(task)
        finally:
            cancelled.set()

    caller = asyncio.create_task(stage.run(scrape, TASK, LONG))
    await asyncio.to_thread(begun.wait, LONG)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert await asyncio.to_thread(cancelled.wait, LONG)
    assert await run(stage, answering(DONE)) == DONE
    assert stage.is_free


@pytest.mark.parametrize("turns", range(6))
async def test_a_caller_may_be_cancelled_at_any_moment(stage: Sandbox, turns: int) -> None:
    caller = asyncio.create_task(stage.run(hang, TASK, LONG))
    for _ in range(turns):
        await asyncio.sleep(0)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert await run(stage, answering(DONE)) == DONE


async def test_nothing_holds_on_to_a_record_once_it_was_handed_over(stage: Sandbox) -> None:
    class Record(dict[str, Any]):
        pass

    seen: list[weakref.ref[Record]] = []

    async def scrape(_: Task) -> Outcome:
        record = Record(owner="Ann")
        seen.append(weakref.ref(record))
        return Done(data=record)

    assert await run(stage, scrape) == DONE
    async with asyncio.timeout(60):
        while seen[0]() is not None:
            await asyncio.sleep(0)
            gc.collect()


# Its end


async def test_a_stage_that_was_never_used_can_be_closed() -> None:
    stage = Sandbox()
    assert await stage.close()
    assert not stage.is_free


async def test_closing_stops_what_runs_and_ends_the_thread(stage: Sandbox) -> None:
    caller = asyncio.create_task(stage.run(hang, TASK, LONG))
    await asyncio.sleep(0)
    assert await stage.close()
    assert await caller is None
    assert not stage.is_stuck
    assert await stage.close()
