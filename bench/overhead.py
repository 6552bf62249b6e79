"""`python -m bench overhead`: the same executor with the store, and with results discarded."""

from __future__ import annotations

import argparse
import array
import asyncio
import gc
import os
import random
import tempfile
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from pathlib import Path
from statistics import median
from typing import cast

from bench.measure import Run, add_dir_option, machine, scratch
from bench.report import Goal, Report, Table, at_least, progress
from bench.store.contenders import OPTIONS, OURS, PLATFORM, Work, make_work, store_path
from parcelpost.clock import Clock, SystemClock
from parcelpost.events import AttemptEnded, Emit, Event
from parcelpost.model import Claim, Done, Encoded, Json, Page, Result, Site, Task, TaskStatus
from parcelpost.scrapers.factory import ScraperFactory
from parcelpost.scrapers.fetch.throttle import SiteAvailability
from parcelpost.scrapers.learning.ranking import Ranking
from parcelpost.scrapers.platform import Scrape
from parcelpost.settings import Settings
from parcelpost.settings.schema import ExecutorSettings, WorkerSettings
from parcelpost.storage import validation
from parcelpost.storage.lpm import LocalPersistenceManager
from parcelpost.upstream.null import NullUpstream
from parcelpost.worker.context import Context
from parcelpost.worker.control import Control
from parcelpost.worker.executor import Executor
from parcelpost.worker.learning import Learning
from parcelpost.worker.loop import Loop

PAGE_BYTES = 20 * 1024
_BODIES = 64
_TEXT = """
    assessed value land building owner parcel lien redemption sale certificate block lot district school county city
    township road avenue street acreage zoning residential commercial exemption homestead delinquent penalty interest
    installment receipt treasurer collector deed book page grantor grantee transfer
"""


class Pages:
    """Pages whose larger part is built before anything is timed."""

    def __init__(self) -> None:
        self._bodies: Sequence[bytes] = [_body(random.Random(seed)) for seed in range(_BODIES)]

    def page(self, number: int) -> bytes:
        head = f"<!doctype html><html><head><title>Parcel {number:08}</title></head><body><h1>{number:08}</h1>\n"
        return (head.encode() + self._bodies[number % _BODIES])[:PAGE_BYTES]


def _body(chance: random.Random) -> bytes:
    words, rows = _TEXT.split(), list[str]()
    size = 0
    while size < PAGE_BYTES:
        label = " ".join(chance.choices(words, k=2)).title()
        value = f"{chance.choice(words)} {chance.randrange(10**7):,} {chance.choice(words)} {chance.random():.6f}"
        rows.append(f'<tr class="row-{len(rows) % 2}"><th scope="row">{label}</th><td>{value}</td></tr>\n')
        size += len(rows[-1])
    return "".join(["<table>\n", *rows]).encode()


_GET_FLAGS, _SET_FLAGS, _TOP_FOLDER = 0x80086601, 0x40086602, 0x00020000  # linux/fs.h


@contextmanager
def spread_folders(parent: Path) -> Iterator[Path]:
    """Yields a temporary folder for `fresh_folder`."""
    with scratch(parent) as folder:
        _mark_top_folder(folder)
        yield folder


def fresh_folder(folder: Path) -> Path:
    """Returns a new folder after everything has been written to disk."""
    created = Path(tempfile.mkdtemp(dir=folder))
    os.sync()
    return created


def _mark_top_folder(folder: Path) -> None:
    """Like `chattr +T`: ext4 places the folders inside independently of each other."""
    if os.uname().sysname != "Linux":
        return
    import fcntl

    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # another file system
            flags = array.array("l", [0])
            fcntl.ioctl(handle, _GET_FLAGS, flags)
            flags[0] |= _TOP_FOLDER
            fcntl.ioctl(handle, _SET_FLAGS, flags)
    finally:
        os.close(handle)


