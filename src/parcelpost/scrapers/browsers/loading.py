"""One page, loaded in a lent one: gone to, waited for, read, within limits of time, size and navigations."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import httpx2
import msgspec
from msgspec import Struct

from parcelpost.clock import Clock
from parcelpost.model import Page
from parcelpost.scrapers.browsers.course import Course
from parcelpost.scrapers.browsers.lending import Browsing, playwright_error
from parcelpost.scrapers.browsers.stay import Held
from parcelpost.scrapers.browsers.steps import Step, taken
from parcelpost.scrapers.challenge import challenge
from parcelpost.scrapers.exchange import Answer
from parcelpost.scrapers.fetch_errors import CannotFetch, TryLater, TurnedAway

if TYPE_CHECKING:
    from playwright.async_api import Frame

HTML = "text/html; charset=utf-8"
_LOOK_SECONDS = 0.05
_SETTLED_SECONDS = 0.5
_READ_SECONDS = 10.0
_LEAST_READ_SECONDS = 1.0
_STEP_SECONDS = 15.0
_MOST_FRAMES = 20
_LENGTH = "document.documentElement ? document.documentElement.outerHTML.length : 0"
_TEXT_LENGTH = "document.body ? document.body.innerText.length : 0"
_SUPERSEDED = ("interrupted by another navigation", "ERR_ABORTED", "frame was detached")


class Wanted(Struct, frozen=True, kw_only=True):
    """A page, and when it is complete."""

    url: httpx2.URL
    until: str = ""
    """CSS of what a complete page holds, in itself or in a frame of the same site."""
    steps: tuple[Step, ...] = ()
    profile: str = ""
    keep_cookies: bool = False

    @property
    def key(self) -> str:
        """Under which it is kept: not that of the same page as the site sends it."""
        rest = msgspec.json.encode((self.until, self.steps, self.profile))
        return f"{self.url}#rendered-{hashlib.sha256(rest).hexdigest()[:16]}"


class Rendered(Struct, frozen=True, kw_only=True):
    answer: Answer
    documents: Sequence[httpx2.URL]
    """All that stood in the page's main frame, the last of them the one that was read."""
    remark: str = ""
    """Why it may be incomplete."""


