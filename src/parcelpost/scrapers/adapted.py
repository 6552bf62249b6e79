"""A function or a class that somebody has already, as a platform. docs/new-platform.md shows it."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable
from itertools import islice
from typing import Any, TypeVar, overload

from msgspec import Struct

from parcelpost.model import Blocked, Done, GiveUp, Json, NotFound, Outcome, Page, Retry, Task
from parcelpost.scrapers.calling import Call, Missing
from parcelpost.scrapers.challenge import challenge
from parcelpost.scrapers.plain import fields, plain

T = TypeVar("T", bound=Callable[..., Any])

_MARK = "__parcelpost_platform__"
_SCRAPES = ("scrape", "scrape_parcel")
_PARSES = ("parse_html", "parse")
_MOST_RECORDS = 100_000


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

    def __init__(self, offered: object, how: How = How()) -> None:  # noqa: B008 - frozen
        """Raises TypeError where it can be seen already that it cannot work."""
        self._offered = offered
        self._how = how
        self._own = threading.local()
        self._calls = None if isinstance(offered, type) else _calls(offered, how)

    def scrape(self, task: Task) -> Outcome | Awaitable[Outcome]:
        """Plain for a plain function, so that it runs outside of any event loop."""
        scrape, parse = self._calls or self._of_this_thread()
        try:
            found = scrape(task)
            if isinstance(found, Awaitable | AsyncIterable):
                return _outcome_later(found, task, parse)
            return _outcome(found, task, parse)
        except Missing as error:
            return GiveUp(str(error))

    def _of_this_thread(self) -> _Calls:
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


def _outcome(found: object, task: Task, parse: Call | None) -> Outcome | Awaitable[Outcome]:
    page = _page(found, task)
    if page is None:
        return _records(found, task, None)
    if parse is None:
        return GiveUp(f"it returned a {type(found).__name__}, and there is no parse function to read it")
    if not page.body.strip():
        return Retry("the page is empty")
    if (blocked := challenge(page)) is not None:
        return blocked
    read = parse(task, found)
    if isinstance(read, Awaitable | AsyncIterable):
        return _records_later(read, task, page)
    return _records(read, task, page)


async def _outcome_later(found: Awaitable[object] | AsyncIterable[object], task: Task, parse: Call | None) -> Outcome:
    try:
        outcome = _outcome(await _settled(found), task, parse)
    except Missing as error:
        return GiveUp(str(error))
    return await outcome if isinstance(outcome, Awaitable) else outcome


async def _records_later(found: Awaitable[object] | AsyncIterable[object], task: Task, page: Page) -> Outcome:
    return _records(await _settled(found), task, page)


async def _settled(found: Awaitable[object] | AsyncIterable[object]) -> object:
    value = await found if isinstance(found, Awaitable) else found
    if not isinstance(value, AsyncIterable):
        return value
    many: list[object] = []
    async for one in value:
        many.append(one)
        if len(many) > _MOST_RECORDS:
            break
    return many


def _page(found: object, task: Task) -> Page | None:
    """None: it is no page."""
    if isinstance(found, Page):
        return found
    if isinstance(found, str):
        body = str.encode(found, "utf-8", "replace")
        return Page(body=body, content_type="text/html; charset=utf-8", url=task.target.url)
    return Page(body=found, url=task.target.url) if isinstance(found, bytes) else None


def _records(found: object, task: Task, page: Page | None) -> Outcome:
    if isinstance(found, Done | Retry | GiveUp | Blocked | NotFound):
        return found
    if found is None:
        return NotFound("it found nothing")
    if (one := fields(found)) is not None:
        return Done(data=_identified(one, task, alone=True), page=page)
    if isinstance(found, str | bytes) or not isinstance(found, Iterable):
        return GiveUp(f"it returned a {type(found).__name__}, which is no record")
    many = list(islice((one for one in found if one is not None), _MOST_RECORDS + 1))
    if len(many) > _MOST_RECORDS:
        return GiveUp(f"it returned more than {_MOST_RECORDS:,} records")
    if not many:
        return NotFound("it found nothing")
    return _several(many, task, page)


def _several(many: list[object], task: Task, page: Page | None) -> Outcome:
    records: list[dict[str, Json]] = []
    for one in many:
        record = fields(one)
        if record is None:
            return GiveUp(f"it returned a {type(one).__name__} among its records, which is none")
        records.append(_identified(record, task, alone=len(many) == 1))
    return Done(data=records[0], page=page, more=tuple(records[1:]))


def _identified(record: object, task: Task, *, alone: bool) -> dict[str, Json]:
    """With what it does not say of itself; which of several is the target's parcel, nobody knows."""
    found: dict[str, Json] = plain(record)
    target = task.target
    own = {"parcel_id": target.parcel_id} if alone else {}
    return {**own, "state": target.state, "county": target.county, "platform": task.platform, **found}
