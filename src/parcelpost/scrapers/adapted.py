"""A function or a class that somebody has already, as a platform. docs/new-platform.md shows it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar, overload

from msgspec import Struct, structs

from parcelpost.model import Done, Outcome, Page, Target, Task
from parcelpost.scrapers import answered
from parcelpost.scrapers.blocking import BlockingSession
from parcelpost.scrapers.calling import FETCHER, Call, Missing
from parcelpost.scrapers.kept import form

if TYPE_CHECKING:
    from parcelpost.scrapers.session import Session

T = TypeVar("T", bound=Callable[..., Any])
OpenSession = Callable[[Task], "Session | None"]
"""What a task's pages are fetched with; None: nothing is fetched here."""

_MARK = "__parcelpost_platform__"
_SCRAPES = ("scrape", "scrape_parcel")
_PARSES = ("parse_html", "parse")


class How(Struct, frozen=True, kw_only=True):
    """What else there is to say of it."""

    scrape: str = ""
    """The method of a class that is called for a task; '': `scrape` or `scrape_parcel`."""
    parse: Callable[..., Any] | str = ""
    """What reads the text that scraping answers: a function, or a method; '': `parse_html` or `parse` of a class."""


@overload
def as_platform(offered: T) -> T: ...
@overload
def as_platform(*, scrape: str = "", parse: Callable[..., Any] | str = "") -> Callable[[T], T]: ...
def as_platform(
    offered: T | None = None, *, scrape: str = "", parse: Callable[..., Any] | str = ""
) -> T | Callable[[T], T]:
    """Marks a function or a class as a platform. It stays what it was: whoever called it before still can.

    To be found, it is registered, named by an entry point, or named in the settings, where it needs no mark.
    """

    def mark(marked: T) -> T:
        setattr(marked, _MARK, How(scrape=scrape, parse=parse))
        return marked

    return mark if offered is None else mark(offered)


def how(offered: object) -> How | None:
    """None: it is not marked."""
    found = getattr(offered, _MARK, None)
    return found if isinstance(found, How) else None


class Adapted:
    """Calls what somebody offers, and makes an Outcome of what it answers or raises.

    Of a class, each thread has an object of its own, made without arguments: what it holds (a session, a driver, an
    event loop's connections) is not made for several.
    """

    def __init__(self, offered: object, how: How = How(), sessions: OpenSession = lambda _: None) -> None:  # noqa: B008 - frozen
        """Raises TypeError where it can be seen already that it cannot work."""
        self._offered = offered
        self._how = how
        self._sessions = sessions
        self._own = threading.local()
        self._shared = None if isinstance(offered, type) else _calls(offered, how)

    @property
    def can_read(self) -> bool:
        """Whether it has a function that reads pages."""
        return bool(self._how.parse) or _method(self._offered, _PARSES) is not None

    def scrape(self, task: Task) -> Outcome | Awaitable[Outcome]:
        """Plain for a plain function, so that it runs outside of any event loop."""
        scrape, parse = self._calls()
        session = self._sessions(task) if scrape.asks_for(FETCHER) else None
        if session is None:
            return _scraped(scrape, parse, task, None)
        if scrape.is_async:
            return session.ended_with(_concluded(_scraped(scrape, parse, task, session), session))
        try:
            found = _scraped(scrape, parse, task, BlockingSession(session))
        except BaseException:
            asyncio.run(session.end(failed=True))
            raise
        concluded = session.ended_with(_concluded(found, session))
        return concluded if isinstance(found, Awaitable) else asyncio.run(concluded)

    def parse(self, platform: str, page: Page, target: Target) -> Outcome | Awaitable[Outcome]:
        """Reads a page that was kept."""
        _, parse = self._calls()
        task = Task(task_id="", platform=platform, target=target)
        try:
            if parse is None:
                raise Missing("there is no parse function")
            return answered.read(page, form(page, parse.first_annotation), task, parse)
        except answered.FAILURES as failure:
            return answered.failed(failure)

    def _calls(self) -> _Calls:
        if self._shared is not None:
            return self._shared
        if not hasattr(self._own, "calls"):
            made = self._offered() if isinstance(self._offered, type) else self._offered
            self._own.calls = _calls(made, self._how)
        calls: _Calls = self._own.calls
        return calls


_Calls = tuple[Call, Call | None]


def _calls(offered: object, how: How) -> _Calls:
    scrape = _method(offered, (how.scrape,) if how.scrape else _SCRAPES)
    if scrape is None and callable(offered) and not how.scrape:
        scrape = offered
    if scrape is None:
        wanted = how.scrape or " or ".join(_SCRAPES)
        raise TypeError(f"a {type(offered).__name__} is no platform: it has no {wanted} to call")
    parse = _method(offered, (how.parse,) if how.parse else _PARSES) if isinstance(how.parse, str) else how.parse
    if parse is None and how.parse:
        raise TypeError(f"a {type(offered).__name__} has no {how.parse} to call")
    return Call(scrape), None if parse is None else Call(parse)


def _method(offered: object, names: Iterable[str]) -> Callable[..., Any] | None:
    found = (getattr(offered, name, None) for name in names)
    return next((one for one in found if callable(one)), None)


def _scraped(
    scrape: Call, parse: Call | None, task: Task, fetcher: Session | BlockingSession | None
) -> Outcome | Awaitable[Outcome]:
    try:
        found = scrape(task, fetcher=fetcher)
        if isinstance(found, Awaitable | AsyncIterable):
            return answered.outcome_later(found, task, parse)
        return answered.outcome(found, task, parse)
    except answered.FAILURES as failure:
        return answered.failed(failure)


async def _concluded(found: Outcome | Awaitable[Outcome], session: Session) -> Outcome:
    """Pages that gave a record are kept, so that the site is not asked for them again."""
    outcome = await found if isinstance(found, Awaitable) else found
    if not isinstance(outcome, Done):
        await session.forget()
        return outcome
    await session.keep()
    return structs.replace(outcome, scraped_at=outcome.scraped_at or session.fetched_at)
