"""The plugin adapter: runs a function or class from outside this package as a platform.

It fills the parameters by name, provides a polite `fetch`, and converts return values into an Outcome. See
docs/new-platform.md.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import date, time
from decimal import Decimal
from enum import Enum
from inspect import Parameter
from itertools import islice
from pathlib import PurePath
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec
from msgspec import structs

from parcelpost.model import Blocked, Busy, Done, GiveUp, Json, NotFound, Outcome, Page, Retry, Target, Task
from parcelpost.scrapers.fetch.errors import FAILURES, AnyFailure, find_challenge, outcome_of
from parcelpost.scrapers.html.encoding import decode
from parcelpost.scrapers.platform import Step

if TYPE_CHECKING:
    from parcelpost.scrapers.fetch.session import Session

OpenSession = Callable[[Task], "Session | None"]
"""Opens the session that fetches a task's pages; returns None where fetching is not available."""
AsyncValue = Awaitable[object] | AsyncIterable[object]

_FETCH_PARAMETER = "fetch"
_NAMED = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
_MAX_RECORDS = 100_000


class MissingArgument(Exception):
    """The function requires an argument that the task does not provide."""


_FAILURES = (MissingArgument, *FAILURES)


class PluginAdapter:
    """Calls a plugin and converts what it returns or raises into an Outcome.

    The plugin is a function, an object with `fetch` (or `scrape`) and `parse`, or such a class. A class is instantiated
    without arguments, once per thread, so what it holds (a session, a driver) is never shared between threads.
    """

    def __init__(
        self,
        plugin: object,
        *,
        scrape: str = "",
        parse: Callable[..., Any] | str = "",
        sessions: OpenSession = lambda _: None,
    ) -> None:
        """`scrape` and `parse` name methods other than the default ones; `parse` may also be a function.

        Raises TypeError if the plugin lacks such a method, and whatever instantiating the class raises.
        """
        self._plugin = plugin
        self._scrape = scrape
        self._parse = parse
        self._sessions = sessions
        self._per_thread = threading.local()
        self._shared = None if isinstance(plugin, type) else self._find_functions(plugin)
        self.can_parse = self._functions()[1] is not None

    def scrape(self, task: Task) -> Outcome | Awaitable[Outcome]:
        """Runs a plain function right here, and returns an awaitable for an async one."""
        scrape, parse = self._functions()
        session = self._sessions(task) if scrape.has_parameter(_FETCH_PARAMETER) else None
        if session is None:
            return _scrape_then_parse(scrape, parse, task, None)
        if scrape.is_async:
            result = _scrape_then_parse(scrape, parse, task, PoliteFetch(session))
            return session.run(_update_cache(result, session))
        try:
            result = _scrape_then_parse(scrape, parse, task, BlockingFetch(session))
        except BaseException:
            asyncio.run(session.end(failed=True))
            raise
        ended = session.run(_update_cache(result, session))
        return ended if isinstance(result, Awaitable) else asyncio.run(ended)

    def parse(self, platform: str, page: Page, target: Target) -> Outcome | Awaitable[Outcome]:
        """Parses a stored page."""
        _, parse = self._functions()
        task = Task(task_id="", platform=platform, target=target)
        try:
            if parse is None:
                raise MissingArgument("there is no parse function")
            return _parse_page(page, page_argument(page, parse.first_annotation), task, parse)
        except _FAILURES as failure:
            return _failure_outcome(failure)

    def _functions(self) -> tuple[PluginFunction, PluginFunction | None]:
        if self._shared is not None:
            return self._shared
        if not hasattr(self._per_thread, "functions"):
            make: Any = self._plugin
            self._per_thread.functions = self._find_functions(make())
        functions: tuple[PluginFunction, PluginFunction | None] = self._per_thread.functions
        return functions

    def _find_functions(self, plugin: object) -> tuple[PluginFunction, PluginFunction | None]:
        scrape = _method(plugin, *([self._scrape] if self._scrape else ["fetch", "scrape"]))
        if scrape is None and callable(plugin) and not self._scrape:
            scrape = plugin
        if scrape is None:
            needed = self._scrape or "fetch or scrape"
            raise TypeError(f"{_described(plugin)} is not a platform: it has no {needed} method and is not a function")
        parse = _method(plugin, self._parse or "parse") if isinstance(self._parse, str) else self._parse
        if parse is None and self._parse:
            raise TypeError(f"{_described(plugin)} has no {self._parse} method")
        return PluginFunction(scrape), None if parse is None else PluginFunction(parse)


