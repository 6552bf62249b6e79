"""Workers, their commands and metrics, and the fleet's selector stats in Firestore."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from hashlib import sha256

import msgspec

from parcelpost.model import Signal
from parcelpost.protocol import client
from parcelpost.protocol.payloads import Heartbeat, HeartbeatReply, MetricsSample, RankedSelector
from parcelpost.upstream.firestore.calls import MAX_WRITES, Calls, Document, increment, put, query, remove
from parcelpost.upstream.firestore.encoding import (
    COMMANDS,
    MAX_DOCUMENT_BYTES,
    SELECTORS,
    Layout,
    Message,
    Plain,
    checked_size,
)
from parcelpost.upstream.firestore.leases import FirestoreLeases, time_of

_MAX_COMMANDS = 32
_COMMAND_LIFETIME = timedelta(seconds=300)
"""An older command was meant for an earlier start of the worker."""


class Fleet:
    def __init__(self, calls: Calls, layout: Layout, leases: FirestoreLeases) -> None:
        self._calls = calls
        self._layout = layout
        self._leases = leases
        self._unreturned: dict[str, Document] = {}
        """Commands that were perhaps deleted from Firestore before the worker received them: the answer was lost."""

    async def heartbeat(self, beat: Heartbeat) -> HeartbeatReply:
        """Returns each command once, except old ones, and none to a worker that is leaving."""
        await self._calls.learn_time(self._layout.worker)
        await self._leases.give_back_lost()
        by_age = query(COMMANDS, order=("sent_at",), limit=_MAX_COMMANDS)
        by_path = {command.path: command for command in await self._calls.query(self._layout.worker, by_age)}
        self._unreturned |= by_path
        now = self._calls.now()
        await self._calls.commit([put(self._layout.worker, _worker_fields(beat, now)), *map(remove, by_path)])
        fresh = [] if beat.leaving else [command for command in self._unreturned.values() if _is_fresh(command, now)]
        self._unreturned = {}
        return HeartbeatReply(commands=client.valid_commands(command.fields.get("command") for command in fresh))

    async def add_samples(self, samples: Sequence[MetricsSample]) -> None:
        """Writes each sample once, however often it is sent."""
        documents = map(client.sample_fields, samples)
        writes = [put(self._layout.sample(fields["timestamp"]), fields) for fields in documents]
        for start in range(0, len(writes), MAX_WRITES):
            await self._calls.commit(writes[start : start + MAX_WRITES], may_refuse=True)


def _worker_fields(beat: Heartbeat, now: datetime) -> Mapping[str, Plain]:
    fields = msgspec.json.decode(client.heartbeat_body(beat), type=dict[str, object])
    if checked_size(fields) > MAX_DOCUMENT_BYTES:
        fields["broken"] = []
    return {**fields, "last_seen_at": now}


def _is_fresh(command: Document, now: datetime) -> bool:
    return now - time_of(command, "sent_at") <= _COMMAND_LIFETIME


SHARDS = 16

_COUNTERS_A_COMMIT = MAX_WRITES // 3 - 1  # each counts as a write and two increments; the batch is a write, too
_BATCH_LIFETIME = timedelta(days=60)
"""A batch may be sent again until then."""
_MAX_DOCUMENTS = 20_000
_MAX_SELECTOR_BYTES = 1_500
_MAX_FIELD_BYTES = 300

_Key = tuple[str, str, str, str]
"""platform, field, selector type, selector"""


class SelectorStats:
    def __init__(self, calls: Calls, layout: Layout) -> None:
        self._calls = calls
        self._layout = layout
        self._shard = sha256(layout.worker_id.encode(errors="backslashreplace")).digest()[0] % SHARDS

    async def count(self, signals: Sequence[Signal], first_id: str) -> None:
        """Counts each signal once, however often it is sent: the batch's position is written with the counters (I5)."""
        batch = self._layout.signal_batch(first_id)
        while await self._calls.transact(partial(self._count_some, signals, batch), may_refuse=True):
            pass

    async def selectors(self, platform: str) -> list[RankedSelector]:
        """Returns the selectors of this month and the last one, by field, the best first."""
        await self._calls.learn_time(self._layout.worker)
        now = self._calls.now()
        months: list[Plain] = [_month(now), _month(now.replace(day=1) - timedelta(days=1))]
        conditions = (("platform", "==", platform), ("month", "in", months))
        counters = await self._calls.query(self._layout.parent, query(SELECTORS, *conditions, limit=_MAX_DOCUMENTS))
        return _ranked(platform, counters)

    async def _count_some(
        self, signals: Sequence[Signal], batch: str, transaction: bytes
    ) -> tuple[bool, list[Message]]:
        """Counts as many signals as fit into one commit, after the last counted one. Returns whether some are left."""
        known = (await self._calls.get([batch], ["counted"], transaction)).get(batch)
        counted = _number(known, "counted") if known else 0
        samples: Counter[_Key] = Counter()
        successes: Counter[_Key] = Counter()
        for signal in signals[counted:]:
            key = (signal.platform, signal.field, signal.selector_type, signal.selector)
            if key not in samples and len(samples) == _COUNTERS_A_COMMIT:
                break
            counted += 1
            if _is_countable(signal):
                samples[key] += 1
                successes[key] += signal.success
        if not samples:
            return False, []
        now = self._calls.now()
        writes = [self._counter(key, now, successes[key], samples[key]) for key in samples]
        progress = {"counted": counted, "worker": self._layout.worker_id, "expires_at": now + _BATCH_LIFETIME}
        return counted < len(signals), [*writes, put(batch, progress)]

    def _counter(self, key: _Key, now: datetime, successes: int, samples: int) -> Message:
        platform, field, kind, selector = key
        month = _month(now)
        fields: dict[str, Plain] = {
            "month": month,
            "platform": platform,
            "field": field,
            "selector_type": kind,
            "selector": selector,
            "shard": self._shard,
            "last_seen_at": now,
        }
        path = self._layout.selector(month, *key, str(self._shard))
        return increment(path, fields, {"successes": successes, "samples": samples})


def _month(moment: datetime) -> str:
    return moment.strftime("%Y-%m")


def _is_countable(signal: Signal) -> bool:
    names = "".join((signal.platform, signal.field, signal.selector_type))
    return len(signal.selector.encode()) <= _MAX_SELECTOR_BYTES and len(names.encode()) <= _MAX_FIELD_BYTES


def _ranked(platform: str, counters: Sequence[Document]) -> list[RankedSelector]:
    """Adds up all shards."""
    samples: Counter[tuple[str, str, str]] = Counter()
    successes: Counter[tuple[str, str, str]] = Counter()
    for counter in counters:
        field, selector, kind = (str(counter.fields.get(name, "")) for name in ("field", "selector", "selector_type"))
        samples[field, selector, kind] += _number(counter, "samples")
        successes[field, selector, kind] += _number(counter, "successes")
    ranked = [
        RankedSelector(
            platform=platform,
            field=field,
            selector=selector,
            selector_type=kind,
            success_rate=min(1.0, successes[field, selector, kind] / number),
            samples=number,
        )
        for (field, selector, kind), number in samples.items()
        if number > 0
    ]
    return sorted(ranked, key=lambda ranked: (ranked.field, -ranked.success_rate, -ranked.samples, ranked.selector))


def _number(document: Document, name: str) -> int:
    number = document.fields.get(name)
    return number if type(number) is int and number > 0 else 0