class _NullStore:
    """The part of the store that an executor uses. It stores nothing."""

    def __init__(self, tasks: Iterable[Task]) -> None:
        now = SystemClock().now()
        claims = [
            Claim(task=task, token=str(seq), seq=seq, retries=0, created_at=now) for seq, task in enumerate(tasks, 1)
        ]
        self._claims = iter(claims)
        self.artifacts = self

    async def discard_superseded(self, claim: Claim) -> None:
        return None

    async def claim(
        self, limit: int = 1, *, platforms: Collection[str] | None = None, exclude_sites: Collection[Site] = ()
    ) -> list[Claim]:
        claim = next(self._claims, None)
        return [] if claim is None else [claim]

    def encode(self, data: Mapping[str, Json]) -> Encoded:
        return Encoded(validation.json_bytes("data", data, max_bytes=OPTIONS.max_result_bytes))

    async def save_result(self, claim: Claim, result: Result) -> str | None:
        return claim.token

    async def finish(self, claim: Claim) -> bool:
        return True

    async def give_up(self, claim: Claim, error: str) -> bool:
        return True

    async def retry_later(self, claim: Claim, error: str, delay: timedelta | None = None) -> TaskStatus | None:
        return TaskStatus.PENDING

    async def release(self, claim: Claim, delay: timedelta | None = None) -> bool:
        return True

    async def pause_platform(self, platform: str, until: datetime | None = None, reason: str = "") -> None:
        return None


def null_store(tasks: Iterable[Task]) -> LocalPersistenceManager:
    """Returns a store for an executor that stores nothing."""
    return cast(LocalPersistenceManager, _NullStore(tasks))


SLOTS = 16
WARM_UP = 4 * SLOTS
"""Tasks that are not counted, because threads and connections are opened with the first."""


def bench_platform(work: Work, pages: Pages, delay: float) -> Scrape:
    """Returns a scrape function that takes `delay` seconds and returns a record of 2 KB with a page of 20 KB."""

    async def scrape(task: Task) -> Done:
        if delay:
            await asyncio.sleep(delay)
        number = int(task.task_id.rpartition("-")[2])
        return Done(data=work.records[number], page=Page(body=pages.page(number)))

    return scrape


class _Counter:
    def __init__(self, last: int) -> None:
        self._last = last
        self._ended = 0
        self.began = self.ended = 0.0
        self.all_ended = asyncio.Event()

    def emit(self, event: Event) -> None:
        if not isinstance(event, AttemptEnded):
            raise RuntimeError(f"unexpected: {event}")
        if event.outcome != "done" or event.reason:
            raise RuntimeError(f"a task was not done: {event}")
        self._ended += 1
        if self._ended == WARM_UP:
            self.began = time.perf_counter()
        if self._ended == self._last:
            self.ended = time.perf_counter()
            self.all_ended.set()


async def execute(lpm: LocalPersistenceManager, scrape: Scrape, tasks: int) -> Run:
    """Executes that many tasks of the store."""
    counter, clock = _Counter(tasks), SystemClock()
    executor = _executor(lpm, scrape, counter.emit, clock)
    steps = {name: step for slot in executor.slots for name, step in slot.loops.items()}
    running = [asyncio.create_task(Loop(name, step, clock, counter.emit).run()) for name, step in steps.items()]
    try:
        await _until(counter.all_ended, running)
    finally:
        for task in running:
            task.cancel()
        await asyncio.wait(running)
        await executor.close()
    return Run(tasks - WARM_UP, counter.ended - counter.began)


def _executor(lpm: LocalPersistenceManager, scrape: Scrape, emit: Emit, clock: Clock) -> Executor:
    factory = ScraperFactory(clock)
    factory.register(PLATFORM, scrape)
    settings = Settings(worker=WorkerSettings(platforms=(PLATFORM,)), executor=ExecutorSettings(slots=SLOTS))
    context = Context(lpm, NullUpstream(), factory, settings, control=Control(), clock=clock, emit=emit)
    return Executor(context, Learning(context, Ranking()), SiteAvailability())


