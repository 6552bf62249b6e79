"""`python -m bench browser`: the browser pool, a fresh browser per page, and one shared context."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from math import inf
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import psutil

from bench.measure import Run, add_dir_option, fresh_folder, machine, run_coroutines, scratch
from bench.report import Goal, Report, Table, at_least, at_most, progress
from parcelpost.clock import SystemClock
from parcelpost.events import ignore
from parcelpost.scrapers.browser import processes
from parcelpost.scrapers.browser.chromium import ChromiumMissing, find
from parcelpost.scrapers.browser.pool import BrowserPool
from parcelpost.settings.schema import BrowserSettings
from parcelpost.storage.lpm import LocalPersistenceManager

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page, Playwright


_SHELL = """<!doctype html><title>Parcel</title><link rel="stylesheet" href="/style.css"><div id="app">Loading</div>
<script>
const number = new URLSearchParams(location.search).get("parcel");
fetch("/data?parcel=" + number).then(answer => answer.json()).then(rows => {
  const table = document.createElement("table");
  for (const [name, value] of rows) {
    const row = table.insertRow();
    row.insertCell().textContent = name;
    row.insertCell().textContent = value;
  }
  document.getElementById("app").replaceChildren(table);
  document.body.dataset.parcel = number;
});
</script>"""
_STYLE = "\n".join(f".row-{number} {{ margin: {number}px; color: #123456; }}" for number in range(400))
_ROWS = 300


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        if url.path == "/data":
            (number,) = parse_qs(url.query)["parcel"]
            rows = [[f"field {row} of parcel {number}", "a value " * 8] for row in range(_ROWS)]
            self._answer("application/json", json.dumps(rows))
        elif url.path == "/style.css":
            self._answer("text/css", _STYLE)
        else:
            self._answer("text/html", _SHELL)

    def _answer(self, kind: str, text: str) -> None:
        body = text.encode()
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        return


@contextmanager
def site() -> Iterator[str]:
    """Yields the address of a site whose pages are built by a script."""
    with subprocess.Popen([sys.executable, "-m", "bench.browser"], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield f"http://127.0.0.1:{server.stdout.readline().strip()}"
        finally:
            server.terminate()


CALLERS = 2
POOL, FRESH, SHARED = "the pool", "a fresh browser per page", "one shared context"
_TIMEOUT = 120.0
PAST_THE_GUARD = {"server": "http://127.0.0.1:9", "bypass": "127.0.0.1"}
"""Bypasses our proxy, since the other methods have none."""

LoadPage = Callable[[int], Awaitable[None]]
"""Loads the page with that number."""
Method = Callable[[Path, str], AbstractAsyncContextManager[LoadPage]]
"""(folder for a store, address of the site) -> function that loads pages."""


async def read_page(page: Page, site: str, number: int) -> None:
    """Loads the page, waits for its script and reads the result."""
    await page.goto(f"{site}/?parcel={number}", wait_until="domcontentloaded")
    await page.wait_for_selector(f"body[data-parcel='{number}']")
    text = await page.content()
    if f"field 1 of parcel {number}<" not in text:
        raise RuntimeError(f"the page shows another parcel than {number}")


@asynccontextmanager
async def pooled(folder: Path, site: str) -> AsyncIterator[LoadPage]:
    async with opened_pool(folder) as (_, pool):

        async def load(number: int) -> None:
            async with pool.lease(f"t{number}", timeout=_TIMEOUT, proxy=PAST_THE_GUARD) as leased:
                await leased.call(read_page(leased.page, site, number))

        yield load


@asynccontextmanager
async def opened_pool(folder: Path) -> AsyncIterator[tuple[LocalPersistenceManager, BrowserPool]]:
    """Opens a pool with a store, as a worker does."""
    options = BrowserSettings(most=CALLERS)
    async with LocalPersistenceManager.open(folder / "store.db") as lpm:
        opening = BrowserPool.open(options, lpm.browsers, owner=lpm.owner_id, clock=SystemClock(), emit=ignore)
        async with opening as pool:
            yield lpm, pool


@asynccontextmanager
async def fresh_browsers(_: Path, site: str) -> AsyncIterator[LoadPage]:
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:

        async def load(number: int) -> None:
            browser = await _launched(playwright)
            try:
                await read_page(await browser.new_page(), site, number)
            finally:
                await browser.close()

        yield load


@asynccontextmanager
async def shared_context(_: Path, site: str) -> AsyncIterator[LoadPage]:
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        browser = await _launched(playwright)
        context = await browser.new_context()

        async def load(number: int) -> None:
            page = await context.new_page()
            try:
                await read_page(page, site, number)
            finally:
                await page.close()

        yield load
        await browser.close()


async def _launched(playwright: Playwright) -> Browser:
    chromium = find()
    if isinstance(chromium, ChromiumMissing):
        raise SystemExit(f"bench browser: {chromium.reason}: {chromium.hint}")
    return await playwright.chromium.launch(executable_path=chromium.path, chromium_sandbox=os.geteuid() != 0)


METHODS: dict[str, Method] = {POOL: pooled, FRESH: fresh_browsers, SHARED: shared_context}


FIRST = 50
_EVERY = 10


@dataclass(frozen=True, slots=True)
class Growth:
    pages: int
    bytes_at: dict[int, int]
    """Number of loaded pages -> PSS of browsers, driver and this process."""

    @property
    def first(self) -> int:
        """The most of the first fifty pages: a single sample may fall between two pages, and be small."""
        return max(size for pages, size in self.bytes_at.items() if pages <= FIRST)

    @property
    def last(self) -> int:
        """The maximum during the last fifty pages: a browser may have been retired just before the end."""
        return max(size for pages, size in self.bytes_at.items() if pages > self.pages - FIRST)

    @property
    def most(self) -> int:
        return max(self.bytes_at.values())


async def measure_growth(folder: Path, site: str, pages: int) -> Growth:
    numbers, bytes_at, loaded = iter(range(pages)), {}, 0
    async with opened_pool(folder) as (lpm, pool):

        async def work() -> None:
            nonlocal loaded
            for number in numbers:
                async with pool.lease(f"t{number}", timeout=120.0, proxy=PAST_THE_GUARD) as leased:
                    await leased.call(read_page(leased.page, site, number))
                loaded += 1
                if loaded % _EVERY == 0:
                    bytes_at[loaded] = await _total_memory(lpm)
                if loaded % 100 == 0:
                    progress(f"memory: {loaded} pages, {bytes_at[loaded] / 1024**2:,.0f} MiB")

        await asyncio.gather(*(work() for _ in range(CALLERS)))
    return Growth(pages, bytes_at)


async def _total_memory(lpm: LocalPersistenceManager) -> int:
    """Returns the PSS of browsers, driver and this process while pages are open."""
    rows = await lpm.browsers.all()
    browsers = {pid for row in rows if row.pid for pid in processes.members(row.pid)}
    return processes.memory(browsers | _drivers() | {os.getpid()})


def _drivers() -> set[int]:
    return {child.pid for child in psutil.Process().children() if "run-driver" in processes.command_line(child.pid)}


NAME = "browser"
HELP = "the browser pool, compared with a fresh browser per page and one shared context; its memory"

FRESH_GOAL = 2.0
"""Times the rate of a fresh browser per page. One shared context has no goal: it does not isolate pages."""
MEMORY_GOAL = 1.3
_WARM_UP = 2 * CALLERS


@dataclass(frozen=True, slots=True)
class Plan:
    repetitions: int
    pages: int
    """Pages per method and repetition."""
    memory_pages: int


_FULL = Plan(3, 40, 500)
_QUICK = Plan(1, 20, 100)

Runs = defaultdict[str, list[Run]]


add_arguments = add_dir_option


def run(arguments: argparse.Namespace) -> Report:
    plan = _QUICK if arguments.quick else _FULL
    with scratch(arguments.dir) as folder, site() as address:
        where = machine(folder)
        progress(f"measuring in {folder}, load {where['load']}")
        runs = asyncio.run(_measure(plan, folder, address))
        with fresh_folder(folder) as place:
            growth = asyncio.run(measure_growth(place, address, plan.memory_pages))
    data = {
        "machine": where,
        "plan": asdict(plan),
        "figures": [
            {"method": method, "per_second": [run.rate for run in repetitions]} for method, repetitions in runs.items()
        ],
        "memory": {"bytes_at": growth.bytes_at},
    }
    return Report(NAME, _targets(runs, growth), [_rates(runs), _memory(growth)], data)


async def _measure(plan: Plan, folder: Path, address: str) -> Runs:
    """Each repetition measures all methods once, so that other load affects all alike."""
    runs: Runs = defaultdict(list)
    for repetition in range(plan.repetitions):
        for method, open_pages in METHODS.items():
            progress(f"repetition {repetition + 1} of {plan.repetitions}: {method}")
            with fresh_folder(folder) as place:
                async with open_pages(place, address) as load:
                    await run_coroutines(CALLERS, _WARM_UP, inf, load)
                    runs[method].append(await run_coroutines(CALLERS, plan.pages, inf, load))
    return runs


def _ratio(runs: Runs, method: str) -> float:
    return median(ours.rate / other.rate for ours, other in zip(runs[POOL], runs[method], strict=True))


def _targets(runs: Runs, growth: Growth) -> list[Goal]:
    return [
        at_least(f"pages per second / {FRESH}", FRESH_GOAL, _ratio(runs, FRESH)),
        at_most(
            f"memory after {growth.pages} pages / after the first {FIRST}", MEMORY_GOAL, growth.last / growth.first
        ),
    ]


def _rates(runs: Runs) -> Table:
    rows = [
        [
            method,
            f"{median(run.rate for run in repetitions):.2f}",
            f"{_ratio(runs, method):.2f}",
            f"{repetitions[-1].p99 * 1000:,.0f}",
        ]
        for method, repetitions in runs.items()
    ]
    return Table(
        f"Pages per second, {CALLERS} callers, a page that a script builds from 30 KB of data",
        ["method", "per second", "pool / this", "p99 ms"],
        rows,
    )


def _memory(growth: Growth) -> Table:
    def row(name: str, size: int) -> list[str]:
        return [name, f"{size / 1024**2:,.0f}", f"{size / growth.first:.2f}"]

    return Table(
        f"Memory (PSS) of the pool's {CALLERS} browsers, its driver and our process, while pages are open",
        ["when", "MiB", "/ first"],
        [
            row(f"in the first {FIRST} pages, maximum", growth.first),
            row("maximum", growth.most),
            row(f"in the last {FIRST} of {growth.pages} pages, maximum", growth.last),
        ],
    )


if __name__ == "__main__":
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as serving:
        print(serving.server_port, flush=True)
        serving.serve_forever()
