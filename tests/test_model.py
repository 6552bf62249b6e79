"""The domain's own words: values, frozen, free of I/O."""

from __future__ import annotations

import inspect
from datetime import UTC, datetime

import msgspec
import pytest

from parcelpost import events, model
from parcelpost.model import Claim, Page, Priority, Result, Source, Target, Task, TaskStatus

TASK = Task(task_id="t1", platform="vgsi", target=Target(parcel_id="1-2", state="CT", county="hartford"))
STRUCTS = [
    found
    for module in (model, events)
    for _, found in inspect.getmembers(module, inspect.isclass)
    if issubclass(found, msgspec.Struct) and found.__module__ == module.__name__
]


def test_every_value_is_frozen_and_says_what_it_is(subtests: pytest.Subtests) -> None:
    for struct in STRUCTS:
        with subtests.test(struct=struct):
            assert struct.__struct_config__.frozen
            assert struct.__doc__


def test_a_task_has_the_seeds_defaults() -> None:
    assert (TASK.source, TASK.priority, TASK.max_retries, TASK.type) == (Source.GATEWAY, Priority.NORMAL, 3, "scrape")
    assert TASK.lease_expires_at is None
    assert (TASK.target.url, TASK.target.extra) == ("", {})


def test_a_value_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        TASK.task_id = "t2"  # type: ignore[misc] # the point
    assert msgspec.structs.replace(TASK, task_id="t2") != TASK


def test_lower_priorities_go_first() -> None:
    assert sorted(Priority, reverse=True) == [Priority.BATCH, Priority.NORMAL, Priority.HIGH, Priority.URGENT]
    assert [int(priority) for priority in Priority] == [1, 2, 3, 4]


def test_the_words_of_the_schema_are_the_words_of_the_model() -> None:
    assert list(TaskStatus) == ["pending", "processing", "completed", "not_found", "failed", "expired"]
    assert list(Source) == ["gateway", "firestore", "local_file", "cli"]


def test_a_claim_and_a_result_survive_the_wire() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    claim = Claim(task=TASK, token="x:1", seq=1, retries=0, created_at=now)
    assert msgspec.json.decode(msgspec.json.encode(claim), type=Claim) == claim
    result = Result(data={"a": [1, None]}, scraped_at=now, page=Page(body=b"\x00\xff"))
    assert msgspec.json.decode(msgspec.json.encode(result), type=Result) == result
