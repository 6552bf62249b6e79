"""Lays out one frame. A pure function of data, width and height."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from parcelpost.cli.top import panels
from parcelpost.cli.top.data import ScreenData
from parcelpost.cli.top.text import Line, Span, beside, fitted, in_ascii, without_ellipsis, wrapped
from parcelpost.cli.top.view import VIEWS, ViewState

Panel = Callable[[ScreenData, int, ViewState], list[Line]]

_WIDE = 120
_TALL = 30
_HIGHEST_GRAPH = 8
_LEAST_WIDTH, _LEAST_HEIGHT = 20, 4

_PANELS: dict[str, Panel] = {
    "slots": panels.slots,
    "platforms": panels.platforms,
    "browsers": panels.browsers,
    "errors": panels.errors,
    "attention": panels.attention,
}
_HELP = (
    "q, Ctrl-C    leave",
    "p, space     stop looking, and go on",
    "r            look at once",
    "tab, right   the next view;  shift-tab, left: the one before",
    "1 ... 6      everything, slots, platforms, browsers, errors, attention",
    "?, h         this page, and back",
    "",
    "Nothing here changes the store. To mend: parcelpost tasks, parcelpost results.",
)


def frame(seen: ScreenData, width: int, height: int, how: ViewState = ViewState()) -> list[Line]:
    """At most `height` lines, each at most `width` cells wide."""
    if width < _LEAST_WIDTH or height < _LEAST_HEIGHT:
        lines: list[Line] = [(Span("too small"),)]
    else:
        foot = [_foot(how, width)] if how.is_live else []
        body = _body(seen, width, height - len(foot), how)[: height - len(foot)]
        filling: list[Line] = [()] * (height - len(foot) - len(body)) if how.is_live else []
        lines = [*body, *filling, *foot]
    fitting = [fitted(line, width) for line in lines]
    return [without_ellipsis(line) for line in fitting] if how.ascii_only else fitting


def _body(seen: ScreenData, width: int, height: int, how: ViewState) -> list[Line]:
    title = panels.title(seen, width, how)
    if how.helps:
        return [title, (), *((Span(in_ascii(line)),) for line in _HELP)]
    if seen.overview is None:
        return [title, (), *_nothing_yet(seen, width, how)]
    top = [title, *panels.verdict(seen, width, _verdict_lines(height), how), *panels.facts(seen, how)]
    room = height - len(top)
    if how.view != "all":
        return [*top, *_shortened(_PANELS[how.view](seen, width, how), room)]
    if width >= _WIDE:
        return [*top, *_side_by_side(seen, width, room, how)]
    rest = [_PANELS[name](seen, width, how) for name in _order(seen)]
    few = _few_rates(seen, width, how, room)
    spare = room - sum(map(len, (few, *rest)))
    return [*top, *_stacked([_filling(few, spare, seen, width, how), *rest], room)]


def _verdict_lines(height: int) -> int:
    return 1 if height < 16 else 4 if height >= _TALL else 3


def _order(seen: ScreenData) -> tuple[str, ...]:
    """What matters most first: where there is no room, the last ones are left out."""
    return (
        ("slots", "platforms", "errors", "browsers")
        if not seen.troubles
        else ("slots", "errors", "platforms", "browsers")
    )


def _few_rates(seen: ScreenData, width: int, how: ViewState, room: int) -> list[Line]:
    return panels.rates(seen, width, how)[: 5 if room < _TALL else None]


def _filling(rates: list[Line], spare: int, seen: ScreenData, width: int, how: ViewState) -> list[Line]:
    """In a high window the graphs take the lines that nothing else needs."""
    more = spare // (len(rates) - 1) if how.is_live else 0
    return panels.rates(seen, width, how, min(1 + more, _HIGHEST_GRAPH)) if more > 0 else rates


def _side_by_side(seen: ScreenData, width: int, room: int, how: ViewState) -> list[Line]:
    left_width = (width - 2) // 2
    right_width = width - 2 - left_width
    rates, slots = panels.rates(seen, left_width, how), panels.slots(seen, left_width, how)
    spare = room - len(rates) - len(slots)
    left = _stacked([_filling(rates, spare, seen, left_width, how), slots], room)
    others = [part(seen, right_width, how) for part in (panels.platforms, panels.errors, panels.browsers)]
    return beside(left, _stacked(others, room), left_width)


def _nothing_yet(seen: ScreenData, width: int, how: ViewState) -> list[Line]:
    problem = seen.problem
    if problem is None:
        return [(Span("Looking ...", "dim"),)]
    if problem.is_missing:
        text = f"There is no store at {seen.store} yet. A worker makes it: '{seen.start}'. Waiting for it."
        return [(Span(part, "warn"),) for part in wrapped(how.text(text), width, 6)]
    lines = [(Span(part, "bad"),) for part in wrapped(how.text(f"The store cannot be read: {problem.error}"), width, 6)]
    hint = (
        [(Span(part),) for part in wrapped(how.text(f"What to do: {problem.hint}"), width, 6)] if problem.hint else []
    )
    return [*lines, *hint, (), (Span("Looking again, until it can be read.", "dim"),)]


def _stacked(stack: Sequence[list[Line]], room: int) -> list[Line]:
    """One below the other: each gets a heading and a few rows, then what is left goes round."""
    least = [min(len(part), 3) for part in stack]
    given: list[int] = []
    for wish in least:
        given.append(wish if sum(given) + wish <= room else 0)
    left = room - sum(given)
    while left > 0:
        hungry = [n for n, part in enumerate(stack) if 0 < given[n] < len(part)]
        if not hungry:
            break
        for number in hungry[:left]:
            given[number] += 1
        left -= len(hungry[:left])
    return [line for part, rows in zip(stack, given, strict=True) for line in _shortened(part, rows)]


def _shortened(part: list[Line], rows: int) -> list[Line]:
    """With a word in its heading on what is left out."""
    if len(part) <= rows or rows == 0:
        return part[:rows]
    title, note, rule = part[0]
    more = f"+{len(part) - rows} more "
    heading = (title, note, Span(more, "warn"), Span(rule.text[len(more) :], rule.style))
    return [heading, *part[1:rows]]


def _foot(how: ViewState, width: int) -> Line:
    if width < 60:
        return (Span("q quit  ? help  tab: " + how.view, "dim"),)
    views = [Span(f" {n} {name} ", "chosen" if name == how.view else "dim") for n, name in enumerate(VIEWS, 1)]
    keys = Span("  q quit  ? help", "dim")
    return (*views, keys)
