"""Work that waits together is done together, and every caller is answered."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from parcelpost.errors import InvalidInput, StoreClosed
from parcelpost.storage.writer import Batcher

MAX_GROUP = 10


class Works:
    """The other side of a batcher: a thread that can be held up, and notes the groups it was given."""

    def __init__(self) -> None:
        self.pool = ThreadPoolExecutor(1)
        self.groups: list[list[Any]] = []
        self.go_on = threading.Event()
        self.go_on.set()
        self.has_begun = threading.Event()
        self.dropped: list[tuple[Any, Any]] = []
        self.hop_error: Exception | None = None

    async def hop(self, function: Callable[[], None]) -> None:
        if self.hop_error is not None:
            error, self.hop_error = self.hop_error, None
            raise error
        await asyncio.get_running_loop().run_in_executor(self.pool, function)

    def process(self, items: list[Any]) -> list[Any]:
        self.groups.append(items)
        self.has_begun.set()
        assert self.go_on.wait(60)
        if "raise" in items:
            raise InvalidInput("the whole group")
        return [InvalidInput(item) if isinstance(item, str) else item * 2 for item in items]

    async def hold_up(self, batcher: Batcher) -> asyncio.Future[Any]:
        """When this returns, the thread is busy with one item and stays so."""
        self.has_begun.clear()
        self.go_on.clear()
        first = batcher.submit(0)
        await asyncio.to_thread(self.has_begun.wait, 60)
        return first


@pytest.fixture
async def works() -> AsyncIterator[Works]:
    made = Works()
    yield made
    made.pool.shutdown()


@pytest.fixture
async def batcher(works: Works) -> AsyncIterator[Batcher]:
    made = Batcher(
        works.hop, works.process, max_group=MAX_GROUP, dropped=lambda *dropped: works.dropped.append(dropped)
    )
    async with asyncio.timeout(60):
        yield made
        works.go_on.set()
        await made.close()


async def test_a_lone_caller_is_served_at_once(batcher: Batcher, works: Works) -> None:
    assert await batcher.submit(21) == 42
    assert await batcher.submit(4) == 8
    assert works.groups == [[21], [4]]


async def test_what_gathers_while_the_thread_is_busy_is_one_group(batcher: Batcher, works: Works) -> None:
    first = await works.hold_up(batcher)
    others = [batcher.submit(n) for n in range(1, 8)]
    works.go_on.set()
    assert await asyncio.gather(first, *others) == [2 * n for n in range(8)]
    assert works.groups == [[0], [1, 2, 3, 4, 5, 6, 7]]


async def test_a_group_has_a_largest_size_and_the_order_stays(batcher: Batcher, works: Works) -> None:
    first = await works.hold_up(batcher)
    others = [batcher.submit(n) for n in range(1, 26)]
    works.go_on.set()
    await asyncio.gather(first, *others)
    assert [len(group) for group in works.groups] == [1, 10, 10, 5]
    assert [item for group in works.groups for item in group] == list(range(26))


async def test_an_error_reaches_its_own_caller_only(batcher: Batcher, works: Works) -> None:
    first = await works.hold_up(batcher)
    others = [batcher.submit(item) for item in (1, "bad", 3)]
    works.go_on.set()
    answers = await asyncio.gather(first, *others, return_exceptions=True)
    assert [answers[n] for n in (0, 1, 3)] == [0, 2, 6]
    assert isinstance(answers[2], InvalidInput)


async def test_nobody_is_left_waiting_when_the_work_itself_fails(batcher: Batcher, works: Works) -> None:
    first = await works.hold_up(batcher)
    others = [batcher.submit(item) for item in (1, "raise", 3)]
    works.go_on.set()
    answers = await asyncio.gather(first, *others, return_exceptions=True)
    assert answers[0] == 0
    assert all(isinstance(answer, InvalidInput) for answer in answers[1:])
    assert await batcher.submit(5) == 10


async def test_nobody_is_left_waiting_when_the_thread_cannot_be_reached(batcher: Batcher, works: Works) -> None:
    works.hop_error = OSError("no more threads")
    with pytest.raises(OSError, match="no more threads"):
        await batcher.submit(1)
    assert await batcher.submit(2) == 4


async def test_a_caller_cancelled_in_time_is_passed_over(batcher: Batcher, works: Works) -> None:
    first = await works.hold_up(batcher)
    one, two, three = (batcher.submit(n) for n in (1, 2, 3))
    two.cancel()
    works.go_on.set()
    assert [await future for future in (first, one, three)] == [0, 2, 6]
    assert works.groups == [[0], [1, 3]]
    assert works.dropped == []


async def test_a_caller_cancelled_too_late_has_its_answer_dropped(batcher: Batcher, works: Works) -> None:
    first = await works.hold_up(batcher)
    first.cancel()
    works.go_on.set()
    assert await batcher.submit(1) == 2
    assert works.dropped == [(0, 0)]


async def test_all_callers_of_a_group_may_be_cancelled(batcher: Batcher, works: Works) -> None:
    await works.hold_up(batcher)
    for n in range(5):
        batcher.submit(n).cancel()
    works.go_on.set()
    assert await batcher.submit(7) == 14


async def test_closing_finishes_what_waits_and_takes_no_more(works: Works) -> None:
    batcher = Batcher(works.hop, works.process, max_group=MAX_GROUP)
    first = await works.hold_up(batcher)
    others = [batcher.submit(n) for n in range(1, 25)]
    closing = asyncio.create_task(batcher.close())
    await asyncio.sleep(0)
    with pytest.raises(StoreClosed):
        batcher.submit(99)
    works.go_on.set()
    await asyncio.wait_for(closing, 60)
    assert [future.result() for future in (first, *others)] == [2 * n for n in range(25)]


async def test_one_that_was_never_used_can_be_closed(works: Works) -> None:
    await asyncio.wait_for(Batcher(works.hop, works.process, max_group=1).close(), 60)
    assert works.groups == []


async def test_a_cancelled_caller_does_not_keep_it_from_closing(works: Works) -> None:
    batcher = Batcher(works.hop, works.process, max_group=MAX_GROUP)
    first = await works.hold_up(batcher)
    waiting = batcher.submit(1)
    first.cancel()
    waiting.cancel()
    works.go_on.set()
    await asyncio.wait_for(batcher.close(), 60)
