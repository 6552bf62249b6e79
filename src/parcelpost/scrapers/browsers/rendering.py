"""Pages as a browser shows them, for attempts at tasks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from parcelpost.clock import Clock
from parcelpost.model import Task
from parcelpost.scrapers.browsers import profiles
from parcelpost.scrapers.browsers.course import Allows, Course
from parcelpost.scrapers.browsers.guard_proxy import GuardProxy
from parcelpost.scrapers.browsers.lending import Browsing
from parcelpost.scrapers.browsers.loading import Loading, Rendered, Wanted
from parcelpost.scrapers.browsers.stay import Stay
from parcelpost.scrapers.browsers.steps import Fill
from parcelpost.scrapers.exchange import FetchOptions
from parcelpost.scrapers.fetch_errors import FAILURES, BrowserDied
from parcelpost.scrapers.guard import Guard

_LOOK_SECONDS = 0.5


class Rendering:
    """Belongs to the worker's loop."""

    def __init__(
        self, browsing: Browsing, proxy: GuardProxy, guard: Guard, options: FetchOptions, clock: Clock
    ) -> None:
        self._browsing = browsing
        self._proxy = proxy
        self._guard = guard
        self._options = options
        self._clock = clock
        self._agent = ""
        self._stays: set[asyncio.Task[None]] = set()
        self._cookies = profiles.KeptCookies()

    @classmethod
    @asynccontextmanager
    async def open(
        cls, browsing: Browsing, proxy: GuardProxy, guard: Guard, options: FetchOptions, clock: Clock
    ) -> AsyncIterator[Rendering]:
        """All pages are given back at its end."""
        rendering = cls(browsing, proxy, guard, options, clock)
        try:
            yield rendering
        finally:
            for task in rendering._stays:
                task.cancel()
            if rendering._stays:
                await asyncio.wait(rendering._stays)

    def opens_in(self, before: int) -> float:
        """0: one more task that needs a page may come, behind `before` on their way. Else the seconds until a look."""
        lender = self._browsing.lender
        if seconds := lender.opens_in():
            return seconds
        is_full = lender.figures.busy + lender.figures.waiting + before >= self._browsing.options.most
        return _LOOK_SECONDS if is_full else 0.0

    async def stay(self, task: Task | None, profile: str) -> Stay:
        """A page for an attempt. Raises NoBrowser, BrowserDied and NoTurn."""
        state = await asyncio.to_thread(profiles.saved, self._browsing.profiles, profile) if profile else {}
        if task is not None:
            state = self._cookies.added_to(state, task.site)
        task_id = task.task_id if task is not None else ""
        agent = await self._user_agent(task_id)
        stay = Stay(task_id, self._browsing, self._proxy, self._clock, profile, state.get("cookies", ()))
        stored = {"origins": state.get("origins", ())}
        holding = stay.begin(user_agent=agent, storage_state=stored, accept_downloads=False, service_workers="block")
        self._stays.add(holding)
        holding.add_done_callback(self._stays.discard)
        await stay.ready(holding)
        return stay

    async def render(self, stay: Stay, wanted: Wanted, allows: Allows) -> Rendered:
        """Raises a FetchFailed."""
        stay.secrets += [step.text for step in wanted.steps if isinstance(step, Fill)]
        course = Course(wanted.url, self._guard, allows, self._browsing.options.max_navigations)
        with stay.in_use() as held:
            loading = Loading(held, wanted, course, self._browsing, self._options.max_page_bytes, self._clock)
            try:
                rendered = await loading.run()
            except BrowserDied as death:
                raise await stay.died(death) from None
            except FAILURES as failure:
                stay.log.add("ended", str(failure))
                raise
        if rendered.remark:
            stay.log.add("incomplete", rendered.remark)
        return rendered

    async def keep_cookies(self, stay: Stay, task: Task) -> None:
        """For the next task of its site."""
        with stay.in_use() as held:
            try:
                self._cookies.keep(task.site, await held.lent.alive(held.lent.context.cookies()))
            except BrowserDied as death:
                raise await stay.died(death) from None

    def forget_cookies(self, task: Task | None) -> None:
        """The site turned us away with them."""
        if task is not None:
            self._cookies.forget(task.site)

    async def _user_agent(self, task_id: str) -> str:
        """Chromium's own, and ours: a site sees who asks, and with what."""
        if not self._agent:
            async with self._browsing.lender.lend(task_id) as lent:
                self._agent = await lent.alive(lent.page.evaluate("navigator.userAgent"))
        return f"{self._agent} {self._options.user_agent}"
