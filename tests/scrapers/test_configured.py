"""Platforms that the settings name: three lines, nothing imported before its first task."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from parcelpost.model import Done, NotFound
from parcelpost.scrapers.factory import ScraperFactory
from tests.scrapers.test_plugins import IDENTITY
from tests.storage.factories import a_task

MODULE = """
def scrape(target):
    return {"owner": target["county"]}

def scrape_parcel(id):
    return f"<html>{id}</html>"

def parse_html(html):
    return {"owner": html[6:9]}

class Old:
    def lookup(self, id):
        return scrape_parcel(id)
    def read(self, html):
        return parse_html(html)
    class Inner:
        def fetch(self):
            return "<html>1-2</html>"
        def parse(self, html):
            return None
"""


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Somebody's module, in the folder where the command runs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "lying_here.py").write_text(MODULE)
    (tmp_path / "lying_exits.py").write_text("raise SystemExit('no licence')")
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("lying_")]:
        del sys.modules[name]


def call(place: dict[str, str]) -> object:
    factory = ScraperFactory(installed=list)
    factory.configure("mine", **place)
    assert "lying_here" not in sys.modules
    assert factory.names() == ["echo", "mine"]
    scrape = factory.scraper("mine")
    assert scrape is not None
    return scrape(a_task())


OWNER = {**IDENTITY, "owner": "1-2"}


@pytest.mark.parametrize(
    "place",
    [
        {"scrape": "lying_here:scrape_parcel", "parse": "lying_here:parse_html"},
        {"class_": "lying_here:Old", "scrape": "lookup", "parse": "read"},
    ],
)
def test_a_page_is_fetched_and_read(place: dict[str, str]) -> None:
    outcome = call(place)
    assert isinstance(outcome, Done)
    assert (outcome.data, outcome.page and outcome.page.body) == (OWNER, b"<html>1-2</html>")


def test_a_function_that_answers_the_record_needs_one_line() -> None:
    assert call({"scrape": "lying_here:scrape"}) == Done(data={**IDENTITY, "owner": "hartford"})


def test_a_name_may_lie_deeper() -> None:
    assert call({"class_": "lying_here:Old.Inner"}) == NotFound("it returned nothing")


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ({"scrape": "lying_missing:f"}, "ModuleNotFoundError: No module named 'lying_missing'"),
        ({"scrape": "lying_exits:f"}, "SystemExit: no licence"),
        (
            {"scrape": "lying_here:scrape", "parse": "lying_here:no"},
            "AttributeError: module 'lying_here' has no attribute 'no'",
        ),
    ],
)
def test_one_that_cannot_be_imported_costs_its_task_and_says_why(place: dict[str, str], reason: str) -> None:
    factory = ScraperFactory(installed=list)
    factory.configure("mine", **place)
    scrape = factory.scraper("mine")
    assert scrape is not None
    with pytest.raises(BaseException, match=r"^"):
        scrape(a_task())
    assert factory.unavailable() == {"mine": reason}
    assert factory.names() == ["echo"]


def test_a_configured_one_goes_before_ours_and_a_registered_one_before_it() -> None:
    factory = ScraperFactory(installed=list)
    factory.configure("echo", scrape="lying_here:scrape")
    scrape = factory.scraper("echo")
    assert scrape is not None
    assert isinstance(scrape(a_task()), Done)
    factory.register("echo", lambda _: NotFound("by hand"))
    scrape = factory.scraper("echo")
    assert scrape is not None
    assert scrape(a_task()) == NotFound("by hand")
