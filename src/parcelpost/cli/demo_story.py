"""What happens in the demonstration."""

from __future__ import annotations

import sys
from contextlib import AsyncExitStack
from types import TracebackType

from parcelpost.cli import demo_counties, demo_sheets
from parcelpost.cli.demo_compare import Line, compare, tried_again
from parcelpost.cli.demo_files import Files
from parcelpost.cli.demo_processes import Child, free_port, listening
from parcelpost.cli.demo_progress import Bars
from parcelpost.cli.output import count, fitted, print_lines, terminal_width
from parcelpost.cli.running import CLOCK, looking
from parcelpost.gateway.ledger import Ledger
from parcelpost.gateway.opening import open_ledger
from parcelpost.gateway.words import TaskState
from parcelpost.storage import queries
from parcelpost.storage.lpm import LocalPersistenceManager

_LOOK_SECONDS = 0.1
_DOWN_SECONDS = 3.0
_ATTEMPTS = 5

_WORKER_SETTINGS = {
    "worker.id": "demo",
    **demo_counties.WORKER_SETTINGS,
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

    def __init__(self, files: Files, parcels: int) -> None:
        self.files = files
        self._tasks = 0
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self._websites = demo_counties.websites(files, parcels)
        place = ["--database", str(files.ledger), "--raw", str(files.raw), "--port", str(self._port)]
        self._gateway = Child(["gateway", "serve", *place], _GATEWAY_SETTINGS, files.log("gateway"))
        wanted = ["--gateway", self.url, "--store", str(files.store), "--until-empty"]
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

    async def run(self) -> list[Line]:
        await self._open_counties()
        await self._begin()
        with Bars(self._tasks, CLOCK) as bars:
            await self._until_stored(self._tasks // 3, bars)
            await self._kill_gateway(bars)
            await self._kill_worker()
            await self._until_done(bars)
        _say(_errors(await tried_again(self.files)))
        _say("Everything is delivered, and the worker has ended by itself. Now both sides are compared.")
        lines = await compare(self.files, self._ledger, self._tasks)
        await demo_sheets.save(self.files.store, self.files.folder)
        self.is_told, self.is_whole = True, all(line.is_same for line in lines)
        return lines

    async def stay(self) -> None:
        """Until it is cancelled."""
        _say(f"The dashboard stays up at {self.url}/ until Ctrl-C, and so do the websites.")
        await self._gateway.finish()

    async def _open_counties(self) -> None:
        process = await self._websites.start()
        await self._websites.says(demo_counties.READY, CLOCK)
        _say(f"Websites of four invented counties run on this machine (process {process}):")
        for platform, what in demo_counties.PLATFORMS.items():
            _say(f"  {platform:14} {what}")
        self._tasks = demo_counties.count_tasks(self.files)

    async def _begin(self) -> None:
        async with LocalPersistenceManager.open(self.files.store, clock=CLOCK, worker="cli"):
            pass  # makes it, so that it can be looked at from the start
        await self._adder.start()
        await self._adder.finish()
        process = await self._gateway.start()
        await listening(self._port, self._gateway, CLOCK)
        _say(f"A gateway runs (process {process}) with {count(self._tasks, 'task')}. Its dashboard: {self.url}/")
        process = await self._worker.start()
        _say(f"A worker runs (process {process}): it fetches their pages, eight at a time, and reads them.")

    async def _kill_gateway(self, bars: Bars) -> None:
        await self._gateway.kill()
        scraped, stored = await self._counts()
        _say(f"The gateway was killed with SIGKILL; it has the records of {count(stored, 'task')}. The worker goes on.")
        until = CLOCK.monotonic() + _DOWN_SECONDS
        while CLOCK.monotonic() < until:
            await self._look(bars)
        more = (await self._counts())[0] - scraped
        _say(f"While the gateway was away, the worker did {count(more, 'task')}.")

    async def _kill_worker(self) -> None:
        await self._worker.kill()
        scraped, stored = await self._counts()
        waiting = count(scraped - stored, "task")
        _say(f"The worker was killed with SIGKILL too; the records of {waiting} are in its store only.")
        gateway = await self._gateway.start()
        await listening(self._port, self._gateway, CLOCK)
        worker = await self._worker.start()
        _say(f"The gateway is back (process {gateway}), and another worker goes on with the store (process {worker}).")

    async def _until_stored(self, wanted: int, bars: Bars) -> None:
        while await self._look(bars) < wanted:
            for child in (self._websites, self._gateway, self._worker):
                if child.has_ended:
                    child.complain("ended before its time")

    async def _until_done(self, bars: Bars) -> None:
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
            _say("Tasks that were lost on their way to a killed process are offered again: the worker takes them.")
            await self._worker.start()

    async def _look(self, bars: Bars) -> int:
        scraped, stored = await self._counts()
        bars.show(scraped, stored)
        await CLOCK.sleep(_LOOK_SECONDS)
        return stored

    async def _counts(self) -> tuple[int, int]:
        """Scraped and in the worker's store; stored at the gateway. Both are read from their files."""
        rows = await self._ledger.queue()
        stored = sum(row.tasks for row in rows if row.state is TaskState.DONE)
        async with looking(self.files.store) as database:
            depth = await database.read(queries.depth, CLOCK.now())
        return depth.completed, stored


def _errors(again: int) -> str:
    share = f"The websites answered about one request in {round(1 / demo_counties.ERRORS)} with an error"
    return f"{share}; {count(again, 'task was', 'tasks were')} tried again."


def _say(line: str) -> None:
    print_lines(fitted([line], terminal_width()))
    sys.stdout.flush()
