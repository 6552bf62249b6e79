"""The steps of the demo, from starting the county sites to the final comparison."""

from __future__ import annotations

import csv
import sys
from contextlib import AsyncExitStack
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from parcelpost.cli.context import CLOCK, open_for_reading
from parcelpost.cli.demo import output_files
from parcelpost.cli.demo.comparison import ComparisonRow, compare, count_retried
from parcelpost.cli.demo.output_files import DemoFiles
from parcelpost.cli.demo.processes import Child, free_port, wait_until_listening
from parcelpost.cli.output import count, fitted, print_lines, terminal_width
from parcelpost.clock import Clock
from parcelpost.gateway.ledger.base import Ledger
from parcelpost.gateway.ledger.factory import open_ledger
from parcelpost.gateway.models import TaskState
from parcelpost.storage import queries
from parcelpost.storage.lpm import LocalPersistenceManager

PLATFORMS = {
    "lien_register": "a treasurer's register of liens",
    "grizzly_gis": "an appraiser's pages behind a frame and a form",
    "mygov_due": "a tax collector's bills and certificates",
    "vgsi": "an assessor's pages",
}
ERROR_RATE = 0.02
"""The share of requests that a site answers with 500."""
READY_TEXT = "Ctrl-C ends it."
"""What the websites print when they are up and the files with counties and tasks are written."""

SITE_SETTINGS = {
    "fetch.allow_private": "127.0.0.1",
    "fetch.pace_seconds": "0.01",
    "fetch.concurrency_per_host": "8",
    "executor.retry_min_seconds": "0.5",
    "executor.retry_max_seconds": "2",
}
"""These websites are on this machine, and stand more than a county's server would."""


def start_websites(files: DemoFiles, parcels: int) -> Child:
    wanted = [part for name in PLATFORMS for part in ("--platform", name)]
    written = ["--counties-file", str(files.counties), "--tasks-file", str(files.tasks)]
    size = ["--parcels", str(parcels), "--port", str(free_port()), "--fault", f"500={ERROR_RATE}"]
    return Child(["simulate", "county", *wanted, *size, *written], {}, files.log("county"))


def count_tasks(files: DemoFiles) -> int:
    with files.tasks.open(encoding="utf-8", newline="") as opened:
        return sum(1 for _ in csv.DictReader(opened))


_LINE_SECONDS = 1.0


class ProgressBars:
    """Shown on stderr while its `with` block lasts. Lines printed meanwhile stand above."""

    def __init__(self, total: int, clock: Clock) -> None:
        self._total = total
        self._clock = clock
        self._next_line = 0.0
        self._progress: Progress | None = None
        if sys.stderr.isatty():
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            self._progress = Progress(
                *columns, console=Console(stderr=True), transient=True, redirect_stdout=sys.stdout.isatty()
            )
            self._scraped = self._progress.add_task("scraped by the worker", total=total)
            self._stored = self._progress.add_task("stored at the gateway", total=total)

    def __enter__(self) -> ProgressBars:
        if self._progress:
            self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress:
            self._progress.stop()

    def show(self, scraped: int, stored: int) -> None:
        if self._progress:
            self._progress.update(self._scraped, completed=scraped)
            self._progress.update(self._stored, completed=stored)
        elif self._clock.monotonic() >= self._next_line:
            self._next_line = self._clock.monotonic() + _LINE_SECONDS
            text = f"scraped by the worker: {scraped:,} of {self._total:,}; stored at the gateway: {stored:,}"
            print(text, file=sys.stderr, flush=True)


_LOOK_SECONDS = 0.1
_DOWN_SECONDS = 3.0
_ATTEMPTS = 5

_WORKER_SETTINGS = {
    "worker.id": "demo",
    **SITE_SETTINGS,
    "resources.slow_percent": "100",  # a few seconds' work on whatever machine this is
    "executor.slots": "8",
    "collector.low_water": "150",
    "collector.high_water": "200",
    "sync.backoff_min_seconds": "0.5",
    "sync.backoff_max_seconds": "1",
    "collector.poll_seconds": "0.5",
    "heartbeat.seconds": "1",
    "gateway.timeout_seconds": "5",
    "log.format": "human",
}
_GATEWAY_SETTINGS = {"log.format": "human", "server.requests_per_second": "1000", "server.lease_seconds": "40"}
_OPEN = (TaskState.QUEUED, TaskState.LEASED)


