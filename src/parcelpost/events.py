"""Everything the program reports, one frozen class each. docs/events.md lists them."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct


class Event(Struct, frozen=True, kw_only=True, tag=True):
    """Something that happened and that somebody may want to know."""


class StoreOpened(Event, frozen=True):
    """The store is open; `migrated` lists the schema versions that were applied on the way."""

    path: str
    schema_version: int
    migrated: list[int]


class OwnerDied(Event, frozen=True):
    """A process that had the store open ended without closing it; what it held was brought back (I9).

    At `FULL` nothing it confirmed is lost. At `NORMAL`, if the machine lost power, what was confirmed after
    `last_change` may be, and `pages_without_result` counts kept pages whose result is gone.
    """

    owner: str
    synchronous: str
    tasks_recovered: int
    tasks_given_up: int
    raw_files_restored: int
    pages_without_result: int
    last_change: str


class BackupMade(Event, frozen=True):
    """A verified backup was written."""

    path: str
    bytes: int
    removed: int


class StoreCleaned(Event, frozen=True):
    """Old rows and files were removed."""

    tasks: int
    results: int
    cache: int
    signals: int
    metrics: int
    sync_log: int
    files: int


class ReserveUsed(Event, frozen=True):
    """The disk is full: the reserve was given up so that delivered work can still be marked."""

    bytes: int


Emit = Callable[[Event], None]


def ignore(_: Event) -> None:
    """An Emit that nobody listens to."""
