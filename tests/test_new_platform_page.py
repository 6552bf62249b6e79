"""Every example of docs/new-platform.md is run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from scrapy.utils.misc import load_object

from parcelpost.clock import ManualClock
from parcelpost.model import Done, Outcome, Page, Retry, Target
from parcelpost.scrapers.county_scraper import CountySites
from parcelpost.scrapers.factory import GROUP, ScraperFactory, load_platform
from parcelpost.storage import LocalPersistenceManager
from parcelpost.worker.sandbox import Sandbox
from tests.acceptance.forked import run_forked
from tests.acceptance.processes import PATIENCE_SECONDS
from tests.cli.support import Ran
from tests.scrapers.fetching import fetching
from tests.storage.factories import a_task
from tests.website import Website, website

PAGE = (Path(__file__).parents[1] / "docs" / "new-platform.md").read_text(encoding="utf-8")
PARSER, POLITE, PLATFORM, BROWSER, SCRAPY = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
FIELD_MAP, SETTINGS = re.findall(r"```toml\n(.*?)```", PAGE, flags=re.DOTALL)
(ENTRY_POINT,) = re.findall(r"```ini\n(.*?)```", PAGE, flags=re.DOTALL)
ROW = {
    "PARCELNO": "7-1", "OWNERNME1": "DOE ANN", "OWNERNME2": None, "PSTLADRESS": "1 MAIN ST",
    "PSTLCITY": "RIVERTON, WI 54000", "SITENUM": 2, "SITEADRESS": "ELM ST", "CNTASSDVAL": 120500, "ASSDACRES": 0,
    "GISACRES": 1.25, "SALEDATE": 1577836800000,
}  # fmt: skip


@pytest.fixture
async def site() -> AsyncIterator[Website]:
    async with website() as one:
        yield one


def test_rows_are_read_by_the_field_map(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "page.json").write_text(json.dumps({"features": [{"attributes": ROW}]}))
    parse = ("parse", "page.json", "--platform", "arcgis", "--state", "WI", "--county", "rivers")
    assert forked(*parse).document["field_map"] == "proposed"
    (tmp_path / "parcelpost.toml").write_text(FIELD_MAP)
    in_settings = forked(*parse)
    assert in_settings.code == 0, in_settings.err
    record = in_settings.document
    assert (record["parcel_id"], record["owner_names"], record["assessed_value"]) == ("7-1", ["DOE ANN"], 120500)
    assert (record["mailing_city"], record["mailing_state"], record["situs_address"]) == ("RIVERTON", "WI", "2 ELM ST")
    assert (record["land_area_acres"], record["last_sale_date"]) == (1.25, "2020-01-01")
    (tmp_path / "parcelpost.toml").unlink()
    (tmp_path / "maps").mkdir()
    alone = FIELD_MAP.replace("[field_maps.rivers]\n", "").replace("field_maps.rivers.", "")
    (tmp_path / "maps" / "rivers.toml").write_text(alone)
    assert forked(*parse, "--set", "fetch.field_maps_folder=maps").document == record


async def test_settings_make_platforms_of_functions_and_classes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_parser.py").write_text(PARSER)
    (tmp_path / "parcelpost.toml").write_text(SETTINGS)
    for platform in tomllib.loads(SETTINGS)["platforms"]:
        assert forked("add", platform, "11-2S", "--state", "FL", "--county", "columbia").code == 0
    ran = forked("run", "--mode", "standalone", "--until-empty")
    assert ran.code == 0, ran.err
    async with LocalPersistenceManager.open("local_data/parcelpost.db", create=False) as lpm:
        results = {entry.platform: entry for entry in await lpm.get_unsynced_results()}
    assert {name: entry.success for name, entry in results.items()} == {"records": True, "pages": True}
    place = {"parcel_id": "11-2S", "state": "FL"}
    records = {**place, "county": "Columbia", "platform": "records", "owner": "Ann", "tax_due": 120.5}
    assert json.loads(results["records"].data or b"") == records
    pages = {**place, "county": "columbia", "platform": "pages", "owner": "11-2S"}
    assert json.loads(results["pages"].data or b"") == pages
    assert results["pages"].html_path
    (tmp_path / "my_parser.py").write_text(PARSER.replace('split("</b>")[0]', 'split("</b>")[0].lower()'))
    again = forked("reparse", "--json").document
    assert (again["changed"], again["skipped"]) == (1, 0)
    raw = tmp_path / "local_data" / "data" / results["pages"].html_path
    where = ("--state", "FL", "--county", "columbia", "--parcel", "11-2S")
    parsed = forked("parse", raw, "--platform", "pages", *where)
    assert parsed.document == {**pages, "owner": "11-2s"}


async def test_functions_and_classes_with_a_fetch_parameter_download_pages(site: Website) -> None:
    names: dict[str, object] = {}
    exec(POLITE.replace("http://127.0.0.1:8000", site.url), names)
    site.page("/parcels/1-2", b" Ann ")
    site.page("/search", b"Bo")
    for plugin, owner in (("scrape", "Ann"), ("MyCounty", "Bo")):
        outcome = await scraped(names[plugin])
        assert isinstance(outcome, Done), outcome
        assert outcome.data["owner"] == owner  # type: ignore[index]
        assert outcome.scraped_at is not None
        assert (outcome.page is not None) == (plugin == "MyCounty")
    assert [asked.path for asked in site.asked] == ["/parcels/1-2", "/search"]
    parse = load_platform("theirs", names["MyCounty"]).parse
    assert callable(parse)
    again = parse(Page(body=b"Cy"), Target(parcel_id="9", state="FL", county="x"))
    assert isinstance(again, Done)
    assert again.data == {"parcel_id": "9", "owner": "Cy"}


def test_the_county_platform_reads_its_page() -> None:
    html = b"""<html><table><tr><td>Owner:</td><td>Ann</td></tr></table>
    <table><tr><th>Price</th><th>Date</th></tr><tr><td>$5</td><td>1/2/2020</td></tr></table></html>"""
    page = parsed(PLATFORM, Page(body=html), "7")
    assert (page.data["owner_names"], page.data["sales"][0]["date"]) == (["Ann"], "2020-01-02")
    assert ("sales.price", True) in page.selectors
    names: dict[str, Any] = {}
    exec(PLATFORM, names)
    waiting = Page(body=b"<html>Please wait</html>")
    assert isinstance(names["PLATFORM"].parse(waiting, Target(parcel_id="7", state="FL", county="x")).outcome, Retry)


class Parsed(NamedTuple):
    data: dict[str, Any]
    selectors: list[tuple[str, bool]]


def parsed(example: str, page: Page, parcel_id: str) -> Parsed:
    names: dict[str, Any] = {}
    exec(example, names)
    read_page = names["PLATFORM"].parse(page, Target(parcel_id=parcel_id, state="FL", county="columbia"))
    assert isinstance(read_page.outcome, Done), read_page.outcome
    assert isinstance(read_page.outcome.data, dict)
    return Parsed(read_page.outcome.data, [(result.field, result.success) for result in read_page.selector_results])


def test_a_registered_function_is_a_platform() -> None:
    factory = ScraperFactory()
    factory.register("mycounty", lambda parcel_id: {"owner": parcel_id})
    assert "mycounty" in factory.names()


def test_the_functions_that_render_pages_can_be_imported() -> None:
    names: dict[str, object] = {}
    exec(BROWSER, names)
    assert callable(names["fetch"])


def test_a_package_that_is_installed_is_found_listed_and_used(tmp_path: Path) -> None:
    """A folder on the path with the metadata that an installer writes."""
    place = tomllib.loads(ENTRY_POINT)["project"]["entry-points"][GROUP]["mycounty"]
    package, module = tmp_path / "site" / "my_package", place.partition(":")[0].partition(".")[2]
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / f"{module}.py").write_text(PARSER.replace("class Pages", "class MyCounty"))
    metadata = tmp_path / "site" / "my_package-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[{GROUP}]\nmycounty = {place}\n")
    environment = {"PYTHONPATH": str(tmp_path / "site"), "PARCELPOST_STORE": str(tmp_path / "parcelpost.db")}
    listed, added, ran, scraped, again = in_one_process(
        environment,
        ["platforms", "mycounty", "--json"],
        ["add", "mycounty", "7", "--state", "FL", "--county", "x"],
        ["run", "--mode", "standalone", "--until-empty"],
        ["scrape", "--platform", "mycounty", "8"],
        ["reparse", "--json"],
    )
    assert [(one["origin"], one["counties"]) for one in listed.document] == [("my-package", [])]
    assert added.code == 0, added.err
    assert "1 completed, 0 failed" in ran.out, ran.err
    assert scraped.document["owner"] == "8", scraped.err
    counts = again.document
    assert (counts["pages"], counts["unchanged"], counts["skipped"]) == (1, 1, 0)


IN_TURN = """
import contextlib, io, json, sys
from parcelpost.cli.main import main

