"""Heartbeats, commands and figures: what the fleet's owner sees of a worker, and says to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from parcelpost import wire
from parcelpost.client.firestore.calls import MOST_WRITES, Calls, Found, put, query, remove
from parcelpost.client.firestore.layout import COMMANDS, Layout
from parcelpost.client.firestore.leases import Leases
from parcelpost.client.firestore.task_fields import when
from parcelpost.client.firestore.values import MOST_DOCUMENT_BYTES, Plain, burden
from parcelpost.client.upstream import Beat, MetricsSample

_MOST_COMMANDS = 32
_COMMANDS_OF = timedelta(seconds=300)
"""An order that is older was not meant for this start of the worker."""


class Fleet:
    def __init__(self, calls: Calls, layout: Layout, leases: Leases) -> None:
        self._calls = calls
        self._layout = layout
        self._leases = leases
        self._unsaid: dict[str, Found] = {}
        """Commands that may be gone from Firestore, as the answer to their removal was lost."""

    async def beat(self, beat: Beat) -> wire.Heard:
        """Each command is heard once; one of long ago is not, nor is any by a worker that leaves."""
        await self._calls.learn_time(self._layout.worker)
        kept = await self._leases.keep(beat)
        by_age = query(COMMANDS, order=("ordered_at",), most=_MOST_COMMANDS)
        found = {one.path: one for one in await self._calls.query(self._layout.worker, by_age)}
        self._unsaid |= found
        now = self._calls.now()
        await self._calls.commit([put(self._layout.worker, _told(beat, now)), *map(remove, found)])
        heard = [] if beat.leaving else [one for one in self._unsaid.values() if _is_fresh(one, now)]
        self._unsaid = {}
        return wire.heard([one.fields.get("command") for one in heard], leases=kept)

    async def add_samples(self, samples: Sequence[MetricsSample]) -> None:
        """One of the same moment again changes nothing."""
        writes = [
            put(self._layout.sample(sample.timestamp), {"timestamp": sample.timestamp, **sample.values})
            for sample in samples
        ]
        for start in range(0, len(writes), MOST_WRITES):
            await self._calls.commit(writes[start : start + MOST_WRITES], may_refuse=True)


def _told(beat: Beat, now: datetime) -> Mapping[str, Plain]:
    names = (name for name in beat.__struct_fields__ if name != "leases")  # each stands at its task
    body = wire.heartbeat_body(**{name: getattr(beat, name) for name in names})
    told = msgspec.json.decode(body, type=dict[str, object])
    if burden(told) > MOST_DOCUMENT_BYTES:
        told["broken"] = []
    return {**told, "last_seen_at": now}


def _is_fresh(command: Found, now: datetime) -> bool:
    return now - when(command, "ordered_at") <= _COMMANDS_OF
