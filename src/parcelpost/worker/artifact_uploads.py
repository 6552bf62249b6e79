"""Uploads the artifacts of failed tasks that the upstream asked for: best effort, and never in the way of a report."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import NamedTuple

from parcelpost.errors import StoreError, Unauthorized, Unavailable, UpstreamError
from parcelpost.events import ArtifactNotUploaded
from parcelpost.model import OutboxEntry, TaskStatus
from parcelpost.protocol.payloads import ARTIFACT_KINDS, ArtifactKind
from parcelpost.storage.artifacts import StoredArtifacts
from parcelpost.storage.lpm import LocalPersistenceManager
from parcelpost.upstream.base import Receiver
from parcelpost.worker.context import Context

_MOST_WAITING = 1_000
_MOST_TRIES = 3


class WantedArtifact(NamedTuple):
    task_id: str
    kind: ArtifactKind
    tries: int = 0


async def artifact_kinds(lpm: LocalPersistenceManager, entry: OutboxEntry) -> list[ArtifactKind]:
    """Returns which artifacts of a failed task can be uploaded."""
    if entry.status is not TaskStatus.FAILED:
        return []
    with contextlib.suppress(StoreError, ValueError):  # ValueError: a damaged row
        if stored := await lpm.artifacts.get(entry.task_id):
            return [kind for kind in ARTIFACT_KINDS if _path(stored, kind)]
    return []


class ArtifactUploads:
    """Held in memory: what was not uploaded when the worker ends stays with the worker."""

    def __init__(self, upstream: Receiver, context: Context) -> None:
        self._upstream = upstream
        self._lpm = context.lpm
        self._emit = context.emit
        self._waiting: deque[WantedArtifact] = deque(maxlen=_MOST_WAITING)
        self._uploading: asyncio.Task[None] | None = None

    def add(self, wanted: list[WantedArtifact]) -> None:
        self._waiting.extend(wanted)

    def start(self) -> None:
        """Uploads in the background, one file at a time, until none waits or the upstream cannot be used."""
        if self._waiting and (self._uploading is None or self._uploading.done()):
            self._uploading = asyncio.create_task(self._upload_all())

    async def finish(self) -> None:
        """Waits for the uploads that have been started."""
        if self._uploading is not None:
            await asyncio.wait([self._uploading])

    async def close(self) -> None:
        if self._uploading is not None:
            self._uploading.cancel()
            await asyncio.wait([self._uploading])

    async def _upload_all(self) -> None:
        while self._waiting:
            wanted = self._waiting.popleft()
            try:
                await self._upload(wanted)
            except (Unavailable, Unauthorized) as error:
                if wanted.tries + 1 < _MOST_TRIES:
                    self._waiting.append(wanted._replace(tries=wanted.tries + 1))
                else:
                    self._give_up(wanted, error)
                return
            except (UpstreamError, StoreError, ValueError) as error:  # ValueError: a damaged row
                self._give_up(wanted, error)

    def _give_up(self, wanted: WantedArtifact, error: Exception) -> None:
        self._emit(ArtifactNotUploaded(task_id=wanted.task_id, kind=wanted.kind, reason=str(error)))

    async def _upload(self, wanted: WantedArtifact) -> None:
        stored = await self._lpm.artifacts.get(wanted.task_id)
        if stored is not None and (path := _path(stored, wanted.kind)):
            await self._upstream.upload_artifact(wanted.task_id, wanted.kind, self._lpm.raw_path(path))


def _path(stored: StoredArtifacts, kind: ArtifactKind) -> str | None:
    return stored.screenshot_path if kind == "screenshot" else stored.page_path
