"""The one writer: every change of the store is a function that it runs, many to a transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from parcelpost.errors import StoreFailed, StoreGone
from parcelpost.storage.sqlite_errors import primary_code, translate

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
            return [StoreFailed(f"{self._path}: the connection failed and is being opened anew") for _ in jobs]
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
