"""Group commit: every change of the store is a function that the one writer runs, many to a transaction."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

from parcelpost.errors import StoreClosed, StoreFailed, StoreGone
from parcelpost.storage.errors import primary_code, translate

Change = Callable[..., Any]
"""`def finish(db: sqlite3.Connection, ...)`: touches nothing but the database, since it may run twice."""


class Job(NamedTuple):
    change: Change
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    durable: bool = True
    """False: may be lost to a power cut (never to a kill). A group of only such jobs needs no fsync."""
    alone: bool = False
    """Runs between transactions, by itself: for VACUUM and its like."""
    together: bool = False
    """The change takes the requests of all its callers in the group as one list, and answers with a list."""


class GroupWriter:
    """Runs groups of jobs on the writing connection's thread. One commit a group; a guilty job fails alone."""

    def __init__(self, path: Path, synchronous: str, missing: Callable[[], str] = str) -> None:
        """`missing` says what is wrong when the open file is no longer the one at the path, '' while it is."""
        self._path = path
        self._missing = missing
        self._durable_level = synchronous
        self._level = synchronous
        self.broken = False
        """The disk failed under this connection: it must be opened anew, never retried into silence."""
        self.changes = 0
        """Rows changed by this connection, for deciding when to checkpoint."""

    def run(self, db: sqlite3.Connection, jobs: Sequence[Job]) -> list[Any]:
        if not any(job.alone for job in jobs):
            return self._run_group(db, jobs)
        answers = iter(self._run_group(db, [job for job in jobs if not job.alone]))
        return [self._run_alone(db, job) if job.alone else next(answers) for job in jobs]

    def _run_alone(self, db: sqlite3.Connection, job: Job) -> Any:
        try:
            return job.change(db, *job.args, **job.kwargs)
        except Exception as error:  # noqa: BLE001 - answered to its caller; the others of the group are committed
            return self._failure(error)

    def _run_group(self, db: sqlite3.Connection, jobs: Sequence[Job]) -> list[Any]:
        if self.broken:
            return [StoreFailed(f"{self._path}: the connection failed and is being reopened") for _ in jobs]
        if not jobs:
            return []
        if problem := self._missing():
            return [StoreGone(problem) for _ in jobs]
        try:
            self._set_level(db, any(job.durable for job in jobs))
            db.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            return [self._failure(error) for _ in jobs]
        try:
            answers = _run_all(db, jobs)
            db.execute("COMMIT")
        except Exception as error:  # noqa: BLE001 - answered to the caller whose job it was
            failures = [self._failure(error) for _ in jobs]
            self._roll_back(db)
            if len(jobs) == 1 or self.broken:
                return failures
            return [self._run_group(db, [job])[0] for job in jobs]
        self.changes = db.total_changes
        if problem := self._missing():  # it may have gone meanwhile: nobody is told that it is safe
            return [StoreGone(problem) if job.durable else answer for job, answer in zip(jobs, answers, strict=True)]
        return answers

    def _set_level(self, db: sqlite3.Connection, durable: bool) -> None:
        level = self._durable_level if durable else "NORMAL"
        if level != self._level:
            db.execute(f"PRAGMA synchronous = {level}")
            self._level = level

    def _failure(self, error: Exception) -> Exception:
        if isinstance(error, sqlite3.Error) and primary_code(error) == sqlite3.SQLITE_IOERR:
            self.broken = True
        return translate(error, self._path)

    def _roll_back(self, db: sqlite3.Connection) -> None:
        # After an I/O error SQLite may have rolled back by itself; a second ROLLBACK would hide the real error.
        if db.in_transaction:
            try:
                db.execute("ROLLBACK")
            except sqlite3.Error:
                self.broken = True


def _run_all(db: sqlite3.Connection, jobs: Sequence[Job]) -> list[Any]:
    answers: list[Any] = [None] * len(jobs)
    together: dict[Change, list[int]] = {}
    for index, job in enumerate(jobs):
        if job.together:
            together.setdefault(job.change, []).append(index)
        else:
            answers[index] = job.change(db, *job.args, **job.kwargs)
    for change, indexes in together.items():
        group_answers = change(db, [jobs[index].args[0] for index in indexes])
        for index, answer in zip(indexes, group_answers, strict=True):
            answers[index] = answer
    return answers


Answers = Sequence[Any]
Process = Callable[[list[Any]], Answers]
"""Runs on the worker thread: answers each item with a value, or with an exception to raise at its caller."""
RunOnThread = Callable[[Callable[[], None]], Awaitable[None]]
"""Runs a function on the worker thread and waits for it."""

_Entry = tuple[Any, asyncio.Future[Any]]


