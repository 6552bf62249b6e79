"""`parcelpost simulate county` in a process of its own, and commands that use it as an operator does."""

from __future__ import annotations

import csv
import json
import os
import signal
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from secrets import token_hex
from typing import Any, NamedTuple, TextIO
from urllib.parse import urlencode
from urllib.request import urlopen

from parcelpost.model import OutboxEntry, Target, Task
from parcelpost.storage.lpm import LocalPersistenceManager
from tests.acceptance.forked import Forked, run_forked
from tests.acceptance.processes import FAST, PATIENCE_SECONDS, given
from tests.storage.factories import list_results

STANDALONE = ("--mode", "standalone", "--store", "store.db")
_OWN = ("platform", "parcel_id", "state", "county", "url")
LAST_LINE = "Press Ctrl-C to stop."


class Simulated:
    """A running simulator."""

    def __init__(self, address: str, folder: Path) -> None:
        self.address = address
        self._counties = folder / "counties.toml"
        self._tasks = folder / "tasks.csv"

    @property
    def settings(self) -> Mapping[str, str]:
        """Of a worker that is as fast as a test."""
        return {
            **FAST,
            "executor.slots": "8",
            "fetch.counties_file": str(self._counties),
            "fetch.allow_private": "127.0.0.1",
            "fetch.pace_seconds": "0",
            "fetch.concurrency_per_host": "8",
        }

    def tasks(self, *platforms: str, first: int | None = None) -> list[dict[str, str]]:
        """The first so many of each platform, of these or of all platforms."""
        with self._tasks.open(newline="") as file:
            rows = list(csv.DictReader(file))
        names = platforms or tuple(dict.fromkeys(row["platform"] for row in rows))
        return [row for name in names for row in [row for row in rows if row["platform"] == name][:first]]

    def fault(self, name: str, rate: float = 0.0, *parcels: str) -> None:
        """Switches one; with nothing but a name, off. A platform's name will do for a parcel: it is in the address."""
        self._control("faults", {"name": name, "rate": str(rate), "parcel": ",".join(parcels)})

    def answers(self) -> dict[str, dict[str, int]]:
        """So far, by platform and status."""
        found: dict[str, dict[str, int]] = json.loads(self._control("answers"))
        return found

    def _control(self, what: str, form: Mapping[str, str] | None = None) -> bytes:
        body = urlencode(form).encode() if form else None
        with urlopen(f"{self.address}/_control/{what}", body, timeout=PATIENCE_SECONDS) as answer:
            found: bytes = answer.read()
        return found


@contextmanager
def simulated(folder: Path, *arguments: str) -> Iterator[Simulated]:
    """On any port. Ended by Ctrl-C, and must have ended well."""
    files = ["--counties-file", str(folder / "counties.toml"), "--tasks-file", str(folder / "tasks.csv")]
    with starting("simulate", "county", "--port", "0", *files, *arguments, folder=folder) as (process, printed):
        lines: list[str] = []
        while not lines or LAST_LINE not in lines[-1]:
            lines.append(printed.readline())
            assert lines[-1], "it ended before it served"
        address = lines[-1].removeprefix("Faults: ").partition("/_control/")[0]
        yield Simulated(address, folder)
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_SECONDS) == 0


@contextmanager
def starting(*arguments: str, folder: Path) -> Iterator[tuple[Forked, TextIO]]:
    """`parcelpost ...`, and what it prints; killed at the end if it still runs."""
    output, prints = os.pipe()
    with (
        os.fdopen(output) as printed,
        Forked(*arguments, folder=folder, environment=_environment(), stdout=prints, stderr=2) as process,
    ):
        os.close(prints)
        yield process, printed


@contextmanager
def gateway(folder: Path) -> Iterator[str]:
    """The address of a `parcelpost gateway serve` that serves this machine without tokens."""
    settings = ("--set", "server.requests_per_second=100000")
    with starting("gateway", "serve", "--port", "0", *settings, folder=folder) as (_, printed):
        for line in printed:
            if line.startswith("dashboard"):
                yield line.split()[1].rstrip("/")
                return


def ask(address: str) -> Any:
    """What a gateway answers in JSON."""
    with urlopen(address, timeout=PATIENCE_SECONDS) as answer:
        return json.load(answer)


def parcelpost(folder: Path, *arguments: str, settings: Mapping[str, str] = {}) -> str:
    """What a command that must end well prints."""
    words = (*arguments, *given(settings))
    ran = run_forked(*words, folder=folder, environment=_environment(), timeout=PATIENCE_SECONDS)
    assert ran.returncode == 0, ran.stderr[-3_000:]
    return ran.stdout


async def add(folder: Path, orders: Iterable[Mapping[str, str]], *, max_retries: int = 3) -> None:
    """Into the folder's store, whoever has it open; each order is new, whatever was ordered before."""
    async with LocalPersistenceManager.open(folder / "store.db") as lpm:
        for order in orders:
            target = Target(
                **{name: order.get(name, "") for name in ("parcel_id", "state", "county", "url")},
                extra={name: value for name, value in order.items() if value and name not in _OWN},
            )
            task_id, platform = token_hex(8), order["platform"]
            await lpm.add_task(Task(task_id=task_id, platform=platform, target=target, max_retries=max_retries))


def written(folder: Path, tasks: Iterable[Mapping[str, object]]) -> str:
    """A file of these tasks."""
    file = folder / "some.jsonl"
    file.write_text("".join(json.dumps(task) + "\n" for task in tasks))
    return str(file)


def scrape(folder: Path, settings: Mapping[str, str], *arguments: str) -> str:
    """`parcelpost run` until nothing is left to do."""
    return parcelpost(folder, "run", *STANDALONE, "--until-empty", *arguments, settings=settings)


async def results(folder: Path) -> list[OutboxEntry]:
    """All that the folder's store has."""
    found: list[OutboxEntry] = []
    async with LocalPersistenceManager.open(folder / "store.db", create=False) as lpm:
        while entries := await list_results(lpm, limit=1_000, after=found[-1].seq if found else 0):
            found += entries
    return found


async def is_worked_off(lpm: LocalPersistenceManager, *, but: int = 0) -> bool:
    """Whether no task is left, or so few."""
    depth = await lpm.queue_depth()
    return depth.pending + depth.processing <= but


class Fetched(NamedTuple):
    """One request, as the worker's log tells it at level debug."""

    began: float
    ended: float
    status: int


def fetched(folder: Path) -> list[Fetched]:
    """From the sites, not from the cache."""
    lines = [json.loads(line) for line in (folder / "worker.log").read_text().splitlines() if line.startswith("{")]
    found = [line for line in lines if line["event"] == "PageFetched" and not line["cached"]]
    ends = [datetime.fromisoformat(line["time"]).timestamp() for line in found]
    return [Fetched(end - line["seconds"], end, line["status"]) for end, line in zip(ends, found, strict=True)]


def data(entry: OutboxEntry) -> dict[str, Any]:
    assert entry.data is not None, entry
    found: dict[str, Any] = json.loads(entry.data)
    return found


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("PARCELPOST_")}
