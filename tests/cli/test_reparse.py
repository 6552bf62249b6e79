"""`parcelpost reparse`: stored pages, read again by this version's parsers."""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from parcelpost.model import Json, Page, Result
from parcelpost.storage import LocalPersistenceManager
from tests.cli.support import Ran, Run
from tests.storage.factories import NOW, a_task, look

REGISTER = b"Schedule Number,Certificate Number,Tax Year,Principal\n1-1,C1,2024,10.50\n1-1,C2,2025,11\n2-2,C3,2025,7\n"
RECORDS = "SELECT parcel_id, data FROM results WHERE platform = 'lien_register' ORDER BY parcel_id"


def fill(store: Path, data: dict[str, Json], body: bytes, platform: str = "lien_register") -> None:
    """A list that an older parser has read."""

    async def write() -> None:
        async with LocalPersistenceManager.open(store) as lpm:
            await lpm.add_task(a_task("list", platform=platform, parcel_id=""))
            (claim,) = await lpm.claim(platforms=[platform])
            page = Page(body=body, content_type="text/csv")
            await lpm.save_result(claim, Result(data=data, page=page, scraped_at=NOW, parcel_id="1-1"))

    asyncio.run(write())


def test_a_page_without_a_record_is_listed_and_its_record_kept(store: Path, run: Run) -> None:
    fill(store, {"owner": "Ann"}, b"no,register\n1,2\n")
    before = look(store, RECORDS)
    ran = run("reparse", "--platform", "lien_register", "--store", store)
    assert ran.code == 0
    assert "1 page yielded no record" in ran.out
    assert "it has no parcel and certificate columns" in ran.out
    assert look(store, RECORDS) == before


def test_records_are_brought_up_to_date_once(store: Path, run: Run) -> None:
    fill(store, {"owner": "Ann"}, REGISTER)
    wished = run("reparse", "--dry-run", "--json", "--store", store).document
    assert (wished["changed"], wished["added"]) == (1, 1)
    assert len(look(store, RECORDS)) == 1
    ran = run("reparse", "--since", "2020-01-01", "--store", store)
    assert (ran.code, ran.out) == (0, "1 page parsed: 1 record changed, 1 added, 0 unchanged.\n")
    (first, data), (second, _) = look(store, RECORDS)
    assert (first, second) == ("1-1", "2-2")
    assert '"certificate_number":"C2"' in data
    again = run("reparse", "--since", "2020-01-01", "--json", "--store", store).document
    assert (again["changed"], again["added"], again["unchanged"]) == (0, 0, 2)


def test_filters_that_fit_nothing_read_nothing(store: Path, run: Run) -> None:
    fill(store, {"owner": "Ann"}, REGISTER)
    assert run("reparse", "--county", "elsewhere", "--json", "--store", store).document["pages"] == 0
    assert run("reparse", "--since", "2999-01-01", "--json", "--store", store).document["pages"] == 0
    assert run("reparse", "--since", "yesterday", "--store", store).code == 2


PARSER = """
def scrape_parcel(id):
    return f"<b>{id}</b>"

def parse_html(html):
    return {"owner": html[3:-4]}

class Later:
    async def scrape(self, id, fetcher=None):
        return scrape_parcel(id).encode()
    async def parse(self, found):
        return {"owner": found.decode()[3:-4]}

def record(task):
    from parcelpost.model import Done, Page
    return Done(data={"owner": "Ann"}, page=Page(body=b"<b>Ann</b>"))
"""
SETTINGS = """
[platforms.function]
scrape = "old_one:scrape_parcel"
parse = "old_one:parse_html"
[platforms.class]
class = "old_one:Later"
[platforms.record]
scrape = "old_one:record"
"""


