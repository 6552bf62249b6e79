"""Heartbeats and commands, signals and figures, and what the fleet knows of selectors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from parcelpost import wire
from parcelpost.client.firestore.calls import MOST_WRITES, Calls, Found, count, put, query, remove
from parcelpost.client.firestore.layout import COMMANDS, SELECTORS, Layout
from parcelpost.client.firestore.leases import Leases
from parcelpost.client.firestore.task_fields import when
from parcelpost.client.firestore.values import MOST_DOCUMENT_BYTES, Message, Plain, burden
from parcelpost.client.upstream import Beat, MetricsSample, RankedSelector
from parcelpost.model import Signal

_MOST_COMMANDS = 32
_COMMANDS_OF = timedelta(seconds=300)
"""An order that is older was not meant for this start of the worker."""
_COUNTERS_A_COMMIT = MOST_WRITES // 3  # each is a write and two sums
_MOST_SELECTORS = 10_000
_MOST_SELECTOR_BYTES = 1_500
_MOST_FIELD_BYTES = 300

_Key = tuple[str, str, str, str]
"""platform, field, selector type, selector"""


class Fleet:
    def __init__(self, calls: Calls, layout: Layout, leases: Leases) -> None:
        self._calls = calls
        self._layout = layout
        self._leases = leases
        self._unsaid: dict[str, Found] = {}
        """Commands that may be gone from Firestore, as the answer to their removal was lost."""

    async def beat(self, beat: Beat) -> wire.Heard:
        """Each command is heard once; one of long ago is not, nor is any by a worker that leaves."""
        await self._leases.get_to_know()
        kept = await self._leases.keep(beat)
        by_age = query(COMMANDS, order=("ordered_at",), most=_MOST_COMMANDS)
        found = {one.path: one for one in await self._calls.query(self._layout.worker, by_age)}
        self._unsaid |= found
        now = self._calls.now()
        await self._calls.commit([put(self._layout.worker, self._told(beat, now)), *map(remove, found)])
        heard = [] if beat.leaving else [one for one in self._unsaid.values() if _is_fresh(one, now)]
        self._unsaid = {}
        until, since = kept or (None, None)
        return wire.heard([one.fields.get("command") for one in heard], until, since)

    async def count_signals(self, signals: Sequence[Signal]) -> None:
        samples: Counter[_Key] = Counter()
        successes: Counter[_Key] = Counter()
        for signal in filter(_is_countable, signals):
            key = (signal.platform, signal.field, signal.selector_type, signal.selector)
            samples[key] += 1
            successes[key] += signal.success
        now = self._calls.now()
        writes = [self._counted(key, now, {"successes": successes[key], "samples": samples[key]}) for key in samples]
        for start in range(0, len(writes), _COUNTERS_A_COMMIT):
            await self._calls.commit(writes[start : start + _COUNTERS_A_COMMIT], may_refuse=True)

    async def add_samples(self, samples: Sequence[MetricsSample]) -> None:
        """One of the same moment again changes nothing."""
        writes = [
            put(self._layout.sample(sample.timestamp), {"timestamp": sample.timestamp, **sample.values})
            for sample in samples
        ]
        for start in range(0, len(writes), MOST_WRITES):
            await self._calls.commit(writes[start : start + MOST_WRITES], may_refuse=True)

    async def selectors(self, platform: str) -> list[RankedSelector]:
        """Of this month and the last; by field, the best first."""
        await self._leases.get_to_know()
        now = self._calls.now()
        months: list[Plain] = [_month(now), _month(now.replace(day=1) - timedelta(days=1))]
        conditions = (("platform", "==", platform), ("month", "in", months))
        found = await self._calls.query(self._layout.parent, query(SELECTORS, *conditions, most=_MOST_SELECTORS))
        return _ranked(platform, found)

    def _told(self, beat: Beat, now: datetime) -> Mapping[str, Plain]:
        body = wire.heartbeat_body(**{name: getattr(beat, name) for name in beat.__struct_fields__})
        told = msgspec.json.decode(body, type=dict[str, object])
        if burden(told) > MOST_DOCUMENT_BYTES:
            told["broken"] = []
        return {**told, "last_seen_at": now, "taken_until": self._leases.taken_until}

    def _counted(self, key: _Key, now: datetime, added: Mapping[str, int]) -> Message:
        platform, field, kind, selector = key
        fields: dict[str, Plain] = {
            "month": _month(now),
            "platform": platform,
            "field": field,
            "selector_type": kind,
            "selector": selector,
            "last_seen_at": now,
        }
        return count(self._layout.selector(_month(now), *key), fields, added)


def _is_fresh(command: Found, now: datetime) -> bool:
    return now - when(command, "ordered_at") <= _COMMANDS_OF


def _month(moment: datetime) -> str:
    return moment.strftime("%Y-%m")


def _is_countable(signal: Signal) -> bool:
    names = "".join((signal.platform, signal.field, signal.selector_type))
    return len(signal.selector.encode()) <= _MOST_SELECTOR_BYTES and len(names.encode()) <= _MOST_FIELD_BYTES


def _ranked(platform: str, found: Sequence[Found]) -> list[RankedSelector]:
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
