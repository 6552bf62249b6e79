"""Firestore as an upstream: what a gateway does, done by the workers themselves in transactions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from parcelpost import wire
from parcelpost.client.firestore.calls import Calls
from parcelpost.client.firestore.experience import Experience
from parcelpost.client.firestore.fleet import Fleet
from parcelpost.client.firestore.layout import Layout
from parcelpost.client.firestore.leases import Leases
from parcelpost.client.firestore.raw_files import RawFiles
from parcelpost.client.firestore.results import Results
from parcelpost.client.firestore.tasks import Tasks
from parcelpost.client.upstream import Beat, MetricsSample, RankedSelector, Submitted, Work
from parcelpost.model import OutboxEntry, Signal
from parcelpost.raw_store import RawStore
from parcelpost.settings.keys import FirestoreSettings


class FirestoreClient:
    """Keeps the Upstream protocol. Made by `open_firestore`; may be used by many tasks of one event loop at a time."""

    def __init__(self, calls: Calls, layout: Layout, raw_store: RawStore, settings: FirestoreSettings) -> None:
        leases = Leases(calls, layout, settings)
        self._raw_files = RawFiles(raw_store)
        self._tasks = Tasks(calls, layout, leases, settings)
        self._results = Results(calls, layout, self._raw_files)
        self._fleet = Fleet(calls, layout, leases)
        self._experience = Experience(calls, layout)

    async def get_work(self, capacity: int, platforms: Sequence[str]) -> Work:
        return await self._tasks.claim(capacity, platforms)

    async def submit_results(self, entries: Sequence[OutboxEntry]) -> Submitted:
        return await self._results.submit(entries)

    async def upload_raw_file(self, entry: OutboxEntry, path: Path) -> None:
        await self._raw_files.upload(entry, path)

    async def report_end(self, entry: OutboxEntry) -> None:
        await self._tasks.end(entry)

    async def heartbeat(self, beat: Beat) -> wire.Heard:
        return await self._fleet.beat(beat)

    async def submit_signals(self, signals: Sequence[Signal], first_id: str) -> None:
        await self._experience.count(signals, first_id)

    async def submit_metrics(self, samples: Sequence[MetricsSample]) -> None:
        await self._fleet.add_samples(samples)

    async def get_selectors(self, platform: str) -> Sequence[RankedSelector]:
        return await self._experience.selectors(platform)
