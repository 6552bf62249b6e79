"""Group commit: every change of the store is a function; one thread runs all waiting ones in one transaction."""

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
"""`def finish(db: sqlite3.Connection, ...)`: changes only the database, because it may run twice."""


class Job(NamedTuple):
    change: Change
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    durable: bool = True
    """False: may be lost in a power cut, never in a kill. A group of only such jobs needs no fsync."""
    alone: bool = False
    """Runs between transactions, for example VACUUM."""
    together: bool = False
    """The change gets the requests of all its callers in the group as one list, and returns a list of answers."""


class GroupWriter:
    """Runs groups of jobs on the writer's thread, one commit per group. If a job fails, only its caller sees it."""

    def __init__(self, path: Path, synchronous: str, missing: Callable[[], str] = str) -> None:
        """`missing` returns what is wrong if the open file is no longer the one at the path, else ''."""
        self._path = path
        self._missing = missing
        self._durable_level = synchronous
        self._level = synchronous
        self.broken = False
        """The disk failed: the connection must be reopened, because a retried fsync may report success wrongly."""
        self.changes = 0
        """Rows changed by this connection: decides when to checkpoint."""

    def run(self, db: sqlite3.Connection, jobs: Sequence[Job]) -> list[Any]:
        if not any(job.alone for job in jobs):
            return self._run_group(db, jobs)
        answers = iter(self._run_group(db, [job for job in jobs if not job.alone]))
        return [self._run_alone(db, job) if job.alone else next(answers) for job in jobs]

    def _run_alone(self, db: sqlite3.Connection, job: Job) -> Any:
        try:
            return job.change(db, *job.args, **job.kwargs)
        except Exception as error:  # noqa: BLE001 - raised at its caller; the rest of the group is committed
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
        except Exception as error:  # noqa: BLE001 - raised at the caller of the failed job
            failures = [self._failure(error) for _ in jobs]
            self._roll_back(db)
            if len(jobs) == 1 or self.broken:
                return failures
            return [self._run_group(db, [job])[0] for job in jobs]
        self.changes = db.total_changes
        if problem := self._missing():  # the file may be gone by now: do not confirm the writes
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
        # After an I/O error SQLite may have rolled back already; another ROLLBACK would hide the real error.
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
"""Runs on the thread: returns for each item an answer, or an exception to raise at its caller."""
RunOnThread = Callable[[Callable[[], None]], Awaitable[None]]
"""Runs a function on the thread and waits for it."""

_Entry = tuple[Any, asyncio.Future[Any]]
_SOON_SECONDS = 0.2


class Batcher:
    """Collects items from callers and passes groups of them to `process`, in order, on another thread.

    There is no timer: items submitted in one iteration of the event loop go to the thread together, and the next group
    gathers while the thread is busy. (Passing each item on at once would wake the thread for the first one, which then
    competes with the event loop for the GIL while the others are still being created.) The item of a cancelled caller
    is either skipped or processed completely.

    The thread stays in one call until `is_broken` returns True; the next call may repair it.
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
        self._abandoned = abandoned  # called if nobody is left to close this
        self._dropped = dropped  # called with each item and answer whose caller was cancelled during processing
        self._waiting: SimpleQueue[list[_Entry] | None] = SimpleQueue()
        self._gathering: list[_Entry] = []
        self._is_passing = False
        """Whether the items gathered so far go to the thread in this iteration of the event loop."""
        self._unanswered = 0
        self._all_answered = asyncio.Event()
        self._all_answered.set()
        self._submitted = asyncio.Event()
        self.closed = False
        self._halted = False
        self._opener = asyncio.current_task()
        self._loop = asyncio.get_running_loop()
        self._runner = self._loop.create_task(self._run())

    def submit(self, item: Any, *, soon: bool = False) -> asyncio.Future[Any]:
        """`soon`: nobody waits for it, so it may wait for a group that others need."""
        if self.closed:
            raise StoreClosed
        future: asyncio.Future[Any] = self._loop.create_future()
        if not self._unanswered:
            self._all_answered.clear()
            self._submitted.set()
        self._unanswered += 1
        if soon and not self._gathering:
            self._loop.call_later(_SOON_SECONDS, self._pass_group)
        elif not soon and not self._is_passing:
            self._is_passing = True
            self._loop.call_soon(self._pass_group)
        self._gathering.append((item, future))
        if len(self._gathering) == self._max_group:
            self._pass_group()
        return future

    def _pass_group(self) -> None:
        self._is_passing = False
        if self._gathering:
            entries, self._gathering = self._gathering, []
            self._waiting.put(entries)

    async def close(self) -> None:
        """Finishes waiting items, then stops. Nothing can be submitted afterwards."""
        self.closed = True
        self._pass_group()
        try:
            await self._all_answered.wait()
        finally:
            self.halt()
        await asyncio.wait([self._runner])

    def halt(self) -> None:
        """Makes the thread end now, even if items are waiting, because closing was cancelled."""
        self.closed = self._halted = True
        self._waiting.put(None)
        self._submitted.set()

    async def _run(self) -> None:
        while not self._halted:
            try:
                await self._serve_once()
            except asyncio.CancelledError:
                # At its end, asyncio.run cancels every task, including this one, before the task that opened the store
                # has closed it: continue until then. If that task is gone, nobody will close the store.
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
        except Exception as error:  # noqa: BLE001 - the thread itself failed: raised at every waiting caller
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
        while len(group) < self._max_group and not self._waiting.empty():  # this is the only consumer
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
        except Exception as error:  # noqa: BLE001 - every caller must get an answer
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
        self._pass_group()
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
