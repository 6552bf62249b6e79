"""Reading a page by what was learned, and learning from it: the order of the ways, the ranking, the signals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import groupby

from msgspec import structs

from parcelpost.model import Done, Outcome, Page, Retry, Signal, Task
from parcelpost.scrapers.county_platform import CountyPlatform
from parcelpost.scrapers.learning import Ranking, Site
from parcelpost.scrapers.looking import Try
from parcelpost.scrapers.ways import from_name, name_of

_GUESS = " guess"
_LONGEST_SELECTOR = 500


def parse(platform: CountyPlatform, page: Page, task: Task, ranking: Ranking, now: datetime) -> Outcome:
    """As the platform reads it, with the ways that do best on this site first. The outcome carries the signals."""
    site = (platform.name, task.target.state, task.target.county)
    parsed = platform.parse(page, task.target, ranking.order(site))
    if not parsed.tries or not isinstance(parsed.outcome, Done | Retry):
        return parsed.outcome  # another kind of page than the one that the ways are for
    ranking.note(site, parsed.tries, task.task_id, now)
    if not ranking.tells(site):
        return parsed.outcome
    return structs.replace(parsed.outcome, signals=signals_of(site, parsed.tries, task.task_id))


def signals_of(site: Site, tries: Iterable[Try], task_id: str) -> tuple[Signal, ...]:
    platform, state, county = site
    context = f"{state}/{county}"
    named = ((one, *name_of(one.way)) for one in tries)
    return tuple(
        Signal(
            platform=platform,
            field=one.field,
            selector=selector,
            selector_type=kind,
            success=one.success,
            task_id=task_id,
            context=context + _GUESS if one.guess else context,
        )
        for one, kind, selector in named
        if len(selector) <= _LONGEST_SELECTOR
    )


def remember(ranking: Ranking, signals: Sequence[tuple[Signal, datetime]]) -> None:
    """What was learned before, page by page, as the signals tell it. The oldest comes first."""
    for (site, task_id), page in groupby(signals, key=lambda pair: (_site(pair[0]), pair[0].task_id or "")):
        told = list(page)
        ranking.note(site, [one for signal, _ in told if (one := _try(signal)) is not None], task_id, told[0][1])


def _site(signal: Signal) -> Site:
    state, _, county = (signal.context or "").removesuffix(_GUESS).partition("/")
    return signal.platform, state, county


def _try(signal: Signal) -> Try | None:
    way = from_name(signal.selector_type, signal.selector)
    if way is None:
        return None
    return Try(signal.field, way, signal.success, guess=(signal.context or "").endswith(_GUESS))
