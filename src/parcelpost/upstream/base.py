"""The Upstream protocol: where tasks come from and results go.

GatewayClient, FirestoreClient and NullUpstream implement it, with the gateway's payloads as its types. Every call may
raise Unavailable and Unauthorized; further errors are in its docstring. No call retries on its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

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

MAX_TASKS = 100
"""No upstream returns more in one call."""


class Receiver(Protocol):
    """The part of an upstream that results are delivered to."""

    async def submit_results(self, entries: Sequence[OutboxEntry]) -> Submitted:
        """Sends records, in order. Raises Refused or TooLarge for the whole batch."""

    async def upload_raw_file(self, entry: OutboxEntry, path: Path) -> None:
        """Sends the entry's page. Raises Refused or TooLarge."""

    async def report_end(self, entry: OutboxEntry, artifacts: Sequence[ArtifactKind] = ()) -> Sequence[ArtifactKind]:
        """Reports the end of a task without a record: failed, expired, not found, or completed with nothing to send.

        Returns which of these artifacts the upstream wants. Raises Refused. A task that the upstream does not know is
        not an error.
        """

    async def upload_artifact(self, task_id: str, kind: ArtifactKind, path: Path) -> None:
        """Sends an artifact that `report_end` returned. Raises Refused, TooLarge or NotOffered."""


class Upstream(Receiver, Protocol):
    async def get_work(self, capacity: int, platforms: Sequence[str]) -> Work:
        """Leases up to `capacity` tasks (1 to 100) of these platforms from the upstream's queue."""

    async def heartbeat(self, beat: Heartbeat) -> HeartbeatReply:
        """Returns the upstream's commands. An upstream whose leases have no ids extends all of them here."""

    async def extend_leases(self, leases: Sequence[Lease]) -> Sequence[Lease]:
        """Extends leases that have ids. Returns the extended ones with their new ends."""

    async def submit_signals(self, signals: Sequence[Signal], first_id: str) -> None:
        """Sends signals in the order stored. `first_id` is the id of the first one, and identifies the batch.

        Raises NotOffered, and Refused or TooLarge for the whole batch.
        """

    async def submit_metrics(self, samples: Sequence[MetricsSample]) -> None:
        """Raises NotOffered, Refused or TooLarge."""

    async def get_selectors(self, platform: str) -> Sequence[RankedSelector]:
        """Raises NotOffered."""
