"""Every example of docs/new-platform.md is run."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Awaitable
from pathlib import Path

import pytest
from scrapy.utils.misc import load_object

from parcelpost.model import Done
from parcelpost.scrapers.platform import scrape_of
from parcelpost.storage import LocalPersistenceManager
from tests.cli.support import run_process
from tests.storage.making import a_task

PAGE = (Path(__file__).parents[1] / "docs" / "new-platform.md").read_text(encoding="utf-8")
PARSER, MARK, PLATFORM, TWO_FUNCTIONS, SCRAPY = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
(SETTINGS,) = re.findall(r"```toml\n(.*?)```", PAGE, flags=re.DOTALL)
(ENTRY_POINT,) = re.findall(r"```ini\n(.*?)```", PAGE, flags=re.DOTALL)


async def test_three_platforms_of_an_old_parser_by_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old_parser.py").write_text(PARSER)
    (tmp_path / "parcelpost.toml").write_text(SETTINGS)
    for platform in tomllib.loads(SETTINGS)["platforms"]:
        assert run_process("add", platform, "11-2S", "--state", "FL", "--county", "columbia").code == 0
    ran = run_process("run", "--mode", "standalone", "--until-empty")
    assert ran.code == 0, ran.err
    async with LocalPersistenceManager.open("local_data/parcelpost.db", create=False) as lpm:
        results = {entry.platform: entry for entry in await lpm.get_unsynced_results()}
    assert {name: entry.success for name, entry in results.items()} == dict.fromkeys(
        ("records", "pages", "lookup"), True
    )
    place = {"parcel_id": "11-2S", "state": "FL"}
    records = {**place, "county": "Columbia", "platform": "records", "owner": "Ann", "tax_due": 120.5}
    assert json.loads(results["records"].data or b"") == records
    pages = {**place, "county": "columbia", "platform": "pages", "owner": "11-2S"}
    assert json.loads(results["pages"].data or b"") == pages
    assert results["pages"].html_path
    assert results["lookup"].data is None


@pytest.mark.parametrize("example", [MARK, TWO_FUNCTIONS])
def test_an_example_runs(tmp_path: Path, example: str) -> None:
    done = subprocess.run([sys.executable, "-c", example], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


async def test_the_platform_of_a_package_is_one() -> None:
    names: dict[str, type] = {}
    exec(PLATFORM, names)
    found = scrape_of(names["MyCounty"])(a_task())
    assert isinstance(found, Awaitable)
    assert await found == Done(data={"parcel_id": "1-2"})


def test_the_entry_point_is_of_our_group() -> None:
    assert "parcelpost.platforms" in tomllib.loads(ENTRY_POINT)["project"]["entry-points"]


def test_the_components_of_the_scrapy_settings_are_there() -> None:
    names: dict[str, dict[str, int]] = {}
    exec(SCRAPY, names)
    for place in (*names["ITEM_PIPELINES"], *names["SPIDER_MIDDLEWARES"]):
        assert load_object(place)
