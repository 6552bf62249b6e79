"""PageFetcher: fetches and renders pages politely on one event loop, for callers on any loop or thread."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import httpx2
from msgspec import structs

from parcelpost.clock import Clock, SystemClock
from parcelpost.errors import StoreError
from parcelpost.events import Emit, PageFetched, ignore
from parcelpost.model import Page, Task
from parcelpost.private_addresses import Resolve, open_connection_pool, origin_of, port_of, resolve
from parcelpost.scrapers.browser.proxy import GuardProxy
from parcelpost.scrapers.browser.renderer import (
    ARTIFACT_SECONDS,
    ArtifactSink,
    PageLease,
    RenderContext,
    Renderer,
    RenderRequest,
)
from parcelpost.scrapers.fetch.cache import CachedPage, CacheStore, PageCache
from parcelpost.scrapers.fetch.errors import (
    BrowserUnavailable,
    CannotFetch,
    FetchFailed,
    HostBusy,
    RetryLater,
    SiteBlocked,
)
from parcelpost.scrapers.fetch.exchange import (
    REDIRECTS,
    Exchange,
    FetchGuard,
    FetchOptions,
    Response,
    cool_down_seconds,
    redirect_problem,
    response_page,
    response_problem,
)
from parcelpost.scrapers.fetch.robots import Robots, robots_text
from parcelpost.scrapers.fetch.session import Session, Visit
from parcelpost.scrapers.fetch.throttle import HostThrottle, SiteAvailability
from parcelpost.scrapers.platform import Step

_MAX_REDIRECTS = 5
_ROBOTS_SECONDS = 86_400.0
_NO_BROWSER_SECONDS = 300.0
_ACCEPT = "text/html,application/xhtml+xml,application/json,text/csv;q=0.9,*/*;q=0.8"


class PageFetcher:
    """Belongs to the event loop that opened it. Only `session` may be called on others, and its sessions used there."""

    def __init__(
        self,
        options: FetchOptions,
        exchange: Exchange,
        guard: FetchGuard,
        cache: PageCache,
        clock: Clock,
        emit: Emit,
        renderer: Renderer | None = None,
        artifacts: ArtifactSink | None = None,
    ) -> None:
        self._options = options
        self._exchange = exchange
        self._guard = guard
        self._cache = cache
        self._clock = clock
        self._emit = emit
        self._throttle = HostThrottle(
            options.pace_seconds, options.concurrency_per_host, clock, processes=options.processes
        )
        self._renderer = renderer
        self._artifacts = artifacts
        self.availability = SiteAvailability(
            self._throttle.opens_in, *([renderer.opens_in] if renderer is not None else [])
        )
        """Selects the sites that can take another task."""
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
        """`browsing`: renders pages that need a browser; None: no browser. Raises InvalidSettings."""
        guard = FetchGuard(options.allow_private, resolve)
        async with AsyncExitStack() as stack:
            pool = await stack.enter_async_context(open_connection_pool(guard, options.proxy, options.proxy_login))
            exchange = Exchange(pool, options.timeout_seconds, options.max_page_bytes)
            renderer = artifacts = None
            if browsing is not None:
                artifacts = browsing.artifacts
                proxy = await stack.enter_async_context(
                    GuardProxy.open(guard, options.proxy, options.proxy_login, options.timeout_seconds)
                )
                renderer = await stack.enter_async_context(Renderer.open(browsing, proxy, guard, options, clock))
            yield cls(options, exchange, guard, PageCache(cache), clock, emit, renderer, artifacts)

    def session(self, pace_seconds: float = 0.0, task: Task | None = None, profile: str = "") -> Session:
        """Opens a session for one attempt at a task.

        `pace_seconds`: the county's own pace, used if it is longer than that of the settings. `profile`: the county's
        browser profile. With `task`, a first request that would wait long for the host raises HostBusy.
        """
        return Session(self, self._home, Visit(pace_seconds, task, profile))

    async def get(self, visit: Visit, text: str, headers: Mapping[str, str], *, cached: bool) -> Page:
        url = self._guard.url(text)
        stored = await self._cache.find(str(url)) if cached else None
        if stored is not None and stored.is_fresh and not visit.skips_cache:
            return self._from_cache(visit, stored)
        known = stored.conditions if stored is not None else {}
        response = await self._page(visit, self._request(url, "GET", {**known, **headers}))
        if response.status == 304:
            if stored is None:
                raise RetryLater(f"{url.host} replied 304 Not Modified for a page that is not cached")
            visit.to_cache.append(stored)
            return visit.take(stored.page, self._clock.now())
        page = response_page(response)
        if cached:
            visit.to_cache.append(CachedPage.new(str(url), page, response.headers, self._clock.now()))
        return visit.take(page, self._clock.now())

    async def post(self, visit: Visit, text: str, form: Mapping[str, str]) -> Page:
        response = await self._page(visit, self._request(self._guard.url(text), "POST", {}, form))
        return visit.take(response_page(response), self._clock.now())

    async def rendered(
        self, visit: Visit, text: str, *, until: str, steps: tuple[Step, ...], keep_cookies: bool, cached: bool
    ) -> Page:
        url = self._guard.url(text)
        request = RenderRequest(url=url, until=until, steps=steps, profile=visit.profile, keep_cookies=keep_cookies)
        stored = await self._cache.find(request.key) if cached and not visit.skips_cache else None
        if stored is not None and stored.is_fresh:
            return structs.replace(self._from_cache(visit, stored), url=str(url))
        if self._renderer is None:
            raise BrowserUnavailable("the page needs a browser, and none is available", _NO_BROWSER_SECONDS)
        try:
            response = await self._render(self._renderer, visit, request)
        except SiteBlocked:
            if visit.task is not None:  # it has turned us away with them
                self._renderer.cookies.forget(visit.task.site)
            raise
        page, now = response_page(response), self._clock.now()
        if cached:
            visit.to_cache.append(CachedPage.new(request.key, page, httpx2.Headers(), now))
        return visit.take(page, now)

    async def cached_page(self, visit: Visit, key: str) -> Page | None:
        stored = None if visit.skips_cache else await self._cache.find(key)
        if stored is None or not stored.is_fresh:
            return None
        return self._from_cache(visit, stored)

    def _from_cache(self, visit: Visit, stored: CachedPage) -> Page:
        size = len(stored.page.body)
        self._emit(PageFetched(method="GET", url=stored.key, status=200, bytes=size, seconds=0.0, cached=True))
        return visit.take(stored.page, stored.created_at, stored.key)

    async def cache_pages(self, visit: Visit) -> None:
        if visit.task is not None and visit.has_started and visit.lease is None:
            self.availability.needs_no_browser(visit.task.site)
        await self._cache.put(visit.to_cache)

    async def drop_cached(self, visit: Visit) -> None:
        await self._cache.delete(visit.from_cache)

    async def end(self, visit: Visit, *, failed: bool) -> None:
        """Returns the attempt's browser page. If the attempt failed, its artifacts are stored: best effort."""
        if visit.lease is not None:
            await visit.lease.end(failed=failed, last_page=visit.last_page)
        elif failed and visit.task is not None and self._artifacts is not None:
            with suppress(StoreError, OSError, TimeoutError):
                async with asyncio.timeout(ARTIFACT_SECONDS):
                    await self._artifacts.put(visit.task.task_id, None, "", visit.last_page)

    def _request(
        self, url: httpx2.URL, method: str, headers: Mapping[str, str], form: Mapping[str, str] | None = None
    ) -> httpx2.Request:
        own = {"User-Agent": self._options.user_agent, "Accept": _ACCEPT, "Accept-Encoding": "gzip, deflate"}
        return httpx2.Request(method, url, headers={**own, **headers}, data=dict(form) if form is not None else None)

    async def _page(self, visit: Visit, request: httpx2.Request) -> Response:
        response = await self._follow(visit, request, obey_robots=self._options.obey_robots)
        if isinstance(response, FetchFailed):
            raise response
        visit.last_page = response.body
        if failure := response_problem(response, self._clock.now()):
            raise failure
        return response

    async def _follow(self, visit: Visit, request: httpx2.Request, *, obey_robots: bool) -> Response | FetchFailed:
        """Follows redirects, each checked like the first URL. Returns a failure if they lead elsewhere."""
        for _ in range(_MAX_REDIRECTS + 1):
            response = await self._send(visit, request, obey_robots=obey_robots)
            location = response.headers.get("location", "")
            if response.status not in REDIRECTS or not location:
                return response
            url = self._redirect_url(response, location)
            if failure := redirect_problem(response.url, url):
                return failure
            request = _redirected(request, response, url)
        return RetryLater(f"{request.url.host} redirects more than {_MAX_REDIRECTS} times")

    def _redirect_url(self, response: Response, location: str) -> httpx2.URL:
        try:
            return self._guard.url(str(response.url.join(location)))
        except (httpx2.InvalidURL, UnicodeError, ValueError):
            raise CannotFetch(f"{response.url.host} redirects to an invalid URL") from None

    async def _send(self, visit: Visit, request: httpx2.Request, *, obey_robots: bool) -> Response:
        origin = origin_of(request.url)
        pace = await self._prepare(visit, request.url, obey_robots=obey_robots)
        if visit.cookies is not None:
            visit.cookies.set_cookie_header(request)
        async with self._throttle.request_slot(origin, pace, has_started=visit.has_started):
            visit.has_started = True
            started = self._clock.monotonic()
            response = await self._exchange.send(request)
            self._report(request.method, request.url, response, self._clock.monotonic() - started)
        if "set-cookie" in response.headers:
            visit.cookies = httpx2.Cookies() if visit.cookies is None else visit.cookies
            visit.cookies.extract_cookies(httpx2.Response(response.status, headers=response.headers, request=request))
        if rest := cool_down_seconds(response, self._clock.now()):
            self._throttle.pause(origin, rest)
        return response

    async def _prepare(self, visit: Visit, url: httpx2.URL, *, obey_robots: bool) -> float:
        """Checks that a request may be sent. Returns the seconds between requests to its host. Raises FetchFailed."""
        origin = origin_of(url)
        if self._options.proxy:
            await self._check_name(url)
        if (task := visit.to_admit) is not None:
            self._admit(task, origin, obey_robots=obey_robots)
            visit.to_admit = None
        delay = await self._robots.delay(origin, str(url)) if obey_robots else 0.0
        return max(visit.pace_seconds, delay)

    async def _render(self, renderer: Renderer, visit: Visit, request: RenderRequest) -> Response:
        origin = origin_of(request.url)
        pace = await self._prepare(visit, request.url, obey_robots=self._options.obey_robots)
        async with self._throttle.request_slot(origin, pace, has_started=visit.has_started):
            lease = visit.lease = await self._lease(renderer, visit)
            visit.has_started = True
            started = self._clock.monotonic()
            rendered = await renderer.render(lease, request, self._is_allowed)
            response, visit.remark, visit.last_page = rendered.response, rendered.remark, rendered.response.body
            self._report("RENDER", request.url, response, self._clock.monotonic() - started)
        self._throttle.add_requests(origin, len(rendered.documents) - 1)
        if rest := cool_down_seconds(response, self._clock.now()):
            self._throttle.pause(origin, rest)
        if self._options.obey_robots:
            for url in rendered.documents:
                await self._robots.delay(origin_of(url), str(url))
        if failure := response_problem(response, self._clock.now()):
            raise failure
        if request.keep_cookies and visit.task is not None:
            await renderer.keep_cookies(lease, visit.task)
        return response

    async def _lease(self, renderer: Renderer, visit: Visit) -> PageLease:
        """Returns the browser page of the attempt."""
        if visit.lease is not None:
            return visit.lease
        if (task := visit.task) is None:
            return await renderer.lease(None, visit.profile)
        try:
            lease = await renderer.lease(task, visit.profile)
        except HostBusy:
            self.availability.needs_browser(task.site)
            raise
        self.availability.needs_browser(task.site)
        self.availability.got_page(task)
        return lease

    def _is_allowed(self, url: httpx2.URL) -> bool:
        return not self._options.obey_robots or self._robots.may_allow(origin_of(url), str(url))

    def _admit(self, task: Task, origin: str, *, obey_robots: bool) -> None:
        self.availability.learn(task.site, origin)
        self.availability.reached_host(task)
        self.availability.check_host(origin, task.platform, self._clock.monotonic())
        if obey_robots and self._robots.is_loading(origin):
            self._throttle.close_briefly(origin)
        self._throttle.admit(origin)

    def _report(self, method: str, url: httpx2.URL, response: Response, seconds: float) -> None:
        status, size = response.status, len(response.body)
        self._emit(PageFetched(method=method, url=str(url), status=status, bytes=size, seconds=seconds, cached=False))

    async def _check_name(self, url: httpx2.URL) -> None:
        """Checks the name as far as we can resolve it; behind a proxy, the proxy resolves it."""
        try:
            await self._guard.addresses(url.raw_host.decode("ascii"), port_of(url))
        except (OSError, RetryLater):
            return

    async def _read_robots(self, origin: str) -> bytes:
        url = self._guard.url(f"{origin}/robots.txt")
        stored = await self._cache.find(str(url))
        if stored is not None and stored.is_fresh:
            return stored.page.body
        response = await self._follow(Visit(0.0), self._request(url, "GET", {}), obey_robots=False)
        body = b"" if isinstance(response, FetchFailed) else robots_text(origin, response, self._clock.now())
        page = Page(body=body, content_type="text/plain", url=str(url))
        await self._cache.put([CachedPage.new(str(url), page, httpx2.Headers(), self._clock.now(), _ROBOTS_SECONDS)])
        return body


def _redirected(request: httpx2.Request, response: Response, url: httpx2.URL) -> httpx2.Request:
    keeps_form = response.status in (307, 308) and request.method == "POST"
    same_site = origin_of(url) == origin_of(response.url)
    headers = {
        name: value
        for name, value in request.headers.items()
        if name in ("accept", "accept-encoding", "user-agent")
        or (keeps_form and name == "content-type")
        or (same_site and name not in ("cookie", "host", "content-length", "content-type", "transfer-encoding"))
    }
    content = request.content if keeps_form else None
    return httpx2.Request("POST" if keeps_form else "GET", url, headers=headers, content=content)
