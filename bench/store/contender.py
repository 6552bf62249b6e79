"""What every contender can do, and how its callers run.

The clock covers what a program has to do for each operation: turning a target or a record into its stored form,
storing it, and reading the target back on a claim. Only the ceiling is spared the first of these.
"""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bench.store.work import Work
from bench.timing import Run, run_coroutines, run_threads

SYNCHRONOUS = ("OFF", "NORMAL", "FULL", "EXTRA")


@dataclass(frozen=True, slots=True)
class Durability:
    """What SQLite was told, as read from a live connection."""

    journal: str
    synchronous: str

    @property
    def survives_power_loss(self) -> bool:
        """Whether an operation that has returned is still there after the power was cut."""
        return self.synchronous in ("FULL", "EXTRA") and self.journal not in ("OFF", "MEMORY")

    @classmethod
    def of(cls, journal: str | bytes, synchronous: int) -> Durability:
        """From the answers of the two pragmas."""
        name = journal.decode() if isinstance(journal, bytes) else journal
        return cls(name.upper(), SYNCHRONOUS[synchronous])

    def __str__(self) -> str:
        return f"{self.journal}/{self.synchronous}"


def read_durability(connection: sqlite3.Connection) -> Durability:
    (journal,) = connection.execute("PRAGMA journal_mode").fetchone()
    (synchronous,) = connection.execute("PRAGMA synchronous").fetchone()
    return Durability.of(journal, synchronous)


class Session(Protocol):
    """An open queue. `limit` is in seconds: a slow disk shortens a measurement, not its meaning."""

    async def durability(self) -> Durability: ...

    async def enqueue(self, callers: int, limit: float) -> Run: ...

    async def enqueue_bulk(self) -> Run | None:
        """All tasks in one call and one transaction, or None where the library has no such thing."""

    async def claim_and_save(self, callers: int, limit: float) -> Run: ...


@dataclass(frozen=True, slots=True)
class Contender:
    name: str
    callers: str
    """What its N callers are."""
    after_kill: str
    """What becomes of a task that was claimed when the process was killed."""
    open: Callable[[Path, Work], AbstractAsyncContextManager[Session]]
    peer: bool = True
    """Whether the goals for peers apply to it, if it survives power loss."""


class CoroutineSession(ABC):
    """Callers are coroutines on one event loop."""

    def __init__(self, work: Work) -> None:
        self._work = work

    @abstractmethod
    async def put(self, number: int) -> None: ...

    @abstractmethod
    async def take_and_save(self, number: int) -> None: ...

    async def enqueue(self, callers: int, limit: float) -> Run:
        return await run_coroutines(callers, len(self._work), limit, self.put)

    async def claim_and_save(self, callers: int, limit: float) -> Run:
        return await run_coroutines(callers, len(self._work), limit, self.take_and_save)


class ThreadSession(ABC):
    """Callers are threads. The event loop stands still meanwhile: it has nothing else to do."""

    def __init__(self, work: Work) -> None:
        self._work = work

    @abstractmethod
    def put(self, number: int) -> None: ...

    @abstractmethod
    def take_and_save(self, number: int) -> None: ...

    async def enqueue(self, callers: int, limit: float) -> Run:
        return run_threads(callers, len(self._work), limit, self.put)

    async def claim_and_save(self, callers: int, limit: float) -> Run:
        return run_threads(callers, len(self._work), limit, self.take_and_save)
