"""The plugin adapter: calls somebody's function or class as a platform and turns what it returns into an Outcome.

docs/new-platform.md shows how it is used."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Mapping, Sequence
from inspect import Parameter
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar, overload

from msgspec import Struct, structs

from parcelpost.model import Blocked, Busy, Done, GiveUp, Json, NotFound, Outcome, Page, Retry, Target, Task
from parcelpost.scrapers.browser.base import Step
from parcelpost.scrapers.fetch import errors
from parcelpost.scrapers.fetch.errors import AnyFailure, find_challenge, outcome_of
from parcelpost.scrapers.plugin_values import UNKNOWN_CONTENT_TYPE, fields_of, page_argument, to_json

if TYPE_CHECKING:
    from parcelpost.scrapers.fetch.session import Session


FETCHER_PARAMETER = "fetcher"
_FILLED = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


class MissingArgument(Exception):
    """The function wants what this task does not say."""


class TargetFields(dict[str, Json]):
    """A target for code that knows nothing of ours: `target["parcel_id"]`, `target.get("url")`, `target.parcel_id`."""

    def __init__(self, target: Target) -> None:
        own = {"parcel_id": target.parcel_id, "state": target.state, "county": target.county, "url": target.url}
        super().__init__({**target.extra, **own})
        self.extra = target.extra

    def __getattr__(self, name: str) -> Json:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"the target has no {name}") from None


class PluginCall:
    """A function, and how it is called for a task. Raises Missing.

    A parameter is filled by its annotation (`Task`, `Target`), else by its name, else from the target's `extra`; one
    that none of these fills keeps its default, and a single one without a default gets the parcel's number.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.name: str = getattr(function, "__qualname__", type(function).__qualname__)
        self._parameters = _parameters(function)

    @property
    def is_async(self) -> bool:
        """Of a decorated function, what the innermost one is."""
        function = inspect.unwrap(self._function)
        called = getattr(function, "__call__", None)  # noqa: B004 - whether it is, not whether it has one
        kinds = (inspect.iscoroutinefunction, inspect.isasyncgenfunction)
        return any(is_kind(one) for is_kind in kinds for one in (function, called))

    def asks_for(self, name: str) -> bool:
        return any(one.name == name for one in self._parameters)

    @property
    def first_annotation(self) -> str:
        """Of what it is given; '' where it does not say."""
        return _annotation(self._parameters[0]) if self._parameters else ""

    def __call__(self, task: Task, *given: object, fetcher: object = None) -> object:
        """`given` are its first arguments, whatever they are called. `fetcher`: None where nothing is fetched."""
        wanted = self._parameters[len(given) :]
        required = [one for one in wanted if one.default is Parameter.empty]
        known = {**_known_arguments(task), **({FETCHER_PARAMETER: fetcher} if fetcher is not None else {})}
        positional, by_name = list(given), {}
        for parameter in wanted:
            filled, value = _value(parameter, task, known)
            if not filled and parameter.default is not Parameter.empty:
                continue
            if not filled and parameter.name == FETCHER_PARAMETER:
                raise MissingArgument(f"{self.name} wants a fetcher, and nothing is fetched here")
            if not filled and (given or len(required) > 1):
                raise MissingArgument(f"{self.name} wants {parameter.name}, which the task's target does not have")
            argument = value if filled else task.target.parcel_id
            if parameter.kind is Parameter.POSITIONAL_ONLY:
                positional.append(argument)
            else:
                by_name[parameter.name] = argument
        return self._function(*positional, **by_name)


def _parameters(function: Callable[..., Any]) -> list[Parameter]:
    try:
        found = inspect.signature(function).parameters.values()
    except ValueError:  # some functions written in C do not tell
        return [Parameter("parcel_id", Parameter.POSITIONAL_ONLY)]
    return [one for one in found if one.kind in _FILLED]


def _known_arguments(task: Task) -> Mapping[str, object]:
    target = task.target
    return {
        "task": task,
        "task_id": task.task_id,
        "platform": task.platform,
        "target": target,
        "parcel_id": target.parcel_id,
        "parcel": target.parcel_id,
        "id": target.parcel_id,
        "state": target.state,
        "county": target.county,
        "url": target.url,
        "extra": target.extra,
    }


