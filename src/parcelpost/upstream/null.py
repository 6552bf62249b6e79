"""NullUpstream: the upstream of a standalone worker that has none."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from parcelpost.errors import NotOffered, Unavailable
from parcelpost.model import Lease, OutboxEntry, Signal
from parcelpost.protocol.payloads import (
    ArtifactKind,
    Heartbeat,
    HeartbeatReply,
    MetricsSample,
    RankedSelector,
    Submitted,
    Work,
)

_NO_GATEWAY = "no gateway is set"
_HINT = "set gateway.url (or PARCELPOST_GATEWAY_URL) to deliver results; everything is stored locally until then"


class NullUpstream:
    """Returns no tasks and accepts no results."""

    async def get_work(self, capacity: int, platforms: Sequence[str]) -> Work:
        return Work(tasks=())

    async def submit_results(self, entries: Sequence[OutboxEntry]) -> Submitted:
        raise Unavailable(_NO_GATEWAY, hint=_HINT)

    async def upload_raw_file(self, entry: OutboxEntry, path: Path) -> None:
        raise Unavailable(_NO_GATEWAY, hint=_HINT)

    async def report_end(self, entry: OutboxEntry, artifacts: Sequence[ArtifactKind] = ()) -> Sequence[ArtifactKind]:
        raise Unavailable(_NO_GATEWAY, hint=_HINT)

    async def upload_artifact(self, task_id: str, kind: ArtifactKind, path: Path) -> None:
        raise NotOffered(_NO_GATEWAY)

    async def heartbeat(self, beat: Heartbeat) -> HeartbeatReply:
        return HeartbeatReply()

    async def extend_leases(self, leases: Sequence[Lease]) -> Sequence[Lease]:
        return ()

    async def submit_signals(self, signals: Sequence[Signal], first_id: str) -> None:
        raise NotOffered(_NO_GATEWAY)

    async def submit_metrics(self, samples: Sequence[MetricsSample]) -> None:
        raise NotOffered(_NO_GATEWAY)

    async def get_selectors(self, platform: str) -> Sequence[RankedSelector]:
        raise NotOffered(_NO_GATEWAY)
