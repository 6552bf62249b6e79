"""One label or sign, thousands of times: a page is read in a time that grows as its length does."""

from __future__ import annotations

import time
from functools import cache

import pytest

from parcelpost.model import Page, Target
from parcelpost.scrapers.platforms import NAMES, county_platform
from parcelpost.simulator.sites import SITES
from tests.lengths import short_and_long
from tests.scrapers.mutations import crowded, filled, labels_of
from tests.scrapers.test_bad_pages import pages

SIZE = 100_000
TIMES_A_PLAIN_PAGE, SLACK_SECONDS = 20, 0.5
"""Generous: what grows with the square of the length takes seconds."""
TARGET = Target(parcel_id="1", state="FL", county="bad")
SHAPES = [b"<td>%s</td>", b"<table><tr><td>%s</td></tr></table>", b"<label for=zz>%s</label><p></p>"]
WITH_PAGES = sorted({*NAMES} & {*SITES})


@short_and_long("labels", (1,), (None,))
def test_a_label_may_be_repeated(subtests: pytest.Subtests, labels: int | None) -> None:
    for name in WITH_PAGES:
        for shape in SHAPES:
            with subtests.test(name=name, shape=shape):
                good = [body for platform, body in pages() if platform == name]
                for label in labels_of(good)[:labels]:
                    filling = filled(shape % label, SIZE)
                    if shape.startswith(b"<td"):
                        filling = b"<table>" + filling + b"</table>"
                    for body in (b"<html><body>" + filling + b"</body></html>", crowded(good[0], filling)):
                        _check(name, body)


@short_and_long("labels", (1,), (None,))
def test_a_value_may_be_long(subtests: pytest.Subtests, labels: int | None) -> None:
    for name in WITH_PAGES:
        for sign in [b"(not ", b"$1,"]:
            with subtests.test(name=name, sign=sign):
                good = next(body for platform, body in pages() if platform == name)
                for label in labels_of([good])[:labels]:
                    at = good.find(b">" + label + b"<") + 1
                    _check(name, good[:at] + filled(sign, SIZE) + good[at + len(label) :])


ONCE_SLOW = [
    ("qpublic", b"<table><tr><th>Legal Description</th><td>" + b"(not " * 40_000 + b"</td></tr></table>"),
    ("vgsi", b"<label for=zz>PID</label><p></p>" * 4_000),
    ("collier_pa", b"<table><tr>" + b"<td>Date</td>" * 2_000 + b"</tr></table>"),
    (
        "grizzly_gis",
        b"".join(b"<table><tr><td>%s</td></tr></table>" % one * 8_000 for one in (b"Just", b"Assessed")),
    ),
]


def test_what_once_took_seconds_does_not(subtests: pytest.Subtests) -> None:
    for name, body in ONCE_SLOW:
        good = next(body for platform, body in pages() if platform == name)
        for page in (b"<html><body>" + body + b"</body></html>", crowded(good, body)):
            with subtests.test(name=name):
                _check(name, page)


def _check(name: str, body: bytes) -> None:
    most = TIMES_A_PLAIN_PAGE * _plain_seconds(name, len(body) // SIZE + 1) + SLACK_SECONDS
    assert any(_seconds(name, body) < most for _ in range(3)), body[:1000]  # on a busy machine one may take far longer


@cache
def _plain_seconds(name: str, sizes: int) -> float:
    rows = filled(b"<tr><td>zz</td></tr>", sizes * SIZE)
    return _seconds(name, b"<html><body><table>" + rows + b"</table></body></html>")


def _seconds(name: str, body: bytes) -> float:
    found = county_platform(name)
    assert found is not None
    start = time.process_time()
    found.parse(Page(body=body), TARGET)
    return time.process_time() - start
