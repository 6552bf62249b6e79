"""What a page is sent as HTML is looked at before the page has it, and each redirect before it is followed."""

from __future__ import annotations

import base64
import contextlib
import re
from typing import TYPE_CHECKING, Any

import httpx2

from parcelpost.model import Page
from parcelpost.scrapers.answers import REDIRECTS
from parcelpost.scrapers.browsers.course import Course
from parcelpost.scrapers.browsers.lending import LentPage, playwright_error
from parcelpost.scrapers.browsers.page_log import PageLog
from parcelpost.scrapers.challenge import LOOK_BYTES, challenge
from parcelpost.scrapers.fetch_errors import BrowserDied, TurnedAway

if TYPE_CHECKING:
    from playwright.async_api import CDPSession

_LOOK_CHARS = 4 * (LOOK_BYTES // 3 + 1)
"""In base64, and a little more, so that a larger one is known to be larger."""
_PATTERNS = [
    {"urlPattern": "*", "resourceType": kind, "requestStage": "Response"} for kind in ("Document", "XHR", "Fetch")
]
_NO_PAGE = re.compile(r"(image|audio|video|font)/|application/(?!xhtml|xml|unknown)", re.IGNORECASE)
NO_SCRIPTS = "script-src 'none'"
_WITHOUT_SCRIPTS = {"name": "Content-Security-Policy", "value": NO_SCRIPTS}

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
        await session.send("Fetch.enable", {"patterns": _PATTERNS})

    async def _decide(self, session: CDPSession, event: Paused) -> None:
        course = self.course
        if course is None or "responseStatusCode" not in event:
            await session.send("Fetch.continueRequest", _this(event))
        elif event["resourceType"] == "Document" and event.get("frameId") == self._main_frame:
            await self._document(session, event, course)
        else:
            await self._part(session, event, course)

    async def _document(self, session: CDPSession, event: Paused, course: Course) -> None:
        """Of the main frame."""
        url, status, headers = event["request"]["url"], event["responseStatusCode"], _headers(event)
        if not course.is_on_its_way(url):  # nobody goes there: it is late, or to be saved
            await _refuse(session, event)
            return
        self._log.add("answer", f"{status} {url}")
        if status in REDIRECTS and headers.get("location"):
            course.leads_to(_joined(url, headers["location"]))
            await (_refuse(session, event) if course.is_over else session.send("Fetch.continueRequest", _this(event)))
            return
        body = "" if _NO_PAGE.match(headers.get("content-type", "")) else await self._body(session, event)
        if not course.is_on_its_way(url):
            await _refuse(session, event)
            return
        course.answered(status, headers)
        self._look_at(body, course)
        is_shown = course.is_over and body != ""  # what is no page has no scripts
        await (_show(session, event, body) if is_shown else session.send("Fetch.continueRequest", _this(event)))

    async def _part(self, session: CDPSession, event: Paused, course: Course) -> None:
        """What a script asked for, or a frame: of the same site, it may be a robot check that the page would show."""
        is_html = "html" in _headers(event).get("content-type", "text/html").lower()
        if is_html and course.is_of_the_site(event["request"]["url"]):
            self._look_at(await self._body(session, event), course)
        await (_refuse(session, event) if course.is_over else session.send("Fetch.continueRequest", _this(event)))

    def _look_at(self, body: str, course: Course) -> None:
        if asked := challenge(Page(body=base64.b64decode(body[:_LOOK_CHARS]))):
            course.fail(TurnedAway(asked.reason))

    async def _body(self, session: CDPSession, event: Paused) -> str:
        """In base64; '' for what has none, or is to be saved."""
        if _headers(event).get("content-disposition", "").startswith("attachment"):
            return ""
        try:
            found = await session.send("Fetch.getResponseBody", _this(event))
        except self._error:  # it has none
            return ""
        text: str = found["body"]
        return text if found["base64Encoded"] else base64.b64encode(text.encode()).decode()


def _this(event: Paused) -> Paused:
    return {"requestId": event["requestId"]}


async def _refuse(session: CDPSession, event: Paused) -> None:
    await session.send("Fetch.failRequest", {**_this(event), "errorReason": "BlockedByClient"})


async def _show(session: CDPSession, event: Paused, body: str) -> None:
    """For the screenshot."""
    headers = [*event["responseHeaders"], _WITHOUT_SCRIPTS]
    given = {"responseCode": event["responseStatusCode"], "responseHeaders": headers, "body": body}
    await session.send("Fetch.fulfillRequest", {**_this(event), **given})


def _headers(event: Paused) -> httpx2.Headers:
    return httpx2.Headers([(one["name"], one["value"]) for one in event.get("responseHeaders", ())])


def _joined(url: str, location: str) -> str:
    try:
        return str(httpx2.URL(url).join(location))
    except (httpx2.InvalidURL, UnicodeError, ValueError):
        return f"http://{location[:100]}"  # which is no address either
