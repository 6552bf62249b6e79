"""The steps of the demo, from starting the county sites to the final comparison."""

from __future__ import annotations

import csv
import sys
from contextlib import AsyncExitStack
from types import TracebackType

import msgspec
from msgspec.structs import replace
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from parcelpost.cli.context import CLOCK, open_for_reading
from parcelpost.cli.demo.processes import Child, wait_until_listening
from parcelpost.cli.demo.results import ComparisonRow, DemoFiles, compare, count_retried, save_sheets
from parcelpost.cli.output import count, fitted, print_lines, terminal_width
from parcelpost.clock import Clock
from parcelpost.files_and_sockets import free_port
from parcelpost.gateway.ledger.base import Ledger
from parcelpost.gateway.ledger.factory import open_ledger
from parcelpost.gateway.models import Scope, TaskState
from parcelpost.gateway.schedules import NewSchedule, first_run, make_schedule
from parcelpost.simulator.parcels import county_outline
from parcelpost.storage import queries
from parcelpost.storage.lpm import LocalPersistenceManager

PLATFORMS = {
    "lien_register": "a county treasurer's lien register",
    "grizzly_gis": "a property appraiser, behind a frame and a search form",
    "mygov_due": "a tax collector, with bills and tax certificates",
    "vgsi": "a town assessor's property cards",
}
ERROR_RATE = 0.02
"""The share of requests that a site answers with 500."""
READY_TEXT = "Press Ctrl-C to stop."
"""The websites print this when they are up and the files with counties and tasks are written."""

_SCHEDULES = (
    NewSchedule(name="florida", platform="grizzly_gis", state="FL", county="invented", every="7d", at="02:00"),
    NewSchedule(
        name="florida-delinquent",
        platform="mygov_due",
        state="FL",
        county="invented",
        every="1d",
        window="10m",
        scope=Scope.DELINQUENT,
    ),
    NewSchedule(
        name="colorado-liens", platform="lien_register", state="CO", county="invented", every="1d", scope=Scope.LIST
    ),
    NewSchedule(name="new-hampshire", platform="vgsi", state="NH", county="invented", every="30d", at="03:30"),
)
"""Two of them start at once; the others have a time of day."""

SITE_SETTINGS = {
    "fetch.allow_private": "127.0.0.1",
    "fetch.pace_seconds": "0.01",
    "fetch.concurrency_per_host": "8",
    "executor.retry_min_seconds": "0.5",
    "executor.retry_max_seconds": "2",
}
"""The websites are on this machine and can take more than a county's server."""


def start_websites(files: DemoFiles, parcels: int) -> Child:
    wanted = [part for name in PLATFORMS for part in ("--platform", name)]
    written = ["--counties-file", str(files.counties), "--tasks-file", str(files.tasks)]
    size = ["--parcels", str(parcels), "--port", str(free_port()), "--fault", f"500={ERROR_RATE}"]
    return Child(["simulate", "county", *wanted, *size, *written], {}, files.log("county"))


def count_tasks(files: DemoFiles) -> int:
    with files.tasks.open(encoding="utf-8", newline="") as opened:
        return sum(1 for _ in csv.DictReader(opened))


def list_url(files: DemoFiles, platform: str) -> str:
    with files.tasks.open(encoding="utf-8", newline="") as opened:
        return next(row["url"] for row in csv.DictReader(opened) if row["platform"] == platform)


_LINE_SECONDS = 5.0


class ProgressBars:
    """Shown on stderr, below the lines that are printed meanwhile."""

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


_POLL_SECONDS = 0.1
_DOWN_SECONDS = 3.0
_ATTEMPTS = 5