ran = []
for words in json.loads(sys.argv[1]):
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(words)
        except SystemExit as end:
            out, err = (stream.buffer.getvalue().decode() for stream in (out, err))
            ran.append({"code": end.code, "out": out, "err": err})
print(json.dumps(ran))
"""


def in_one_process(environment: dict[str, str], *commands: list[str]) -> list[Ran]:
    """One after the other."""
    done = subprocess.run(
        [sys.executable, "-c", IN_TURN, json.dumps(commands)],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [Ran(**ran) for ran in json.loads(done.stdout)]


def forked(*arguments: object) -> Ran:
    """In the folder where the test is."""
    ran = run_forked(*map(str, arguments), folder=Path.cwd(), timeout=PATIENCE_SECONDS)
    return Ran(ran.returncode, ran.stdout, ran.stderr)


def test_the_components_of_the_scrapy_settings_are_there() -> None:
    names: dict[str, dict[str, int]] = {}
    exec(SCRAPY, names)
    for place in (*names["ITEM_PIPELINES"], *names["SPIDER_MIDDLEWARES"]):
        assert load_object(place)


async def scraped(plugin: object, url: str = "") -> Outcome:
    """As a worker does it: in a sandbox, with a session."""
    stage = Sandbox("test")
    async with fetching(ManualClock()) as one:
        factory = ScraperFactory(sites=CountySites(sessions=one.fetcher.session), installed=list)
        factory.register("mine", plugin)
        scrape = factory.scraper("mine")
        assert scrape is not None
        outcome = await stage.run(scrape, a_task(platform="mine", url=url), 60)
        await stage.close()
        assert outcome is not None
        return outcome