@pytest.fixture
def run_anew(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Runs a command line as a new process would: with parsers as their files are now."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])

    def forget() -> None:
        sys.modules.pop("old_one", None)
        importlib.invalidate_caches()

    def run_anew(*arguments: object) -> Ran:
        forget()
        return run(*arguments)

    yield run_anew
    forget()


def test_parsers_of_the_settings_read_again_and_the_others_are_named(tmp_path: Path, run_anew: Run) -> None:
    (tmp_path / "old_one.py").write_text(PARSER)
    (tmp_path / "parcelpost.toml").write_text(SETTINGS)
    (tmp_path / "t.csv").write_text(
        "platform,parcel_id,state,county\n"
        + "".join(f"{one},Ann,FL,x\n" for one in ("function", "class", "record", "echo"))
    )
    assert run_anew("import", "t.csv").code == 0
    ran = run_anew("run", "--mode", "standalone", "--until-empty")
    assert "4 completed, 0 failed" in ran.out, ran.err
    first = run_anew("reparse", "--json").document
    assert (first["pages"], first["unchanged"], first["skipped"]) == (2, 2, 2)
    (tmp_path / "old_one.py").write_text(PARSER.replace("[3:-4]}", "[3:-4].upper()}"))
    ran = run_anew("reparse")
    assert ran.code == 0, ran.err
    read, *not_read = ran.out.splitlines()
    assert read == "2 pages parsed: 2 records changed, 0 added, 0 unchanged."
    assert sorted(not_read) == [
        "1 page of echo not parsed: it has no parse function.",
        "1 page of record not parsed: it has no parse function.",
    ]
    store = tmp_path / "local_data" / "parcelpost.db"
    owners = "SELECT data ->> 'owner' FROM results WHERE platform IN ('function', 'class')"
    assert look(store, owners) == [("ANN",), ("ANN",)]
    (tmp_path / "old_one.py").write_text("raise ImportError('it moved')")
    ran = run_anew("reparse", "--platform", "class")
    assert "1 page of class not parsed: it cannot be imported: ImportError: it moved." in ran.out


def test_a_page_that_a_parser_fails_on_keeps_its_record(tmp_path: Path, run_anew: Run) -> None:
    (tmp_path / "old_one.py").write_text(PARSER)
    (tmp_path / "parcelpost.toml").write_text(SETTINGS)
    (tmp_path / "t.csv").write_text("parcel_id,state,county\nAnn,FL,x\nBo,FL,x\n")
    run_anew("import", "t.csv", "--platform", "function")
    run_anew("run", "--mode", "standalone", "--until-empty")
    worse = PARSER.replace('return {"owner": html[3:-4]}', 'return {"owner": {"Bo": "BO"}[html[3:-4]]}')
    (tmp_path / "old_one.py").write_text(worse)
    counts = run_anew("reparse", "--json").document
    assert (counts["pages"], counts["changed"], counts["unreadable"]) == (2, 1, 1)
    assert [reason for _, reason in counts["problems"]] == ["KeyError: 'Ann'"]
    store = tmp_path / "local_data" / "parcelpost.db"
    assert look(store, "SELECT data ->> 'owner' FROM results ORDER BY 1") == [("Ann",), ("BO",)]


ROWS = b'{"features": [{"attributes": {"PIN": "1-1", "OWNER": "ANN"}}]}'
FIELD_MAP = '[field_maps.mine]\nhas = ["PIN", "OWNER"]\n[field_maps.mine.fields]\nparcel_id = { text = ["PIN"] }\n'


def test_a_field_map_that_was_changed_changes_the_records(
    store: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    fill(store, {"parcel_id": "1-1"}, ROWS, platform="arcgis")
    ran = run("reparse", "--store", store)
    assert "no field map matches these columns" in ran.out
    (tmp_path / "parcelpost.toml").write_text(FIELD_MAP)
    assert run("reparse", "--json", "--store", store).document["changed"] == 1
    assert run("reparse", "--json", "--store", store).document["unchanged"] == 1
    (tmp_path / "other.toml").write_text(f'{FIELD_MAP}owner_names = {{ texts = ["OWNER"] }}\n')
    assert run("reparse", "--json", "--store", store, "--config", "other.toml").document["changed"] == 1
    assert look(store, "SELECT data ->> 'owner_names' FROM results") == [('["ANN"]',)]
