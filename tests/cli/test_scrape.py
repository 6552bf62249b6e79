"""`parcelpost scrape` and `parcelpost platforms`, against a real website."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import threading
from pathlib import Path

import pytest

from parcelpost.cli.commands.parse import outcome_reason
from parcelpost.model import Blocked, GiveUp, NotFound, Retry
from tests.cli.support import COMMAND, Run, run_process
from tests.website import Asked, Reply, Website


@pytest.fixture
def site(served: Website) -> Website:
    answer = {"due": {"PPT": {"bills": [{"account_number": "7", "taxYear": 2025}], "parcels": [], "accounts": []}}}
    served.page("/api/v2/due/PPT/7", json.dumps(answer).encode(), Content_Type="application/json")
    return served


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of its own, with nothing set."""
    for name in [name for name in os.environ if name.startswith("PARCELPOST_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def _entry(folder: Path, site: Website) -> tuple[str, ...]:
    (folder / "mine.toml").write_text(
        f'[[county]]\nplatform = "mygov_due"\nstate = "FL"\ncounty = "nowhere"\nsite = "{site.url}"\n'
    )
    options = ("fetch.counties_file=mine.toml", "fetch.allow_private=127.0.0.1", "fetch.pace_seconds=0")
    return tuple(word for option in options for word in ("--set", option))


def test_a_record_is_printed_and_what_was_done_told(site: Website, tmp_path: Path, run: Run) -> None:
    where = ("--platform", "mygov_due", "--state", "fl", "--county", "Nowhere")
    ran = run("scrape", *where, "7", *_entry(tmp_path, site))
    assert ran.code == 0, ran.err
    assert ran.document["parcel_id"] == "7"
    assert f"GET {site.url}/api/v2/due/PPT/7?detail_level=public: 200" in ran.err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.toml"]
    ran = run("scrape", *where, "8", *_entry(tmp_path, site))
    assert (ran.code, ran.out) == (1, "")
    assert "not found" in ran.err


def test_it_can_be_interrupted(site: Website, tmp_path: Path) -> None:
    asked = threading.Event()

    async def hang(_: Asked) -> Reply:
        asked.set()
        await asyncio.Event().wait()
        return Reply()

    site.pages["/api/v2/due/PPT/7"] = hang
    where = ("--platform", "mygov_due", "--state", "FL", "--county", "nowhere")
    command = [COMMAND, "scrape", *where, "7", *_entry(tmp_path, site)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        asked.wait()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate()
    assert process.returncode == 130
    assert b"Traceback" not in err


def test_platforms_are_listed_with_their_counties(site: Website, tmp_path: Path, run: Run) -> None:
    ran = run("platforms", "--json", *_entry(tmp_path, site))
    assert ran.code == 0
    found = {one["platform"]: one["counties"] for one in ran.document}
    assert [one["site"] for one in found["mygov_due"]] == [site.url]
    assert {"echo", "vgsi", "realauction"} <= set(found)
    ran = run("platforms", "grizzly_gis")
    assert (ran.code, "columbia.floridapa.com" in ran.out, "vgsi" in ran.out) == (0, True, False)
    ran = run("platforms", "no_such")
    assert (ran.code, "no_such" in ran.err) == (1, True)


def test_a_worker_scrapes_and_asks_the_site_once(site: Website, tmp_path: Path, run: Run) -> None:
    settings = _entry(tmp_path, site)
    for number in ("a", "b"):
        added = run("add", "mygov_due", "7", "--state", "FL", "--county", "nowhere", "--id", number, *settings)
        assert added.code == 0, added.err
        ran = run("run", "--mode", "standalone", "--until-empty", *settings)
        assert ran.code == 0, ran.err
        assert "1 completed, 0 failed" in ran.out
    assert [asked.path for asked in site.asked] == ["/robots.txt", "/api/v2/due/PPT/7"]


def test_a_countys_own_field_map_is_used_by_scrape_and_by_a_worker(site: Website, tmp_path: Path, run: Run) -> None:
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
    ran = run("scrape", "--platform", "arcgis", *where, "A-7")
    assert ran.code == 0, ran.err
    assert (ran.document["parcel_id"], ran.document["owner_names"]) == ("A-7", ["DOE ANN"])
    run("add", "arcgis", "A-7", *where)
    ran = run("run", "--until-empty")
    assert "1 completed, 0 failed" in ran.out, ran.err
    (stored,) = run("results", "--json").document["results"]
    assert "DOE ANN" in run("results", "show", stored["task_id"], "--json").out


def test_a_parser_that_raises_is_told_in_a_line(tmp_path: Path, run: Run) -> None:
    (tmp_path / "somebodys.py").write_text("def scrape(id):\n    return {}[id]\n")
    (tmp_path / "parcelpost.toml").write_text('[platforms.mine]\nscrape = "somebodys:scrape"\n')
    ran = run_process("scrape", "--platform", "mine", "7")
    assert (ran.code, ran.out, ran.err) == (1, "", "error: KeyError: '7'\n")
    ran = run("scrape", "--platform", "mone", "7")
    assert (ran.code, ran.err.startswith("error: unknown platform 'mone' (did you mean mine?)")) == (1, True)


def test_whatever_ended_it_is_called_an_error_by_scrape_and_parse() -> None:
    outcomes = (Retry("timeout"), GiveUp("timeout"), NotFound("no such parcel"), Blocked("captcha"))
    said = [outcome_reason(outcome) for outcome in outcomes]
    assert said == ["error: timeout", "error: timeout", "not found: no such parcel", "blocked: captcha"]
