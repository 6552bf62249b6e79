"""One loop for every duty: its turns, its pauses, and what it does about a step that fails."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from parcelpost.clock import Clock, ManualClock, SystemClock
from parcelpost.errors import StoreBusy, StoreCorrupt, StoreFull
from parcelpost.events import Event, LoopFailed, ignore
from parcelpost.worker.loop import Loop, Step

AN_HOUR = 3_600.0
Turn = float | Exception
"""What a step answers or raises."""


class Script:
    """A step that does what it is told turn by turn, and then waits for ever."""

    def __init__(self, clock: Clock, turns: Sequence[Turn]) -> None:
        self._clock = clock
        self._turns = list(turns)
        self.times: list[float] = []
        self.is_over = asyncio.Event()

    async def step(self) -> float:
        self.times.append(self._clock.monotonic())
        if not self._turns:
            self.is_over.set()
            await asyncio.Event().wait()
        turn = self._turns.pop(0)
        if isinstance(turn, Exception):
            raise turn
        return turn


async def play(turns: Sequence[Turn], events: list[Event] | None = None) -> list[float]:
    """The pauses between the turns, by a clock on which time goes by at once."""
    clock = ManualClock()
    script = Script(clock, turns)
    emit = (events if events is not None else []).append
    running = asyncio.create_task(Loop("played", script.step, clock, emit).run())
    over = asyncio.create_task(script.is_over.wait())
    await asyncio.wait({running, over}, return_when=asyncio.FIRST_COMPLETED)
    over.cancel()
    running.cancel()
    await asyncio.wait({running, over})
    if not running.cancelled():
        running.result()
    return [later - earlier for earlier, later in zip(script.times, script.times[1:], strict=False)]


async def test_a_step_that_fails_while_it_is_cancelled_ends_its_loop() -> None:
    async def step() -> float:
        try:
            await asyncio.Event().wait()
        finally:
            raise StoreFull("no room")

    running = asyncio.create_task(Loop("failing", step, SystemClock(), ignore).run())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait({running}, timeout=60)
    assert running.cancelled()


class Turns:
    """A step that says when a turn begins, and lets the test end it."""

    def __init__(self, delay: float = AN_HOUR) -> None:
        self.delay = delay
        self._began: asyncio.Queue[None] = asyncio.Queue()
        self._may_end: asyncio.Queue[None] = asyncio.Queue()

    async def step(self) -> float:
        self._began.put_nowait(None)
        await self._may_end.get()
        return self.delay

    async def begun(self) -> None:
        async with asyncio.timeout(60):
            await self._began.get()

    async def end(self) -> None:
        """And lets the loop come to its pause."""
        self._may_end.put_nowait(None)
        for _ in range(5):
            await asyncio.sleep(0)

    @property
    def is_pausing(self) -> bool:
        return self._began.empty()


class Running:
    """A loop at work by the real clock."""

    def __init__(self, step: Step) -> None:
        self.loop = Loop("running", step, SystemClock(), _unwanted)
        self.task = asyncio.create_task(self.loop.run())

    async def stop(self) -> None:
        self.task.cancel()
        async with asyncio.timeout(60):
            with pytest.raises(asyncio.CancelledError):
                await self.task


def _unwanted(event: Event) -> None:
    raise AssertionError(event)


async def test_the_pause_is_what_the_step_said() -> None:
    assert await play([5.0, 0.25, AN_HOUR]) == [5.0, 0.25, AN_HOUR]


@pytest.mark.parametrize("delay", [0.0, -1.0])
async def test_without_a_pause_the_next_turn_comes_at_once(delay: float) -> None:
    assert await play([delay, delay]) == [0.0, 0.0]


async def test_a_wake_ends_the_pause() -> None:
    turns = Turns()
    running = Running(turns.step)
    for _ in range(3):
        await turns.begun()
        await turns.end()
        assert turns.is_pausing
        running.loop.wake()
    await turns.begun()
    await running.stop()


async def test_a_wake_during_a_turn_is_not_lost() -> None:
    turns = Turns()
    running = Running(turns.step)
    await turns.begun()
    running.loop.wake()
    await turns.end()
    await turns.begun()  # though the turn asked for an hour
    await turns.end()
    assert turns.is_pausing, "one wake, one turn"
    await running.stop()


async def test_a_wake_before_the_start_changes_nothing() -> None:
    turns = Turns()
    running = Running(turns.step)
    running.loop.wake()
    await turns.begun()
    await turns.end()
    assert turns.is_pausing
    await running.stop()


async def test_a_step_that_fails_is_tried_again_after_doubling_pauses() -> None:
    events: list[Event] = []
    pauses = await play([ValueError("no")] * 9, events)
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert events == [
        LoopFailed(loop="played", error="ValueError: no", in_a_row=number, next_in_seconds=pause)
        for number, pause in enumerate(pauses, 1)
    ]


async def test_the_tenth_failure_in_a_row_ends_the_loop_with_its_error() -> None:
    events: list[Event] = []
    with pytest.raises(ValueError, match="number 10"):
        await play([ValueError(f"number {number}") for number in range(1, 20)], events)
    assert len(events) == 10


async def test_a_success_starts_the_counting_over() -> None:
    failures: list[Turn] = [ValueError("no")] * 9
    pauses = await play([*failures, 5.0, *failures, 5.0, ValueError("no")])
    assert pauses[9:12] == [5, 1, 2]
    assert pauses[-1] == 1


@pytest.mark.parametrize("error", [StoreFull(), StoreBusy()])
async def test_a_store_that_cannot_be_written_for_now_is_waited_for_as_long_as_it_takes(error: StoreFull) -> None:
    assert await play([error] * 100) == [1, 2, 4, 8, 16, 32] + [60] * 94


async def test_a_store_that_does_not_heal_by_itself_ends_the_loop() -> None:
    with pytest.raises(StoreCorrupt):
        await play([StoreCorrupt()] * 10)


async def test_one_error_of_another_kind_after_a_long_wait_for_the_store_ends_nothing() -> None:
    full: list[Turn] = [StoreFull()] * 30
    assert len(await play([*full, ValueError("no"), *full, 5.0])) == 62


async def test_failures_that_do_not_heal_are_counted_across_those_that_do() -> None:
    with pytest.raises(ValueError, match="no"):
        await play([StoreFull(), ValueError("no")] * 10)


async def test_a_wake_does_not_cut_short_the_pause_after_a_failure() -> None:
    """Every saved result wakes the sync: ten of them must not use up its ten tries."""
    clock = ManualClock()
    times: list[float] = []

    async def step() -> float:
        times.append(clock.monotonic())
        loop.wake()
        raise ValueError("no")

    loop = Loop("woken", step, clock, lambda _: None)
    with pytest.raises(ValueError, match="no"):
        await loop.run()
    assert times[:5] == [0, 1, 3, 7, 15]


async def test_a_cancellation_during_a_turn_passes_through() -> None:
    turns = Turns()
    running = Running(turns.step)
    await turns.begun()
    await running.stop()


async def test_a_cancellation_during_a_pause_passes_through() -> None:
    turns = Turns()
    running = Running(turns.step)
    await turns.begun()
    await turns.end()
    await running.stop()


async def test_a_cancellation_that_comes_together_with_a_wake_passes_through() -> None:
    turns = Turns()
    running = Running(turns.step)
    await turns.begun()
    await turns.end()
    running.loop.wake()
    await running.stop()


async def test_a_cancellation_during_the_pause_after_a_failure_passes_through() -> None:
    failed = asyncio.Event()

    async def step() -> float:
        raise ValueError("no")

    running = asyncio.create_task(Loop("failing", step, SystemClock(), lambda _: failed.set()).run())
    await failed.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_a_step_that_never_waits_holds_up_nobody_and_can_be_stopped() -> None:
    turns = 0

    async def step() -> float:
        nonlocal turns
        turns += 1
        return 0.0

    running = Running(step)
    for _ in range(10):
        await asyncio.sleep(0)
    assert 3 <= turns <= 10
    await running.stop()