async def _until(event: asyncio.Event, running: Sequence[asyncio.Task[None]]) -> None:
    """Waits for the event. Raises the error of a loop that failed."""
    waiting = asyncio.create_task(event.wait())
    ended, _ = await asyncio.wait([waiting, *running], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    for task in ended:
        task.result()


NAME = "overhead"
HELP = "a worker with the store, compared with one that discards its results"

STORE, NOTHING, BARE_STORE = "with the store", "results discarded", "claim + save alone"
GOALS = {0.050: 0.97, 0.020: 0.93}
"""Seconds per task -> minimum share of the rate without a store."""
BARE_GOAL = 0.5
"""Minimum share of the rate of claim + save alone, with a platform that takes no time."""


@dataclass(frozen=True, slots=True)
class Plan:
    repetitions: int
    seconds: float
    """Minimum duration of a measurement at 50 and 20 ms."""
    tasks: int
    """Number of tasks with a platform that takes no time."""


_FULL = Plan(3, 6.0, 10_000)
_QUICK = Plan(3, 3.0, 4_000)

Runs = defaultdict[tuple[float, str], list[Run]]
"""By seconds per task and by what the executor stores into."""


add_arguments = add_dir_option


def run(arguments: argparse.Namespace) -> Report:
    plan = _QUICK if arguments.quick else _FULL
    with spread_folders(arguments.dir) as folder:
        where = machine(folder)
        progress(f"measuring in {folder} ({where['file_system']}), load {where['load']}")
        runs = asyncio.run(_measure(plan, folder))
    data = {
        "machine": where,
        "plan": asdict(plan),
        "figures": [
            {"platform_seconds": delay, "behind": behind, "per_second": [run.rate for run in repetitions]}
            for (delay, behind), repetitions in runs.items()
        ],
    }
    return Report(NAME, _targets(runs), [_table(runs)], data)


async def _measure(plan: Plan, folder: Path) -> Runs:
    """Each repetition measures everything once, so that other load affects all alike."""
    counts = {delay: WARM_UP + int(SLOTS * plan.seconds / delay) for delay in GOALS} | {0.0: WARM_UP + plan.tasks}
    work, pages = make_work(max(counts.values())), Pages()
    gc.collect()
    gc.freeze()  # the inputs are not part of what is measured
    runs: Runs = defaultdict(list)
    for repetition in range(plan.repetitions):
        for delay, count in counts.items():
            progress(f"repetition {repetition + 1} of {plan.repetitions}: a platform of {delay * 1000:.0f} ms")
            scrape, part = bench_platform(work, pages, delay), _first(work, count)
            for behind in (STORE, NOTHING) if repetition % 2 else (NOTHING, STORE):
                runs[delay, behind].append(await _execute(behind, folder, scrape, part))
        runs[0.0, BARE_STORE].append(await _claim_and_save(folder, _first(work, plan.tasks)))
    return runs


async def _execute(behind: str, folder: Path, scrape: Scrape, work: Work) -> Run:
    gc.collect()
    if behind == NOTHING:
        return await execute(null_store(work.tasks), scrape, len(work))
    async with LocalPersistenceManager.open(store_path(fresh_folder(folder)), options=OPTIONS) as lpm:
        await lpm.add_tasks(work.tasks)
        return await execute(lpm, scrape, len(work))


async def _claim_and_save(folder: Path, work: Work) -> Run:
    """Measures what `bench store` does, with as many callers as slots: results of 2 KB, no pages."""
    async with OURS.open(fresh_folder(folder), work) as session:
        await session.enqueue_bulk()
        return await session.claim_and_save(SLOTS, limit=float("inf"))


def _first(work: Work, count: int) -> Work:
    return Work(work.tasks[:count], work.results[:count], work.targets[:count], work.records[:count])


def _ratio(runs: Runs, delay: float, behind: str) -> float:
    """Median over the repetitions of the store's rate divided by the other."""
    pairs = zip(runs[delay, STORE], runs[delay, behind], strict=True)
    return median(ours.rate / other.rate for ours, other in pairs)


def _targets(runs: Runs) -> list[Goal]:
    discarded = [
        at_least(f"platform of {delay * 1000:.0f} ms: rate / {NOTHING}", goal, _ratio(runs, delay, NOTHING))
        for delay, goal in GOALS.items()
    ]
    return [*discarded, at_least(f"platform of 0 ms: rate / {BARE_STORE}", BARE_GOAL, _ratio(runs, 0.0, BARE_STORE))]


def _table(runs: Runs) -> Table:
    rows = [
        [
            f"{delay * 1000:.0f} ms",
            behind,
            f"{median(run.rate for run in repetitions):,.0f}",
            f"{repetitions[-1].seconds:.1f}",
        ]
        for (delay, behind), repetitions in runs.items()
    ]
    return Table(
        f"Tasks per second, {SLOTS} slots, records of 2 KB with pages of 20 KB",
        ["platform", "results", "per second", "seconds"],
        rows,
        [f"{BARE_STORE}: {SLOTS} callers, no platform, no pages, as in `bench store`."],
        left=2,
    )