class Loading:
    def __init__(
        self, held: Held, wanted: Wanted, course: Course, browsing: Browsing, max_page_bytes: int, clock: Clock
    ) -> None:
        self._held = held
        self._wanted = wanted
        self._course = course
        self._seconds = browsing.options.page_seconds
        self._quiet_seconds = browsing.quiet_seconds if wanted.until else _SETTLED_SECONDS
        self._max_page_bytes = max_page_bytes
        self._clock = clock
        self._began = clock.monotonic()
        self._error = playwright_error()
        self._frame: Frame = held.lent.page.main_frame
        """What is read."""
        self._remark = ""

    async def run(self) -> Rendered:
        """Raises a FetchFailed. A page whose `until` does not come is answered as it is."""
        self._held.watch.follow(self._course)
        try:
            await self._load()
        finally:
            self._course.is_over = True
        body = await self._read()
        if asked := challenge(Page(body=body), is_built=True):
            raise TurnedAway(asked.reason)
        answer = Answer(
            url=self._course.last,
            status=self._course.status,
            headers=httpx2.Headers({**self._course.headers, "content-type": HTML}),
            body=body,
        )
        return Rendered(answer=answer, documents=self._course.documents, remark=self._remark)

    async def _load(self) -> None:
        try:
            async with asyncio.timeout(self._seconds):
                await self._go()
                if await self._take_steps():
                    await self._settle()
        except TimeoutError:
            if not self._course.status:
                raise TryLater(f"{self._wanted.url.host}: no page within {self._seconds:g} s") from None
            self._remark = self._remark or f"it was not complete after {self._seconds:g} s"
        self._check()

    async def _go(self) -> None:
        lent = self._held.lent
        try:
            await lent.alive(lent.page.goto(str(self._wanted.url), wait_until="domcontentloaded", timeout=0))
        except self._error as error:
            self._explain(error.message)

    async def _take_steps(self) -> bool:
        """Whether all of them could be taken."""
        for step in self._wanted.steps:
            if self._course.is_over:
                return True
            try:
                await self._held.lent.alive(taken(step, self._held.lent.page, _STEP_SECONDS * 1_000))
            except self._error as error:
                why = error.message.partition("\n")[0]
                self._remark = f"{type(step).__name__} {step.selector}: {why}"[:300]
                return False
        return True

    async def _settle(self) -> None:
        """Until what is waited for is there, nothing more comes, or it is known that it will not."""
        while not self._course.is_over and not self._held.lease.is_used_up:
            if self._wanted.until and await self._is_there():
                return
            if self._held.watch.is_quiet(self._quiet_seconds):
                if self._wanted.until:
                    self._remark = f"{self._wanted.until!r} did not appear"[:300]
                    await self._take_fullest_frame()
                return
            await self._clock.sleep(_LOOK_SECONDS)

    async def _is_there(self) -> bool:
        for frame in self._frames:
            try:
                if await self._held.lent.alive(frame.locator(f"css={self._wanted.until}").count()):
                    self._frame = frame
                    return True
            except self._error as error:
                if "selector" in error.message.lower():
                    raise CannotFetch(f"{self._wanted.until!r:.200} is no CSS selector") from None
        return False

    async def _take_fullest_frame(self) -> None:
        """What there is to say of what did not appear may stand in a frame as well."""
        most = -1
        for frame in self._frames:
            with suppress(self._error):
                length: int = await self._held.lent.alive(frame.evaluate(_TEXT_LENGTH))
                if length > most:
                    self._frame, most = frame, length

    @property
    def _frames(self) -> list[Frame]:
        """The main one first."""
        page = self._held.lent.page
        others = [one for one in page.frames if one is not page.main_frame and self._is_of_the_site(one)]
        return [page.main_frame, *others[:_MOST_FRAMES]]

    def _is_of_the_site(self, frame: Frame) -> bool:
        try:
            return httpx2.URL(frame.url).netloc == self._course.last.netloc
        except httpx2.InvalidURL:
            return False

    async def _read(self) -> bytes:
        host, lent = self._course.last.host, self._held.lent
        left = self._began + self._seconds - self._clock.monotonic()
        try:
            async with asyncio.timeout(max(_LEAST_READ_SECONDS, min(_READ_SECONDS, left))):
                length: int = await lent.alive(self._frame.evaluate(_LENGTH))
                text = await lent.alive(self._frame.content()) if length <= self._max_page_bytes else ""
        except TimeoutError:
            lent.stop("a page's scripts do not end")  # closing the page would leave them running
            raise TryLater(f"{host}: the page does not answer: its scripts do not end") from None
        except self._error as error:
            raise TryLater(f"{host}: the page cannot be read: {error.message}"[:300]) from None
        body = text.encode("utf-8", "replace")
        if max(length, len(body)) > self._max_page_bytes:
            raise CannotFetch(f"{host}: the page is longer than {self._max_page_bytes:,} bytes")
        return body

    def _check(self) -> None:
        """Raises what ended it early."""
        if self._course.failure is not None:
            raise self._course.failure
        if self._held.lease.is_used_up:
            raise CannotFetch(
                f"{self._course.last.host}: the page loads more than {self._held.lease.most_bytes:,} bytes"
            )
        if self._course.net_error and self._course.status < 400:
            self._explain(self._course.net_error)
        if not self._course.status:
            raise TryLater(f"{self._course.last.host} sent no page")

    def _explain(self, message: str) -> None:
        """Raises what it means that a document did not come, unless another has taken its place."""
        host = self._course.last.host
        if self._course.is_over or self._held.lease.is_used_up:
            return
        if refusal := self._held.lease.refusal_of(self._course.last):
            raise refusal
        if "Download is starting" in message:
            raise CannotFetch(f"{host} sends a file to be saved, no page")
        if not any(sign in message for sign in _SUPERSEDED):
            raise TryLater(f"{host}: {message.removeprefix('Page.goto: ').partition(' at http')[0]}"[:300])