def _method(plugin: object, *names: str) -> Callable[..., Any] | None:
    methods = (getattr(plugin, name, None) for name in names)
    return next((method for method in methods if callable(method)), None)


def _described(value: object) -> str:
    """`an int`, `a Lookup`."""
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


class PluginFunction:
    """A function and how its parameters are filled for a task.

    A parameter is filled by its annotation (`Task`, `Target`), else by its name, else from the target's `extra`. One
    that matches nothing keeps its default; a single required one gets the parcel number.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.name: str = getattr(function, "__qualname__", type(function).__qualname__)
        self._parameters = _parameters(function)

    @property
    def is_async(self) -> bool:
        """Looks through decorators that keep `__wrapped__`."""
        function = inspect.unwrap(self._function)
        call = getattr(function, "__call__", None)  # noqa: B004 - the method itself is needed
        return any(
            inspect.iscoroutinefunction(candidate) or inspect.isasyncgenfunction(candidate)
            for candidate in (function, call)
        )

    def has_parameter(self, name: str) -> bool:
        return any(parameter.name == name for parameter in self._parameters)

    @property
    def first_annotation(self) -> str:
        """'' if the first parameter has none."""
        return _annotation(self._parameters[0]) if self._parameters else ""

    def __call__(self, task: Task, *first: object, fetch: object = None) -> object:
        """`first` are passed as the first arguments, whatever their names. Raises MissingArgument."""
        parameters = self._parameters[len(first) :]
        required = [parameter for parameter in parameters if parameter.default is Parameter.empty]
        known = _known_arguments(task)
        if fetch is not None:
            known[_FETCH_PARAMETER] = fetch
        positional, by_name = list(first), {}
        for parameter in parameters:
            is_known, argument = _argument(parameter, task, known)
            if not is_known and parameter.default is not Parameter.empty:
                continue
            if not is_known and parameter.name == _FETCH_PARAMETER:
                raise MissingArgument(f"{self.name} needs fetch, which is not available here")
            if not is_known and (first or len(required) > 1):
                raise MissingArgument(f"{self.name} needs {parameter.name}, which the target does not have")
            if not is_known:
                argument = task.target.parcel_id
            if parameter.kind is Parameter.POSITIONAL_ONLY:
                positional.append(argument)
            else:
                by_name[parameter.name] = argument
        return self._function(*positional, **by_name)


def _parameters(function: Callable[..., Any]) -> list[Parameter]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # some functions written in C have no signature
        return [Parameter("parcel_id", Parameter.POSITIONAL_ONLY)]
    return [parameter for parameter in parameters if parameter.kind in _NAMED]


def _known_arguments(task: Task) -> dict[str, object]:
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


def _argument(parameter: Parameter, task: Task, known: Mapping[str, object]) -> tuple[bool, object]:
    """Whether the parameter can be filled, and with what."""
    annotation = _annotation(parameter)
    if annotation in ("Task", "Target"):
        return True, task if annotation == "Task" else task.target
    if parameter.name == "target":
        return True, task.target.parcel_id if annotation == "str" else TargetFields(task.target)
    if parameter.name in known:
        return True, known[parameter.name]
    return parameter.name in task.target.extra, task.target.extra.get(parameter.name)


def _annotation(parameter: Parameter) -> str:
    """`Target` for Target, model.Target and 'model.Target': an annotation may be a string that cannot be resolved."""
    annotation = parameter.annotation
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    return str(text).strip("\"' ").rpartition(".")[2]


class TargetFields(dict[str, Json]):
    """A target for code that does not import ours: `target["parcel_id"]`, `target.get("url")`, `target.parcel_id`."""

    def __init__(self, target: Target) -> None:
        own = {"parcel_id": target.parcel_id, "state": target.state, "county": target.county, "url": target.url}
        super().__init__({**target.extra, **own})
        self.extra = target.extra

    def __getattr__(self, name: str) -> Json:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"the target has no {name}") from None


class PoliteFetch:
    """The `fetch` argument of an async function: `page = await fetch(url)`.

    Every request obeys the host's rate limit and robots.txt, refuses private addresses and uses the page cache. Raises
    FetchFailed.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self.post = session.post
        self.rendered = session.rendered

    async def __call__(self, url: str, *, headers: Mapping[str, str] = {}, cached: bool = True) -> Page:
        return await self._session.get(url, headers=headers, cached=cached)