_WORKER_SETTINGS = {
    "worker.id": "demo",
    **SITE_SETTINGS,
    "resources.slow_percent": "100",  # it is over in seconds, on any machine
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


class Scenario:
    """Runs the demo and prints each step. No process outlives it, however it ends."""

    def __init__(self, files: DemoFiles, parcels: int) -> None:
        self.files = files
        self._tasks = 0
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self._websites = start_websites(files, parcels)
        place = ["--database", str(files.ledger), "--raw", str(files.raw), "--port", str(self._port)]
        serving = {**_GATEWAY_SETTINGS, "server.map_outline": str(files.outline)}
        self._gateway = Child(["gateway", "serve", *place], serving, files.log("gateway"))
        running = ["run", "--gateway", self.url, "--store", str(files.store.path)]
        counties = {"fetch.counties_file": str(files.counties)}
        settings = {**_WORKER_SETTINGS, **counties}
        self._worker = Child([*running, "--until-empty"], settings, files.log("worker"))
        self._staying_worker = Child(running, settings, files.log("worker"))
        adding = ["gateway", "add", str(files.tasks), "--database", str(files.ledger)]
        self._adder = Child(adding, counties, files.log("add"))
        self._stack = AsyncExitStack()
        self._ledger: Ledger
        self.is_over = False
        self.is_complete = False
        """Both sides hold the same."""

    async def __aenter__(self) -> Scenario:
        for child in (self._websites, self._adder, self._gateway, self._worker, self._staying_worker):
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
            await self._wait_until_stored(self._tasks // 3, bars)
            await self._kill_gateway(bars)
            await self._kill_worker()
            await self._wait_until_done(bars)
        _print_line(_retries_text(await count_retried(self.files)))
        _print_line("All results are delivered, and the worker has exited. Comparing both sides:")
        lines = await compare(self.files, self._ledger, self._tasks)
        await save_sheets(self.files.store, self.files.folder)
        self.is_over, self.is_complete = True, all(line.is_same for line in lines)
        return lines

    async def stay(self) -> None:
        """Runs until it is cancelled, with schedules and a worker that waits for tasks."""
        for new in _SCHEDULES:
            url = list_url(self.files, new.platform) if new.scope is Scope.LIST else ""
            schedule, targets = make_schedule(replace(new, url=url), CLOCK.now(), None)
            await self._ledger.add_schedule(schedule, targets, first_run(schedule, CLOCK.now()))
        await self._staying_worker.start()
        _print_line(f"The dashboard is at {self.url}/. Press Ctrl-C to stop it, the worker and the websites.")
        await self._gateway.finish()

    async def _open_counties(self) -> None:
        process = await self._websites.start()
        await self._websites.wait_for_output(READY_TEXT, CLOCK)
        _print_line(f"Started the websites of four simulated counties (process {process}):")
        for platform, site in PLATFORMS.items():
            _print_line(f"  {platform:14} {site}")
        self._tasks = count_tasks(self.files)

    async def _begin(self) -> None:
        self.files.outline.touch(mode=0o600)
        self.files.outline.write_bytes(msgspec.json.encode(county_outline()))
        async with LocalPersistenceManager.open(self.files.store.path, clock=CLOCK, worker="cli"):
            pass  # creates it, so that it can be read from the start
        await self._adder.start()
        await self._adder.finish()
        process = await self._gateway.start()
        await wait_until_listening(self._port, self._gateway, CLOCK)
        _print_line(f"Started a gateway with {count(self._tasks, 'task')} (process {process}). Dashboard: {self.url}/")
        process = await self._worker.start()
        _print_line(f"Started a worker (process {process}). It fetches and parses eight pages at a time.")

    async def _kill_gateway(self, bars: ProgressBars) -> None:
        await self._gateway.kill()
        scraped, stored = await self._counts()
        _print_line(
            f"Killed the gateway (SIGKILL). It has the results of {count(stored, 'task')}; the worker keeps scraping."
        )
        until = CLOCK.monotonic() + _DOWN_SECONDS
        while CLOCK.monotonic() < until:
            await self._show(bars)
        more = (await self._counts())[0] - scraped
        _print_line(f"The worker completed {count(more, 'task')} while the gateway was down.")

    async def _kill_worker(self) -> None:
        await self._worker.kill()
        scraped, stored = await self._counts()
        waiting = count(scraped - stored, "task")
        _print_line(f"Killed the worker (SIGKILL). The results of {waiting} exist only in its store.")
        gateway = await self._gateway.start()
        await wait_until_listening(self._port, self._gateway, CLOCK)
        worker = await self._worker.start()
        _print_line(f"Restarted the gateway (process {gateway}), and a worker on the same store (process {worker}).")

    async def _wait_until_stored(self, wanted: int, bars: ProgressBars) -> None:
        while await self._show(bars) < wanted:
            for child in (self._websites, self._gateway, self._worker):
                if child.has_ended:
                    child.fail("exited early")

    async def _wait_until_done(self, bars: ProgressBars) -> None:
        """A kill may lose a response with tasks in it. Their leases expire, and the next run gets them."""
        while True:
            while not self._worker.has_ended:
                await self._show(bars)
            await self._worker.finish()
            rows = await self._ledger.queue()
            if not any(row.state in _OPEN for row in rows):
                return
            while not any(row.state is TaskState.QUEUED for row in await self._ledger.queue()):
                await self._show(bars)
            _print_line(
                "The leases of tasks that a killed process had taken have expired. Restarted the worker to scrape them."
            )
            await self._worker.start()

    async def _show(self, bars: ProgressBars) -> int:
        scraped, stored = await self._counts()
        bars.show(scraped, stored)
        await CLOCK.sleep(_POLL_SECONDS)
        return stored

    async def _counts(self) -> tuple[int, int]:
        """Returns how many tasks are completed in the worker's store, and how many at the gateway."""
        rows = await self._ledger.queue()
        stored = sum(row.tasks for row in rows if row.state is TaskState.DONE)
        async with open_for_reading(self.files.store) as database:
            depth = await database.read(queries.depth, CLOCK.now())
        return depth.completed, stored


def _retries_text(again: int) -> str:
    share = f"About 1 in {round(1 / ERROR_RATE)} requests got a simulated server error"
    return f"{share}; {count(again, 'task was', 'tasks were')} retried."


def _print_line(line: str) -> None:
    print_lines(fitted([line], terminal_width()))
    sys.stdout.flush()
