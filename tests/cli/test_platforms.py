"""`parcelpost platforms`: what there is, and how it does as the store has it."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from parcelpost.clock import SystemClock
from parcelpost.model import Broken, Result
from parcelpost.storage import LocalPersistenceManager
from parcelpost.worker.status import publish
from tests.cli.support import Run, a_status
from tests.storage.factories import a_task

NOW = SystemClock().now()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


async def ended(
    lpm: LocalPersistenceManager,
    how: str,
    number: int,
    *,
    county: str,
    platform: str = "grizzly_gis",
    state: str = "FL",
) -> None:
    await lpm.add_task(a_task(f"{number}", platform=platform, state=state, county=county))
    (claim,) = await lpm.claim()
    if how == "done":
        await lpm.save_result(claim, Result(data={}, scraped_at=NOW))
    elif how == "failed":
        await lpm.give_up(claim, f"reason {number}")
    else:
        await lpm.retry_later(claim, f"reason {number}", timedelta(hours=1))


def a_store(path: Path) -> Path:
    """Columbia, however written, does well; Union fails; a town of another platform lost a field."""
    broken = Broken(
        platform="vgsi", state="NH", county="grafton", field="owner_names", success_rate=0.1, used_to=1.0, failing=(),
        example="x",
    )  # fmt: skip
    elsewhere = Broken(
        platform="vgsi", state="NH", county="grafton", field="zoning", success_rate=1.0, used_to=1.0, failing=(),
        example="x", found_otherwise=True,
    )  # fmt: skip

    async def fill() -> None:
        async with LocalPersistenceManager.open(path) as lpm:
            for number, county in enumerate(("columbia", "Columbia County", "COLUMBIA")):
                await ended(lpm, "done", number, county=county)
            for number in range(10, 13):
                await ended(lpm, "failed", number, county="union")
            await ended(lpm, "later", 20, county="union")
            await ended(lpm, "done", 30, platform="vgsi", state="NH", county="grafton")
            await ended(lpm, "later", 40, platform="theirs", county="x")
            await publish(lpm.state, a_status(broken=(broken, elsewhere)))
            await lpm.pause_platform("qpublic", reason="it asked whether we are a person")

    asyncio.run(fill())
    return path


def health(document: Any, platform: str, county: str) -> Any:
    (found,) = [one for one in document if one["platform"] == platform]
    (place,) = [one for one in found["counties"] if one["county"] == county]
    return place["health"]


def test_without_a_store_there_is_only_the_list(folder: Path, run: Run) -> None:
    ran = run("platforms")
    assert (ran.code, ran.err) == (0, "")
    header, *lines = ran.out.splitlines()
    assert header.split() == ["platform", "state", "county", "site"]
    assert any(line.startswith("realauction (experimental)") for line in lines)
    document = run("platforms", "--json").document
    assert {one["platform"] for one in document} >= {"echo", "arcgis", "vgsi"}
    assert all(place["health"] is None for one in document for place in one["counties"])
    assert not any(folder.iterdir())


def test_health_is_what_the_last_tasks_say(folder: Path, run: Run) -> None:
    document = run("platforms", "--json", "--store", a_store(folder / "parcelpost.db")).document
    columbia = health(document, "grizzly_gis", "columbia")
    assert (columbia["completed"], columbia["failed"], columbia["success_rate"]) == (3, 0, 1.0)
    assert columbia["last_success"] is not None
    union = health(document, "grizzly_gis", "union")
    assert (union["completed"], union["failed"], union["trying_again"], union["success_rate"]) == (0, 3, 1, 0.0)
    assert (union["last_success"], union["last_error"]) == (None, "reason 20")
    grafton = health(document, "vgsi", "grafton")
    assert (grafton["lost_fields"], grafton["outdated_fields"]) == (["owner_names"], ["zoning"])
    paused = {one["platform"]: one["paused"]["reason"] for one in document if one["paused"]}
    assert paused == {"qpublic": "it asked whether we are a person"}
    origins = {one["platform"]: one["origin"] for one in document}
    assert (origins["vgsi"], origins["theirs"]) == ("parcelpost", "")


def test_people_see_it_in_a_line_each(folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARCELPOST_STORE", str(a_store(folder / "parcelpost.db")))
    out = run("platforms").out
    rows = {tuple(line.split()[:3]): line for line in out.splitlines()}
    assert rows["grizzly_gis", "FL", "columbia"].split()[3:7] == ["3", "0", "100%", "0"]
    assert "fine" in rows["grizzly_gis", "FL", "columbia"]
    assert rows["grizzly_gis", "FL", "union"].split()[3:9] == ["0", "3", "0%", "1", "-", "failing"]
    assert "lost owner_names" in rows["vgsi", "NH", "grafton"]
    assert "paused" in rows["qpublic", "FL", "dixie"]
    assert "not installed" in rows["theirs", "FL", "x"]
    assert "qpublic is paused until it is resumed: it asked whether we are a person" in out
    assert "grizzly_gis FL/union: reason 20" in out
    assert "vgsi" not in run("platforms", "grizzly_gis").out


def test_a_store_that_was_named_must_be_one_and_another_is_no_reason_to_fail(folder: Path, run: Run) -> None:
    ran = run("platforms", "--store", folder / "none.db")
    assert (ran.code, ran.out) == (1, "")
    (folder / "notes.db").write_text("this is another program's file")
    ran = run("platforms", "--set", "storage.path=notes.db")
    assert (ran.code, "grizzly_gis" in ran.out) == (0, True)
    assert ran.err.startswith("note: platform health is not available: notes.db ")


def paused(run: Run, store: Path) -> dict[str, str]:
    return {
        one["platform"]: one["paused"]["reason"]
        for one in run("platforms", "--json", "--store", store).document
        if one["paused"]
    }


def test_a_platform_is_paused_and_goes_on_by_hand(folder: Path, run: Run) -> None:
    store = a_store(folder / "parcelpost.db")
    ran = run("platforms", "resume", "qpublic", "--store", store)
    assert (ran.code, ran.out) == (0, "Resumed qpublic.\n")
    assert paused(run, store) == {}
    ran = run("platforms", "pause", "vgsi", "--hours", "2", "--reason", "they asked us", "--json", "--store", store)
    assert ran.document["until"] > NOW.isoformat()
    assert "until it is resumed: no reason given" in run("platforms", "pause", "leepa", "--store", store).out
    assert paused(run, store) == {"vgsi": "they asked us", "leepa": "no reason given"}


def test_what_is_not_paused_cannot_go_on_and_what_is_not_there_cannot_be_paused(folder: Path, run: Run) -> None:
    store = a_store(folder / "parcelpost.db")
    ran = run("platforms", "resume", "vgsi", "--store", store)
    assert (ran.code, ran.out) == (1, "")
    assert "paused platforms: qpublic" in ran.err
    ran = run("platforms", "pause", "vgis", "--store", store)
    assert (ran.code, "did you mean vgsi?" in ran.err) == (1, True)
    assert run("platforms", "resume", "vgsi", "--store", folder / "none.db").code == 1


def test_the_list_needs_no_word_and_takes_its_options_first(folder: Path, run: Run) -> None:
    for words in (("--json", "vgsi"), ("vgsi", "--json"), ("list", "vgsi", "--json")):
        assert [one["platform"] for one in run("platforms", *words).document] == ["vgsi"]
    assert "resume" in run("platforms", "--help").out