class Story:
    """Tells it on stdout. No process outlives it, however it ends."""

    def __init__(self, files: DemoFiles, parcels: int) -> None:
        self.files = files
        self._tasks = 0
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self._websites = start_websites(files, parcels)
        place = ["--database", str(files.ledger), "--raw", str(files.raw), "--port", str(self._port)]
        self._gateway = Child(["gateway", "serve", *place], _GATEWAY_SETTINGS, files.log("gateway"))
        wanted = ["--gateway", self.url, "--store", str(files.store.path), "--until-empty"]
        counties = {"fetch.counties_file": str(files.counties)}
        self._worker = Child(["run", *wanted], {**_WORKER_SETTINGS, **counties}, files.log("worker"))
        adding = ["gateway", "add", str(files.tasks), "--database", str(files.ledger)]
        self._adder = Child(adding, counties, files.log("add"))
        self._stack = AsyncExitStack()
        self._ledger: Ledger
        self.is_told = False
        self.is_whole = False
        """Whether both sides have the same, once it is told."""

    async def __aenter__(self) -> Story:
        for child in (self._websites, self._adder, self._gateway, self._worker):
            self._stack.push_async_callback(child.kill)
        opened = open_ledger(str(self.files.ledger), _ATTEMPTS, CLOCK)
        self._ledger = await self._stack.enter_async_context(opened)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def run(self) -> list[ComparisonRow]:
        await self._open_counties()
        await self._begin()
        with ProgressBars(self._tasks, CLOCK) as bars:
            await self._until_stored(self._tasks // 3, bars)
            await self._kill_gateway(bars)
            await self._kill_worker()
            await self._until_done(bars)
        _print_line(_retries_text(await count_retried(self.files)))
        _print_line("Everything is delivered, and the worker has ended by itself. Now both sides are compared.")
        lines = await compare(self.files, self._ledger, self._tasks)
        await output_files.save_sheets(self.files.store, self.files.folder)
        self.is_told, self.is_whole = True, all(line.is_same for line in lines)
        return lines

    async def stay(self) -> None:
        """Until it is cancelled."""
        _print_line(f"The dashboard stays up at {self.url}/ until Ctrl-C, and so do the websites.")
        await self._gateway.finish()

    async def _open_counties(self) -> None:
        process = await self._websites.start()
        await self._websites.says(READY_TEXT, CLOCK)
        _print_line(f"Websites of four invented counties run on this machine (process {process}):")
        for platform, what in PLATFORMS.items():
            _print_line(f"  {platform:14} {what}")
        self._tasks = count_tasks(self.files)

    async def _begin(self) -> None:
        async with LocalPersistenceManager.open(self.files.store.path, clock=CLOCK, worker="cli"):
            pass  # makes it, so that it can be looked at from the start
        await self._adder.start()
        await self._adder.finish()
        process = await self._gateway.start()
        await wait_until_listening(self._port, self._gateway, CLOCK)
        _print_line(f"A gateway runs (process {process}) with {count(self._tasks, 'task')}. Its dashboard: {self.url}/")
        process = await self._worker.start()
        _print_line(f"A worker runs (process {process}): it fetches their pages, eight at a time, and reads them.")

    async def _kill_gateway(self, bars: ProgressBars) -> None:
        await self._gateway.kill()
        scraped, stored = await self._counts()
        _print_line(
            f"The gateway was killed with SIGKILL; it has the records of {count(stored, 'task')}. The worker goes on."
        )
        until = CLOCK.monotonic() + _DOWN_SECONDS
        while CLOCK.monotonic() < until:
            await self._look(bars)
        more = (await self._counts())[0] - scraped
        _print_line(f"While the gateway was away, the worker did {count(more, 'task')}.")

    async def _kill_worker(self) -> None:
        await self._worker.kill()
        scraped, stored = await self._counts()
        waiting = count(scraped - stored, "task")
        _print_line(f"The worker was killed with SIGKILL too; the records of {waiting} are in its store only.")
        gateway = await self._gateway.start()
        await wait_until_listening(self._port, self._gateway, CLOCK)
        worker = await self._worker.start()
        _print_line(
            f"The gateway is back (process {gateway}), and another worker goes on with the store (process {worker})."
        )

    async def _until_stored(self, wanted: int, bars: ProgressBars) -> None:
        while await self._look(bars) < wanted:
            for child in (self._websites, self._gateway, self._worker):
                if child.has_ended:
                    child.complain("ended before its time")

    async def _until_done(self, bars: ProgressBars) -> None:
        """A kill may lose an answer with tasks on its way. Their leases end, and they are there for the next run."""
        while True:
            while not self._worker.has_ended:
                await self._look(bars)
            await self._worker.finish()
            rows = await self._ledger.queue()
            if not any(row.state in _OPEN for row in rows):
                return
            while not any(row.state is TaskState.QUEUED for row in await self._ledger.queue()):
                await self._look(bars)
            _print_line(
                "Tasks that were lost on their way to a killed process are offered again: the worker takes them."
            )
            await self._worker.start()

    async def _look(self, bars: ProgressBars) -> int:
        scraped, stored = await self._counts()
        bars.show(scraped, stored)
        await CLOCK.sleep(_LOOK_SECONDS)
        return stored

    async def _counts(self) -> tuple[int, int]:
        """Scraped and in the worker's store; stored at the gateway. Both are read from their files."""
        rows = await self._ledger.queue()
        stored = sum(row.tasks for row in rows if row.state is TaskState.DONE)
        async with open_for_reading(self.files.store) as database:
            depth = await database.read(queries.depth, CLOCK.now())
        return depth.completed, stored


def _retries_text(again: int) -> str:
    share = f"The websites answered about one request in {round(1 / ERROR_RATE)} with an error"
    return f"{share}; {count(again, 'task was', 'tasks were')} tried again."


def _print_line(line: str) -> None:
    print_lines(fitted([line], terminal_width()))
    sys.stdout.flush()