def _value(parameter: Parameter, task: Task, known: Mapping[str, object]) -> tuple[bool, object]:
    annotation = _annotation(parameter)
    if annotation in ("Task", "Target"):
        return True, task if annotation == "Task" else task.target
    if parameter.name == "target":
        return True, task.target.parcel_id if annotation == "str" else TargetFields(task.target)
    if parameter.name in known:
        return True, known[parameter.name]
    return parameter.name in task.target.extra, task.target.extra.get(parameter.name)


def _annotation(parameter: Parameter) -> str:
    """`Target` for Target, model.Target and 'model.Target': annotations may be text that nothing resolves."""
    found = parameter.annotation
    text = found if isinstance(found, str) else getattr(found, "__name__", "")
    return str(text).strip("\"' ").rpartition(".")[2]


class BlockingSession:
    """Only for threads without a running event loop. Raises a FetchFailed."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def get(self, url: str, *, headers: Mapping[str, str] = {}, cached: bool = True) -> Page:
        return asyncio.run(self._session.get(url, headers=headers, cached=cached))

    def post(self, url: str, form: Mapping[str, str]) -> Page:
        return asyncio.run(self._session.post(url, form))

    def rendered(
        self, url: str, *, until: str = "", steps: Sequence[Step] = (), keep_cookies: bool = False, cached: bool = True
    ) -> Page:
        wanted = self._session.rendered(url, until=until, steps=steps, keep_cookies=keep_cookies, cached=cached)
        return asyncio.run(wanted)


_MOST_RECORDS = 100_000

AsyncAnswer = Awaitable[object] | AsyncIterable[object]
PLUGIN_FAILURES = (MissingArgument, *errors.FAILURES)
"""What scraping and reading may raise and `failed` makes an outcome of."""


def failure_outcome(failure: MissingArgument | AnyFailure) -> Outcome:
    return GiveUp(str(failure)) if isinstance(failure, MissingArgument) else outcome_of(failure)


def outcome_from(found: object, task: Task, parse: PluginCall | None) -> Outcome | Awaitable[Outcome]:
    """Of what scraping answered. Raises Missing."""
    page = _page(found, task)
    if page is None:
        return _records(found, task, None)
    if parse is None:
        return GiveUp(f"it returned a {type(found).__name__}, and there is no parse function to read it")
    return outcome_of_page(page, found, task, parse)


def outcome_of_page(page: Page, found: object, task: Task, parse: PluginCall) -> Outcome | Awaitable[Outcome]:
    """`found`: the page in the form that the function takes. Raises Missing."""
    if not page.body.strip():
        return Retry("the page is empty")
    if (blocked := find_challenge(page)) is not None:
        return blocked
    answer = parse(task, found)
    if isinstance(answer, Awaitable | AsyncIterable):
        return _records_later(answer, task, page)
    return _records(answer, task, page)


async def outcome_from_async(found: AsyncAnswer, task: Task, parse: PluginCall | None) -> Outcome:
    try:
        ended = outcome_from(await _settled(found), task, parse)
        return await ended if isinstance(ended, Awaitable) else ended
    except PLUGIN_FAILURES as failure:
        return failure_outcome(failure)


async def _records_later(found: AsyncAnswer, task: Task, page: Page) -> Outcome:
    return _records(await _settled(found), task, page)


async def _settled(found: AsyncAnswer) -> object:
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
        return Page(body=found, content_type=UNKNOWN_CONTENT_TYPE, url=task.target.url)
    return None


def _records(found: object, task: Task, page: Page | None) -> Outcome:
    if isinstance(found, Done) and found.page is None and page is not None:
        return structs.replace(found, page=page)
    if isinstance(found, Done | Retry | GiveUp | Blocked | NotFound | Busy):
        return found
    if found is None:
        return NotFound("it found nothing")
    if (one := fields_of(found)) is not None:
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
        record = fields_of(one)
        if record is None:
            return GiveUp(f"it returned a {type(one).__name__} among its records, which is none")
        records.append(_identified(record, task, alone=len(many) == 1))
    return Done(data=records[0], page=page, more=tuple(records[1:]))


def _identified(record: object, task: Task, *, alone: bool) -> dict[str, Json]:
    """With what it does not say of itself; which of several is the target's parcel, nobody knows."""
    found: dict[str, Json] = to_json(record)
    target = task.target
    own = {"parcel_id": target.parcel_id} if alone else {}
    return {**own, "state": target.state, "county": target.county, "platform": task.platform, **found}


