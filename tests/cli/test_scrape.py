"""`parcelpost scrape` and `parcelpost platforms`, as processes against a real website."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.website import Asked, Reply, Website, website


@pytest.fixture
async def site() -> AsyncIterator[Website]:
    async with website() as one:
        answer = {"due": {"PPT": {"bills": [{"account_number": "7", "taxYear": 2025}]}}}
        one.page("/robots.txt", b"")
        one.page("/api/v2/due/PPT/7", json.dumps(answer).encode(), Content_Type="application/json")
        yield one


async def _started(folder: Path, *words: str) -> asyncio.subprocess.Process:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PARCELPOST_")}
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "parcelpost", *words, cwd=folder, env=environment,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip


async def _done(folder: Path, *words: str) -> tuple[int | None, str, str]:
    process = await _started(folder, *words)
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


def _entry(folder: Path, site: Website) -> tuple[str, ...]:
    (folder / "mine.toml").write_text(
        f'[[county]]\nplatform = "mygov_due"\nstate = "FL"\ncounty = "nowhere"\nsite = "{site.url}"\n'
    )
    options = ("fetch.counties_file=mine.toml", "fetch.allow_private=127.0.0.1", "fetch.pace_seconds=0")
    return tuple(word for option in options for word in ("--set", option))


async def test_a_record_is_printed_and_what_was_done_told(site: Website, tmp_path: Path) -> None:
    where = ("--platform", "mygov_due", "--state", "fl", "--county", "Nowhere")
    code, out, err = await _done(tmp_path, "scrape", *where, "7", *_entry(tmp_path, site))
    assert code == 0, err
    assert json.loads(out)["parcel_id"] == "7"
    assert f"GET {site.url}/api/v2/due/PPT/7?detail_level=public: 200" in err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.toml"]
    code, out, err = await _done(tmp_path, "scrape", *where, "8", *_entry(tmp_path, site))
    assert (code, out) == (1, "")
    assert "not found" in err


async def test_it_can_be_interrupted(site: Website, tmp_path: Path) -> None:
    asked = asyncio.Event()

    async def hang(_: Asked) -> Reply:
        asked.set()
        await asyncio.Event().wait()
        return Reply()

    site.pages["/api/v2/due/PPT/7"] = hang
    where = ("--platform", "mygov_due", "--state", "FL", "--county", "nowhere")
    process = await _started(tmp_path, "scrape", *where, "7", *_entry(tmp_path, site))
    await asked.wait()
    process.send_signal(signal.SIGINT)
    _, err = await process.communicate()
    assert process.returncode == 130
    assert b"Traceback" not in err


async def test_platforms_are_listed_with_their_counties(site: Website, tmp_path: Path) -> None:
    code, out, _ = await _done(tmp_path, "platforms", "--json", *_entry(tmp_path, site))
    assert code == 0
    found = {one["platform"]: one["counties"] for one in json.loads(out)}
    assert [one["site"] for one in found["mygov_due"]] == [site.url]
    assert {"echo", "vgsi", "realauction"} <= set(found)
    code, out, _ = await _done(tmp_path, "platforms", "grizzly_gis")
    assert (code, "columbia.floridapa.com" in out, "vgsi" in out) == (0, True, False)
    code, _, err = await _done(tmp_path, "platforms", "no_such")
    assert (code, "no_such" in err) == (1, True)


async def test_a_worker_scrapes_and_asks_the_site_once(site: Website, tmp_path: Path) -> None:
    settings = _entry(tmp_path, site)
    out = ""
    run = ("run", "--mode", "standalone", "--until-empty", *settings)
    for number in ("a", "b"):
        add = ("add", "mygov_due", "7", "--state", "FL", "--county", "nowhere", "--id", number, *settings)
        code, _, err = await _done(tmp_path, *add)
        assert code == 0, err
        code, out, err = await _done(tmp_path, *run)
        assert code == 0, err
    assert "1 completed, 0 failed" in out
    assert [asked.path for asked in site.asked] == ["/robots.txt", "/api/v2/due/PPT/7"]


async def test_a_countys_own_field_map_is_used_by_scrape_and_by_a_worker(site: Website, tmp_path: Path) -> None:
    rows = {"features": [{"attributes": {"ACCOUNT": "A-7", "NAME": "DOE ANN"}}]}
    site.page("/layer/0/query", json.dumps(rows).encode(), Content_Type="application/json")
    (tmp_path / "mine.toml").write_text(
        f'[[county]]\nplatform = "arcgis"\nstate = "WI"\ncounty = "rivers"\nsite = "{site.url}/layer/0"\n'
        'ids = { parcel_column = "ACCOUNT" }\nfield_map = "rivers"\n'
    )
    (tmp_path / "parcelpost.toml").write_text(
        '[worker]\nmode = "standalone"\n'
        '[fetch]\ncounties_file = "mine.toml"\nallow_private = ["127.0.0.1"]\npace_seconds = 0\n'
        '[field_maps.rivers.fields]\nparcel_id = { text = ["ACCOUNT"] }\nowner_names = { texts = ["NAME"] }\n'
    )
    where = ("--state", "WI", "--county", "rivers")
    code, out, err = await _done(tmp_path, "scrape", "--platform", "arcgis", *where, "A-7")
    assert code == 0, err
    assert (json.loads(out)["parcel_id"], json.loads(out)["owner_names"]) == ("A-7", ["DOE ANN"])
    await _done(tmp_path, "add", "arcgis", "A-7", *where)
    code, out, err = await _done(tmp_path, "run", "--until-empty")
    assert "1 completed, 0 failed" in out, err
    (stored,) = json.loads((await _done(tmp_path, "results", "--json"))[1])["results"]
    code, out, _ = await _done(tmp_path, "results", "show", stored["task_id"], "--json")
    assert "DOE ANN" in out


async def test_a_parser_that_raises_is_told_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "somebodys.py").write_text("def scrape(id):\n    return {}[id]\n")
    (tmp_path / "parcelpost.toml").write_text('[platforms.mine]\nscrape = "somebodys:scrape"\n')
    code, out, err = await _done(tmp_path, "scrape", "--platform", "mine", "7")
    assert (code, out, err) == (1, "", "error: KeyError: '7'\n")
    code, _, err = await _done(tmp_path, "scrape", "--platform", "mone", "7")
    assert (code, err.startswith("error: there is no platform 'mone'; the nearest is mine")) == (1, True)
