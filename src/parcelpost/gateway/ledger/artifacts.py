"""What failed attempts at tasks saw: named by a report, then uploaded. For SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from parcelpost.gateway.ledger import rows
from parcelpost.gateway.ledger.queries import Queries
from parcelpost.gateway.models import Artifact
from parcelpost.protocol.payloads import ArtifactKind

_MOST = 10_000
"""Older ones are deleted, so that failures do not fill the raw store."""
_SUPERSEDE = "UPDATE artifacts SET worker_id = '', stored_at = NULL WHERE task_id = ?"
_NAME = """
INSERT INTO artifacts (task_id, kind, worker_id, named_at) VALUES (?, ?, ?, ?)
ON CONFLICT (task_id, kind) DO UPDATE
SET worker_id = excluded.worker_id, named_at = excluded.named_at, stored_at = NULL
"""
_ARTIFACTS = """
SELECT kind, worker_id, named_at, stored_at, media_type FROM artifacts WHERE task_id = ? AND worker_id <> ''
ORDER BY kind DESC
"""
_STORED = """
UPDATE artifacts SET stored_at = ?, media_type = ?
WHERE task_id = ? AND kind = ? AND worker_id = ? AND stored_at IS NULL
"""
_UNUSED = """
SELECT a.task_id, a.kind FROM artifacts a
WHERE a.worker_id = '' OR a.named_at < (SELECT n.named_at FROM artifacts n ORDER BY n.named_at DESC LIMIT 1 OFFSET ?)
OR NOT EXISTS (SELECT 1 FROM tasks t WHERE t.task_id = a.task_id AND t.state <> 'done') LIMIT ?
"""
_DELETE = "DELETE FROM artifacts WHERE task_id = ? AND kind = ?"


class ArtifactQueries(Queries, Protocol):
    async def name_artifacts(self, task_id: str, kinds: Sequence[ArtifactKind], worker_id: str, now: datetime) -> None:
        await self._change(_SUPERSEDE, task_id)
        await self._run_all(_NAME, [(task_id, kind, worker_id, now) for kind in kinds])

    async def artifacts(self, task_id: str) -> Sequence[Artifact]:
        return [
            Artifact(
                kind=kind,
                worker_id=worker_id,
                named_at=rows.timestamp(named_at),
                stored_at=rows.timestamp_or_none(stored_at),
                media_type=media_type,
            )
            for kind, worker_id, named_at, stored_at, media_type in await self._find(_ARTIFACTS, task_id)
        ]

    async def set_artifact_stored(
        self, task_id: str, kind: ArtifactKind, worker_id: str, media_type: str, now: datetime
    ) -> bool:
        return bool(await self._change(_STORED, now, media_type, task_id, kind, worker_id))

    async def unused_artifacts(self, most: int) -> Sequence[tuple[str, ArtifactKind]]:
        return [(task_id, kind) for task_id, kind in await self._find(_UNUSED, _MOST - 1, most)]

    async def delete_artifact(self, task_id: str, kind: ArtifactKind) -> None:
        await self._change(_DELETE, task_id, kind)
