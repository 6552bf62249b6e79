"""What a rendered page may load: its navigation, blocked resources, and a check of each document before it is shown."""

from __future__ import annotations

import base64
import contextlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx2

from parcelpost.model import Page
from parcelpost.scrapers.browser.base import BlockedKind, LeasedPage, playwright_error
from parcelpost.scrapers.fetch.errors import (
    SCANNED_BYTES,
    BrowserCrashed,
    CannotFetch,
    FetchFailed,
    RetryLater,
    SiteBlocked,
    find_challenge,
)
from parcelpost.scrapers.fetch.exchange import REDIRECTS, redirect_problem
from parcelpost.scrapers.fetch.guard import Guard

if TYPE_CHECKING:
    from playwright.async_api import CDPSession


_MOST_LINES = 300
_MOST_CHARS = 500
_MOST_RAW_CHARS = 4_000
_SHORTEST_SECRET = 6
_GONE = "***"
_SECRETS = (  # each in linear time, whatever a page writes
    re.compile(
        r"(?i)((?:token|secret|passw|pwd|auth|session|sid|api[_-]?key|signature|\bsig|\bcode|jwt)[\w.-]{0,40}"
        r"[\"']?\s?[=:]\s?[\"']?)[^&\s\"',;}]+"
    ),
    re.compile(r"(?i)((?:set-)?cookie\s?:\s?)\S.*"),
    re.compile(r"(?i)((?:proxy-)?authorization\s?:\s?)\S.*"),
    re.compile(r"(?i)(\b(?:bearer|basic)\s)[\w.~+/=-]{8,}"),
    re.compile(r"()\beyJ[\w-]{8,}\.[\w-]{4,}\.[\w-]*"),
    re.compile(r"(//)[^/\s@]{1,200}(?=@)"),
)


class PageLog:
    """At most 300 lines; the first and the last of them are the ones that tell."""

    def __init__(self) -> None:
        self._first: list[str] = []
        self._last: list[str] = []
        self._left_out = 0

    def add(self, what: str, text: str) -> None:
        line = f"{what}: {' '.join(text[:_MOST_RAW_CHARS].split())}"
        if len(self._first) < _MOST_LINES // 2:
            self._first.append(line)
            return
        self._last.append(line)
        if len(self._last) > _MOST_LINES // 2:
            del self._last[0]
            self._left_out += 1

    def text(self, secrets: Iterable[str] = ()) -> str:
        """`secrets`: what must not be in it wherever it stands, such as the values of cookies."""
        left_out = [f"({self._left_out} lines left out)"] if self._left_out else []
        found = "\n".join([*self._first, *left_out, *self._last, ""])
        for secret in sorted({one for one in secrets if len(one) >= _SHORTEST_SECRET}, key=len, reverse=True):
            found = found.replace(secret, _GONE)
        return "\n".join(map(_without_secrets, found.split("\n")))


def _without_secrets(line: str) -> str:
    for pattern in _SECRETS:
        line = pattern.sub(rf"\g<1>{_GONE}", line)
    return line[:_MOST_CHARS]


_KINDS: dict[str, BlockedKind] = {
    "image": "image",
    "imageset": "image",
    "font": "font",
    "media": "media",
    "texttrack": "media",
}
"""As Playwright calls them -> as the settings do."""


def is_blocked(url: str, resource_type: str, page_host: str, kinds: Collection[BlockedKind]) -> bool:
    """`page_host`: whose own scripts are no trackers, whatever the list says."""
    if _KINDS.get(resource_type) in kinds:
        return True
    host = host_of(url)
    return "tracker" in kinds and host != page_host and is_tracker(host)


def is_tracker(host: str) -> bool:
    """Whether it or a domain that it belongs to is on the list."""
    labels = host.split(".")
    return any(".".join(labels[at:]) in _trackers() for at in range(len(labels) - 1))


def host_of(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "").rstrip(".")
    except ValueError:
        return ""