class Batcher:
    """Collects what callers submit and hands what waits to `process`, in order, on another thread.

    There is no timer: what comes in one turn of the event loop goes to the thread together, and while the thread is
    busy the next group gathers. (Handing over each item by itself would wake the thread for the first one, to fight
    with the loop for Python's lock while the others are still being made.) A cancelled caller's item is either skipped
    whole or processed whole.

    The thread stays inside one call until `is_broken` says that it cannot go on; the next call may repair it.
    """

    def __init__(
        self,
        run_on_thread: RunOnThread,
        process: Process,
        *,
        max_group: int,
        is_broken: Callable[[], bool] = lambda: False,
        dropped: Callable[[Any, Any], None] = lambda *_: None,
        abandoned: Callable[[], None] = lambda: None,
    ) -> None:
        self._run_on_thread = run_on_thread
        self._process = process
        self._max_group = max_group
        self._is_broken = is_broken
        self._abandoned = abandoned  # told when nobody is left to close this
        self._dropped = dropped  # told of each item whose caller was cancelled while it was processed, and its answer
        self._waiting: SimpleQueue[list[_Entry] | None] = SimpleQueue()
        self._gathering: list[_Entry] = []
        self._unanswered = 0
        self._all_answered = asyncio.Event()
        self._all_answered.set()
        self._submitted = asyncio.Event()
        self.closed = False
        self._halted = False
        self._opener = asyncio.current_task()
        self._loop = asyncio.get_running_loop()
        self._runner = self._loop.create_task(self._run())

    def submit(self, item: Any) -> asyncio.Future[Any]:
        if self.closed:
            raise StoreClosed
        future: asyncio.Future[Any] = self._loop.create_future()
        if not self._unanswered:
            self._all_answered.clear()
            self._submitted.set()
        self._unanswered += 1
        if not self._gathering:
            self._loop.call_soon(self._hand_over)
        self._gathering.append((item, future))
        if len(self._gathering) == self._max_group:
            self._hand_over()
        return future

    def _hand_over(self) -> None:
        if self._gathering:
            entries, self._gathering = self._gathering, []
            self._waiting.put(entries)

    async def close(self) -> None:
        """Finishes what waits, then stops. Nothing can be submitted after."""
        self.closed = True
        try:
            await self._all_answered.wait()
        finally:
            self.halt()
        await asyncio.wait([self._runner])

    def halt(self) -> None:
        """Lets the thread end now, whatever still waits: closing was cancelled."""
        self.closed = self._halted = True
        self._waiting.put(None)
        self._submitted.set()

    async def _run(self) -> None:
        while not self._halted:
            try:
                await self._serve_once()
            except asyncio.CancelledError:
                # asyncio.run cancels every task at its end, this one too, before the task that opened the store has
                # closed it: until then it has to go on. If that task is gone, nobody will close it any more.
                if self._opener is None or self._opener.done():
                    self.halt()
                    self._abandoned()
                    raise

    async def _serve_once(self) -> None:
        if not self._unanswered:
            await self._submitted.wait()
        self._submitted.clear()
        if self._halted:
            return
        try:
            await self._run_on_thread(self._serve)
        except Exception as error:  # noqa: BLE001 - the thread itself failed: every waiting caller is told
            self._deliver_failure(error)

    def _serve(self) -> None:
        while not self._is_broken() and not self._halted:
            entries = self._waiting.get()
            if entries is None:
                return
            group = self._gather(entries)
            if group:
                self._loop.call_soon_threadsafe(self._deliver, group, self._answers([item for item, _ in group]))

    def _gather(self, first: list[_Entry]) -> list[_Entry]:
        group = first
        while len(group) < self._max_group and not self._waiting.empty():  # nobody else takes from it
            more = self._waiting.get_nowait()
            if more is None:
                self._waiting.put(None)
                break
            group += more
        live = [entry for entry in group if not entry[1].cancelled()]
        if len(live) < len(group):
            self._loop.call_soon_threadsafe(self._answered, len(group) - len(live))
        return live

    def _answers(self, items: list[Any]) -> Answers:
        try:
            return self._process(items)
        except Exception as error:  # noqa: BLE001 - nobody may be left waiting for an answer
            return [error] * len(items)

    def _deliver(self, group: list[_Entry], answers: Answers) -> None:
        for (item, future), answer in zip(group, answers, strict=True):
            if future.done():
                self._dropped(item, answer)
            elif isinstance(answer, BaseException):
                future.set_exception(answer)
            else:
                future.set_result(answer)
        self._answered(len(group))

    def _deliver_failure(self, error: Exception) -> None:
        self._hand_over()
        group: list[_Entry] = []
        while not self._waiting.empty():
            entries = self._waiting.get_nowait()
            if entries is not None:
                group += entries
        self._deliver(group, [error] * len(group))

    def _answered(self, count: int) -> None:
        self._unanswered -= count
        if not self._unanswered:
            self._all_answered.set()
