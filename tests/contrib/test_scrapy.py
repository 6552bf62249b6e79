"""A real Scrapy crawl of a real site, in a process of its own: its items are in the outbox."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from parcelpost.model import OutboxEntry, TaskStatus
from parcelpost.storage import LocalPersistenceManager
from tests.storage.factories import look

pytestmark = pytest.mark.xdist_group("scrapy")
ROOT = Path(__file__).parents[2]
SPIDER = Path(__file__).with_name("county_spider.py")
PARCELS = 30
MIDDLEWARE = 'SPIDER_MIDDLEWARES={"parcelpost.contrib.scrapy.KeepPages": 10}'
SETTINGS: dict[str, Any] = {
    "ITEM_PIPELINES": {"parcelpost.contrib.scrapy.ParcelpostPipeline": 300},
    "PARCELPOST_STORE": "store.db",
    "PARCELPOST_STATE": "FL",
    "PARCELPOST_COUNTY": "columbia",
    "PARCELPOST_FIELDS": {"parcel_id": "folio", "html": "page"},
    "TELNETCONSOLE_ENABLED": False,
}
SELECT = "TWISTED_REACTOR=twisted.internet.selectreactor.SelectReactor"
ASYNCIO = "TWISTED_REACTOR=twisted.internet.asyncioreactor.AsyncioSelectorReactor"


def page_of(number: int) -> bytes:
    cells = f"<td>{number:03}</td><td>Ann {number}</td><td>{number}.50</td>"
    return f"<html><table><tr>{cells}</tr></table></html>".encode()


_turn = threading.Lock()


class _County(BaseHTTPRequestHandler):
    left = 1_000
    """How many pages of parcels it shows. Who asks for more waits until `released`, for nothing."""
    released = threading.Event()

    def do_GET(self) -> None:
        if self.path == "/list":
            body = "".join(f'<a href="/parcel/{number}">' for number in range(PARCELS)).encode()
        elif not self._may():
            self.released.wait(240)
            return
        else:
            body = page_of(int(self.path.rpartition("/")[2]))
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _may(self) -> bool:
        with _turn:
            _County.left -= 1
            return _County.left >= 0

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Nobody reads it."""


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _County) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        serving.join()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def command(site: str, *settings: str) -> list[str]:
    given = [f"{name}={value if isinstance(value, str) else json.dumps(value)}" for name, value in SETTINGS.items()]
    options = [part for setting in (*given, *settings) for part in ("-s", setting)]
    return [sys.executable, "-m", "scrapy", "runspider", str(SPIDER), "-a", f"site={site}", *options]


def crawl(site: str, *settings: str) -> subprocess.CompletedProcess[str]:
    ran = subprocess.run(command(site, *settings), capture_output=True, text=True, timeout=120, check=False)
    assert "ScrapyDeprecationWarning" not in ran.stderr
    return ran


async def entries(store: Path) -> list[OutboxEntry]:
    async with LocalPersistenceManager.open(store, create=False) as lpm:
        return await lpm.get_unsynced_results(limit=1_000)


@pytest.mark.parametrize(
    "reactor",
    [ASYNCIO, *(pytest.param(one, marks=pytest.mark.long) for one in (SELECT, "TWISTED_REACTOR_ENABLED=False"))],
)
async def test_every_item_is_in_the_outbox_with_its_page(folder: Path, site: str, reactor: str) -> None:
    ran = crawl(site, reactor, MIDDLEWARE, "LOG_LEVEL=DEBUG")
    assert ran.returncode == 0, ran.stderr
    assert "DEBUG" in ran.stderr
    assert "[aiosqlite]" not in ran.stderr, "the store's driver says nothing"
    found = await entries(folder / "store.db")
    assert sorted(entry.parcel_id for entry in found) == [f"{number:03}" for number in range(PARCELS)]
    for entry in found:
        number = int(entry.parcel_id)
        assert (entry.platform, entry.state, entry.county) == ("county", "FL", "columbia")
        assert json.loads(entry.data or b"") == {
            "parcel_id": f"{number:03}",
            "state": "FL",
            "county": "columbia",
            "platform": "county",
            "folio": f"{number:03}",
            "owner": f"Ann {number}",
            "tax_due": f"{number}.50",
        }
        assert gzip.decompress((folder / "data" / (entry.html_path or "")).read_bytes()) == page_of(number)
    assert f"'parcelpost/items_stored': {PARCELS}" in ran.stderr
    assert look(folder / "store.db", "SELECT count(*) FROM tasks WHERE status != ?", TaskStatus.COMPLETED) == [(0,)]
    assert list((folder / "store.db-live").glob("scrapy*")) == []  # it left, and did not die