@cache
def _trackers() -> frozenset[str]:
    text = (files("parcelpost.scrapers.browser") / "trackers.txt").read_text("utf-8")
    return frozenset(line for line in text.splitlines() if line and not line.startswith("#"))


Allows = Callable[[httpx2.URL], bool]
"""Whether the site's robots.txt, as far as it is known, lets us ask for that."""


class Navigation:
    def __init__(self, url: httpx2.URL, guard: Guard, allows: Allows, most_documents: int) -> None:
        self.url = url
        self._guard = guard
        self._allows = allows
        self._most_documents = most_documents
        self.documents: list[httpx2.URL] = []
        """All that stood in the page's main frame, redirects included."""
        self.status = 0
        self.headers: Mapping[str, str] = {}
        self.net_error = ""
        """Why the last document did not come."""
        self.failure: FetchFailed | None = None
        self.is_over = False
        """Nothing more is loaded."""

    @property
    def last(self) -> httpx2.URL:
        return self.documents[-1] if self.documents else self.url

    def is_on_its_way(self, text: str) -> bool:
        """Whether it is the document that the main frame has asked for, and somebody waits for it."""
        try:
            return bool(self.documents) and not self.is_over and self._guard.url(text) == self.documents[-1]
        except CannotFetch:
            return False

    def is_of_the_site(self, text: str) -> bool:
        """Whether it is of the same host as the document, or of one below or above it."""
        one, other = (host.removeprefix("www.") for host in (host_of(text), self.last.host))
        return one == other or one.endswith(f".{other}") or other.endswith(f".{one}")

    def leads_to(self, text: str) -> None:
        """The main frame asks for a document."""
        if not text.startswith(("http:", "https:")):
            return
        self.net_error = ""
        try:
            url = self._guard.url(text)
        except CannotFetch as failure:
            self.fail(failure)
            return
        previous = self.last
        self.documents.append(url)
        if len(self.documents) > self._most_documents:
            self.fail(RetryLater(f"{url.host} leads on to other pages more than {self._most_documents} times"))
        elif failure_of_it := redirect_problem(previous, url):
            self.fail(failure_of_it)
        elif not self._allows(url):
            self.fail(CannotFetch(f"robots.txt of {url.host} does not allow {url}"[:500]))

    def answered(self, status: int, headers: Mapping[str, str]) -> None:
        """A document has come. After one that is an error nothing counts: what a script makes of it is no answer."""
        if self.is_over:
            return
        self.status, self.headers = status, headers
        self.is_over = self.status >= 400

    def fail(self, failure: FetchFailed) -> None:
        self.failure = self.failure or failure
        self.is_over = True


_LOOK_CHARS = 4 * (SCANNED_BYTES // 3 + 1)
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

    def __init__(self, lent: LeasedPage, log: PageLog) -> None:
        self._lent = lent
        self._log = log
        self._error = playwright_error()
        self._main_frame = ""
        self.course: Navigation | None = None

    async def begin(self) -> None:
        session = await self._lent.context.new_cdp_session(self._lent.page)
        tree = await session.send("Page.getFrameTree")
        self._main_frame = tree["frameTree"]["frame"]["id"]

        async def paused(event: Paused) -> None:
            with contextlib.suppress(self._error, BrowserCrashed):
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

    async def _document(self, session: CDPSession, event: Paused, course: Navigation) -> None:
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

    async def _part(self, session: CDPSession, event: Paused, course: Navigation) -> None:
        """What a script asked for, or a frame: of the same site, it may be a robot check that the page would show."""
        is_html = "html" in _headers(event).get("content-type", "text/html").lower()
        if is_html and course.is_of_the_site(event["request"]["url"]):
            self._look_at(await self._body(session, event), course)
        await (_refuse(session, event) if course.is_over else session.send("Fetch.continueRequest", _this(event)))

    def _look_at(self, body: str, course: Navigation) -> None:
        if asked := find_challenge(Page(body=base64.b64decode(body[:_LOOK_CHARS]))):
            course.fail(SiteBlocked(asked.reason))

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
