"""What a page does while it is rendered: what it may load, which robot checks it meets, and what it logs."""

from __future__ import annotations

import base64
import re
from collections import deque
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx2

from parcelpost.clock import Clock
from parcelpost.model import Page as FetchedPage
from parcelpost.scrapers.browser.browser import LeasedPage, playwright_error
from parcelpost.scrapers.fetch.errors import (
    SCANNED_BYTES,
    BrowserCrashed,
    CannotFetch,
    FetchFailed,
    RetryLater,
    SiteBlocked,
    find_challenge,
)
from parcelpost.scrapers.fetch.exchange import REDIRECTS, FetchGuard, redirect_problem

if TYPE_CHECKING:
    from playwright.async_api import (
        CDPSession,
        ConsoleMessage,
        Dialog,
        Frame,
        Page,
        Request,
        Response,
        Route,
        WebError,
    )


_MAX_LINES = 300
_MAX_LINE_CHARS = 500
_MAX_RAW_CHARS = 4_000
_MIN_SECRET_CHARS = 6
_HIDDEN = "***"
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
    """Keeps at most 300 lines, the first and the last ones."""

    def __init__(self) -> None:
        self._first: list[str] = []
        self._last: deque[str] = deque(maxlen=_MAX_LINES // 2)
        self._lines = 0
        self.secrets: list[str] = []
        """Texts to mask in the log, such as the values of cookies."""

    def add(self, kind: str, text: str) -> None:
        line = f"{kind}: {' '.join(text[:_MAX_RAW_CHARS].split())}"
        (self._first if self._lines < _MAX_LINES // 2 else self._last).append(line)
        self._lines += 1

    def text(self) -> str:
        omitted = [f"({self._lines - _MAX_LINES} lines omitted)"] if self._lines > _MAX_LINES else []
        text = "\n".join([*self._first, *omitted, *self._last, ""])
        for secret in sorted(set(self.secrets), key=len, reverse=True):
            if len(secret) >= _MIN_SECRET_CHARS:
                text = text.replace(secret, _HIDDEN)
        return "\n".join(map(_without_secrets, text.split("\n")))


def _without_secrets(line: str) -> str:
    for pattern in _SECRETS:
        line = pattern.sub(rf"\g<1>{_HIDDEN}", line)
    return line[:_MAX_LINE_CHARS]


_KINDS: dict[str, str] = {
    "image": "image",
    "imageset": "image",
    "font": "font",
    "media": "media",
    "texttrack": "media",
}
"""Playwright's resource types -> the kinds of `browser.block`."""


def is_blocked(url: str, resource_type: str, page_host: str, kinds: Collection[str]) -> bool:
    """A page's own scripts (`page_host`) never count as trackers."""
    if _KINDS.get(resource_type) in kinds:
        return True
    host = host_of(url)
    return "tracker" in kinds and host != page_host and is_tracker(host)


def is_tracker(host: str) -> bool:
    """Whether the host or a domain above it is on the list."""
    labels = host.split(".")
    return any(".".join(labels[start:]) in _trackers() for start in range(len(labels) - 1))


def host_of(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "").rstrip(".")
    except ValueError:
        return ""


@cache
def _trackers() -> frozenset[str]:
    text = (files("parcelpost.scrapers.browser") / "trackers.txt").read_text("utf-8")
    return frozenset(line for line in text.splitlines() if line and not line.startswith("#"))


class Navigation:
    """The documents of the main frame while one page is rendered, and why it has to end."""

    def __init__(
        self, url: httpx2.URL, guard: FetchGuard, is_allowed: Callable[[httpx2.URL], bool], max_documents: int
    ) -> None:
        """`is_allowed` applies the site's robots.txt, if it is known."""
        self.url = url
        self._guard = guard
        self._is_allowed = is_allowed
        self._max_documents = max_documents
        self.documents: list[httpx2.URL] = []
        """All documents of the main frame, redirects included."""
        self.status = 0
        self.headers: Mapping[str, str] = {}
        self.net_error = ""
        """Why the last document failed to load."""
        self.failure: FetchFailed | None = None
        self.is_over = False
        """Whether further requests are refused."""

    @property
    def last(self) -> httpx2.URL:
        return self.documents[-1] if self.documents else self.url

    def is_expected(self, text: str) -> bool:
        """Whether this is the document that the main frame requested last."""
        try:
            return bool(self.documents) and not self.is_over and self._guard.url(text) == self.documents[-1]
        except CannotFetch:
            return False

    def is_same_site(self, text: str) -> bool:
        """Whether the URL's host is the document's, a subdomain or a parent domain of it."""
        host, own = (name.removeprefix("www.") for name in (host_of(text), self.last.host))
        return host == own or host.endswith(f".{own}") or own.endswith(f".{host}")

    def request(self, text: str) -> None:
        """Called when the main frame requests a document."""
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
        if len(self.documents) > self._max_documents:
            self.fail(RetryLater(f"{url.host} navigates to other pages more than {self._max_documents} times"))
        elif problem := redirect_problem(previous, url):
            self.fail(problem)
        elif not self._is_allowed(url):
            self.fail(CannotFetch(f"robots.txt of {url.host} does not allow {url}"[:500]))

    def respond(self, status: int, headers: Mapping[str, str]) -> None:
        """Called when a document has arrived. After an error page, further documents are ignored."""
        if not self.is_over:
            self.status, self.headers = status, headers
            self.is_over = status >= 400

    def check_challenge(self, body: str) -> None:
        """Ends the navigation if the base64 body is a robot check."""
        if challenge := find_challenge(FetchedPage(body=base64.b64decode(body[:_LOOK_CHARS]))):
            self.fail(SiteBlocked(challenge.reason))

    def fail(self, failure: FetchFailed) -> None:
        self.failure = self.failure or failure
        self.is_over = True


_MAX_MESSAGES = 2_000
_WINDOW_WEIGHT = 40
_ENDLESS = ("eventsource", "websocket", "ping")
_LOOK_CHARS = 4 * (SCANNED_BYTES // 3 + 1)
"""Limit in base64 characters, slightly above SCANNED_BYTES, so that a longer document is recognized as longer."""
_PAUSE_AT = [
    {"urlPattern": "*", "resourceType": kind, "requestStage": "Response"} for kind in ("Document", "XHR", "Fetch")
]
_NO_SCRIPTS = "script-src 'none'"


class PausedResponse:
    """A response that Chromium has received but not yet passed to the page."""

    def __init__(self, session: CDPSession, event: dict[str, Any]) -> None:
        self._session = session
        self._event = event
        self.url: str = event["request"]["url"]
        self.status: int = event.get("responseStatusCode", 0)
        """HTTP status; 0 if the request failed."""
        self.headers = httpx2.Headers([(pair["name"], pair["value"]) for pair in event.get("responseHeaders", ())])

    def is_document_of(self, frame: str) -> bool:
        return bool(self._event["resourceType"] == "Document" and self._event.get("frameId") == frame)

    async def body(self) -> str:
        """Returns it in base64; '' if there is none, as for a download."""
        try:
            body = await self._send("Fetch.getResponseBody")
        except playwright_error():
            return ""
        text: str = body["body"]
        return text if body["base64Encoded"] else base64.b64encode(text.encode()).decode()

    async def proceed(self) -> None:
        await self._send("Fetch.continueRequest")

    async def refuse(self) -> None:
        await self._send("Fetch.failRequest", errorReason="BlockedByClient")

    async def show_without_scripts(self, body: str) -> None:
        """Shows the page for a screenshot."""
        headers = [*self._event["responseHeaders"], {"name": "Content-Security-Policy", "value": _NO_SCRIPTS}]
        await self._send("Fetch.fulfillRequest", responseCode=self.status, responseHeaders=headers, body=body)

    async def _send(self, method: str, **parameters: Any) -> dict[str, Any]:
        return await self._session.send(method, {"requestId": self._event["requestId"], **parameters})


class PageWatch:
    """Decides what a page may load, and logs what it does. Between two renderings it may load nothing.

    Documents are paused by Chromium's own protocol, as Playwright's routes see neither redirects nor responses: a robot
    check is shown without its scripts, which could pass it.
    """

    def __init__(self, leased: LeasedPage, block: Collection[str], log: PageLog, clock: Clock) -> None:
        self._leased = leased
        self._block = block
        self._log = log
        self._clock = clock
        self._error = playwright_error()
        self._in_flight: set[Request] = set()
        self._active_at = clock.monotonic()
        self._messages = 0
        self._main_frame = ""
        self._navigation: Navigation | None = None

    async def begin(self) -> None:
        context, page = self._leased.context, self._leased.page
        context.on("request", self._on_request)
        context.on("response", self._on_response)
        context.on("requestfinished", self._on_finished)
        context.on("requestfailed", self._on_failed)
        context.on("console", self._on_console)
        context.on("weberror", self._on_script_error)
        context.on("dialog", self._on_dialog)
        context.on("page", self._on_window)
        page.on("frameattached", self._on_frame)
        page.on("framenavigated", self._on_frame)
        await context.route("**/*", self._on_route)
        session = await context.new_cdp_session(page)
        self._main_frame = (await session.send("Page.getFrameTree"))["frameTree"]["frame"]["id"]

        async def on_paused(event: dict[str, Any]) -> None:
            with suppress(self._error, BrowserCrashed):
                await self._leased.call(self._on_paused(PausedResponse(session, event)))

        session.on("Fetch.requestPaused", on_paused)
        await session.send("Fetch.enable", {"patterns": _PAUSE_AT})

    def follow(self, navigation: Navigation) -> None:
        self._navigation = navigation
        self._in_flight.clear()
        self._active_at = self._clock.monotonic()

    def is_quiet(self, seconds: float) -> bool:
        """Whether nothing has been loading for this long."""
        return not self._in_flight and self._clock.monotonic() - self._active_at >= seconds

    # Events

    def _on_request(self, request: Request) -> None:
        self._active_at = self._clock.monotonic()
        self._count()
        if request.resource_type not in _ENDLESS:
            self._in_flight.add(request)
        if self._navigation is not None and self._is_document(request):
            self._log.add("document", request.url)
            if request.redirected_from is None:  # `_on_paused` has seen those
                self._navigation.request(request.url)

    def _on_response(self, response: Response) -> None:
        if response.status >= 400 and not self._is_document(response.request):
            self._log.add("response", f"{response.status} {response.url}")

    def _on_finished(self, request: Request) -> None:
        self._active_at = self._clock.monotonic()
        self._in_flight.discard(request)

    def _on_failed(self, request: Request) -> None:
        self._on_finished(request)
        reason = request.failure or "failed"
        if "ERR_BLOCKED_BY_CLIENT" not in reason:
            self._log.add("not loaded", f"{request.url}: {reason}")
        if self._navigation is not None and self._is_document(request):
            self._navigation.net_error = reason

    def _on_console(self, message: ConsoleMessage) -> None:
        if self._count():
            return
        is_ours = _NO_SCRIPTS in message.text and self._navigation is not None and self._navigation.is_over
        if not is_ours:
            self._log.add(f"console {message.type}", message.text)

    def _on_script_error(self, error: WebError) -> None:
        if not self._count():
            self._log.add("script error", str(error.error))

    def _on_frame(self, _: Frame) -> None:
        self._count()

    async def _on_dialog(self, dialog: Dialog) -> None:
        self._count()
        self._log.add(f"dialog {dialog.type}, dismissed", dialog.message)
        with suppress(self._error):
            await dialog.dismiss()

    async def _on_window(self, page: Page) -> None:
        self._count(_WINDOW_WEIGHT)
        self._log.add("window, closed", page.url)
        with suppress(self._error):
            await page.close()

    async def _on_route(self, route: Route, request: Request) -> None:
        with suppress(self._error):
            await (route.abort("blockedbyclient") if self._is_unwanted(request) else route.continue_())

    def _is_unwanted(self, request: Request) -> bool:
        navigation = self._navigation
        if navigation is None or navigation.is_over or self._is_of_another_window(request):
            return True
        if self._is_document(request):
            return False
        return is_blocked(request.url, request.resource_type, host_of(str(navigation.last)), self._block)

    def _is_document(self, request: Request) -> bool:
        try:
            return request.is_navigation_request() and request.frame == self._leased.page.main_frame
        except self._error:  # of a window that is not there yet
            return False

    def _is_of_another_window(self, request: Request) -> bool:
        try:
            return request.frame.page is not self._leased.page
        except self._error:
            return request.is_navigation_request()

    def _count(self, weight: int = 1) -> bool:
        """Returns whether the message limit is exceeded. The browser is then stopped, because closing the page would
        wait until all of its messages were read."""
        was_exceeded = self._messages > _MAX_MESSAGES
        self._messages += weight
        if self._messages > _MAX_MESSAGES and not was_exceeded:
            reason = f"the page sends too many messages (limit: {_MAX_MESSAGES:,})"
            self._log.add("stopped", reason)
            if self._navigation is not None:
                self._navigation.fail(RetryLater(f"{self._navigation.last.host}: {reason}"))
            self._leased.stop(reason)
        return self._messages > _MAX_MESSAGES

    # Responses

    async def _on_paused(self, response: PausedResponse) -> None:
        navigation = self._navigation
        if navigation is None or not response.status:
            await response.proceed()
        elif response.is_document_of(self._main_frame):
            await self._check_document(response, navigation)
        else:
            await self._check_part(response, navigation)

    async def _check_document(self, response: PausedResponse, navigation: Navigation) -> None:
        if not navigation.is_expected(response.url):  # it is late, or a download
            await response.refuse()
            return
        self._log.add("response", f"{response.status} {response.url}")
        if response.status in REDIRECTS and (location := response.headers.get("location")):
            navigation.request(_joined(response.url, location))
            await (response.refuse() if navigation.is_over else response.proceed())
            return
        body = await response.body()
        navigation.respond(response.status, response.headers)
        navigation.check_challenge(body)
        await (response.show_without_scripts(body) if navigation.is_over and body else response.proceed())

    async def _check_part(self, response: PausedResponse, navigation: Navigation) -> None:
        """Responses to scripts and frames of the same site may also be robot checks."""
        is_html = "html" in response.headers.get("content-type", "text/html").lower()
        if is_html and navigation.is_same_site(response.url):
            navigation.check_challenge(await response.body())
        await (response.refuse() if navigation.is_over else response.proceed())


def _joined(url: str, location: str) -> str:
    try:
        return str(httpx2.URL(url).join(location))
    except (httpx2.InvalidURL, UnicodeError, ValueError):
        return f"http://{location[:100]}"  # the guard refuses it
