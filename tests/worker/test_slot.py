"""A slot with both its loops: the next task does not wait for the disk, nor for the parser of a built-in platform."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from parcelpost.clock import SystemClock
from parcelpost.events import AttemptAbandoned, AttemptEnded
from parcelpost.model import Done, GiveUp, Outcome, Page, Target, Task, TaskStatus
from parcelpost.scrapers.counties import County
from parcelpost.scrapers.county_scraper import CountySites
from parcelpost.scrapers.fetch.client import PageFetcher
from parcelpost.scrapers.platform import CountyPlatform, Fetcher, PageReader, ReadResult
from tests.storage.factories import a_task
from tests.worker.executing import Works, at_work


class OneSite(CountySites, frozen=True, kw_only=True):
    """A built-in platform that does what a test wants."""

    fetch: Callable[[Target], Page]
    read: Callable[[PageReader], ReadResult]

    def platform(self, name: str) -> CountyPlatform | None:
        async def fetch(target: Target, _county: County | None, _fetcher: Fetcher) -> Page:
            await asyncio.sleep(0)
            return self.fetch(target)

        return CountyPlatform(name=name, version=1, fetch=fetch, read=self.read)


@asynccontextmanager
async def at_one_site(
    folder: Path,
    read: Callable[[PageReader], ReadResult],
    fetch: Callable[[Target], Page] = lambda target: Page(body=target.parcel_id.encode()),
    **settings: Any,
) -> AsyncIterator[Works]:
    clock = SystemClock()
    async with PageFetcher.open(clock=clock) as fetcher:
        sites = OneSite(sessions=fetcher.session, clock=clock, fetch=fetch, read=read)
        async with at_work(folder, clock, sites=sites, **settings) as works:
            yield works


async def test_both_loops_together_have_one_task_on_the_stage(tmp_path: Path) -> None:
    running, most = 0, 0

    async def scrape(_: Task) -> Outcome:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001)
        running -= 1
        return Done(data={})

    async with at_work(tmp_path, slots=1) as works:
        works.factory.register("vgsi", scrape)
        await works.lpm.add_tasks(a_task(f"t{number}", parcel_id=str(number)) for number in range(20))
        (slot, *_) = works.executor.slots
        assert len(slot.loops) == 2
        async with asyncio.timeout(60):
            while (await works.lpm.queue_depth()).completed < 20:
                await asyncio.gather(*(step() for step in slot.loops.values()))
        assert most == 1


async def test_a_page_that_makes_a_built_in_parser_hang_costs_only_its_own_task(tmp_path: Path) -> None:
    release = threading.Event()

    def read(reader: PageReader) -> ReadResult:
        if reader.page.body == b"hangs":
            release.wait(60)
        return GiveUp(f"read {reader.page.body.decode()}")

    try:
        async with at_one_site(tmp_path, read, slots=2, task_timeout_seconds=0.5) as works:
            await works.lpm.add_task(a_task("hangs", parcel_id="hangs"))
            await works.lpm.add_tasks(a_task(f"t{number}", parcel_id=str(number)) for number in range(20))
            async with works.looping(), asyncio.timeout(60):
                while len(works.seen(AttemptEnded)) < 21:
                    await asyncio.sleep(0.01)
            reasons = {event.task_id: event.reason for event in works.seen(AttemptEnded)}
            assert reasons.pop("hangs") == "took longer than 0.5 s and did not stop"
            assert reasons == {f"t{number}": f"read {number}" for number in range(20)}
            assert [event.task_id for event in works.seen(AttemptAbandoned)] == ["hangs"]
            assert await works.status("hangs") is TaskStatus.PENDING
    finally:
        release.set()


async def test_what_a_built_in_platform_raises_is_a_retry_of_its_own_task(tmp_path: Path) -> None:
    def fetch(target: Target) -> Page:
        raise ZeroDivisionError(target.parcel_id)

    def read(reader: PageReader) -> ReadResult:
        raise AssertionError(reader)

    async with at_one_site(tmp_path, read, fetch) as works:
        await works.lpm.add_task(a_task("t1", parcel_id="7"))
        assert await works.step() == 0.0
        (event,) = works.seen(AttemptEnded)
        assert (event.outcome, event.reason) == ("retry", "ZeroDivisionError: 7")


async def test_no_page_is_fetched_while_as_many_as_there_are_slots_are_parsed(tmp_path: Path) -> None:
    """A kill would cost all of them."""
    fetched, reads, release = set[str](), threading.Event(), threading.Event()

    def fetch(target: Target) -> Page:
        fetched.add(target.parcel_id)
        return Page(body=target.parcel_id.encode())

    def read(reader: PageReader) -> ReadResult:
        reads.set()
        release.wait(60)
        return GiveUp("read")

    try:
        async with at_one_site(tmp_path, read, fetch, slots=1) as works:
            await works.lpm.add_tasks(a_task(f"t{number}", parcel_id=str(number)) for number in range(2))
            async with works.looping(), asyncio.timeout(60):
                while not reads.is_set():
                    await asyncio.sleep(0.01)
                await asyncio.sleep(0.1)
                assert len(fetched) == 1
                release.set()
                while len(works.seen(AttemptEnded)) < 2:
                    await asyncio.sleep(0.01)
    finally:
        release.set()


async def test_a_task_that_is_interrupted_when_its_page_arrives_is_released_without_waiting_for_the_parser(
    tmp_path: Path,
) -> None:
    release = threading.Event()

    def fetch(target: Target) -> Page:
        works.executor.slots[0].interrupt()
        return Page(body=target.parcel_id.encode())

    def read(_: PageReader) -> ReadResult:
        release.wait(60)
        return GiveUp("read")

    async with at_one_site(tmp_path, read, fetch, task_timeout_seconds=1) as works:
        await works.lpm.add_task(a_task())
        try:
            assert await works.step() == 0
        finally:
            release.set()
        assert works.executor.slots[0].released == 1
        assert await works.status() is TaskStatus.PENDING
        assert works.seen(AttemptEnded) == []


async def test_a_task_in_progress_is_one_that_a_slot_works_on(tmp_path: Path) -> None:
    """What is saved while all slots fetch claims no further task, which would wait for one of them."""
    started, finish = 0, asyncio.Semaphore(0)

    async def fetch_started() -> None:
        nonlocal started
        started += 1
        await finish.acquire()

    loop = asyncio.get_running_loop()

    def scrape(_: Task) -> Outcome:
        asyncio.run_coroutine_threadsafe(fetch_started(), loop).result(60)
        return Done(data={})

    async with at_work(tmp_path, slots=4) as works:
        works.factory.register("vgsi", scrape)
        await works.lpm.add_tasks(a_task(f"t{number}", parcel_id=str(number)) for number in range(40))
        async with works.looping(), asyncio.timeout(60):
            for begun in range(4, 37):
                while started < begun or (await works.lpm.queue_depth()).completed < begun - 4:
                    await asyncio.sleep(0.001)
                assert (await works.lpm.queue_depth()).processing == 4
                finish.release()
            for _ in range(40):
                finish.release()
            while (await works.lpm.queue_depth()).completed < 40:
                await asyncio.sleep(0.01)