class Crawls:
    """Several crawls of one process, each with a store of its own unless it names that of another."""

    def __init__(self, site: str, folder: Path, asked: dict[str, dict[str, Any]]) -> None:
        self.folder = folder
        given = [
            {**SETTINGS, "PARCELPOST_STORE": str(folder / name / "store.db"), **settings}
            for name, settings in asked.items()
        ]
        for name in asked:
            (folder / name).mkdir()
        command = [sys.executable, "-m", "tests.contrib.crawls", site, json.dumps(given)]
        ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=True)
        assert "ScrapyDeprecationWarning" not in ran.stderr
        self.said = dict(zip(asked, re.split(r"^--- .*\n", ran.stdout, flags=re.MULTILINE)[1:], strict=True))
        self.log = dict(zip(asked, re.split(r"^--- .*\n", ran.stderr, flags=re.MULTILINE)[1:], strict=True))


@pytest.fixture(scope="module")
def crawls(site: str, tmp_path_factory: pytest.TempPathFactory) -> Crawls:
    folder = tmp_path_factory.mktemp("crawls")
    same = {"PARCELPOST_STORE": str(folder / "first" / "store.db")}
    other = folder / "other.db"
    other.write_text("something else, and longer than a header of SQLite is, by far")
    asked: dict[str, dict[str, Any]] = {
        "first": {},
        "again": same,
        "other content": {**same, "PARCELPOST_COUNTY": "union"},
        "carries its page": {"CARRIES_PAGE": "yes"},
        "no number": {"PARCELPOST_FIELDS": {}},
        "no such field": {"PARCELPOST_FIELDS": {"parcel": "folio"}},
        "no store": {"PARCELPOST_STORE": str(other)},
    }
    return Crawls(site, folder, asked)


async def test_an_item_may_carry_its_page_which_is_no_part_of_the_record(crawls: Crawls) -> None:
    """As text, as bytes or as the response, by turns."""
    folder = crawls.folder / "carries its page"
    found = await entries(folder / "store.db")
    assert len(found) == PARCELS
    for entry in found:
        assert "page" not in json.loads(entry.data or b"")
        body = gzip.decompress((folder / "data" / (entry.html_path or "")).read_bytes())
        assert body == page_of(int(entry.parcel_id))


async def test_the_same_content_again_changes_nothing_and_other_content_is_another_result(crawls: Crawls) -> None:
    assert f"'parcelpost/items_stored': {PARCELS}" in crawls.log["first"]
    assert f"'parcelpost/items_known': {PARCELS}" in crawls.log["again"]
    assert "'parcelpost/items_stored'" not in crawls.log["again"]
    assert f"'parcelpost/items_stored': {PARCELS}" in crawls.log["other content"]
    found = await entries(crawls.folder / "first" / "store.db")
    assert [entry.county for entry in found] == ["columbia"] * PARCELS + ["union"] * PARCELS


def test_an_item_that_cannot_be_stored_is_an_error_and_the_others_go_on(crawls: Crawls) -> None:
    assert crawls.said["no number"] == ""
    assert f"'parcelpost/items_refused': {PARCELS}" in crawls.log["no number"]
    assert "the item has no parcel_id" in crawls.log["no number"]


def test_a_field_that_is_none_of_ours_is_refused_at_the_start(crawls: Crawls) -> None:
    assert crawls.said["no such field"] == "did not begin\n"
    assert "PARCELPOST_FIELDS has unknown keys: parcel" in crawls.log["no such field"]


async def test_what_was_confirmed_survives_kill_9(folder: Path, site: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The site answers for some of the parcels only, until the crawl is killed."""
    monkeypatch.setattr(_County, "left", PARCELS - 10)
    confirmed: set[str] = set()
    with subprocess.Popen(command(site, MIDDLEWARE), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        for line in process.stdout:
            confirmed.add(line.decode().strip())
            if len(confirmed) == 10:
                process.kill()
    assert 10 <= len(confirmed) < PARCELS
    found = await entries(folder / "store.db")
    assert confirmed <= {entry.parcel_id for entry in found}
    for entry in found:
        assert gzip.decompress((folder / "data" / (entry.html_path or "")).read_bytes()) == page_of(
            int(entry.parcel_id)
        )
    _County.released.set()
    monkeypatch.setattr(_County, "left", 1_000)
    assert crawl(site, MIDDLEWARE).returncode == 0
    assert len(await entries(folder / "store.db")) == PARCELS


def test_a_store_that_cannot_be_opened_ends_the_crawl_before_it_begins(crawls: Crawls) -> None:
    assert crawls.said["no store"] == "did not begin\n"
    assert "NotAStore" in crawls.log["no store"]


def test_a_store_that_fails_closes_the_crawl_and_every_lost_item_is_named(
    folder: Path, site: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PARCELPOST_STORAGE_MAX_BYTES", "1KiB")
    ran = crawl(site, SELECT, "PARCELPOST_PATIENCE_SECONDS=0")
    assert ran.stdout == ""
    assert "The store store.db has failed: stopping the crawl" in ran.stderr
    assert "'finish_reason': 'parcelpost_store_failed'" in ran.stderr
    lost = ran.stderr.count("StoreFull: store.db has reached its size limit")
    assert lost >= 1
    assert f"'parcelpost/items_not_stored': {lost}" in ran.stderr
