"""Real stores, and the real command on them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from parcelpost.clock import SystemClock, iso
from parcelpost.model import Claim, Page, Priority, Result, Target, Task
from parcelpost.storage import LocalPersistenceManager
from parcelpost.worker.status import WorkerStatus, publish

COMMAND = str(Path(sys.executable).with_name("parcelpost"))

_HOLDER = """
import asyncio, sys
from parcelpost.storage import LocalPersistenceManager
from parcelpost.worker.status import WorkerStatus, publish

async def hold():
    async with LocalPersistenceManager.open(sys.argv[1], worker="holder") as lpm:
        claims = await lpm.claim(int(sys.argv[2]))
        print(len(claims), flush=True)
        await asyncio.to_thread(sys.stdin.readline)

asyncio.run(hold())
"""


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Ran]


def run_process(*arguments: object, answer: str = "", environment: dict[str, str] | None = None) -> Ran:
    """The installed command, as a process of its own; `answer` is what a person types."""
    done = subprocess.run(
        [COMMAND, *map(str, arguments)],
        input=answer,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | (environment or {}),
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def task(task_id: str, platform: str = "vgsi", **fields: Any) -> Task:
    target = Target(parcel_id=f"p-{task_id}", state="CT", county="hartford", url=f"https://example.org/{task_id}")
    return Task(task_id=task_id, platform=platform, target=target, **fields)


def page_of(task_id: str) -> bytes:
    return f"<html>{task_id}</html>".encode() * 50


def make_store(path: Path, *, tasks: int = 0) -> Path:
    """A store with so many pending tasks: t0, t1, ..."""

    async def make() -> None:
        async with LocalPersistenceManager.open(path) as lpm:
            await lpm.add_tasks(task(f"t{number}") for number in range(tasks))

    asyncio.run(make())
    return path


def make_full_store(path: Path) -> Path:
    """One task of every fate, and what becomes of their results.

    waiting: pending; later: pending, not yet due; saved: completed, unsynced; sent: completed, synced; refused:
    completed, rejected; failed (on beacon): failed; expired: expired.
    """

    async def make() -> None:
        async with LocalPersistenceManager.open(path) as lpm:
            for name in ("saved", "sent", "refused"):
                claim = await _claimed(lpm, task(name))
                result_id = await lpm.save_result(claim, _result(name))
                assert result_id is not None
                if name == "sent":
                    await lpm.mark_raw_synced([result_id])
                    await lpm.mark_synced([result_id])
                if name == "refused":
                    await lpm.mark_rejected([result_id], "422: amount_due is not a number")
            await lpm.give_up(await _claimed(lpm, task("failed", platform="beacon")), "the page has no table")
            await lpm.add_task(task("expired", lease_expires_at=datetime(2020, 1, 1, tzinfo=UTC)))
            await lpm.expire_tasks()
            await lpm.retry_later(await _claimed(lpm, task("later")), "busy", timedelta(hours=1))
            await lpm.add_task(task("waiting", priority=Priority.BATCH))
            await lpm.pause_platform("beacon", reason="asked to wait")

    asyncio.run(make())
    return path


async def _claimed(lpm: LocalPersistenceManager, wanted: Task) -> Claim:
    await lpm.add_task(wanted)
    (claim,) = await lpm.claim()
    assert claim.task.task_id == wanted.task_id
    return claim


def _result(task_id: str) -> Result:
    data = {"owner": "Müller, Ann", "amount_due": "12.50", "task": task_id}
    return Result(data=data, scraped_at=SystemClock().now(), page=Page(body=page_of(task_id)), execution_time_ms=7)


@contextlib.contextmanager
def holder(store: Path, claims: int = 1) -> Iterator[subprocess.Popen[str]]:
    """A live process that has the store open and holds so many claims. It may be killed meanwhile."""
    with subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(store), str(claims)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert int(process.stdout.readline()) == claims
            yield process
        finally:
            process.kill()


@contextlib.contextmanager
def held_here(store: Path, claims: int = 1) -> Iterator[str]:
    """As `holder`, but by a thread of this process, which starts at once; it closes the store at the end.

    Yields its owner id.
    """
    is_open, end = threading.Event(), threading.Event()
    owner = ""

    async def hold() -> None:
        nonlocal owner
        async with LocalPersistenceManager.open(store, worker="holder") as lpm:
            owner = lpm.owner_id
            assert not claims or len(await lpm.claim(claims)) == claims
            is_open.set()
            await asyncio.to_thread(end.wait)

    with ThreadPoolExecutor(1) as threads:
        holding = threads.submit(lambda: asyncio.run(hold()))
        holding.add_done_callback(lambda _: is_open.set())
        is_open.wait()
        try:
            yield owner
        finally:
            end.set()
            holding.result()


GONE = "worker-1-00000000"
"""The owner id of a process that has ended."""


def a_status(owner: str = GONE, **fields: Any) -> WorkerStatus:
    """As a worker has just published it."""
    now = SystemClock().now()
    plain: dict[str, Any] = {
        "name": "w1",
        "worker_id": "w1",
        "published_at": now,
        "started_at": now,
        "mode": "ondemand",
    }
    return WorkerStatus(owner=owner, **(plain | fields))


def publish_status(store: Path, status: WorkerStatus) -> None:
    async def write() -> None:
        async with LocalPersistenceManager.open(store) as lpm:
            await publish(lpm.state, status)

    asyncio.run(write())


def leave_a_death(store: Path, claims: int) -> None:
    """As after kill -9 of a worker that held so many claims."""
    with holder(store, claims) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()


def rows(store: Path) -> list[str]:
    """Everything the database holds, as SQL."""
    with contextlib.closing(sqlite3.connect(store)) as db:
        return list(db.iterdump())


def damage(store: Path) -> None:
    """Writes nonsense over the middle third of the file: past the first pages, and where everybody reads."""
    size = store.stat().st_size
    with store.open("r+b") as file:
        file.seek(size // 3)
        file.write(b"\xa5" * (size // 3))


def change(store: Path, sql: str) -> None:
    with contextlib.closing(sqlite3.connect(store)) as db:
        db.executescript(sql)


def make_old(store: Path, *, hours: int) -> None:
    """As if it had been made so many hours ago."""
    made_at = iso(SystemClock().now() - timedelta(hours=hours))
    change(store, f"UPDATE schema_version SET applied_at = '{made_at}'")
