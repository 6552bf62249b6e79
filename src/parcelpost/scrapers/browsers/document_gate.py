"""Each document of a page's main frame is looked at before the page has it, and each redirect before it is followed."""

from __future__ import annotations

import base64
import contextlib
from typing import TYPE_CHECKING, Any

import httpx2

from parcelpost.model import Page
from parcelpost.scrapers.answers import REDIRECTS
from parcelpost.scrapers.browsers.course import Course
from parcelpost.scrapers.browsers.lending import LentPage, playwright_error
from parcelpost.scrapers.browsers.page_log import PageLog
from parcelpost.scrapers.challenge import challenge
from parcelpost.scrapers.fetch_errors import BrowserDied, TurnedAway

if TYPE_CHECKING:
    from playwright.async_api import CDPSession

_MOST_OF_A_CHALLENGE = 64 * 1024
_DOCUMENTS = {"urlPattern": "*", "resourceType": "Document", "requestStage": "Response"}
_NO_SCRIPTS = {"name": "Content-Security-Policy", "value": "script-src 'none'"}

Paused = dict[str, Any]
"""An answer that the browser has and the page has not."""


class DocumentGate:
    """By Chromium's own protocol: Playwright's routes see neither redirects nor answers.

    What is no page for us is shown without its scripts: a robot check must not pass itself.
    """

    def __init__(self, lent: LentPage, log: PageLog) -> None:
        self._lent = lent
        self._log = log
        self._error = playwright_error()
        self._main_frame = ""
        self.course: Course | None = None

    async def begin(self) -> None:
        session = await self._lent.context.new_cdp_session(self._lent.page)
        tree = await session.send("Page.getFrameTree")
        self._main_frame = tree["frameTree"]["frame"]["id"]

        async def paused(event: Paused) -> None:
            with contextlib.suppress(self._error, BrowserDied):
                await self._lent.alive(self._decide(session, event))

        session.on("Fetch.requestPaused", paused)
        await session.send("Fetch.enable", {"patterns": [_DOCUMENTS]})

    async def _decide(self, session: CDPSession, event: Paused) -> None:
        course, this = self.course, {"requestId": event["requestId"]}
        if course is None or event.get("frameId") != self._main_frame or "responseStatusCode" not in event:
            await session.send("Fetch.continueRequest", this)
            return
        if not course.is_on_its_way(event["request"]["url"]):  # nobody goes there: it is to be saved
            await session.send("Fetch.failRequest", {**this, "errorReason": "BlockedByClient"})
            return
        status, headers = event["responseStatusCode"], _headers(event)
        self._log.add("answer", f"{status} {event['request']['url']}")
        if status in REDIRECTS and headers.get("location"):
            course.leads_to(_joined(event["request"]["url"], headers["location"]))
            how = {"errorReason": "BlockedByClient"} if course.is_over else {}
            await session.send("Fetch.failRequest" if course.is_over else "Fetch.continueRequest", {**this, **how})
            return
        body = await self._beginning(session, this, headers)
        course.answered(status, headers)
        if asked := challenge(Page(body=body)) if body else None:
            course.fail(TurnedAway(asked.reason))
        if course.is_over and body:
            given = {"responseCode": status, "responseHeaders": [*event["responseHeaders"], _NO_SCRIPTS]}
            await session.send("Fetch.fulfillRequest", {**this, **given, "body": base64.b64encode(body).decode()})
        else:
            await session.send("Fetch.continueRequest", this)

    async def _beginning(self, session: CDPSession, this: Paused, headers: httpx2.Headers) -> bytes:
        """Of what may be a robot check; b"" for what is too large or no page."""
        size = headers.get("content-length", "")
        if headers.get("content-disposition", "").startswith("attachment"):
            return b""
        if size.isdigit() and int(size) > _MOST_OF_A_CHALLENGE:
            return b""
        try:
            found = await session.send("Fetch.getResponseBody", this)
        except self._error:  # it has none
            return b""
        return base64.b64decode(found["body"]) if found["base64Encoded"] else found["body"].encode()


def _headers(event: Paused) -> httpx2.Headers:
    return httpx2.Headers([(one["name"], one["value"]) for one in event.get("responseHeaders", ())])


def _joined(url: str, location: str) -> str:
    try:
        return str(httpx2.URL(url).join(location))
    except (httpx2.InvalidURL, UnicodeError, ValueError):
        return f"http://{location[:100]}"  # which is no address either
