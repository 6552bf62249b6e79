"""What somebody's function answered -> an Outcome."""

from __future__ import annotations

from collections.abc import AsyncIterable, Awaitable, Iterable
from itertools import islice

from msgspec import structs

from parcelpost.model import Blocked, Busy, Done, GiveUp, Json, NotFound, Outcome, Page, Retry, Task
from parcelpost.scrapers import fetch_errors
from parcelpost.scrapers.calling import Call, Missing
from parcelpost.scrapers.challenge import challenge
from parcelpost.scrapers.fetch_errors import AnyFailure, outcome_of
from parcelpost.scrapers.kept import UNKNOWN
from parcelpost.scrapers.plain import fields, plain

_MOST_RECORDS = 100_000

Later = Awaitable[object] | AsyncIterable[object]
FAILURES = (Missing, *fetch_errors.FAILURES)
"""What scraping and reading may raise and `failed` makes an outcome of."""


def failed(failure: Missing | AnyFailure) -> Outcome:
    return GiveUp(str(failure)) if isinstance(failure, Missing) else outcome_of(failure)


def outcome(found: object, task: Task, parse: Call | None) -> Outcome | Awaitable[Outcome]:
    """Of what scraping answered. Raises Missing."""
    page = _page(found, task)
    if page is None:
        return _records(found, task, None)
    if parse is None:
        return GiveUp(f"it returned a {type(found).__name__}, and there is no parse function to read it")
    return read(page, found, task, parse)


def read(page: Page, found: object, task: Task, parse: Call) -> Outcome | Awaitable[Outcome]:
    """`found`: the page in the form that the function takes. Raises Missing."""
    if not page.body.strip():
        return Retry("the page is empty")
    if (blocked := challenge(page)) is not None:
        return blocked
    answer = parse(task, found)
    if isinstance(answer, Awaitable | AsyncIterable):
        return _records_later(answer, task, page)
    return _records(answer, task, page)


async def outcome_later(found: Later, task: Task, parse: Call | None) -> Outcome:
    try:
        ended = outcome(await _settled(found), task, parse)
        return await ended if isinstance(ended, Awaitable) else ended
    except FAILURES as failure:
        return failed(failure)


async def _records_later(found: Later, task: Task, page: Page) -> Outcome:
    return _records(await _settled(found), task, page)


async def _settled(found: Later) -> object:
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
    if isinstance(found, bytes):
        return Page(body=found, content_type=UNKNOWN, url=task.target.url)
    return None


def _records(found: object, task: Task, page: Page | None) -> Outcome:
    if isinstance(found, Done) and found.page is None and page is not None:
        return structs.replace(found, page=page)
    if isinstance(found, Done | Retry | GiveUp | Blocked | NotFound | Busy):
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
