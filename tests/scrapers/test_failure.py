"""Errors with an HTTP status, as the libraries raise them, on the stage where platform code runs."""

from __future__ import annotations

import io
import urllib.error
from collections.abc import Callable
from email.message import Message
from functools import partial

import httpx2
import pytest
import requests

from parcelpost.model import Blocked, NotFound, Outcome, Retry, Task
from parcelpost.scrapers.plugin_adapter import PluginAdapter
from parcelpost.worker.sandbox import Sandbox
from tests.storage.factories import a_task


def by_requests(status: int, headers: dict[str, str]) -> None:
    response = requests.Response()
    response.status_code = status
    response.headers.update(headers)
    response.raise_for_status()


def by_httpx(status: int, headers: dict[str, str]) -> None:
    request = httpx2.Request("GET", "https://example.org/")
    httpx2.Response(status, headers=headers, request=request).raise_for_status()


def by_urllib(status: int, headers: dict[str, str]) -> None:
    message = Message()
    for name, value in headers.items():
        message[name] = value
    raise urllib.error.HTTPError("https://example.org/", status, "no", message, io.BytesIO())


def wrapped(status: int, headers: dict[str, str]) -> None:
    try:
        by_requests(status, headers)
    except requests.HTTPError as error:
        raise RuntimeError("could not scrape") from error


RAISES = [by_requests, by_httpx, by_urllib, wrapped]
MEANINGS: list[tuple[int, dict[str, str], Outcome]] = [
    (404, {}, NotFound("the site returned 404")),
    (410, {}, NotFound("the site returned 410")),
    (403, {}, Blocked("the site returned 403")),
    (429, {"Retry-After": "120"}, Blocked("the site returned 429", 120.0)),
    (500, {}, Retry("the site returned 500")),
    (503, {"Retry-After": "7"}, Retry("the site returned 503", 7.0)),
    (503, {"Retry-After": "Fri, 31 Dec 2027 23:59:59 GMT"}, Retry("the site returned 503")),
]


def scrape_in_vain(raises: Callable[..., None], status: int, headers: dict[str, str], task: Task) -> None:
    raises(status, headers)


async def staged(scrape: Callable[..., object]) -> Outcome | None:
    stage = Sandbox()
    try:
        return await stage.run(PluginAdapter(scrape).scrape, a_task(), 10)
    finally:
        await stage.close()


async def test_a_status_says_what_became_of_the_task(subtests: pytest.Subtests) -> None:
    for raises in RAISES:
        for status, headers, expected in MEANINGS:
            with subtests.test(raises=raises, status=status, headers=headers, expected=expected):
                assert await staged(partial(scrape_in_vain, raises, status, headers)) == expected


async def test_it_is_so_for_an_async_function() -> None:
    async def scrape(task: Task) -> None:
        by_httpx(404, {})

    assert await staged(scrape) == NotFound("the site returned 404")


class Odd(Exception):
    """Its parts are not what their names promise."""

    response = 7
    status_code = "404"
    headers = None
    code = 404.0


class Hostile(Exception):
    @property
    def response(self) -> object:
        raise SystemExit(3)


@pytest.mark.parametrize(
    ("error", "reason"), [(ValueError("x"), "ValueError: x"), (Odd("x"), "Odd: x"), (Hostile("x"), "Hostile: x")]
)
async def test_any_other_error_is_tried_again(error: Exception, reason: str) -> None:
    def scrape() -> None:
        raise error

    assert await staged(scrape) == Retry(reason)


async def test_an_exit_code_is_no_status() -> None:
    def scrape() -> None:
        raise SystemExit(404)

    assert await staged(scrape) == Retry("SystemExit: 404")