class BlockingFetch:
    """The `fetch` argument of a plain function: `page = fetch(url)`. Only for threads without a running event loop."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def __call__(self, url: str, *, headers: Mapping[str, str] = {}, cached: bool = True) -> Page:
        return asyncio.run(self._session.get(url, headers=headers, cached=cached))

    def post(self, url: str, form: Mapping[str, str]) -> Page:
        return asyncio.run(self._session.post(url, form))

    def rendered(
        self, url: str, *, until: str = "", steps: Sequence[Step] = (), keep_cookies: bool = False, cached: bool = True
    ) -> Page:
        page = self._session.rendered(url, until=until, steps=steps, keep_cookies=keep_cookies, cached=cached)
        return asyncio.run(page)


def _scrape_then_parse(
    scrape: PluginFunction, parse: PluginFunction | None, task: Task, fetch: PoliteFetch | BlockingFetch | None
) -> Outcome | Awaitable[Outcome]:
    try:
        value = scrape(task, fetch=fetch)
        if isinstance(value, Awaitable | AsyncIterable):
            return _outcome_from_async(value, task, parse)
        return _outcome_from(value, task, parse)
    except _FAILURES as failure:
        return _failure_outcome(failure)


async def _update_cache(result: Outcome | Awaitable[Outcome], session: Session) -> Outcome:
    """Caches the pages that led to a record, and drops those that did not."""
    outcome = await result if isinstance(result, Awaitable) else result
    if not isinstance(outcome, Done):
        await session.drop_cached()
        return outcome
    await session.cache_pages()
    return structs.replace(outcome, scraped_at=outcome.scraped_at or session.fetched_at)


def _failure_outcome(failure: MissingArgument | AnyFailure) -> Outcome:
    return GiveUp(str(failure)) if isinstance(failure, MissingArgument) else outcome_of(failure)


def _outcome_from(value: object, task: Task, parse: PluginFunction | None) -> Outcome | Awaitable[Outcome]:
    page = _as_page(value, task)
    if page is None:
        return _as_outcome(value, task, None)
    if parse is None:
        return GiveUp(f"it returned {_described(value)}, and there is no parse function for it")
    return _parse_page(page, value, task, parse)


async def _outcome_from_async(value: AsyncValue, task: Task, parse: PluginFunction | None) -> Outcome:
    try:
        outcome = _outcome_from(await _awaited(value), task, parse)
        return await outcome if isinstance(outcome, Awaitable) else outcome
    except _FAILURES as failure:
        return _failure_outcome(failure)


def _parse_page(page: Page, argument: object, task: Task, parse: PluginFunction) -> Outcome | Awaitable[Outcome]:
    """`argument`: the page in the form that the function takes."""
    if not page.body.strip():
        return Retry("the page is empty")
    if (blocked := find_challenge(page)) is not None:
        return blocked
    value = parse(task, argument)
    if isinstance(value, Awaitable | AsyncIterable):
        return _as_outcome_async(value, task, page)
    return _as_outcome(value, task, page)


async def _as_outcome_async(value: AsyncValue, task: Task, page: Page) -> Outcome:
    return _as_outcome(await _awaited(value), task, page)


async def _awaited(value: AsyncValue) -> object:
    """The result of a coroutine, or the items of an async generator as a list."""
    result = await value if isinstance(value, Awaitable) else value
    if not isinstance(result, AsyncIterable):
        return result
    items: list[object] = []
    async for item in result:
        items.append(item)
        if len(items) > _MAX_RECORDS:
            break
    return items


def _as_page(value: object, task: Task) -> Page | None:
    """None if it is not a page."""
    if isinstance(value, Page):
        return value
    if isinstance(value, str):
        body = str.encode(value, "utf-8", "replace")
        return Page(body=body, content_type="text/html; charset=utf-8", url=task.target.url)
    if isinstance(value, bytes):
        return Page(body=value, content_type=UNKNOWN_CONTENT_TYPE, url=task.target.url)
    return None


def _as_outcome(value: object, task: Task, page: Page | None) -> Outcome:
    if isinstance(value, Done) and value.page is None and page is not None:
        return structs.replace(value, page=page)
    if isinstance(value, Done | Retry | GiveUp | Blocked | NotFound | Busy):
        return value
    if value is None:
        return NotFound("it returned nothing")
    if (fields := fields_of(value)) is not None:
        return Done(data=_identified(fields, task, is_only=True), page=page)
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        return GiveUp(f"it returned {_described(value)}, which is not a record")
    items = list(islice((item for item in value if item is not None), _MAX_RECORDS + 1))
    if len(items) > _MAX_RECORDS:
        return GiveUp(f"it returned more than {_MAX_RECORDS:,} records")
    if not items:
        return NotFound("it returned nothing")
    records: list[dict[str, Json]] = []
    for item in items:
        fields = fields_of(item)
        if fields is None:
            return GiveUp(f"it returned {_described(item)} among its records, which is not a record")
        records.append(_identified(fields, task, is_only=len(items) == 1))
    return Done(data=records[0], page=page, additional_records=tuple(records[1:]))


def _identified(fields: Mapping[Any, object], task: Task, *, is_only: bool) -> dict[str, Json]:
    """Adds what the record lacks of the target; the parcel number only to a single record."""
    record: dict[str, Json] = to_json(fields)
    target = task.target
    own = {"parcel_id": target.parcel_id} if is_only else {}
    return {**own, "state": target.state, "county": target.county, "platform": task.platform, **record}


def to_json(value: object) -> Json:
    """Decimals become numbers, dates ISO text, sets sorted lists, and objects with fields objects.

    Raises TypeError for what JSON cannot represent.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, Enum):
        return to_json(value.value)
    if isinstance(value, str):
        return str.__str__(value)  # a str subclass of an HTML parser may keep the whole document in memory
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, Decimal):
        return int(value) if value.is_finite() and value == value.to_integral_value() else float(value)
    if isinstance(value, date | time):
        return value.isoformat()
    return _compound_to_json(value)


