"""The overview that the dashboard and `parcelpost gateway status` share."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from parcelpost.clock import ManualClock, SystemClock
from parcelpost.gateway.context import Context
from parcelpost.gateway.counties import HealthState
from parcelpost.gateway.models import WorkerHeartbeat
from parcelpost.gateway.overview import BUCKET_SECONDS, gather_overview, last_day_outcomes
from parcelpost.model import Broken, PausedSite, Target, Task
from tests.gateway.stage import a_client, a_task, add_tasks, some_context

# (worker, whether it stopped on purpose, days of silence)
Fleet = Sequence[tuple[str, bool, float]]
FLEETS: list[tuple[Fleet, Sequence[str]]] = [
    ([("old", False, 30), ("stopped", True, 1)], ["fleet.stopped"]),
    ([("old", False, 6), ("stopped", True, 1)], ["fleet.no_worker", "fleet.undelivered"]),
    ([("old", True, 30)], ["fleet.no_worker"]),
]


@pytest.mark.parametrize(("fleet", "expected"), FLEETS)
async def test_the_dashboard_and_gateway_status_agree(tmp_path: Path, fleet: Fleet, expected: Sequence[str]) -> None:
    async with some_context(tmp_path, clock=SystemClock()) as context:
        await add_tasks(context, a_task("t1"))
        now = context.clock.now()
        for worker_id, leaving, days in fleet:
            seen = now - timedelta(days=days)
            beat = WorkerHeartbeat(
                worker_id=worker_id, leaving=leaving, queue={"unsynced": 4}, oldest_unsynced_seconds=60.0
            )
            await context.ledger.record_heartbeat(beat, seen, seen, seen)
        async with a_client(context) as client:
            dashboard = (await client.get("/v1/overview?hours=1")).json()
    status = _gateway_status(tmp_path / "gateway.db")
    assert [found["id"] for found in dashboard["findings"]] == expected
    for part in ("ok", "findings", "fleet", "totals", "counts"):
        assert status[part] == dashboard[part]
    assert _lags(status) == pytest.approx(_lags(dashboard), abs=60)
    assert _lags(status) == pytest.approx(
        {worker_id: days * 86_400 + 60 for worker_id, _, days in fleet if days < 7}, abs=60
    )


def _gateway_status(database: Path) -> Any:
    ran = subprocess.run(
        [sys.executable, "-m", "parcelpost", "gateway", "status", "--json", "--database", str(database)],
        capture_output=True,
        check=True,
        timeout=60,
    )
    return json.loads(ran.stdout)


def _lags(overview: Any) -> dict[str, float]:
    return {worker["worker_id"]: worker["lag_seconds"] for worker in overview["workers"]}


def test_gateway_status_needs_no_web_framework() -> None:
    code = "import sys, parcelpost.gateway.overview; sys.exit('starlette' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


async def test_a_platform_is_failing_if_most_of_its_tasks_fail(tmp_path: Path) -> None:
    counts = {
        "good": (99, 1, HealthState.HEALTHY),
        "so_so": (80, 20, HealthState.DEGRADED),
        "bad": (4, 5, HealthState.FAILING),
        "too_few": (0, 2, HealthState.DEGRADED),
    }
    async with some_context(tmp_path) as context:
        now = context.clock.now()
        for platform, (done, failed, _) in counts.items():
            await end_tasks(context, platform, "salem", done, failed)
        outcomes = await last_day_outcomes(context.ledger, now)
        overview = await gather_overview(context.ledger, now, 1, outcomes, "1.2.3")
    assert {health.platform: health.state for health in overview.platforms} == {
        platform: state for platform, (_, _, state) in counts.items()
    }
    assert overview.ended_last_hour == sum(done + failed for done, failed, _ in counts.values())
    failing = [found.message for found in overview.findings if found.id == "tasks.failing"]
    assert failing == ["on bad CT/salem, most tasks fail: 5 of 9 in the last 24 h"]


async def end_tasks(context: Context, platform: str, county: str, done: int, failed: int) -> None:
    """Those that are done ended because the site has no such parcel."""
    now = context.clock.now()
    target = Target(parcel_id="1", state="CT", county=county)
    ends = [True] * done + [False] * failed
    names = [f"{platform}/{county}/{number}" for number in range(len(ends))]
    await context.ledger.add_tasks([Task(task_id=name, platform=platform, target=target) for name in names], now)
    await context.ledger.grant("w", [platform], len(ends), now, now)
    for name, not_found in zip(names, ends, strict=True):
        await context.ledger.end_task(name, "w", error="down", again=False, now=now, not_found=not_found)


async def test_what_is_wrong_with_a_county_is_a_finding_of_the_overview_and_of_the_county(tmp_path: Path) -> None:
    lost = Broken(
        platform="vgsi",
        state="CT",
        county="salem",
        field="owner_names",
        success_rate=0.1,
        used_to=1.0,
        failing=("css .owner",),
        example="t1",
    )
    otherwise = structs.replace(lost, field="situs_address", found_otherwise=True)
    blocked = (PausedSite("vgsi", "CT", "salem"),)
    async with some_context(tmp_path) as context:
        now = context.clock.now()
        beat = WorkerHeartbeat(worker_id="w1", broken=(lost, otherwise), blocked=blocked)
        await context.ledger.record_heartbeat(beat, now, now, now)
        await end_tasks(context, "vgsi", "salem", 1, 2)
        await end_tasks(context, "vgsi", "essex", 0, 1)  # one failure says little
        async with a_client(context) as client:
            overview = (await client.get("/v1/overview?hours=1")).json()
            counties = (await client.get("/v1/counties")).json()["counties"]
    messages = {
        "tasks.failing": "most tasks fail: 2 of 3 in the last 24 h",
        "site.field_lost": "1 field no longer found: owner_names",
    }
    found = {finding["id"]: finding["message"] for finding in overview["findings"]}
    assert {check: found[check] for check in messages} == {
        check: f"on vgsi CT/salem, {message}" for check, message in messages.items()
    }
    by_county = {
        county["county"]: {finding["id"]: finding["message"] for finding in county["findings"]} for county in counties
    }
    assert by_county == {"salem": {**messages, "site.blocked": "blocks 1 worker"}, "essex": {}}


async def test_of_many_counties_with_one_problem_the_first_are_named(tmp_path: Path) -> None:
    async with some_context(tmp_path) as context:
        for number in range(7):
            await end_tasks(context, "vgsi", f"c{number}", 0, 3)
        now = context.clock.now()
        overview = await gather_overview(context.ledger, now, 1, await last_day_outcomes(context.ledger, now), "1.2.3")
    messages = [finding.message for finding in overview.findings if finding.id == "tasks.failing"]
    assert messages[0] == "on vgsi CT/c0, most tasks fail: 3 of 3 in the last 24 h"
    assert messages[5:] == ["2 more sites with the same problem"]


@pytest.mark.parametrize("seconds", [0, 3_599.9])
async def test_activity_reaches_to_this_moment_and_counts_tasks_and_records_apart(
    tmp_path: Path, seconds: float
) -> None:
    clock = ManualClock()
    clock.advance(seconds)
    async with some_context(tmp_path, clock=clock) as context:
        now = clock.now()
        minute = now.replace(second=0, microsecond=0)
        await context.ledger.add_activity({("vgsi", "done"): 3, ("echo", "done"): 1, ("vgsi", "stored"): 70}, minute)
        for hours, bucket in BUCKET_SECONDS.items():
            activity = (await gather_overview(context.ledger, now, hours, {}, "1.2.3")).activity
            series = {outcome: counts[-1] for outcome, counts in activity.series.items() if sum(counts) == counts[-1]}
            assert (len(activity.series["done"]), series) == (hours * 3_600 // bucket, {"done": 4, "stored": 70})
            newest = activity.since + timedelta(seconds=(len(activity.series["done"]) - 1) * bucket)
            assert timedelta(0) <= now - newest < timedelta(seconds=bucket)


async def test_a_platform_that_no_online_worker_handles_is_named(tmp_path: Path) -> None:
    async with some_context(tmp_path) as context:
        now = context.clock.now()
        await add_tasks(context, a_task("t1", "vgsi"), a_task("t2", "vgsii"))
        await context.ledger.record_heartbeat(WorkerHeartbeat(worker_id="w1", platforms=("vgsi",)), now, now, now)
        overview = await gather_overview(context.ledger, now, 1, {}, "1.2.3")
        assert overview.unclaimed_platforms == ["vgsii"]
        assert [finding.id for finding in overview.findings] == ["queue.unclaimed"]
