"""Events as numbers."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from parcelpost import events
from parcelpost.events import Event
from parcelpost.model import QueueDepth
from parcelpost.telemetry import Figures, Telemetry


@pytest.fixture
def telemetry() -> Telemetry:
    return Telemetry()


def value(telemetry: Telemetry, name: str, **labels: str) -> float | None:
    return telemetry.registry.get_sample_value(f"parcelpost_{name}", labels)


def attempt(platform: str = "vgsi", outcome: str = "done", seconds: float = 0.3) -> Event:
    return events.AttemptEnded(task_id="t1", platform=platform, outcome=outcome, seconds=seconds, reason="")


def test_attempts_are_counted_by_platform_and_outcome_and_timed(telemetry: Telemetry) -> None:
    for event in (attempt(), attempt(), attempt(outcome="retry"), attempt("beacon", seconds=20)):
        telemetry.emit(event)
    assert value(telemetry, "attempts_total", platform="vgsi", outcome="done") == 2
    assert value(telemetry, "attempts_total", platform="vgsi", outcome="retry") == 1
    assert value(telemetry, "attempt_seconds_count", platform="vgsi") == 3
    assert value(telemetry, "attempt_seconds_bucket", platform="vgsi", le="0.25") == 0
    assert value(telemetry, "attempt_seconds_bucket", platform="vgsi", le="0.5") == 3
    assert value(telemetry, "attempt_seconds_sum", platform="beacon") == 20


def test_what_comes_and_what_is_delivered_is_counted(telemetry: Telemetry) -> None:
    telemetry.emit(events.TasksReceived(new=5, known=2, bad=1))
    telemetry.emit(events.TasksReceived(new=5, known=0, bad=0))
    telemetry.emit(events.ResultsSynced(results=3, reports=2, raw_files=1, seconds=0.4))
    telemetry.emit(events.EntryRefused(task_id="t1", reason="no", rejected=False))
    telemetry.emit(events.EntryRefused(task_id="t2", reason="no", rejected=True))
    assert [value(telemetry, "tasks_received_total", kind=kind) for kind in ("new", "known", "bad")] == [10, 2, 1]
    assert [value(telemetry, "results_synced_total", kind=kind) for kind in ("result", "report")] == [3, 2]
    assert value(telemetry, "raw_files_synced_total") == 1
    assert value(telemetry, "sync_seconds_sum") == 0.4
    assert (value(telemetry, "entries_refused_total"), value(telemetry, "entries_rejected_total")) == (1, 1)


def test_each_loop_says_whether_the_upstream_is_there(telemetry: Telemetry) -> None:
    assert value(telemetry, "upstream_up", loop="sync") is None
    telemetry.emit(_started("http://localhost"))
    telemetry.emit(events.UpstreamOffline(loop="sync", reason="401", denied=True, retry_in_seconds=1))
    telemetry.emit(events.UpstreamOffline(loop="heartbeat", reason="503", denied=False, retry_in_seconds=1))
    up = {loop: value(telemetry, "upstream_up", loop=loop) for loop in ("collector", "sync", "heartbeat")}
    assert up == {"collector": 1, "sync": 0, "heartbeat": 0}
    assert value(telemetry, "upstream_denied", loop="sync") == 1
    assert value(telemetry, "upstream_denied", loop="heartbeat") == 0
    telemetry.emit(events.UpstreamOnline(loop="sync", offline_seconds=5))
    assert (value(telemetry, "upstream_up", loop="sync"), value(telemetry, "upstream_denied", loop="sync")) == (1, 0)


def test_without_a_gateway_nothing_is_said_of_it(telemetry: Telemetry) -> None:
    telemetry.emit(_started(""))
    assert value(telemetry, "upstream_up", loop="sync") is None


def _started(gateway: str) -> Event:
    return events.WorkerStarted(mode="ondemand", worker_id="w", store="s", gateway=gateway, slots=4, platforms=[])


def test_the_stores_events_are_counted(telemetry: Telemetry) -> None:
    assert value(telemetry, "store_level") == 0
    for level, expected in (("collector must stop", 1), ("executor must stop", 2), ("fine", 0)):
        telemetry.emit(events.StorageLevelChanged(level=level, bytes=1, max_bytes=2, free_bytes=3))
        assert value(telemetry, "store_level") == expected
    telemetry.emit(events.BackupMade(path="p", bytes=1, removed=0))
    telemetry.emit(events.LoopFailed(loop="sync", error="e", in_a_row=1, next_in_seconds=1))
    telemetry.emit(events.WorkerDraining(reason="SIGTERM", seconds=30))
    assert value(telemetry, "backups_total") == 1
    assert value(telemetry, "loop_failures_total", loop="sync") == 1
    assert value(telemetry, "worker_draining") == 1


def test_what_the_machine_has_left_is_as_last_sampled(telemetry: Telemetry) -> None:
    sample = events.ResourcesSampled(
        cpu_percent=12.5,
        memory_percent=86.0,
        memory_limit_bytes=2**32,
        pressure="no new tasks",
        browsers_busy=2,
        browsers_idle=1,
        browsers_safe=3,
        browser_pss_bytes=10**9,
    )
    telemetry.emit(msgspec.structs.replace(sample, pressure="stop browsers", browsers_busy=7))
    telemetry.emit(sample)
    assert [value(telemetry, name) for name in ("cpu_percent", "memory_percent", "memory_pressure")] == [12.5, 86, 2]
    assert [value(telemetry, "browsers", status=status) for status in ("busy", "idle")] == [2, 1]
    assert [value(telemetry, name) for name in ("browsers_safe", "browser_pss_bytes")] == [3, 10**9]
    assert value(telemetry, "memory_limit_bytes") == 2**32


def test_the_queue_is_as_last_observed(telemetry: Telemetry) -> None:
    telemetry.observe(Figures(depth=QueueDepth(pending=9, failed=9), paused=["vgsi"]))
    depth = QueueDepth(pending=4, delayed=1, completed=2, unsynced=3, rejected=1, oldest_unsynced_seconds=65)
    store = {"store_bytes": 5, "store_max_bytes": 9, "disk_free_inodes": 8, "without_backup_seconds": 7}
    telemetry.observe(Figures(depth=depth, paused=["echo"], **store))
    assert value(telemetry, "tasks", status="pending") == 4
    assert value(telemetry, "tasks", status="failed") == 0
    assert value(telemetry, "tasks_delayed") == 1
    assert [value(telemetry, "outbox", state=state) for state in ("unsynced", "rejected")] == [3, 1]
    assert value(telemetry, "oldest_seconds", what="unsynced_result") == 65
    assert {name: value(telemetry, name) for name in store} == store
    assert value(telemetry, "disk_free_bytes") == 0
    assert [value(telemetry, "platform_paused", platform=name) for name in ("vgsi", "echo")] == [None, 1]


def test_labels_from_outside_are_bounded_in_number_and_length(telemetry: Telemetry) -> None:
    for number in range(1_000):
        telemetry.emit(attempt(f"p{number}"))
    telemetry.emit(attempt("p5"))
    telemetry.emit(attempt("x" * 100_000))
    assert value(telemetry, "attempts_total", platform="p5", outcome="done") == 2
    assert value(telemetry, "attempts_total", platform="other", outcome="done") == 901
    assert len(telemetry.page()) < 400_000


def test_any_event_leaves_a_page_that_prometheus_can_read(subtests: pytest.Subtests, telemetry: Telemetry) -> None:
    for kind in Event.__subclasses__():
        with subtests.test(kind=kind):
            odd = 'a"b\\\n\ud800\0ü'
            values: dict[Any, Any] = {str: odd, int: 7, float: 7.5, bool: True, list[int]: [2], list[str]: [odd]}
            event = kind(**{field.name: values[field.type] for field in msgspec.structs.fields(kind)})
            telemetry.emit(event)
            families = list(text_string_to_metric_families(telemetry.page().decode()))
            assert all(family.name.startswith("parcelpost_") for family in families)
            assert len(families) > 20


def test_two_workers_in_a_process_do_not_share_their_numbers(telemetry: Telemetry) -> None:
    telemetry.emit(attempt())
    assert value(Telemetry(), "attempts_total", platform="vgsi", outcome="done") is None


def test_starts_and_deaths_of_browsers_are_counted(telemetry: Telemetry) -> None:
    started = events.BrowserStarted(browser_id=1, pid=77, version="140", launches=1, seconds=0.4, no_sandbox="")
    for event in (started, started, events.BrowserDied(browser_id=1, reason="killed", tasks=3)):
        telemetry.emit(event)
    assert (value(telemetry, "browser_starts_total"), value(telemetry, "browser_deaths_total")) == (2, 1)
