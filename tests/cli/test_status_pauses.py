"""`parcelpost status`: pauses that somebody has to see to."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import httpx2
import pytest

from parcelpost.clock import SystemClock
from parcelpost.scrapers.fetch.exchange import redirect_problem
from parcelpost.storage import LocalPersistenceManager
from tests.cli.support import Run, task

HOUR = timedelta(hours=1)


def attention(run: Run, store: Path) -> list[str]:
    """What is told besides that no worker runs."""
    lines = run("status", "--store", store).out.splitlines()
    return [line for line in lines if line.startswith(("Error", "Warning")) and "no worker" not in line]


def paused(store: Path, reasons: dict[str, str], delay: timedelta | None = HOUR) -> Path:
    """A store with a task on vgsi and one on beacon."""

    async def make() -> None:
        async with LocalPersistenceManager.open(store) as lpm:
            await lpm.add_tasks([task("t1", "vgsi"), task("t2", "beacon")])
            for platform, reason in reasons.items():
                await lpm.pause_platform(platform, SystemClock().now() + delay if delay else None, reason)

    asyncio.run(make())
    return store


@pytest.mark.parametrize("place", ["/Disclaimer", "/login"])
def test_what_a_person_must_do_is_told_for_one_platform_too(tmp_path: Path, run: Run, place: str) -> None:
    asked, leads_to = (httpx2.URL(f"https://county.example.org{path}") for path in ("/parcel/1", place))
    store = paused(tmp_path / "parcelpost.db", {"vgsi": str(redirect_problem(asked, leads_to))})
    (line,) = attention(run, store)
    assert line.startswith("Error: vgsi is paused until ")
    assert f"it redirects to county.example.org{place}. Fix: open the site once with " in line
    assert "'parcelpost browser open --profile NAME URL'" in line
    assert line.endswith("'parcelpost platforms resume vgsi'.")


def test_when_every_site_turns_us_away_that_is_told(tmp_path: Path, run: Run) -> None:
    store = paused(tmp_path / "parcelpost.db", dict.fromkeys(("vgsi", "beacon"), "a.example.org returned 403"))
    (line,) = attention(run, store)
    assert "all work is paused: " in line
    assert "(and 1 other platform) is paused until " in line


def test_a_pause_among_others_or_one_of_a_person_s_own_is_no_matter(tmp_path: Path, run: Run) -> None:
    one = paused(tmp_path / "one.db", {"vgsi": "a.example.org returned 403"})
    by_hand = paused(tmp_path / "by_hand.db", dict.fromkeys(("vgsi", "beacon"), "by hand"), delay=None)
    idle = paused(tmp_path / "idle.db", {"qpublic": "a.example.org requires its terms to be accepted"})
    assert [attention(run, store) for store in (one, by_hand, idle)] == [[], [], []]
