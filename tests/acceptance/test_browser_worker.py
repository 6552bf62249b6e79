"""A real worker and pages that need a browser: with one, and without."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from parcelpost.model import OutboxEntry
from parcelpost.scrapers.browser import chromium
from parcelpost.scrapers.browser.chromium import ChromiumMissing
from parcelpost.storage.lpm import LocalPersistenceManager
from tests.acceptance.counties import (
    STANDALONE,
    Simulated,
    add,
    ask,
    gateway,
    parcelpost,
    results,
    scrape,
    simulated,
    starting,
    written,
)
from tests.acceptance.processes import PATIENCE_SECONDS
from tests.storage.factories import list_tasks

pytestmark = pytest.mark.skipif(isinstance(chromium.find(), ChromiumMissing), reason="Chromium is not installed")


async def test_what_a_script_writes_is_scraped_what_fails_leaves_a_picture_and_without_a_browser_tasks_wait(
    tmp_path: Path,
) -> None:
    with simulated(tmp_path, "--parcels", "9") as county:
        county.fault("script", 1.0)
        good, bad, later = county.tasks("qpublic", first=3)
        county.fault("truncated", 0.0, bad["parcel_id"])
        await add(tmp_path, [good, bad], max_retries=0)
        scrape(tmp_path, county.settings)
        found = {entry.parcel_id: entry for entry in await results(tmp_path)}
        assert found[good["parcel_id"]].success
        check_evidence(tmp_path, found[bad["parcel_id"]])
        await add(tmp_path, [later])
        error, said = await without_browser(tmp_path, county)
    assert "no such program: /no/chromium" in error
    assert f"Error: tasks of qpublic are waiting for a browser: {error}. Fix: " in said


def test_a_gateway_shows_what_the_last_attempt_at_a_failed_task_saw(tmp_path: Path) -> None:
    with gateway(tmp_path) as upstream, simulated(tmp_path, "--parcels", "9") as county:
        county.fault("script", 1.0)
        tasks = [county.tasks(platform, first=1)[0] for platform in ("qpublic", "vgsi")]
        for task in tasks:
            county.fault("truncated", 0.0, task["parcel_id"])
        wanted = [{"task_id": task["platform"], "max_retries": 0, **task} for task in tasks]
        parcelpost(tmp_path, "gateway", "add", written(tmp_path, wanted), settings=county.settings)
        run = ("run", "--gateway", upstream, "--store", "store.db", "--until-empty")
        parcelpost(tmp_path, *run, settings=county.settings)
        seen = {task["platform"]: ask(f"{upstream}/v1/tasks/{task['platform']}") for task in tasks}
    kinds = {platform: [one["kind"] for one in task["artifacts"]] for platform, task in seen.items()}
    assert kinds == {"qpublic": ["screenshot", "page"], "vgsi": ["page"]}


def check_evidence(folder: Path, report: OutboxEntry) -> None:
    assert not report.success
    assert (folder / "data" / str(report.screenshot_path)).read_bytes().startswith(b"\x89PNG")
    assert "incomplete: " in (folder / "data" / str(report.log_path)).read_text()


async def without_browser(folder: Path, county: Simulated) -> tuple[str, str]:
    """What the task that waits says, and what `parcelpost status` does."""
    settings = {**county.settings, "browser.executable": "/no/chromium"}.items()
    given = [part for key, value in settings for part in ("--set", f"{key}={value}")]
    async with LocalPersistenceManager.open(folder / "store.db") as lpm:
        assert await lpm.browsers.all() == []
        with starting("run", *STANDALONE, *given, folder=folder) as (process, _):
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not (error := (await list_tasks(lpm))[-1].error):
                    await asyncio.sleep(0.05)
                said = ""
                while "are waiting for a browser" not in said:
                    said = await asyncio.to_thread(parcelpost, folder, "status", "--store", "store.db")
            process.send_signal(signal.SIGINT)
            assert await asyncio.to_thread(process.wait, PATIENCE_SECONDS) == 0
    return error, said
