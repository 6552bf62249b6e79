"""Workers, their commands, and the fleet's selector stats in Firestore."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from hashlib import sha256

import msgspec

from parcelpost.model import Signal
from parcelpost.protocol import client
from parcelpost.upstream.base import Heartbeat, MetricsSample, RankedSelector
from parcelpost.upstream.firestore.calls import MOST_WRITES, Calls, Found, count, put, query, remove
from parcelpost.upstream.firestore.encoding import (
    COMMANDS,
    MOST_DOCUMENT_BYTES,
    SELECTORS,
    Layout,
    Message,
    Plain,
    burden,
)
from parcelpost.upstream.firestore.leases import Leases
from parcelpost.upstream.firestore.task_fields import when

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

    async def beat(self, beat: Heartbeat) -> client.HeartbeatReply:
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
        return client.heartbeat_reply([one.fields.get("command") for one in heard], leases=kept)

    async def add_samples(self, samples: Sequence[MetricsSample]) -> None:
        """One of the same moment again changes nothing."""
        writes = [
            put(self._layout.sample(sample.timestamp), {"timestamp": sample.timestamp, **sample.values})
            for sample in samples
        ]
        for start in range(0, len(writes), MOST_WRITES):
            await self._calls.commit(writes[start : start + MOST_WRITES], may_refuse=True)


def _told(beat: Heartbeat, now: datetime) -> Mapping[str, Plain]:
    names = (name for name in beat.__struct_fields__ if name != "leases")  # each stands at its task
    body = client.heartbeat_body(**{name: getattr(beat, name) for name in names})
    told = msgspec.json.decode(body, type=dict[str, object])
    if burden(told) > MOST_DOCUMENT_BYTES:
        told["broken"] = []
    return {**told, "last_seen_at": now}


def _is_fresh(command: Found, now: datetime) -> bool:
    return now - when(command, "ordered_at") <= _COMMANDS_OF


SHARDS = 16

_COUNTERS_A_COMMIT = MOST_WRITES // 3 - 1  # each is a write and two sums, and the batch is a write too
_BATCH_KEPT = timedelta(days=60)
"""Until then it may be sent again."""
_MOST_DOCUMENTS = 20_000
_MOST_SELECTOR_BYTES = 1_500
_MOST_FIELD_BYTES = 300

_Key = tuple[str, str, str, str]
"""platform, field, selector type, selector"""


class Experience:
    def __init__(self, calls: Calls, layout: Layout) -> None:
        self._calls = calls
        self._layout = layout
        self._shard = sha256(layout.worker_id.encode(errors="backslashreplace")).digest()[0] % SHARDS

    async def count(self, signals: Sequence[Signal], first_id: str) -> None:
        """Each once, however often it is sent: up to where a batch is counted is written with the counters (I5)."""
        batch = self._layout.signal_batch(first_id)
        while await self._calls.transact(partial(self._count_some, signals, batch), may_refuse=True):
            pass

    async def selectors(self, platform: str) -> list[RankedSelector]:
        """Of this month and the last; by field, the best first."""
        await self._calls.learn_time(self._layout.worker)
        now = self._calls.now()
        months: list[Plain] = [_month(now), _month(now.replace(day=1) - timedelta(days=1))]
        conditions = (("platform", "==", platform), ("month", "in", months))
        found = await self._calls.query(self._layout.parent, query(SELECTORS, *conditions, most=_MOST_DOCUMENTS))
        return _ranked(platform, found)

    async def _count_some(
        self, signals: Sequence[Signal], batch: str, transaction: bytes
    ) -> tuple[bool, list[Message]]:
        """What fits into one commit, of those that no earlier one holds. Answers whether some are left."""
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
        so_far = {"counted": counted, "worker": self._layout.worker_id, "expires_at": now + _BATCH_KEPT}
        return counted < len(signals), [*writes, put(batch, so_far)]

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
        return count(path, fields, {"successes": successes, "samples": samples})


def _month(moment: datetime) -> str:
    return moment.strftime("%Y-%m")


def _is_countable(signal: Signal) -> bool:
    names = "".join((signal.platform, signal.field, signal.selector_type))
    return len(signal.selector.encode()) <= _MOST_SELECTOR_BYTES and len(names.encode()) <= _MOST_FIELD_BYTES


def _ranked(platform: str, found: Sequence[Found]) -> list[RankedSelector]:
    """Over all shards."""
    samples: Counter[tuple[str, str, str]] = Counter()
    successes: Counter[tuple[str, str, str]] = Counter()
    for one in found:
        field, selector, kind = (str(one.fields.get(name, "")) for name in ("field", "selector", "selector_type"))
        samples[field, selector, kind] += _number(one, "samples")
        successes[field, selector, kind] += _number(one, "successes")
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
    return sorted(ranked, key=lambda one: (one.field, -one.success_rate, -one.samples, one.selector))


def _number(found: Found, name: str) -> int:
    number = found.fields.get(name)
    return number if type(number) is int and number > 0 else 0