def _compound_to_json(value: object) -> Json:
    if isinstance(value, list | tuple) and not hasattr(value, "_asdict"):
        return [to_json(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted(map(to_json, value), key=lambda item: (str(type(item)), msgspec.json.encode(item)))
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, UUID | PurePath):
        return str(value)
    fields = value._asdict() if isinstance(value, tuple) and hasattr(value, "_asdict") else fields_of(value)
    if fields is None:
        raise TypeError(f"{_described(value)} cannot be written as JSON")
    return {name if isinstance(name, str) else str(to_json(name)): to_json(item) for name, item in fields.items()}


def fields_of(value: object) -> Mapping[Any, object] | None:
    """The fields of a mapping, a dataclass, a msgspec Struct or a pydantic model; None for anything else."""
    if isinstance(value, Mapping):
        return value
    if isinstance(value, type):
        return None
    names = getattr(value, "__dataclass_fields__", None) or getattr(value, "__struct_fields__", None)
    if names is not None:
        return {name: getattr(value, name) for name in names}
    dump = getattr(value, "model_dump", None)
    fields = dump() if callable(dump) else None
    return fields if isinstance(fields, Mapping) else None


UNKNOWN_CONTENT_TYPE = "application/octet-stream"
"""The content type of a page that a plugin returned as bytes."""


class PageText(str):
    """The page's text, with the attributes of a Page."""

    body: bytes
    content_type: str
    url: str


class PageBytes(bytes):
    """The page's bytes, with the attributes of a Page."""

    body: bytes
    content_type: str
    url: str


def page_argument(page: Page, annotation: str) -> object:
    """The page in the form of the annotation: `Page`, `bytes` or `str`.

    Without an annotation it is text (bytes for an unknown content type) that also has the attributes of a Page.
    """
    if annotation == "Page":
        return page
    argument: PageText | PageBytes
    if annotation == "bytes" or (annotation != "str" and page.content_type == UNKNOWN_CONTENT_TYPE):
        argument = PageBytes(page.body)
    else:
        argument = PageText(decode(page.body, page.content_type))
    argument.body, argument.content_type, argument.url = page.body, page.content_type, page.url
    return argument
