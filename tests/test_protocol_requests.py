"""The gateway's side of the protocol: one bad entry never spoils its neighbours."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parcelpost.errors import InvalidInput
from parcelpost.model import PausedSite
from parcelpost.protocol import client, payloads, server
from parcelpost.protocol.server import BadEntry, ReadResult
from tests.upstream.factories import NOW, a_beat, an_end, an_entry

GOOD = {
    "task_id": "t1",
    "parcel_id": "p1",
    "platform": "echo",
    "state": "CT",
    "county": "hartford",
    "data": {"a": 1},
    "scraped_at": "2026-01-01T12:00:00Z",
    "parse_duration_ms": 3,
}

BROKEN: dict[str, Any] = {
    **dict.fromkeys(("platform", "state", "county", "example"), "x"),
    "field": "owner",
    "success_rate": 0.5,
    "used_to": 1,
    "failing": ["css a"],
}


def read(*entries: Any) -> list[ReadResult | BadEntry]:
    return list(server.read_batch(json.dumps(entries).encode()))


def problem_of(entry: dict[str, Any]) -> str:
    """Of an entry between two good ones, which stay good."""
    before, found, after = read(GOOD, entry, GOOD)
    assert isinstance(before, ReadResult) and isinstance(after, ReadResult)
    assert isinstance(found, BadEntry), found
    return found.problem


def test_what_a_worker_writes_is_read_as_it_was_meant() -> None:
    entry = an_entry(page=True, data=b'{"x": [1, 2.50]}')
    (found,) = server.read_batch(client.results_body([entry], NOW))
    assert isinstance(found, ReadResult)
    assert bytes(found.sent.data) == b'{"x": [1, 2.50]}'
    assert found.record == {"x": [1, 2.50]}
    assert (found.sent.task_id, found.sent.raw_html_hash) == (entry.task_id, entry.raw_sha256)
    assert (found.sent.idempotency_key, found.sent.scraped_at) == (entry.idempotency_key, entry.scraped_at)


def test_a_bad_entry_is_refused_alone_and_says_why(subtests: pytest.Subtests) -> None:
    changes: list[tuple[dict[str, Any], str]] = [
        ({"task_id": 7}, "task_id"),
        ({"task_id": ""}, "task_id"),
        ({"task_id": "  "}, "blank"),
        ({"parcel_id": None}, "parcel_id"),
        ({"parcel_id": "x" * 513}, "parcel_id"),
        ({"platform": "a\0b"}, "control"),
        ({"county": "a\nb"}, "control"),
        ({"idempotency_key": "a\0b"}, "control"),
        ({"county": "\u20ac" * 167}, "too long"),
        ({"task_id": "\u20ac" * 167}, "too long"),
        ({"data": []}, "object"),
        ({"data": None}, "object"),
        ({"data": "{}"}, "object"),
        ({"scraped_at": "2026-01-01T12:00:00"}, "scraped_at"),
        ({"scraped_at": "yesterday"}, "scraped_at"),
        ({"scraped_at": 17}, "scraped_at"),
        ({"scraped_at": "0001-01-01T00:00:00+14:00"}, "1970"),
        ({"parse_duration_ms": "3"}, "parse_duration_ms"),
        ({"parse_duration_ms": -1}, "parse_duration_ms"),
        ({"parse_duration_ms": 10**30}, "parse_duration_ms"),
        ({"raw_html_hash": "abc"}, "SHA-256"),
        ({"late": "yes"}, "late"),
    ]
    for change, says in changes:
        with subtests.test(change=change, says=says):
            assert says in problem_of({**GOOD, **change})


@pytest.mark.parametrize("name", sorted(GOOD))
def test_a_missing_field_is_named(name: str) -> None:
    assert name in problem_of({field: value for field, value in GOOD.items() if field != name})


@pytest.mark.parametrize("change", [{"raw_file": None, "late": None}, {"state": "", "county": ""}, {"new_field": [1]}])
def test_what_may_be_left_out_or_is_unknown_is_no_fault(change: dict[str, Any]) -> None:
    (found,) = read({**GOOD, **change})
    assert isinstance(found, ReadResult)


@pytest.mark.parametrize("data", [b'{"a": NaN}', b'{"a": "\\ud800"}', b'{"a": 1e999}', b'{"a": "\xff"}', b'{"a" 1}'])
def test_data_that_is_no_json_spoils_no_neighbour(data: bytes) -> None:
    good = json.dumps(GOOD).encode()
    bad = good.replace(b'{"a": 1}', data).replace(b'"t1"', b'"t2"')
    before, found, after = server.read_batch(b"[" + good + b"," + bad + b"," + good + b"]")
    assert isinstance(before, ReadResult) and isinstance(after, ReadResult)
    assert isinstance(found, BadEntry)
    assert found.task_id == "t2"


def test_deep_data_is_refused_alone() -> None:
    deep = json.dumps(GOOD).encode().replace(b'{"a": 1}', b'{"a":' + b"[" * 50_000 + b"]" * 50_000 + b"}")
    found = server.read_batch(b"[" + deep + b"," + json.dumps(GOOD).encode() + b"]")
    assert [type(one) for one in found] == [BadEntry, ReadResult]


@pytest.mark.parametrize("body", [b"", b"{}", b"[1,", b"null", b"[" * 100_000, b"[{}]]", b"\x00"])
def test_what_is_no_array_is_refused_whole(body: bytes) -> None:
    with pytest.raises(InvalidInput):
        server.read_batch(body)


def test_a_batch_has_its_bounds() -> None:
    with pytest.raises(InvalidInput, match="1,000"):
        read(*[GOOD] * 1_001)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(st.lists(st.dictionaries(st.sampled_from(sorted(GOOD)) | st.text(), json_values, max_size=9), max_size=4))
def test_whatever_comes_is_read_or_told_apart(entries: list[dict[str, Any]]) -> None:
    found = list(server.read_batch(json.dumps([{**GOOD, **entry} for entry in entries]).encode()))
    assert len(found) == len(entries)


@given(st.binary(max_size=200))
def test_bytes_of_any_kind_are_read_or_refused(body: bytes) -> None:
    for reader in (server.read_heartbeat, server.read_signals, lambda given: list(server.read_batch(given))):
        try:
            reader(body)
        except InvalidInput:
            continue
    server.read_failure(body)


def test_a_heartbeat_is_read_as_it_was_meant() -> None:
    beat = a_beat()
    found = server.read_heartbeat(client.heartbeat_body(beat))
    for name in ("active_tasks", "cpu_percent", "version", "paused", "disk_free_bytes"):
        assert getattr(found, name) == getattr(beat, name)
    assert found.queue == beat.queue


def test_a_heartbeat_of_nonsense_says_nothing() -> None:
    found = server.read_heartbeat(
        json.dumps(
            {
                "active_tasks": -1,
                "completed_last_minute": 2**60,
                "platforms": ["echo", 7, "a\0", ""],
                "cpu_percent": "much",
                "queue": {"pending": "x", "other": 1},
                "version": ["1"],
                "paused": "yes",
                "blocked": [7, "vgsi", {"platform": ""}, {"platform": "a", "county": "b\0"}, {"platform": "vgsi"}],
                "broken": [7, {**BROKEN, "field": ""}, {**BROKEN, "county": "a\0"}, {**BROKEN, "failing": 7}, BROKEN],
            }
        ).encode()
    )
    assert (found.active_tasks, found.completed_last_minute, found.cpu_percent, found.version) == (0, 0, 0.0, "")
    assert (found.platforms, found.blocked, found.paused) == (("echo",), (PausedSite("vgsi"),), False)
    assert [broken.field for broken in found.broken] == ["owner"]
    assert found.queue is not None and set(found.queue.values()) == {0}


def test_a_failure_needs_no_words() -> None:
    assert server.read_failure(b"") == payloads.Failure(error="the worker gave no reason")
    assert server.read_failure(client.end_body(an_end(error="no\0luck", retries=2))) == payloads.Failure(
        error="no?luck", attempts=3
    )
    by_operator = client.end_body(an_end(retries=2, recoveries=2, ended_by="operator"))
    assert server.read_failure(by_operator).attempts == 4
    assert server.read_failure(b'{"permanent": false}').permanent is False


def test_samples_with_odd_times_or_figures_are_told_apart() -> None:
    samples = [
        {"timestamp": "2026-01-01T12:00:00Z", "cpu_percent": 1, "name": "x", "up": True, "nothing": None},
        {"timestamp": "2027-01-01T12:00:00Z"},
        {"timestamp": "2026-01-01T12:00:00"},
        17,
    ]
    found, bad = server.read_samples(json.dumps(samples).encode(), NOW)
    assert bad == 3
    assert found[0].at == datetime(2026, 1, 1, 12, tzinfo=UTC)
    assert found[0].values == {"cpu_percent": 1, "nothing": None}


METADATA = {
    **dict.fromkeys(("task_id", "parcel_id", "platform", "state", "county", "content_type"), "x"),
    "sha256": "a" * 64,
    "scraped_at": "2026-01-01T00:00:00Z",
}


def test_the_metadata_of_a_worker_is_read() -> None:
    found = server.read_raw_metadata(payloads.raw_file_metadata(an_entry(page=True)).decode())
    assert found.content_encoding == "gzip"


@pytest.mark.parametrize(
    "change", [{"sha256": "A" * 64}, {"sha256": "../x"}, {"content_encoding": "br"}, {"task_id": ""}, {"scraped_at": 1}]
)
def test_metadata_that_makes_no_sense_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="metadata"):
        server.read_raw_metadata(json.dumps({**METADATA, **change}))
