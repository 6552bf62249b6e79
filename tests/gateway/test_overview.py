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

from parcelpost.clock import ManualClock, SystemClock
from parcelpost.gateway.models import WorkerHeartbeat
from parcelpost.gateway.overview import BUCKET_SECONDS, PlatformState, gather_overview, last_day_outcomes
from tests.gateway.stage import a_client, a_task, add_tasks, some_context

# (worker, whether it stopped on purpose, days of silence)
Fleet = Sequence[tuple[str, bool, float]]
FLEETS: list[tuple[Fleet, str]] = [
    ([("old", False, 30), ("stopped", True, 1)], "fleet.stopped"),
    ([("old", False, 6), ("stopped", True, 1)], "fleet.no_worker"),
    ([("old", True, 30)], "fleet.no_worker"),
]


@pytest.mark.parametrize(("fleet", "finding"), FLEETS)
async def test_the_dashboard_and_gateway_status_agree(tmp_path: Path, fleet: Fleet, finding: str) -> None:
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
    assert [found["id"] for found in dashboard["findings"]] == [finding]
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
        "good": (99, 1, PlatformState.HEALTHY),
        "so_so": (80, 20, PlatformState.DEGRADED),
        "bad": (4, 5, PlatformState.FAILING),
        "too_few": (0, 2, PlatformState.DEGRADED),
    }
    async with some_context(tmp_path) as context:
        now = context.clock.now()
        for platform, (done, failed, _) in counts.items():
            await context.ledger.add_activity({(platform, "done"): done, (platform, "failed"): failed}, now)
        outcomes = await last_day_outcomes(context.ledger, now)
        overview = await gather_overview(context.ledger, now, 1, outcomes, "1.2.3")
    assert {health.platform: health.state for health in overview.platforms} == {
        platform: state for platform, (_, _, state) in counts.items()
    }


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
