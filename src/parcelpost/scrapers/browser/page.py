"""A leased page during an attempt: what it may load, what it logs, and how it is returned when the attempt ends."""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx2
from msgspec import Struct

from parcelpost.clock import Clock
from parcelpost.errors import StoreError
from parcelpost.model import Page as FetchedPage
from parcelpost.scrapers.browser.base import ArtifactSink, BlockedKind, LeasedPage, RenderContext, playwright_error
from parcelpost.scrapers.browser.profiles import unusable_profile
from parcelpost.scrapers.browser.proxy import GuardProxy, ProxyLease
from parcelpost.scrapers.fetch.errors import (
    FAILURES,
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
    from playwright.async_api import (
        CDPSession,
        ConsoleMessage,
        Dialog,
        Download,
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
        self._last: list[str] = []
        self._omitted = 0
        self.secrets: list[str] = []
        """What must not be in it, such as the values of cookies."""

    def add(self, kind: str, text: str) -> None:
        line = f"{kind}: {' '.join(text[:_MAX_RAW_CHARS].split())}"
        if len(self._first) < _MAX_LINES // 2:
            self._first.append(line)
            return
        self._last.append(line)
        if len(self._last) > _MAX_LINES // 2:
            del self._last[0]
            self._omitted += 1

    def text(self) -> str:
        omitted = [f"({self._omitted} lines omitted)"] if self._omitted else []
        text = "\n".join([*self._first, *omitted, *self._last, ""])
        for secret in sorted(set(self.secrets), key=len, reverse=True):
            if len(secret) >= _MIN_SECRET_CHARS:
                text = text.replace(secret, _HIDDEN)
        return "\n".join(map(_without_secrets, text.split("\n")))


def _without_secrets(line: str) -> str:
    for pattern in _SECRETS:
        line = pattern.sub(rf"\g<1>{_HIDDEN}", line)
    return line[:_MAX_LINE_CHARS]


_KINDS: dict[str, BlockedKind] = {
    "image": "image",
    "imageset": "image",
    "font": "font",
    "media": "media",
    "texttrack": "media",
}
"""Playwright's resource types -> the kinds of `browser.block`."""


def is_blocked(url: str, resource_type: str, page_host: str, kinds: Collection[BlockedKind]) -> bool:
    """`page_host`: its own scripts are not trackers, whatever the list says."""
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
        self, url: httpx2.URL, guard: Guard, is_allowed: Callable[[httpx2.URL], bool], max_documents: int
    ) -> None:
        """`is_allowed`: by the site's robots.txt, as far as it is known."""
        self.url = url
        self._guard = guard
        self._is_allowed = is_allowed
        self._max_documents = max_documents
        self.documents: list[httpx2.URL] = []
        """All documents of the main frame, redirects included."""
        self.status = 0
        self.headers: Mapping[str, str] = {}
        self.net_error = ""
        """Why the last document did not arrive."""
        self.failure: FetchFailed | None = None
        self.is_over = False
        """Nothing more is loaded."""

    @property
    def last(self) -> httpx2.URL:
        return self.documents[-1] if self.documents else self.url

    def is_expected(self, text: str) -> bool:
        """Whether it is the document that the main frame has requested last."""
        try:
            return bool(self.documents) and not self.is_over and self._guard.url(text) == self.documents[-1]
        except CannotFetch:
            return False

    def is_same_site(self, text: str) -> bool:
        """Whether its host is the document's, or one below or above it."""
        one, other = (host.removeprefix("www.") for host in (host_of(text), self.last.host))
        return one == other or one.endswith(f".{other}") or other.endswith(f".{one}")

    def request(self, text: str) -> None:
        """The main frame requests a document."""
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
            self.fail(RetryLater(f"{url.host} leads on to other pages more than {self._max_documents} times"))
        elif problem := redirect_problem(previous, url):
            self.fail(problem)
        elif not self._is_allowed(url):
            self.fail(CannotFetch(f"robots.txt of {url.host} does not allow {url}"[:500]))

    def respond(self, status: int, headers: Mapping[str, str]) -> None:
        """A document has arrived. After an error nothing else counts, whatever its scripts do."""
        if not self.is_over:
            self.status, self.headers = status, headers
            self.is_over = status >= 400

    def fail(self, failure: FetchFailed) -> None:
        self.failure = self.failure or failure
        self.is_over = True


_MAX_MESSAGES = 2_000
_CONSOLE_WEIGHT, _WINDOW_WEIGHT = 2, 40
_CHARS_PER_MESSAGE = 10_000
_ENDLESS = ("eventsource", "websocket", "ping")
_LOOK_CHARS = 4 * (SCANNED_BYTES // 3 + 1)
"""In base64, and a little more, so that a larger document is known to be larger."""
_PAUSE_AT = [
    {"urlPattern": "*", "resourceType": kind, "requestStage": "Response"} for kind in ("Document", "XHR", "Fetch")
]
_NOT_A_PAGE = re.compile(r"(image|audio|video|font)/|application/(?!xhtml|xml|unknown)", re.IGNORECASE)
_NO_SCRIPTS = "script-src 'none'"

PausedResponse = dict[str, Any]
"""Chromium has it, the page does not yet."""


class PageWatch:
    """Decides what a page may load, and logs what it does. Between two renderings it may load nothing.

    Documents are paused by Chromium's own protocol, as Playwright's routes see neither redirects nor responses: a robot
    check is shown without its scripts, which could pass it.
    """

    def __init__(self, leased: LeasedPage, block: Collection[BlockedKind], log: PageLog, clock: Clock) -> None:
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
        page.on("download", self._on_download)
        page.on("frameattached", self._on_frame)
        page.on("framenavigated", self._on_frame)
        await context.route("**/*", self._on_route)
        session = await context.new_cdp_session(page)
        self._main_frame = (await session.send("Page.getFrameTree"))["frameTree"]["frame"]["id"]

        async def paused(event: PausedResponse) -> None:
            with suppress(self._error, BrowserCrashed):
                await self._leased.call(self._on_paused(session, event))

        session.on("Fetch.requestPaused", paused)
        await session.send("Fetch.enable", {"patterns": _PAUSE_AT})

    def follow(self, navigation: Navigation) -> None:
        self._navigation = navigation
        self._in_flight.clear()
        self._active_at = self._clock.monotonic()

    def is_quiet(self, seconds: float) -> bool:
        """Nothing is being loaded, and nothing was for so long."""
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
        if self._count(_CONSOLE_WEIGHT * max(1, len(message.args), len(message.text) // _CHARS_PER_MESSAGE)):
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
        if page is self._leased.page:
            return
        self._count(_WINDOW_WEIGHT)
        self._log.add("window, closed", page.url)
        with suppress(self._error):
            await page.close()

    async def _on_download(self, download: Download) -> None:
        self._log.add("download, refused", download.url)
        with suppress(self._error):
            await download.cancel()

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
        """Returns whether the message limit is exceeded. Then the browser is stopped, as closing the page would wait
        behind all that it has still to say."""
        was_exceeded = self._messages > _MAX_MESSAGES
        self._messages += weight
        if self._messages > _MAX_MESSAGES and not was_exceeded:
            reason = f"the page sends too many messages (limit: {_MAX_MESSAGES:,})"
            self._log.add("stopped", reason)
            if self._navigation is not None:
                self._navigation.fail(RetryLater(f"{self._navigation.last.host}: {reason}"))
            self._leased.context.remove_listener("console", self._on_console)  # the driver keeps them to itself then
            self._leased.stop(reason)
        return self._messages > _MAX_MESSAGES

    # Responses

    async def _on_paused(self, session: CDPSession, event: PausedResponse) -> None:
        navigation = self._navigation
        if navigation is None or "responseStatusCode" not in event:
            await _continue(session, event)
        elif event["resourceType"] == "Document" and event.get("frameId") == self._main_frame:
            await self._check_document(session, event, navigation)
        else:
            await self._check_part(session, event, navigation)

    async def _check_document(self, session: CDPSession, event: PausedResponse, navigation: Navigation) -> None:
        url, status, headers = event["request"]["url"], event["responseStatusCode"], _headers(event)
        if not navigation.is_expected(url):  # it is late, or a download
            await _refuse(session, event)
            return
        self._log.add("response", f"{status} {url}")
        if status in REDIRECTS and headers.get("location"):
            navigation.request(_joined(url, headers["location"]))
            await (_refuse if navigation.is_over else _continue)(session, event)
            return
        body = "" if _NOT_A_PAGE.match(headers.get("content-type", "")) else await self._body(session, event)
        if not navigation.is_expected(url):
            await _refuse(session, event)
            return
        navigation.respond(status, headers)
        _check_challenge(body, navigation)
        if navigation.is_over and body:
            await _show_without_scripts(session, event, body)
        else:
            await _continue(session, event)

    async def _check_part(self, session: CDPSession, event: PausedResponse, navigation: Navigation) -> None:
        """What a script or a frame requested from the same site may be a robot check that the page would show."""
        is_html = "html" in _headers(event).get("content-type", "text/html").lower()
        if is_html and navigation.is_same_site(event["request"]["url"]):
            _check_challenge(await self._body(session, event), navigation)
        await (_refuse if navigation.is_over else _continue)(session, event)

    async def _body(self, session: CDPSession, event: PausedResponse) -> str:
        """Returns it in base64; '' if there is none, or it is a download."""
        if _headers(event).get("content-disposition", "").startswith("attachment"):
            return ""
        try:
            found = await session.send("Fetch.getResponseBody", _id(event))
        except self._error:
            return ""
        text: str = found["body"]
        return text if found["base64Encoded"] else base64.b64encode(text.encode()).decode()


def _check_challenge(body: str, navigation: Navigation) -> None:
    if challenge := find_challenge(FetchedPage(body=base64.b64decode(body[:_LOOK_CHARS]))):
        navigation.fail(SiteBlocked(challenge.reason))


def _id(event: PausedResponse) -> PausedResponse:
    return {"requestId": event["requestId"]}


async def _continue(session: CDPSession, event: PausedResponse) -> None:
    await session.send("Fetch.continueRequest", _id(event))


async def _refuse(session: CDPSession, event: PausedResponse) -> None:
    await session.send("Fetch.failRequest", {**_id(event), "errorReason": "BlockedByClient"})


async def _show_without_scripts(session: CDPSession, event: PausedResponse, body: str) -> None:
    """For the screenshot."""
    headers = [*event["responseHeaders"], {"name": "Content-Security-Policy", "value": _NO_SCRIPTS}]
    response = {"responseCode": event["responseStatusCode"], "responseHeaders": headers, "body": body}
    await session.send("Fetch.fulfillRequest", {**_id(event), **response})


def _headers(event: PausedResponse) -> httpx2.Headers:
    return httpx2.Headers([(one["name"], one["value"]) for one in event.get("responseHeaders", ())])


def _joined(url: str, location: str) -> str:
    try:
        return str(httpx2.URL(url).join(location))
    except (httpx2.InvalidURL, UnicodeError, ValueError):
        return f"http://{location[:100]}"  # the guard refuses it


_ARTIFACT_SECONDS = 5.0


class OpenPage(Struct, frozen=True):
    leased: LeasedPage
    proxy: ProxyLease
    watch: PageWatch


class PageLease:
    """An attempt's page. A task of its own holds it, as the attempt may be cancelled, or hang."""

    def __init__(
        self,
        task_id: str,
        context: RenderContext,
        proxy: GuardProxy,
        clock: Clock,
        profile: str,
        cookies: Sequence[Any],
    ) -> None:
        self._task_id = task_id
        self._context = context
        self._proxy = proxy
        self._clock = clock
        self._profile = profile
        self._cookies = cookies
        """Of the profile and of earlier tasks."""
        self._opened: asyncio.Future[OpenPage] = asyncio.get_running_loop().create_future()
        self._ended = asyncio.Event()
        self._has_artifacts = asyncio.Event()
        """They are stored, or not wanted."""
        self._failed = True
        self._users = 0
        self._used_at = clock.monotonic()
        self.log = PageLog()
        self.log.secrets += [str(cookie.get("value", "")) for cookie in cookies]

    @property
    def is_over(self) -> bool:
        return self._ended.is_set()

    async def open(self, holders: set[asyncio.Task[None]], **context_options: Any) -> None:
        """`holders`: whoever owns it awaits them at the end. Raises BrowserUnavailable, BrowserCrashed and HostBusy."""
        holder = asyncio.create_task(self._hold(context_options))
        holders.add(holder)
        holder.add_done_callback(holders.discard)
        holder.add_done_callback(lambda task: task.cancelled() or task.exception())
        try:
            await asyncio.wait([holder, self._opened], return_when=asyncio.FIRST_COMPLETED)  # type: ignore[type-var]
        except BaseException:
            holder.cancel()
            raise
        if not self._opened.done():
            holder.result()

    @contextmanager
    def in_use(self) -> Iterator[OpenPage]:
        self._users += 1
        try:
            yield self._opened.result()
        finally:
            self._users -= 1
            self._used_at = self._clock.monotonic()

    async def end(self, *, failed: bool) -> None:
        """Returns the page; of a failed attempt, once its artifacts are stored."""
        self._failed = failed
        self._ended.set()
        if failed:
            await self._has_artifacts.wait()

    async def _hold(self, context_options: dict[str, Any]) -> None:
        context = self._context
        try:
            with self._proxy.lease(context.options.max_page_bytes) as lease:
                context_options["proxy"] = {"server": lease.address, "username": lease.user, "password": lease.password}
                leasing = context.pool.lease(self._task_id, timeout=context.lease_seconds, **context_options)
                async with leasing as leased:
                    watch = PageWatch(leased, context.options.block, self.log, self._clock)
                    await self._prepare(leased, watch)
                    self._opened.set_result(OpenPage(leased, lease, watch))
                    await self._wait_for_end()
                    if self._failed and self._task_id and context.artifacts is not None:
                        await self._store_artifacts(leased, context.artifacts)
                    self._has_artifacts.set()
        except FAILURES:
            if not self._opened.done():
                raise
        finally:
            self._ended.set()
            self._has_artifacts.set()

    async def _prepare(self, leased: LeasedPage, watch: PageWatch) -> None:
        try:
            await leased.call(watch.begin())
        except playwright_error() as error:
            raise BrowserCrashed(f"the page cannot be prepared: {error}"[:300]) from None
        if not self._cookies:
            return
        try:
            await leased.call(leased.context.add_cookies(self._cookies))
        except playwright_error() as error:
            reason = f"the browser rejects its cookies: {error.message.partition(chr(10))[0]}"[:200]
            raise unusable_profile(self._profile, reason) if self._profile else BrowserCrashed(reason) from None

    async def _wait_for_end(self) -> None:
        """Platform code may hang with a page that others could use: an idle one is taken back."""
        limit = self._context.idle_seconds
        while not await self._clock.wait(self._ended, limit):
            if not self._users and self._clock.monotonic() - self._used_at >= limit:
                self._ended.set()
                self.log.add("taken back", f"the page was not used for {limit:g} s")
                return

    async def _store_artifacts(self, leased: LeasedPage, artifacts: ArtifactSink) -> None:
        """They help the operator; that they cannot be had or stored is not a failure."""
        screenshot = None
        try:
            async with asyncio.timeout(_ARTIFACT_SECONDS):
                cookies = await leased.call(leased.context.cookies())
                self.log.secrets += [cookie.get("value", "") for cookie in cookies]
                session = await leased.call(leased.context.new_cdp_session(leased.page))
                await leased.call(session.send("Page.stopLoading"))  # or the screenshot would wait for what still loads
                screenshot = await leased.call(leased.page.screenshot(type="png", timeout=0))
        except (TimeoutError, BrowserCrashed, playwright_error()) as error:
            self.log.add("no screenshot", str(error) or "the page does not respond")
        with suppress(StoreError, OSError, TimeoutError):
            async with asyncio.timeout(_ARTIFACT_SECONDS):
                await artifacts.put(self._task_id, screenshot, self.log.text())