T = TypeVar("T", bound=Callable[..., Any])
OpenSession = Callable[[Task], "Session | None"]
"""What a task's pages are fetched with; None: nothing is fetched here."""

_MARK = "__parcelpost_platform__"
_SCRAPES = ("scrape", "scrape_parcel")
_PARSES = ("parse_html", "parse")


class PluginSpec(Struct, frozen=True, kw_only=True):
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
        setattr(marked, _MARK, PluginSpec(scrape=scrape, parse=parse))
        return marked

    return mark if offered is None else mark(offered)


def plugin_spec(offered: object) -> PluginSpec | None:
    """None: it is not marked."""
    found = getattr(offered, _MARK, None)
    return found if isinstance(found, PluginSpec) else None


class PluginAdapter:
    """Calls what somebody offers, and makes an Outcome of what it answers or raises.

    Of a class, each thread has an object of its own, made without arguments: what it holds (a session, a driver, an
    event loop's connections) is not made for several.
    """

    def __init__(self, offered: object, how: PluginSpec = PluginSpec(), sessions: OpenSession = lambda _: None) -> None:  # noqa: B008 - frozen
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
        session = self._sessions(task) if scrape.asks_for(FETCHER_PARAMETER) else None
        if session is None:
            return _scrape_then_parse(scrape, parse, task, None)
        if scrape.is_async:
            return session.ended_with(_keep_pages_of_record(_scrape_then_parse(scrape, parse, task, session), session))
        try:
            found = _scrape_then_parse(scrape, parse, task, BlockingSession(session))
        except BaseException:
            asyncio.run(session.end(failed=True))
            raise
        concluded = session.ended_with(_keep_pages_of_record(found, session))
        return concluded if isinstance(found, Awaitable) else asyncio.run(concluded)

    def parse(self, platform: str, page: Page, target: Target) -> Outcome | Awaitable[Outcome]:
        """Reads a page that was kept."""
        _, parse = self._calls()
        task = Task(task_id="", platform=platform, target=target)
        try:
            if parse is None:
                raise MissingArgument("there is no parse function")
            return outcome_of_page(page, page_argument(page, parse.first_annotation), task, parse)
        except PLUGIN_FAILURES as failure:
            return failure_outcome(failure)

    def _calls(self) -> _Calls:
        if self._shared is not None:
            return self._shared
        if not hasattr(self._own, "calls"):
            made = self._offered() if isinstance(self._offered, type) else self._offered
            self._own.calls = _calls(made, self._how)
        calls: _Calls = self._own.calls
        return calls


_Calls = tuple[PluginCall, PluginCall | None]


def _calls(offered: object, how: PluginSpec) -> _Calls:
    scrape = _method(offered, (how.scrape,) if how.scrape else _SCRAPES)
    if scrape is None and callable(offered) and not how.scrape:
        scrape = offered
    if scrape is None:
        wanted = how.scrape or " or ".join(_SCRAPES)
        raise TypeError(f"a {type(offered).__name__} is no platform: it has no {wanted} to call")
    parse = _method(offered, (how.parse,) if how.parse else _PARSES) if isinstance(how.parse, str) else how.parse
    if parse is None and how.parse:
        raise TypeError(f"a {type(offered).__name__} has no {how.parse} to call")
    return PluginCall(scrape), None if parse is None else PluginCall(parse)


def _method(offered: object, names: Iterable[str]) -> Callable[..., Any] | None:
    found = (getattr(offered, name, None) for name in names)
    return next((one for one in found if callable(one)), None)


def _scrape_then_parse(
    scrape: PluginCall, parse: PluginCall | None, task: Task, fetcher: Session | BlockingSession | None
) -> Outcome | Awaitable[Outcome]:
    try:
        found = scrape(task, fetcher=fetcher)
        if isinstance(found, Awaitable | AsyncIterable):
            return outcome_from_async(found, task, parse)
        return outcome_from(found, task, parse)
    except PLUGIN_FAILURES as failure:
        return failure_outcome(failure)


async def _keep_pages_of_record(found: Outcome | Awaitable[Outcome], session: Session) -> Outcome:
    """Pages that gave a record are kept, so that the site is not asked for them again."""
    outcome = await found if isinstance(found, Awaitable) else found
    if not isinstance(outcome, Done):
        await session.forget()
        return outcome
    await session.keep()
    return structs.replace(outcome, scraped_at=outcome.scraped_at or session.fetched_at)
