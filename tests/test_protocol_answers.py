"""The worker's side of the protocol: requests keep the contract, and no answer does harm."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from parcelpost.errors import InvalidInput, Unavailable
from parcelpost.model import Broken, PausedSite, Priority, QueueDepth
from parcelpost.protocol import client, payloads, server
from tests.hostile import a_task, batch_problem
from tests.traps import ABSURD_TASKS
from tests.upstream.factories import NOW, an_entry

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
FIELDS = st.sampled_from(
    ["task_id", "type", "platform", "target", "priority", "created_at", "lease_expires_at", "attempt", "max_retries"]
)
TARGET_FIELDS = st.sampled_from(["parcel_id", "state", "county", "url"])
NEARLY_TASKS = st.builds(
    lambda task, changes, target: {**task, **changes, "target": {**task["target"], **target}},
    st.just(a_task("changed")),
    st.dictionaries(FIELDS, JSON, max_size=3),
    st.dictionaries(TARGET_FIELDS | st.text(max_size=5), JSON, max_size=3),
)
ANSWER_NAMES = [
    "tasks", "retry_after", "inserted", "updated", "failed", "errors", "receipts", "status", "success",
    "acknowledged", "commands", "selectors", "error", "message",
]  # fmt: skip
BROKEN = Broken(
    platform="vgsi",
    state="NH",
    county="grafton",
    field="owner",
    success_rate=0.25,
    used_to=1.0,
    failing=("css #o",),
    example="t1",
    since=datetime(2026, 1, 1, tzinfo=UTC),
)
BODIES = (
    st.binary(max_size=200)
    | JSON.map(lambda value: json.dumps(value).encode())
    | st.dictionaries(st.sampled_from(ANSWER_NAMES), JSON, max_size=6).map(lambda value: json.dumps(value).encode())
)


def work(tasks: Any, **more: Any) -> payloads.Work:
    return client.read_work(json.dumps({"tasks": tasks, **more}).encode())


def the_problem(**changes: Any) -> str:
    (bad,) = work([{**a_task(), **changes}]).bad
    return bad.problem


def test_a_task_is_read_whole() -> None:
    lease = "2026-01-01T01:00:00+01:00"
    target = {"url": "https://x/1", "account": 7}
    (task,) = work([a_task("t1", priority=1, lease_expires_at=lease, max_retries=5, target=target, new="?")]).tasks
    assert (task.task_id, task.platform, task.type, task.priority) == ("t1", "echo", "scrape", Priority.URGENT)
    assert (task.max_retries, task.lease_expires_at) == (5, datetime(2026, 1, 1, tzinfo=UTC))
    assert (task.target.parcel_id, task.target.state, task.target.county) == ("parcel-t1", "CT", "hartford")
    assert (task.target.url, task.target.extra) == ("https://x/1", {"account": 7})


@pytest.mark.parametrize("body", [b'{"tasks":null,"retry_after":30}', b'{"tasks":[],"retry_after":30}'])
def test_no_tasks_are_no_trouble(body: bytes) -> None:
    assert client.read_work(body) == payloads.Work(tasks=[], bad=[], retry_after=30.0)


def test_absurd_tasks_are_named_and_the_good_ones_between_them_kept() -> None:
    answer = work([*ABSURD_TASKS[:9], a_task("good-1"), *ABSURD_TASKS[9:], a_task("good-2")])
    assert [task.task_id for task in answer.tasks] == ["good-1", "good-2"]
    assert len(answer.bad) == len(ABSURD_TASKS)
    assert {"t-nan", "t-bare", "12", ""} < {bad.task_id for bad in answer.bad}
    assert all(len(bad.task_id) <= 512 and len(bad.problem) < 200 for bad in answer.bad)


@given(st.lists(JSON | NEARLY_TASKS, max_size=6), st.integers(0, 6), JSON)
@example([[[]]], 0, float("inf"))
def test_no_neighbour_costs_a_good_task(others: list[Any], place: int, retry_after: Any) -> None:
    answer = work([*others[:place], a_task("good"), *others[place:]], retry_after=retry_after)
    assert "good" in [task.task_id for task in answer.tasks]
    assert len(answer.tasks) + len(answer.bad) == len(others) + 1
    assert 0.0 <= answer.retry_after <= payloads.LONGEST_WAIT_SECONDS


@pytest.mark.parametrize(
    "neighbour",
    [
        b"[" * 5_000 + b"]" * 5_000,
        b'{"task_id": "\\ud800"}',
        b'{"task_id": "\xff"}',
        b'{"task_id": "a]}\\"[{"  , "x": -Infinity}',
        b"1e999",
        b"9" * 10_000,
    ],
    ids=["deep", "surrogate", "not UTF-8", "brackets in text", "too large", "too long"],
)
def test_a_neighbour_that_is_hardly_json_costs_no_task(neighbour: bytes) -> None:
    good = json.dumps(a_task("good")).encode()
    answer = client.read_work(b'{"tasks": [' + neighbour + b" , " + good + b'], "retry_after": NaN}')
    assert [task.task_id for task in answer.tasks] == ["good"]
    assert (len(answer.bad), answer.retry_after) == (1, 0.0)


def test_an_answer_without_tasks_to_read_is_not_now(subtests: pytest.Subtests) -> None:
    for body in [
        b"",
        b"null",
        b"[]",
        b"<html></html>",
        b'{"tasks": [',
        b'{"tasks": [{"task_id": "t',
        b'{"tasks": [NaN}',
        b'{"tasks": {}}',
        b'{"tasks": "none"}',
        b'{"error": "?"}',
        b'{"tasks": [' + b"1," * 20_000 + b"1]}",
        b"[" * 3_000_000,
        b'"' * 3_000_000,
        b'{"x": "' + b'\\"' * 1_000_000,
        b"{" + b"," * 2_000_000 + b"}",
    ]:
        with subtests.test(body=body), pytest.raises(Unavailable):
            client.read_work(body)


def test_an_odd_priority_is_the_normal_one(subtests: pytest.Subtests) -> None:
    for odd in [0, 5, -1, True, "high", "1", 1.5, None, [], 10**30]:
        with subtests.test(odd=odd):
            (task,) = work([a_task("t1", priority=odd)]).tasks  # type: ignore[arg-type]
            assert task.priority is Priority.NORMAL


def test_what_is_wrong_with_a_task_is_said() -> None:
    assert the_problem(task_id=None) == "task_id is missing"
    assert the_problem(task_id=7) == "task_id is not text"
    assert the_problem(task_id=" ") == "task_id is empty"
    assert the_problem(task_id="a\nb") == "task_id contains control characters"
    assert the_problem(task_id="..") == "task_id consists of dots, which cannot be used in a URL"
    assert the_problem(platform="x" * 513) == "platform has 513 characters; at most 512 are allowed"
    assert the_problem(target={"parcel_id": "1", "state": "CT"}) == "target.county is missing"
    assert the_problem(target={"parcel_id": "", "state": "CT", "county": "x"}) == "target.parcel_id is empty"
    assert the_problem(target={"parcel_id": False, "state": "CT", "county": "x"}) == "target.parcel_id is not text"


@pytest.mark.parametrize(
    ("given_id", "read"), [(7, "7"), (7.0, "7"), (7.5, "7.5"), (10**30, str(10**30)), ("007", "007")]
)
def test_a_number_for_a_parcel_becomes_text(given_id: Any, read: str) -> None:
    (task,) = work([a_task(target={"parcel_id": given_id})]).tasks
    assert task.target.parcel_id == read


@pytest.mark.parametrize("nonsense", [None, "", "soon", "2026-01-01T00:00:00", -1, [], "0001-01-01T00:00:00+14:00"])
def test_optional_fields_that_make_no_sense_count_as_not_given(nonsense: Any) -> None:
    (task,) = work(
        [a_task(lease_expires_at=nonsense, max_retries=nonsense, created_at=nonsense, attempt=nonsense)]
    ).tasks
    assert (task.lease_expires_at, task.max_retries) == (None, 3)


@pytest.mark.parametrize(("said", "read"), [(5, 5.0), (-1, 0.0), (1e18, 3600.0), ("5", 0.0), (True, 0.0), (None, 0.0)])
def test_retry_after_is_bounded(said: Any, read: float) -> None:
    assert work([], retry_after=said).retry_after == read


def test_results_are_a_bare_array_that_the_go_one_takes() -> None:
    entries = [an_entry("t1", page=True), an_entry("t2", lease_expires_at=NOW)]
    late = NOW + timedelta(seconds=1)
    first, second = json.loads(client.results_body(entries, late))
    assert batch_problem([first, second]) == ""
    assert first == {
        "task_id": "t1",
        "parcel_id": "parcel-t1",
        "platform": "echo",
        "state": "CT",
        "county": "hartford",
        "data": {"owner": "Ann"},
        "scraped_at": "2026-01-01T12:00:00Z",
        "parse_duration_ms": 12,
        "raw_html_hash": entries[0].raw_sha256,
        "idempotency_key": "t1:abc",
        "raw_file": payloads.raw_file_name(entries[0]),
        "multi_record": False,
    }
    assert second["late"] is True
    assert not second.keys() & {"raw_file", "raw_html_hash"}


def test_the_record_travels_byte_for_byte() -> None:
    data = b'{"b":1.10,"a":"\\u00e9", "b2":12345678901234567890}'
    assert data in client.results_body([an_entry(data=data)], NOW)


def test_a_result_on_time_is_not_late() -> None:
    assert b"late" not in client.results_body([an_entry(lease_expires_at=NOW)], NOW)


def test_an_entry_without_a_record_is_not_sent_as_one() -> None:
    with pytest.raises(InvalidInput, match="t1 has no record"):
        client.results_body([an_entry(data=None)], NOW)


def batch(count: int = 3, **answer: Any) -> payloads.Submitted:
    task_ids = [f"t{number}" for number in range(count)]
    return client.read_results(json.dumps({"inserted": 0, "updated": 0, "failed": 0, **answer}).encode(), task_ids)


def test_counts_and_errors_are_read() -> None:
    answer = batch(inserted=1, updated=1, failed=1, errors=["p: no\nluck", {"a": 1}, "x" * 1_000])
    assert (answer.stored, answer.failed, answer.receipts) == (2, 1, {})
    assert answer.errors == ["p: no luck", '{"a":1}', "x" * 300]


def test_a_truncated_batch_is_read_as_it_stands() -> None:
    answer = batch(50, inserted=2, failed=11, errors=None)
    assert (answer.stored, answer.failed, answer.errors) == (2, 11, [])


def test_counts_that_make_no_sense_are_not_now(subtests: pytest.Subtests) -> None:
    senseless: list[Any] = [None, -1, "3", 1.5, True, [], 10**20, 4]
    for nonsense in senseless:
        for name in ["inserted", "updated", "failed"]:
            with subtests.test(nonsense=nonsense, name=name), pytest.raises(Unavailable):
                batch(**{name: nonsense})


def test_a_receipt_decides_only_for_an_entry_of_the_batch() -> None:
    receipts = [
        {"task_id": "t0", "status": "stored"},
        {"task_id": "t1", "status": "duplicate"},
        {"task_id": "t2", "status": "rejected", "error": "no\tgood"},
        {"task_id": "t9", "status": "stored"},
    ]
    assert batch(receipts=receipts).receipts == {
        "t0": payloads.Receipt("t0", "stored"),
        "t1": payloads.Receipt("t1", "duplicate"),
        "t2": payloads.Receipt("t2", "rejected", "no good"),
    }


def test_the_answer_to_another_batch_decides_nothing_although_its_counts_fit() -> None:
    with pytest.raises(Unavailable, match="is for a different batch, with the task t9"):
        batch(1, inserted=1, updated=0, failed=0, receipts=[{"task_id": "t9", "status": "stored"}])


def test_receipts_that_make_no_sense_or_contradict_each_other_decide_nothing() -> None:
    both = [{"task_id": "t0", "status": "stored"}, {"task_id": "t0", "status": "rejected"}]
    odd = [7, {"task_id": "t1", "status": "maybe"}, {"task_id": ["t1"], "status": "stored"}, {"status": "stored"}]
    assert batch(receipts=both).receipts == {}
    assert batch(receipts=odd).receipts == {}
    assert batch(receipts={"t1": "stored"}).receipts == {}


@pytest.mark.parametrize(
    "body", [b'{"success":true}', b'{"success":false}', b'{"status":"reported"}', b'{"status":"x","success":false}']
)
def test_an_end_is_noted_even_for_an_unknown_task(body: bytes) -> None:
    client.read_end(body, "t1")


@pytest.mark.parametrize("body", [b"{}", b'{"success":"no"}', b'{"status":"error"}', b'{"error":"x"}', b"true"])
def test_an_end_is_not_noted_without_a_word_on_it(body: bytes) -> None:
    with pytest.raises(Unavailable):
        client.read_end(body, "t1")


def test_commands_are_kept_as_written_and_nonsense_left_out() -> None:
    given = ["pause", None, 7, "platforms:a,b", "", "a\nb", "x" * 2_000, ["stop"]]
    body = json.dumps({"acknowledged": True, "commands": given}).encode()
    assert client.read_heartbeat_reply(body).commands == ["pause", "platforms:a,b"]
    assert client.read_heartbeat_reply(b'{"acknowledged":true,"commands":null}') == payloads.HeartbeatReply(commands=[])
    assert len(client.read_heartbeat_reply(json.dumps({"commands": ["x"] * 1_000}).encode()).commands) == 32


def test_leases_are_extended_by_a_whole_word_only() -> None:
    until, since = "2026-11-16T09:00:00+01:00", "2026-11-16T00:00:00Z"
    heard = client.read_heartbeat_reply(
        json.dumps({"acknowledged": True, "lease_expires_at": until, "leases_since": since}).encode()
    )
    assert heard.lease_expires_at == datetime(2026, 11, 16, 8, tzinfo=UTC)
    assert heard.leases_since == datetime(2026, 11, 16, tzinfo=UTC)
    for half in ({"lease_expires_at": until}, {"leases_since": since}, {"lease_expires_at": 7, "leases_since": since}):
        assert client.read_heartbeat_reply(
            json.dumps({"acknowledged": True, **half}).encode()
        ) == payloads.HeartbeatReply(commands=[])


def test_a_heartbeat_holds_no_figure_that_json_lacks() -> None:
    depth = QueueDepth(pending=1, delayed=9, completed=2, not_found=3)
    body = client.heartbeat_body(
        payloads.Heartbeat(
            cpu_percent=float("nan"),
            memory_percent=float("inf"),
            queue=payloads.queue_counts(depth),
            oldest_unsynced_seconds=2.5,
            blocked=(PausedSite("vgsi", "CT", "hartford"),),
            broken=(BROKEN,),
        )
    )
    beat = json.loads(body)
    assert (beat["cpu_percent"], beat["memory_percent"], beat["oldest_unsynced_seconds"]) == (0.0, 0.0, 2.5)
    assert beat["blocked"] == [{"platform": "vgsi", "state": "CT", "county": "hartford"}]
    assert server.read_heartbeat(body).broken == (BROKEN,)
    assert beat["queue"].keys() == {"pending", "processing", "completed", "failed", "expired", "unsynced", "rejected"}
    assert (beat["queue"]["pending"], beat["queue"]["completed"]) == (1, 5)


def test_metrics_are_a_bare_array() -> None:
    sample = payloads.MetricsSample(at=NOW, values={"a": 1})
    assert json.loads(client.metrics_body([sample])) == [{"timestamp": "2026-01-01T12:00:00.000Z", "a": 1}]


def test_selectors_are_taken_one_by_one() -> None:
    good = {"platform": "p", "field": "f", "selector": "s", "selector_type": "css", "success_rate": 0.5, "samples": 3}
    bad = [
        7,
        {},
        {**good, "success_rate": 2},
        {**good, "samples": -1},
        {**good, "platform": "q"},
        {**good, "field": ""},
    ]
    found = client.read_selectors(json.dumps({"selectors": [*bad, good]}).encode(), "p")
    assert [selector.selector for selector in found] == ["s"]


@given(BODIES)
def test_any_answer_is_read_or_not_now(body: bytes) -> None:
    readers: list[Callable[[bytes], object]] = [
        client.read_work,
        lambda body: client.read_results(body, ["t1", "t2"]),
        lambda body: client.read_raw_file(body, "9f"),
        lambda body: client.read_end(body, "t1"),
        client.read_heartbeat_reply,
        payloads.members,
        lambda body: client.read_selectors(body, "p"),
    ]
    for reader in readers:
        try:
            reader(body)
        except Unavailable as error:
            assert len(str(error)) < 200
