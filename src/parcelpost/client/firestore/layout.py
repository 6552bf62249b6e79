"""Where each document is. `shipped/README.md` tells the same to people."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

from msgspec import Struct

from parcelpost.model import OutboxEntry

TASKS, RESULTS, PARCELS, WORKERS = "tasks", "results", "parcels", "workers"
SELECTORS, SIGNAL_BATCHES = "selectors", "signal_batches"
COMMANDS, METRICS = "commands", "metrics"
"""Below a worker."""

_MOST_ID_BYTES = 1_500
_KEPT_CHARS = 200
_NUMBER = re.compile(r"__id-?\d+__", re.ASCII)
"""How Firestore shows the id of a document that was made with a number for a name."""
_UNUSABLE = re.compile(r"[/\x00-\x1f\x7f]|^\.{1,2}$|^__.*__$", re.DOTALL)


class Layout(Struct, frozen=True):
    database: str
    """projects/P/databases/D"""
    root: str
    """A document's path below which all collections are; '': the database's own."""
    worker_id: str

    @property
    def parent(self) -> str:
        return "/".join(part for part in (self.database, "documents", self.root) if part)

    @property
    def worker(self) -> str:
        return self._path(WORKERS, self.worker_id)

    def task(self, task_id: str) -> str:
        """Under the very name that its maker gave it."""
        return f"{self.parent}/{TASKS}/{task_id}" if _NUMBER.fullmatch(task_id) else self._path(TASKS, task_id)

    def result(self, task_id: str) -> str:
        """A task has one result, and a further record of its page has a task id of its own."""
        return self._path(RESULTS, task_id)

    def parcel(self, entry: OutboxEntry) -> str:
        return self._path(PARCELS, *(entry.platform, entry.state, entry.county, entry.parcel_id))

    def selector(self, *parts: str) -> str:
        return self._path(SELECTORS, *parts)

    def signal_batch(self, first_id: str) -> str:
        """A hash: ids that rise with time, as a signal's do, would all be written at one place."""
        return self._path(SIGNAL_BATCHES, hashlib.sha256(first_id.encode()).hexdigest()[:32])

    def sample(self, timestamp: str) -> str:
        return f"{self.worker}/{METRICS}/{document_id([timestamp])}"

    def _path(self, collection: str, *parts: str) -> str:
        return f"{self.parent}/{collection}/{document_id(parts)}"


def document_id(parts: Sequence[str]) -> str:
    """The parts joined with `~`. What Firestore would not take, or could be read in two ways, gets a hash as well."""
    name = "~".join(parts)
    is_plain = len(parts) == 1 or not any("~" in part for part in parts)
    try:
        if is_plain and name and len(name.encode()) <= _MOST_ID_BYTES and not _UNUSABLE.search(name):
            return name
    except UnicodeEncodeError:
        pass
    digest = hashlib.sha256("\0".join(parts).encode(errors="backslashreplace")).hexdigest()
    kept = _UNUSABLE.sub("-", name[:_KEPT_CHARS].encode(errors="replace").decode())
    return f"{kept}~{digest[:32]}"
