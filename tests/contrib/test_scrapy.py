"""A real Scrapy crawl of a real site, in a process of its own: its items are in the outbox."""

from __future__ import annotations

import gzip
import json
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
from tests.storage.making import look

SPIDER = Path(__file__).with_name("county_spider.py")
PARCELS = 30
MIDDLEWARE = 'SPIDER_MIDDLEWARES={"parcelpost.contrib.scrapy.KeepPages": 10}'
FIELDS = 'PARCELPOST_FIELDS={"parcel_id": "folio", "html": "page"}'
SELECT = "TWISTED_REACTOR=twisted.internet.selectreactor.SelectReactor"
ASYNCIO = "TWISTED_REACTOR=twisted.internet.asyncioreactor.AsyncioSelectorReactor"


def page_of(number: int) -> bytes:
    cells = f"<td>{number:03}</td><td>Ann {number}</td><td>{number}.50</td>"
    return f"<html><table><tr>{cells}</tr></table></html>".encode()


class _County(BaseHTTPRequestHandler):
    parcels = PARCELS

    def do_GET(self) -> None:
        if self.path == "/list":
            body = "".join(f'<a href="/parcel/{number}">' for number in range(self.parcels)).encode()
        else:
            body = page_of(int(self.path.rpartition("/")[2]))
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Nobody reads it."""


@pytest.fixture
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


def command(site: str, *settings: str, carries_page: bool = False) -> list[str]:
    given = (
        'ITEM_PIPELINES={"parcelpost.contrib.scrapy.ParcelpostPipeline": 300}',
        "PARCELPOST_STORE=store.db",
        "PARCELPOST_STATE=FL",
        "PARCELPOST_COUNTY=columbia",
        FIELDS,
        "TELNETCONSOLE_ENABLED=False",
        *settings,
    )
    options = [part for setting in given for part in ("-s", setting)]
    spider = ["runspider", str(SPIDER), "-a", f"site={site}", *(["-a", "carries_page=yes"] if carries_page else [])]
    return [sys.executable, "-m", "scrapy", *spider, *options]


def crawl(site: str, *settings: str, carries_page: bool = False) -> subprocess.CompletedProcess[str]:
    ran = subprocess.run(
        command(site, *settings, carries_page=carries_page), capture_output=True, text=True, timeout=120, check=False
    )
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


async def test_an_item_may_carry_its_page_which_is_no_part_of_the_record(folder: Path, site: str) -> None:
    """As text, as bytes or as the response, by turns."""
    assert crawl(site, carries_page=True).returncode == 0
    found = await entries(folder / "store.db")
    assert len(found) == PARCELS
    for entry in found:
        assert "page" not in json.loads(entry.data or b"")
        body = gzip.decompress((folder / "data" / (entry.html_path or "")).read_bytes())
        assert body == page_of(int(entry.parcel_id))


async def test_the_same_content_again_changes_nothing_and_other_content_is_another_result(
    folder: Path, site: str
) -> None:
    crawl(site)
    before = await entries(folder / "store.db")
    again = crawl(site)
    assert f"'parcelpost/items_known': {PARCELS}" in again.stderr
    assert await entries(folder / "store.db") == before
    crawl(site, "PARCELPOST_COUNTY=union")
    assert len(await entries(folder / "store.db")) == 2 * PARCELS


async def test_what_was_confirmed_survives_kill_9(folder: Path, site: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_County, "parcels", 150)
    confirmed: set[str] = set()
    with subprocess.Popen(command(site, MIDDLEWARE), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        for line in process.stdout:
            confirmed.add(line.decode().strip())
            if len(confirmed) == 40:
                process.kill()
    assert 40 <= len(confirmed) < 150
    found = await entries(folder / "store.db")
    assert confirmed <= {entry.parcel_id for entry in found}
    for entry in found:
        assert gzip.decompress((folder / "data" / (entry.html_path or "")).read_bytes()) == page_of(
            int(entry.parcel_id)
        )
    assert crawl(site, MIDDLEWARE).returncode == 0
    assert len(await entries(folder / "store.db")) == 150


def test_a_store_that_cannot_be_opened_ends_the_crawl_before_it_begins(folder: Path, site: str) -> None:
    (folder / "store.db").write_text("something else, and longer than a header of SQLite is, by far")
    ran = crawl(site)
    assert ran.returncode == 1
    assert "NotAStore" in ran.stderr
    assert ran.stdout == ""


def test_a_store_that_fails_closes_the_crawl_and_every_lost_item_is_named(
    folder: Path, site: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PARCELPOST_STORAGE_MAX_BYTES", "1KiB")
    ran = crawl(site, SELECT, "PARCELPOST_PATIENCE_SECONDS=0")
    assert ran.stdout == ""
    assert "The store store.db has failed: the crawl ends here" in ran.stderr
    assert "'finish_reason': 'parcelpost_store_failed'" in ran.stderr
    lost = ran.stderr.count("StoreFull: store.db has reached its cap")
    assert lost >= 1
    assert f"'parcelpost/items_not_stored': {lost}" in ran.stderr


def test_an_item_that_cannot_be_stored_is_an_error_and_the_others_go_on(folder: Path, site: str) -> None:
    ran = crawl(site, "PARCELPOST_FIELDS={}")
    assert ran.returncode == 0
    assert f"'parcelpost/items_refused': {PARCELS}" in ran.stderr
    assert "the item has no parcel_id" in ran.stderr


def test_a_field_that_is_none_of_ours_is_refused_at_the_start(folder: Path, site: str) -> None:
    ran = crawl(site, 'PARCELPOST_FIELDS={"parcel": "folio"}')
    assert (ran.returncode, ran.stdout) == (1, "")
    assert "PARCELPOST_FIELDS names parcel" in ran.stderr
