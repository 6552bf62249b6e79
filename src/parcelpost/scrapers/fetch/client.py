"""PageFetcher: fetches and renders pages politely. One connection pool on one event loop, for callers on any."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

import httpx2
from msgspec import structs

from parcelpost.clock import Clock, SystemClock
from parcelpost.events import Emit, PageFetched, ignore
from parcelpost.model import Page, Task
from parcelpost.scrapers.browser.base import RenderContext, Step
from parcelpost.scrapers.browser.page import PageLease
from parcelpost.scrapers.browser.proxy import GuardProxy
from parcelpost.scrapers.browser.rendering import Renderer, RenderRequest
from parcelpost.scrapers.fetch.cache import CachedPage, CacheStore, PageCache
from parcelpost.scrapers.fetch.errors import (
    BrowserUnavailable,
    CannotFetch,
    FetchFailed,
    HostBusy,
    PageNotFound,
    RetryLater,
    SiteBlocked,
)
from parcelpost.scrapers.fetch.exchange import (
    REDIRECTS,
    Exchange,
    FetchOptions,
    Response,
    cool_down_seconds,
    redirect_problem,
    response_page,
    response_problem,
)
from parcelpost.scrapers.fetch.guard import Guard, Resolve, open_connection_pool, origin_of, port_of, resolve
from parcelpost.scrapers.fetch.robots import Robots
from parcelpost.scrapers.fetch.session import Session, Visit
from parcelpost.scrapers.fetch.throttle import HostThrottle, SiteAvailability

_MOST_REDIRECTS = 5
_ROBOTS_SECONDS = 86_400.0
_NO_BROWSER_SECONDS = 300.0
_ACCEPT = "text/html,application/xhtml+xml,application/json,text/csv;q=0.9,*/*;q=0.8"


class PageFetcher:
    """Belongs to the loop that opened it; only `session` may be called elsewhere, and what it answers used there."""

    def __init__(
        self,
        options: FetchOptions,
        exchange: Exchange,
        guard: Guard,
        keeping: PageCache,
        clock: Clock,
        emit: Emit,
        rendering: Renderer | None = None,
    ) -> None:
        self._options = options
        self._exchange = exchange
        self._guard = guard
        self._keeping = keeping
        self._clock = clock
        self._emit = emit
        self._politeness = HostThrottle(options.pace_seconds, options.concurrency_per_host, clock)
        self._rendering = rendering
        self.turns = SiteAvailability(
            self._politeness.opens_in, *([rendering.opens_in] if rendering is not None else [])
        )
        """Which have a turn free, for whoever chooses the next task."""
        agent = options.user_agent.partition("/")[0].strip()
        self._robots = Robots(self._read_robots, agent, clock)
        self._home = asyncio.get_running_loop()

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        options: FetchOptions = FetchOptions(),  # noqa: B008 - frozen
        *,
        cache: CacheStore | None = None,
        clock: Clock = SystemClock(),
        emit: Emit = ignore,
        resolve: Resolve = resolve,
        browsing: RenderContext | None = None,
    ) -> AsyncIterator[PageFetcher]:
        """`browsing`: with what pages are rendered that need it; None: with nothing. Raises InvalidSettings."""
        guard = Guard(options.allow_private, resolve)
        async with AsyncExitStack() as stack:
            pool = await stack.enter_async_context(open_connection_pool(guard, options.proxy, options.proxy_login))
            exchange = Exchange(pool, options.timeout_seconds, options.max_page_bytes)
            rendering = None
            if browsing is not None:
                proxy = await stack.enter_async_context(
                    GuardProxy.open(guard, options.proxy, options.proxy_login, options.timeout_seconds)
                )
                rendering = await stack.enter_async_context(Renderer.open(browsing, proxy, guard, options, clock))
            yield cls(options, exchange, guard, PageCache(cache), clock, emit, rendering)

    def session(self, pace_seconds: float = 0.0, task: Task | None = None, profile: str = "") -> Session:
        """For one attempt at a task. `pace_seconds`: what the site's entry says, if longer than the settings'.

        `profile`: the browser profile that its entry names. With `task` its first request does not wait long for a
        turn: it raises NoTurn.
        """
        return Session(self, self._home, Visit(pace_seconds, task, profile))

    async def get(self, visit: Visit, text: str, headers: Mapping[str, str], *, cached: bool) -> Page:
        url = self._guard.url(text)
        stored = await self._keeping.find(str(url)) if cached else None
        if stored is not None and stored.is_fresh and not visit.asks_site:
            return self._from_cache(visit, stored)
        known = stored.conditions if stored is not None else {}
        answer = await self._page(visit, self._request(url, "GET", {**known, **headers}))
        if answer.status == 304:
            if stored is None:
                raise RetryLater(f"{url.host} says that a page has not changed which it never sent")
            visit.to_keep.append(stored)
            return visit.take(stored.page, self._clock.now())
        page = response_page(answer)
        if cached:
            visit.to_keep.append(CachedPage.new(str(url), page, answer.headers, self._clock.now()))
        return visit.take(page, self._clock.now())

    async def post(self, visit: Visit, text: str, form: Mapping[str, str]) -> Page:
        answer = await self._page(visit, self._request(self._guard.url(text), "POST", {}, form))
        return visit.take(response_page(answer), self._clock.now())

    async def rendered(
        self, visit: Visit, text: str, *, until: str, steps: tuple[Step, ...], keep_cookies: bool, cached: bool
    ) -> Page:
        url = self._guard.url(text)
        wanted = RenderRequest(url=url, until=until, steps=steps, profile=visit.profile, keep_cookies=keep_cookies)
        stored = await self._keeping.find(wanted.key) if cached and not visit.asks_site else None
        if stored is not None and stored.is_fresh:
            return structs.replace(self._from_cache(visit, stored), url=str(url))
        if self._rendering is None:
            raise BrowserUnavailable("the page needs a browser, and there is none here", _NO_BROWSER_SECONDS)
        try:
            answer = await self._render(self._rendering, visit, wanted)
        except SiteBlocked:
            self._rendering.forget_cookies(visit.task)
            raise
        page, now = response_page(answer), self._clock.now()
        if cached:
            visit.to_keep.append(CachedPage.new(wanted.key, page, httpx2.Headers(), now))
        return visit.take(page, now)

    async def kept(self, visit: Visit, key: str) -> Page | None:
        stored = None if visit.asks_site else await self._keeping.find(key)
        if stored is None or not stored.is_fresh:
            return None
        return self._from_cache(visit, stored)

    def _from_cache(self, visit: Visit, stored: CachedPage) -> Page:
        size = len(stored.page.body)
        self._emit(PageFetched(method="GET", url=stored.key, status=200, bytes=size, seconds=0.0, cached=True))
        return visit.take(stored.page, stored.created_at, stored.key)

    async def keep(self, visit: Visit) -> None:
        if visit.task is not None and visit.has_begun and visit.stay is None:
            self.turns.need_no_browser(visit.task.site)
        await self._keeping.keep(visit.to_keep)

    async def forget(self, visit: Visit) -> None:
        await self._keeping.forget(visit.from_cache)

    def _request(
        self, url: httpx2.URL, method: str, headers: Mapping[str, str], form: Mapping[str, str] | None = None
    ) -> httpx2.Request:
        own = {"User-Agent": self._options.user_agent, "Accept": _ACCEPT, "Accept-Encoding": "gzip, deflate"}
        return httpx2.Request(method, url, headers={**own, **headers}, data=dict(form) if form is not None else None)

    async def _page(self, visit: Visit, request: httpx2.Request) -> Response:
        answer = await self._follow(visit, request, ask_robots=self._options.obey_robots)
        if isinstance(answer, FetchFailed):
            raise answer
        if failure := response_problem(answer, self._clock.now()):
            raise failure
        return answer

    async def _follow(self, visit: Visit, request: httpx2.Request, *, ask_robots: bool) -> Response | FetchFailed:
        """The answer at the end of all redirects, each of them checked as the first address was.

        A failure: they lead away from what was asked for.
        """
        for _ in range(_MOST_REDIRECTS + 1):
            answer = await self._ask(visit, request, ask_robots=ask_robots)
            location = answer.headers.get("location", "")
            if answer.status not in REDIRECTS or not location:
                return answer
            leads_to = self._leads_to(answer, location)
            if failure := redirect_problem(answer.url, leads_to):
                return failure
            request = _next(request, answer, leads_to)
        return RetryLater(f"{request.url.host} redirects more than {_MOST_REDIRECTS} times")

    def _leads_to(self, answer: Response, location: str) -> httpx2.URL:
        try:
            return self._guard.url(str(answer.url.join(location)))
        except (httpx2.InvalidURL, UnicodeError, ValueError):
            raise CannotFetch(f"{answer.url.host} redirects to what is no address") from None

    async def _ask(self, visit: Visit, request: httpx2.Request, *, ask_robots: bool) -> Response:
        origin = origin_of(request.url)
        pace = await self._arrive(visit, request.url, ask_robots=ask_robots)
        visit.cookies.set_cookie_header(request)
        async with self._politeness.turn(origin, pace, has_begun=visit.has_begun):
            visit.has_begun = True
            started = self._clock.monotonic()
            answer = await self._exchange.send(request)
            self._report(request.method, request.url, answer, self._clock.monotonic() - started)
        visit.cookies.extract_cookies(httpx2.Response(answer.status, headers=answer.headers, request=request))
        if rest := cool_down_seconds(answer, self._clock.now()):
            self._politeness.rest(origin, rest)
        return answer

    async def _arrive(self, visit: Visit, url: httpx2.URL, *, ask_robots: bool) -> float:
        """At a host's door: the pace at which it wants to be asked. Raises what keeps us from asking it."""
        origin = origin_of(url)
        if self._options.proxy:
            await self._check_name(url)
        if (task := visit.not_yet_admitted) is not None:
            self._admit(task, origin, ask_robots=ask_robots)
            visit.not_yet_admitted = None
        delay = await self._robots.delay(origin, str(url)) if ask_robots else 0.0
        return max(visit.pace_seconds, delay)

    async def _render(self, rendering: Renderer, visit: Visit, wanted: RenderRequest) -> Response:
        origin = origin_of(wanted.url)
        pace = await self._arrive(visit, wanted.url, ask_robots=self._options.obey_robots)
        async with self._politeness.turn(origin, pace, has_begun=visit.has_begun):
            stay = visit.stay = await self._stay(rendering, visit)
            visit.has_begun = True
            started = self._clock.monotonic()
            rendered = await rendering.render(stay, wanted, self._is_allowed)
            answer, visit.remark = rendered.answer, rendered.remark
            self._report("RENDER", wanted.url, answer, self._clock.monotonic() - started)
        self._politeness.was_asked(origin, len(rendered.documents) - 1)
        if rest := cool_down_seconds(answer, self._clock.now()):
            self._politeness.rest(origin, rest)
        if self._options.obey_robots:
            for url in rendered.documents:
                await self._robots.delay(origin_of(url), str(url))
        if failure := response_problem(answer, self._clock.now()):
            raise failure
        if wanted.keep_cookies and visit.task is not None:
            await rendering.keep_cookies(stay, visit.task)
        return answer

    async def _stay(self, rendering: Renderer, visit: Visit) -> PageLease:
        """The attempt's page."""
        if visit.stay is not None and not visit.stay.is_over:
            return visit.stay
        if (task := visit.task) is None:
            return await rendering.stay(None, visit.profile)
        try:
            found = await rendering.stay(task, visit.profile)
        except HostBusy:
            self.turns.need_browser(task.site)
            raise
        self.turns.need_browser(task.site)
        self.turns.has_browser(task)
        return found

    def _is_allowed(self, url: httpx2.URL) -> bool:
        return not self._options.obey_robots or self._robots.may_allow(origin_of(url), str(url))

    def _admit(self, task: Task, origin: str, *, ask_robots: bool) -> None:
        self.turns.learn(task.site, origin)
        self.turns.is_at_host(task)
        if ask_robots and self._robots.is_asking(origin):
            self._politeness.shut(origin)
        self._politeness.admit(origin)

    def _report(self, method: str, url: httpx2.URL, answer: Response, seconds: float) -> None:
        status, size = answer.status, len(answer.body)
        self._emit(PageFetched(method=method, url=str(url), status=status, bytes=size, seconds=seconds, cached=False))

    async def _check_name(self, url: httpx2.URL) -> None:
        """The proxy resolves the name; what we can see of it is checked here, and what we cannot is left to it."""
        try:
            await self._guard.addresses(url.raw_host.decode("ascii"), port_of(url))
        except (OSError, RetryLater):
            return

    async def _read_robots(self, origin: str) -> bytes:
        url = self._guard.url(f"{origin}/robots.txt")
        stored = await self._keeping.find(str(url))
        if stored is not None and stored.is_fresh:
            return stored.page.body
        answer = await self._follow(Visit(0.0), self._request(url, "GET", {}), ask_robots=False)
        body = b"" if isinstance(answer, FetchFailed) else self._rules_in(origin, answer)
        page = Page(body=body, content_type="text/plain", url=str(url))
        await self._keeping.keep([CachedPage.new(str(url), page, httpx2.Headers(), self._clock.now(), _ROBOTS_SECONDS)])
        return body

    def _rules_in(self, origin: str, answer: Response) -> bytes:
        if answer.is_good:
            return answer.body
        failure = response_problem(answer, self._clock.now())
        if not isinstance(failure, PageNotFound | SiteBlocked | CannotFetch):
            raise RetryLater(
                f"robots.txt of {origin} cannot be had: {failure}", getattr(failure, "after_seconds", None)
            )
        return b""


def _next(request: httpx2.Request, answer: Response, leads_to: httpx2.URL) -> httpx2.Request:
    keeps_form = answer.status in (307, 308) and request.method == "POST"
    same_site = origin_of(leads_to) == origin_of(answer.url)
    headers = {
        name: value
        for name, value in request.headers.items()
        if name in ("accept", "accept-encoding", "user-agent")
        or (keeps_form and name == "content-type")
        or (same_site and name not in ("cookie", "host", "content-length", "content-type", "transfer-encoding"))
    }
    content = request.content if keeps_form else None
    return httpx2.Request("POST" if keeps_form else "GET", leads_to, headers=headers, content=content)
