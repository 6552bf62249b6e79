"""Pages, fetched with manners. One pool of connections on one event loop, for callers on any."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from typing import Any, TypeVar

import httpx2

from parcelpost.clock import Clock, SystemClock
from parcelpost.events import Emit, PageFetched, ignore
from parcelpost.model import Page, Task
from parcelpost.scrapers.answers import REDIRECTS, away_from_the_page, page_of, problem, rest_seconds
from parcelpost.scrapers.connecting import open_pool
from parcelpost.scrapers.exchange import Answer, Exchange, FetchOptions
from parcelpost.scrapers.fetch_errors import CannotFetch, FetchFailed, NotThere, TryLater, TurnedAway
from parcelpost.scrapers.guard import Guard, Resolve, origin_of, port_of, resolve
from parcelpost.scrapers.keeping import Keeping, PageCache, Stored
from parcelpost.scrapers.politeness import Politeness
from parcelpost.scrapers.robots import Robots
from parcelpost.scrapers.turns import Turns

T = TypeVar("T")

_MOST_REDIRECTS = 5
_ROBOTS_SECONDS = 86_400.0
_ACCEPT = "text/html,application/xhtml+xml,application/json,text/csv;q=0.9,*/*;q=0.8"


class PageFetcher:
    """Belongs to the loop that opened it; only `session` may be called elsewhere, and what it answers used there."""

    def __init__(
        self, options: FetchOptions, exchange: Exchange, guard: Guard, keeping: Keeping, clock: Clock, emit: Emit
    ) -> None:
        self._options = options
        self._exchange = exchange
        self._guard = guard
        self._keeping = keeping
        self._clock = clock
        self._emit = emit
        self._politeness = Politeness(options.pace_seconds, options.concurrency_per_host, clock)
        self.turns = Turns(self._politeness.opens_in)
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
        cache: PageCache | None = None,
        clock: Clock = SystemClock(),
        emit: Emit = ignore,
        resolve: Resolve = resolve,
    ) -> AsyncIterator[PageFetcher]:
        """Raises InvalidSettings."""
        guard = Guard(options.allow_private, resolve)
        async with AsyncExitStack() as stack:
            pool = await stack.enter_async_context(open_pool(guard, options.proxy, options.proxy_login))
            exchange = Exchange(pool, options.timeout_seconds, options.max_page_bytes)
            yield cls(options, exchange, guard, Keeping(cache), clock, emit)

    def session(self, pace_seconds: float = 0.0, task: Task | None = None) -> Session:
        """For one attempt at a task. `pace_seconds`: what the site's entry says, if longer than the settings'.

        With `task` its first request does not wait long for a turn: it raises NoTurn.
        """
        return Session(self, self._home, Visit(pace_seconds, task))

    async def get(self, visit: Visit, text: str, headers: Mapping[str, str], *, cached: bool) -> Page:
        url = self._guard.url(text)
        stored = await self._keeping.find(str(url)) if cached else None
        if stored is not None and stored.is_fresh:
            return self._from_cache(visit, stored)
        known = stored.conditions if stored is not None else {}
        answer = await self._page(visit, self._request(url, "GET", {**known, **headers}))
        if answer.status == 304:
            if stored is None:
                raise TryLater(f"{url.host} says that a page has not changed which it never sent")
            visit.to_keep.append(stored)
            return visit.take(stored.page, self._clock.now())
        page = page_of(answer)
        if cached:
            visit.to_keep.append(Stored.new(str(url), page, answer.headers, self._clock.now()))
        return visit.take(page, self._clock.now())

    async def post(self, visit: Visit, text: str, form: Mapping[str, str]) -> Page:
        answer = await self._page(visit, self._request(self._guard.url(text), "POST", {}, form))
        return visit.take(page_of(answer), self._clock.now())

    async def kept(self, visit: Visit, key: str) -> Page | None:
        stored = await self._keeping.find(key)
        if stored is None or not stored.is_fresh:
            return None
        return self._from_cache(visit, stored)

    def _from_cache(self, visit: Visit, stored: Stored) -> Page:
        size = len(stored.page.body)
        self._emit(PageFetched(method="GET", url=stored.key, status=200, bytes=size, seconds=0.0, cached=True))
        return visit.take(stored.page, stored.created_at, stored.key)

    async def keep(self, visit: Visit) -> None:
        await self._keeping.keep(visit.to_keep)

    async def forget(self, visit: Visit) -> None:
        await self._keeping.forget(visit.from_cache)

    def _request(
        self, url: httpx2.URL, method: str, headers: Mapping[str, str], form: Mapping[str, str] | None = None
    ) -> httpx2.Request:
        own = {"User-Agent": self._options.user_agent, "Accept": _ACCEPT, "Accept-Encoding": "gzip, deflate"}
        return httpx2.Request(method, url, headers={**own, **headers}, data=dict(form) if form is not None else None)

    async def _page(self, visit: Visit, request: httpx2.Request) -> Answer:
        answer = await self._follow(visit, request, ask_robots=self._options.obey_robots)
        if isinstance(answer, FetchFailed):
            raise answer
        if failure := problem(answer, self._clock.now()):
            raise failure
        return answer

    async def _follow(self, visit: Visit, request: httpx2.Request, *, ask_robots: bool) -> Answer | FetchFailed:
        """The answer at the end of all redirects, each of them checked as the first address was.

        A failure: they lead away from what was asked for.
        """
        for _ in range(_MOST_REDIRECTS + 1):
            answer = await self._ask(visit, request, ask_robots=ask_robots)
            location = answer.headers.get("location", "")
            if answer.status not in REDIRECTS or not location:
                return answer
            leads_to = self._leads_to(answer, location)
            if failure := away_from_the_page(answer.url, leads_to):
                return failure
            request = _next(request, answer, leads_to)
        return TryLater(f"{request.url.host} redirects more than {_MOST_REDIRECTS} times")

    def _leads_to(self, answer: Answer, location: str) -> httpx2.URL:
        try:
            return self._guard.url(str(answer.url.join(location)))
        except (httpx2.InvalidURL, UnicodeError, ValueError):
            raise CannotFetch(f"{answer.url.host} redirects to what is no address") from None

    async def _ask(self, visit: Visit, request: httpx2.Request, *, ask_robots: bool) -> Answer:
        origin = origin_of(request.url)
        if self._options.proxy:
            await self._check_name(request.url)
        if (task := visit.not_yet_admitted) is not None:
            self._admit(task, origin, ask_robots=ask_robots)
            visit.not_yet_admitted = None
        delay = await self._robots.delay(origin, str(request.url)) if ask_robots else 0.0
        visit.cookies.set_cookie_header(request)
        async with self._politeness.turn(origin, max(visit.pace_seconds, delay), has_begun=visit.has_begun):
            visit.has_begun = True
            started = self._clock.monotonic()
            answer = await self._exchange.send(request)
            self._report(request, answer, self._clock.monotonic() - started)
        visit.cookies.extract_cookies(httpx2.Response(answer.status, headers=answer.headers, request=request))
        if rest := rest_seconds(answer, self._clock.now()):
            self._politeness.rest(origin, rest)
        return answer

    def _admit(self, task: Task, origin: str, *, ask_robots: bool) -> None:
        self.turns.learn(task.site, origin)
        self.turns.came(task)
        if ask_robots and self._robots.is_asking(origin):
            self._politeness.shut(origin)
        self._politeness.admit(origin)

    def _report(self, request: httpx2.Request, answer: Answer, seconds: float) -> None:
        url, size = str(request.url), len(answer.body)
        self._emit(
            PageFetched(method=request.method, url=url, status=answer.status, bytes=size, seconds=seconds, cached=False)
        )

    async def _check_name(self, url: httpx2.URL) -> None:
        """The proxy resolves the name; what we can see of it is checked here, and what we cannot is left to it."""
        try:
            await self._guard.addresses(url.raw_host.decode("ascii"), port_of(url))
        except (OSError, TryLater):
            return

    async def _read_robots(self, origin: str) -> bytes:
        url = self._guard.url(f"{origin}/robots.txt")
        stored = await self._keeping.find(str(url))
        if stored is not None and stored.is_fresh:
            return stored.page.body
        answer = await self._follow(Visit(0.0), self._request(url, "GET", {}), ask_robots=False)
        body = b"" if isinstance(answer, FetchFailed) else self._rules_in(origin, answer)
        page = Page(body=body, content_type="text/plain", url=str(url))
        await self._keeping.keep([Stored.new(str(url), page, httpx2.Headers(), self._clock.now(), _ROBOTS_SECONDS)])
        return body

    def _rules_in(self, origin: str, answer: Answer) -> bytes:
        if answer.is_good:
            return answer.body
        failure = problem(answer, self._clock.now())
        if not isinstance(failure, NotThere | TurnedAway | CannotFetch):
            raise TryLater(f"robots.txt of {origin} cannot be had: {failure}", getattr(failure, "after_seconds", None))
        return b""


class Visit:
    """What belongs to one attempt: its cookies, and what it took from the cache or has for it."""

    def __init__(self, pace_seconds: float, task: Task | None = None) -> None:
        self.pace_seconds = pace_seconds
        self.not_yet_admitted = task
        """Whose first request is still to come."""
        self.has_begun = False
        """A site has been asked: further requests wait for their turn, as long as the attempt may take."""
        self.cookies = httpx2.Cookies()
        self.to_keep: list[Stored] = []
        self.from_cache: list[str] = []
        self.fetched_at: datetime | None = None
        """When the oldest of its pages was fetched."""

    def take(self, page: Page, fetched_at: datetime, from_cache: str = "") -> Page:
        if from_cache:
            self.from_cache.append(from_cache)
        self.fetched_at = min(fetched_at, self.fetched_at or fetched_at)
        return page


class Session:
    """A Fetcher for one attempt at a task, on any event loop. Cancelling a call cancels its request."""

    def __init__(self, fetcher: PageFetcher, home: asyncio.AbstractEventLoop, visit: Visit) -> None:
        self._fetcher = fetcher
        self._home = home
        self._visit = visit

    @property
    def fetched_at(self) -> datetime | None:
        """When the oldest page of this attempt was fetched; None: there is none yet."""
        return self._visit.fetched_at

    async def get(self, url: str, *, headers: Mapping[str, str] = {}, cached: bool = True) -> Page:
        return await self._at_home(self._fetcher.get(self._visit, url, headers, cached=cached))

    async def post(self, url: str, form: Mapping[str, str]) -> Page:
        return await self._at_home(self._fetcher.post(self._visit, url, form))

    async def kept(self, key: str) -> Page | None:
        return await self._at_home(self._fetcher.kept(self._visit, key))

    def keep_as(self, key: str, page: Page) -> None:
        if self._visit.fetched_at is not None:
            self._visit.to_keep.append(Stored.new(key, page, httpx2.Headers(), self._visit.fetched_at))

    async def keep(self) -> None:
        """The pages gave a record: the next attempt within their time asks the site nothing."""
        await self._at_home(self._fetcher.keep(self._visit))

    async def forget(self) -> None:
        """What came from the cache was of no use: the next attempt asks the site."""
        await self._at_home(self._fetcher.forget(self._visit))

    async def _at_home(self, work: Coroutine[Any, Any, T]) -> T:
        if self._home.is_closed():
            work.close()
            raise TryLater("the worker is ending")
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._home))


def _next(request: httpx2.Request, answer: Answer, leads_to: httpx2.URL) -> httpx2.Request:
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
