"""One frame of `top`, laid out with rich for a window of any size: a function of the data, the view and the size."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple

from msgspec import Struct
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.layout import Layout
from rich.panel import Panel
from rich.rule import Rule
from rich.segment import Segment, SegmentLines
from rich.table import Column, Table
from rich.text import Text

from parcelpost.cli.health.overview import SyncedRound, WorkerBrowser
from parcelpost.cli.output import age, count, printable, record_noun, size
from parcelpost.cli.top.data import RATE_STEPS, STEP_SECONDS, StoreFailure, TopData
from parcelpost.health_checks import MANY_FAILURES
from parcelpost.storage.queries import RecentError, RunningTask

ViewName = Literal["all", "slots", "platforms", "browsers", "errors", "problems"]
VIEWS: tuple[ViewName, ...] = ("all", "slots", "platforms", "browsers", "errors", "problems")


class View(Struct, frozen=True, kw_only=True):
    name: ViewName = "all"
    paused: bool = False
    shows_help: bool = False


_GOOD, _WARNING, _BAD, _DIM, _NAME = "green", "yellow", "bold red", "dim", "cyan"
_MIN_WIDTH, _MIN_HEIGHT = 20, 4
_TWO_COLUMNS = 150
_WIDE_GRAPHS = 100
_TALL = 30
"""Minimum height for panels and all graphs."""
_WIDE_SLOTS, _WIDE_PLATFORMS = 90, 76
_STALE_SECONDS = 30
_SLOW_TASK_SECONDS = 60

_HELP = """
q, Ctrl-C    quit
p, space     pause, resume
r            refresh now
tab, right   next view (shift-tab, left: previous view)
1 to 6       all, slots, platforms, browsers, errors, problems
?, h         show or hide this help

This screen is read-only. To change something, use 'parcelpost tasks' or 'parcelpost results'."""


def frame(
    data: TopData | None, console: Console, view: View = View(), failure: StoreFailure | None = None
) -> RenderableType:
    """Fills the console's window. If the store cannot be read (`failure`), shows what was read last."""
    width, height = console.size
    if width < _MIN_WIDTH or height < _MIN_HEIGHT:
        return _stack([(Text("too small", no_wrap=True, overflow="crop"), height)])
    title, footer, room = _title(data, view, failure), _footer(data, view), height - 2
    health = _failure(failure) if failure else _health(data) if data else Text("Loading ...", _DIM)
    if view.shows_help or data is None:
        return _stack([(title, 1), (Text(_HELP) if view.shows_help else Group("", health), room), (footer, 1)])
    health = _first_lines(console, health, max(1, room // 8))
    facts = _facts(data)
    health_lines = len(health.split())
    fact_lines = min(facts.row_count, room - health_lines)
    room -= health_lines + fact_lines
    body = _body(data, console, view, room) if room else ""
    return _stack([(title, 1), (health, health_lines), (facts, fact_lines), (body, room), (footer, 1)])


def printed_frame(data: TopData, console: Console) -> RenderableType:
    """Everything in full, one section below the other."""
    sections = [_rates(data, all_graphs=True), _slots(data, console.width), *_lists(data, console.width)]
    return Group(_title(data, View(), None), _health(data), _facts(data), *sections)


def _stack(parts: Iterable[tuple[RenderableType, int]]) -> Layout:
    layout = Layout()
    layout.split_column(*(Layout(part, size=lines) for part, lines in parts if lines > 0))
    return layout


def safe(text: str) -> str:
    """Text from pages and other programs, without characters that move the cursor or overlap their neighbours."""
    if not text.isascii():
        composed = unicodedata.normalize("NFC", text)
        text = "".join(char for char in composed if not unicodedata.category(char).startswith("M"))
    return printable(text)


def _cell(text: str, style: str = "") -> Text:
    """One line, truncated with an ellipsis."""
    return Text(safe(text), style, no_wrap=True, overflow="ellipsis")


def _first_lines(console: Console, text: Text, limit: int) -> Text:
    lines = list(text.wrap(console, console.width))
    if len(lines) > limit:
        lines = lines[:limit]
        lines[-1].truncate(console.width - 1)
        lines[-1].append("…")
    return Text("\n").join(lines)


def _joined(parts: Iterable[str]) -> str:
    return " · ".join(part for part in parts if part)


# The header: who works, what is wrong, how far it is.


def _title(data: TopData | None, view: View, failure: StoreFailure | None) -> Table:
    grid = Table.grid(Column(no_wrap=True), Column(ratio=1), Column(no_wrap=True, justify="right"), expand=True)
    latest = failure or data
    clock = Text().append(" paused" if view.paused else "", _WARNING)
    clock.append(f" {latest.at:%H:%M:%S} UTC" if latest else "", _DIM)
    grid.add_row(Text("parcelpost  ", "bold"), _workers(data) if data else Text(), clock)
    return grid


def _workers(data: TopData) -> Text:
    known = {status.owner for status in data.statuses}
    names = [status.name for status in data.statuses]
    names += [worker.id for worker in data.overview.workers if worker.id not in known]
    if not names:
        return _cell("no worker is running", _WARNING)
    if len(names) > 1 or not data.statuses:
        return _cell(f"{count(len(names), 'worker')}: {', '.join(names)}", _GOOD)
    (status,) = data.statuses
    upstream = f" → {status.upstream}" if status.upstream else ""
    up = age((data.at - status.started_at).total_seconds())
    return _cell(_joined([status.name, status.mode + upstream, f"up {up}"]), _GOOD)


class _Problem(NamedTuple):
    text: str
    style: str


def _problems(data: TopData) -> list[_Problem]:
    """Worst first."""
    problems = [finding for finding in data.overview.findings if finding.is_problem]
    return [
        _Problem(_with_fix(finding.message, finding.fix), _BAD if finding.is_error else _WARNING)
        for finding in problems
    ]


def _with_fix(message: str, fix: str) -> str:
    return f"{message}. Fix: {fix}." if fix else f"{message}."


def _failure(failure: StoreFailure) -> Text:
    since = age((failure.at - failure.since).total_seconds())
    text = f"Cannot read the store: {_with_fix(failure.finding.message, failure.finding.fix)} Retrying for {since}."
    return Text(safe(text), _BAD)


def _health(data: TopData) -> Text:
    if problems := _problems(data):
        names = [f"Problem {n} of {len(problems)}" for n in range(1, len(problems) + 1)]
        names = names if len(problems) > 1 else ["Problem"]
        lines = [Text(safe(f"{name}: {text}"), style) for name, (text, style) in zip(names, problems, strict=True)]
        return Text("\n").join(lines)
    if notes := data.overview.findings:
        return Text(safe(f"No problems. Note: {_with_fix(notes[0].message, notes[0].fix)}"), _WARNING)
    old = (data.at - data.overview_at).total_seconds()
    return Text("No problems.", _GOOD) + Text(f" Checked {age(old)} ago." if old > _STALE_SECONDS else "", _DIM)


def _facts(data: TopData) -> Table:
    queue, overview, usage = data.queue, data.overview, data.overview.storage
    grid = Table.grid(Column(style=_DIM, no_wrap=True, min_width=8), Column(ratio=1), expand=True)
    delayed = f" ({queue.delayed:,} delayed)" if queue.delayed else ""
    tasks = [f"{len(data.running):,} running", f"{queue.pending:,} pending{delayed}", f"{queue.failed:,} failed"]
    tasks += [f"{queue.completed:,} completed"]
    tasks += [f"{queue.not_found:,} not found"] if queue.not_found else []
    tasks += [f"{queue.expired:,} expired"] if queue.expired else []
    grid.add_row("tasks", _cell(_joined(tasks)))
    oldest = f", oldest {age(queue.oldest_unsynced_seconds)}" if queue.unsynced else ""
    rejected = Text(f"{queue.rejected:,} rejected", _BAD if queue.rejected > queue.rejected_by_operator else "")
    grid.add_row("outbox", _cell(f"{count(queue.unsynced, 'result')} to deliver{oldest} · ") + rejected)
    grid.add_row("sync", _sync(data))
    backup = f"backup {age(overview.backup.age_seconds)} old" if overview.backup else "no backup"
    used = f"{size(usage.total)} of {size(usage.max_bytes)} ({overview.used_percent:g}%)"
    store = _joined([used, f"{size(usage.disk_free)} free on disk", backup])
    grid.add_row("store", _cell(store, "" if usage.level == "fine" else _BAD))
    return grid


def _sync(data: TopData) -> Text:
    sync = data.overview.sync
    if sync.outage is not None and sync.outage.denied:
        return _cell(f"credentials rejected: {sync.outage.reason}", _BAD)
    if sync.outage is not None:
        wait = (sync.outage.until - data.at).total_seconds()
        retry = (
            f"next attempt {f'in {age(wait)}' if wait > 0 else 'now'}"
            if data.overview.workers
            else "no worker is running"
        )
        state = "the upstream responds with an error" if sync.outage.responded else "offline"
        return _cell(f"{state}, {retry} ({count(sync.outage.failures, 'failure')}): {sync.outage.reason}", _WARNING)
    if rounds := _joined([_round("sent", sync.last_upload, data), _round("received", sync.last_download, data)]):
        return _cell(rounds)
    is_local = bool(data.statuses) and not any(status.upstream for status in data.statuses)
    return _cell("no upstream: results stay in the local store" if is_local else "nothing sent or received yet", _DIM)


def _round(verb: str, done: SyncedRound | None, data: TopData) -> str:
    if done is None:
        return ""
    ago = age((data.at - done.at).total_seconds())
    return f"{verb} {done.record_count:,} {record_noun(done.record_type, done.record_count)} {ago} ago"


def _footer(data: TopData | None, view: View) -> Text:
    text = Text("q quit ? help", _DIM, no_wrap=True, overflow="ellipsis")
    problems = len(_problems(data)) if data else 0
    for number, name in enumerate(VIEWS, 1):
        total = f": {problems}" if name == "problems" and problems else ""
        text.append("  ").append(f"{number} {name}{total}", "not dim reverse" if name == view.name else "")
    return text


# The body: sections that share the lines there are.


class Section:
    """A heading and a body. The heading says how many lines of the body are hidden.

    `reserve`: lines of the body that are kept free where there is room, so that the others stay in their place.
    `grows`: the body fills the height it gets.
    """

    def __init__(self, title: str, note: str, body: RenderableType, *, reserve: int = 0, grows: bool = False) -> None:
        self._heading = Text.assemble((title, "bold not dim"), (f"  {note}" if note else "", _DIM))
        self._body = body
        self._reserve = reserve
        self.grows = grows

    def measure(self, console: Console, width: int) -> tuple[int, int, int]:
        """Returns the smallest useful height, the height that shows everything, and the preferred height."""
        border = 2 if console.height >= _TALL else 1
        self._lines = self._render(console, width - 4 if border == 2 else width, None)
        needed = len(self._lines) + border
        return needed if self.grows else min(needed, border + 2), needed, max(needed, self._reserve + border)

    def _render(self, console: Console, width: int, height: int | None) -> list[list[Segment]]:
        return console.render_lines(self._body, console.options.update(width=max(1, width), height=height))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if options.height is None:  # printed, not on a screen
            yield Rule(self._heading, align="left", style=_DIM)
            yield self._body
            return
        in_panel = console.height >= _TALL
        room = options.height - (2 if in_panel else 1)
        lines = self._lines
        if self.grows and room > len(lines):
            lines = self._render(console, options.max_width - 4 if in_panel else options.max_width, room)
        hidden = max(0, len(lines) - room)
        heading = self._heading + Text(f"  +{hidden} more" if hidden else "", _WARNING)
        body = SegmentLines(lines[:room], new_lines=True)
        if in_panel:
            yield Panel(body, title=heading, title_align="left", border_style=_DIM, height=options.height)
        else:
            yield Rule(heading, align="left", style=_DIM)
            yield body


def _body(data: TopData, console: Console, view: View, height: int) -> RenderableType:
    width = console.width
    if view.name != "all":
        return _column(console, [_SECTIONS[view.name](data, width)], width, height)
    rates = _rates(data, all_graphs=console.height >= _TALL)
    if width < _TWO_COLUMNS:
        return _column(console, [rates, _slots(data, width), *_lists(data, width)], width, height)
    left = width // 2
    columns = Layout()
    columns.split_row(
        Layout(_column(console, [rates, _slots(data, left)], left, height), size=left),
        Layout(_column(console, _lists(data, width - left), width - left, height)),
    )
    return columns


def _lists(data: TopData, width: int) -> list[Section]:
    """The most important first: in a small window the last ones are left out."""
    errors = [_errors(data, width)] if data.errors else []
    browsers = [_browsers(data, width)] if data.browsers or data.overview.browser_waits else []
    return [_platforms(data, width), *errors, *browsers]


def _column(console: Console, sections: Sequence[Section], width: int, height: int) -> RenderableType:
    """Each section gets a few lines, then they share the rest in turn; what none needs goes to the one that grows."""
    measured = [section.measure(console, width) for section in sections]
    heights: list[int] = []
    for least, _, _ in measured:
        heights.append(least if sum(heights) + least <= height else 0)
    for wanted in (1, 2):
        while short := [n for n, lines in enumerate(measured) if 0 < heights[n] < lines[wanted]]:
            if not (spare := height - sum(heights)):
                break
            for number in short[:spare]:
                heights[number] += 1
    heights[0 if sections[0].grows and heights[0] else -1] += height - sum(heights)
    return _stack(zip(sections, heights, strict=True))


def _table(columns: Iterable[str | Column], rows: Iterable[Sequence[Text]]) -> Table:
    table = Table(*columns, box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style=_DIM)
    for row in rows:
        table.add_row(*row)
    return table


def _number(name: str) -> Column:
    return Column(name, justify="right", no_wrap=True)


def _fixed(name: str) -> Column:
    """Truncated only after all other sections."""
    return Column(name, no_wrap=True, overflow="ellipsis")


def _slots(data: TopData, width: int) -> Section:
    others = len(data.running) - data.busy_slots
    held = f", {count(others, 'task')} held by other processes" if others else ""
    note = f"{data.busy_slots:,} of {data.slots:,} busy{held}" if data.slots else f"{len(data.running):,} busy"
    if not data.running:
        start = f"No worker is running. Start one with '{data.start}'"
        idle = "Nothing is running." if data.overview.workers else start
        return Section("slots", note, Text(safe(idle), _DIM), reserve=data.slots + 1)
    columns: list[tuple[str | Column, Callable[[RunningTask], Text]]] = [
        (_number("time"), lambda task: _running_time(task, data)),
        (_fixed("platform"), lambda task: _cell(task.platform, _NAME)),
        ("county", lambda task: _cell(", ".join(part for part in (task.county, task.state) if part))),
        ("parcel", lambda task: _cell(task.parcel_id)),
    ]
    if width >= _WIDE_SLOTS:
        columns.append(("task", lambda task: _cell(task.task_id, _DIM)))
    columns.append((_number("try"), lambda task: Text(f"{task.retries + 1}")))
    if any(task.browser for task in data.running):
        columns.append((_number("browser"), lambda task: Text(f"{task.browser or '-'}")))
    rows = [[show(task) for _, show in columns] for task in data.running]
    return Section("slots", note, _table((column for column, _ in columns), rows), reserve=data.slots + 1)


def _running_time(task: RunningTask, data: TopData) -> Text:
    seconds = (data.at - task.started_at).total_seconds() if task.started_at else 0.0
    return Text(age(seconds), _WARNING if seconds > _SLOW_TASK_SECONDS else "")


def _platforms(data: TopData, width: int) -> Section:
    """Platforms in progress first, then those with a problem, then by number of tasks to do."""
    states = {name: _platform_state(name, data) for name in {*data.platforms, *data.overview.paused}}

    def order(name: str) -> tuple[bool, bool, int, str]:
        counts = data.platforms.get(name, {})
        waiting = counts.get("pending", 0) + counts.get("delayed", 0)
        return not data.running_on(name), states[name].style not in (_WARNING, _BAD), -waiting, name

    if not states:
        return Section("platforms", "", Text("No tasks yet.", _DIM))
    rows = [_platform_row(name, data, states[name], width) for name in sorted(states, key=order)]
    delayed = [_number("delayed")] if width >= _WIDE_PLATFORMS else []
    numbers = [_number("running"), _number("pending"), *delayed, _number("done"), _number("failed")]
    return Section("platforms", f"{len(states):,}", _table([_fixed("platform"), *numbers, "state"], rows))


def _platform_row(name: str, data: TopData, state: Text, width: int) -> list[Text]:
    counts = data.platforms.get(name, {})
    pending, delayed = counts.get("pending", 0), counts.get("delayed", 0)
    numbers = [
        data.running_on(name),
        *([pending, delayed] if width >= _WIDE_PLATFORMS else [pending + delayed]),
        counts.get("completed", 0) + counts.get("not_found", 0),
        counts.get("failed", 0) + counts.get("expired", 0),
    ]
    return [_cell(name, _NAME), *(Text(f"{number:,}") for number in numbers), state]


def _platform_state(name: str, data: TopData) -> Text:
    if pause := data.overview.paused.get(name):
        until = f"until {pause.until[11:16]}" if pause.until else "until resumed"
        return _cell(f"paused {until}: {pause.reason}", _WARNING)
    ends = data.overview.failures.platforms.get(name)
    share = ends.failed / max(ends.ended, 1) if ends else 0.0
    if not share:
        return _cell("ok", _GOOD)
    percent = "<1%" if share < 0.01 else f"{share:.0%}"
    return _cell(f"{percent} failed in 24 h", _BAD if share > MANY_FAILURES else "")


def _browsers(data: TopData, _width: int) -> Section:
    waits = data.overview.browser_waits
    if not data.browsers:
        text = (
            f"No browser is running, but {count(len(waits), 'platform needs', 'platforms need')} one."
            if waits
            else "None needed yet."
        )
        return Section("browsers", "", Text(text, _BAD if waits else _DIM))
    numbers = map(_number, ("tasks", "launches", "memory", "age"))
    columns: list[str | Column] = [_number("id"), _fixed("state"), "task", *numbers]
    in_order = sorted(data.browsers, key=lambda browser: (browser.status != "busy", browser.status == "idle"))
    rows = [_browser_row(browser, data) for browser in in_order]
    return Section("browsers", f"{len(rows):,}", _table(columns, rows))


def _browser_row(browser: WorkerBrowser, data: TopData) -> list[Text]:
    state = Text(browser.status, _GOOD if browser.status in ("idle", "busy") else _BAD)
    return [
        Text(f"{browser.browser_id}"),
        state if browser.owner_lives else Text("orphaned", _BAD),
        _cell(browser.current_task_id or "-"),
        Text(f"{browser.tasks_completed:,}"),
        Text(f"{browser.launches:,}"),
        Text(f"{browser.memory_mb:,} MiB" if browser.memory_mb else "-"),
        Text(age((data.at - (browser.restarted_at or browser.created_at)).total_seconds())),
    ]


_ERROR_KINDS = {
    "failed": ("failed", _BAD),
    "again": ("will retry", _WARNING),
    "rejected": ("rejected", _BAD),
    "upload": ("not sent", _WARNING),
    "download": ("not received", _WARNING),
}


def _errors(data: TopData, _width: int, *, in_full: bool = False) -> Section:
    """Newest first; errors with the same text about the same site share a line."""
    groups: dict[tuple[str, str, str, str], list[RecentError]] = {}
    for error in data.errors:
        groups.setdefault((error.kind, error.platform, error.county, error.error), []).append(error)
    if not groups:
        return Section("errors", "", Text("None.", _DIM))
    rows = []
    for (kind, platform, county, message), errors in groups.items():
        name, style = _ERROR_KINDS.get(kind, (kind, ""))
        times = f"{len(errors)}x " if len(errors) > 1 else ""
        text = _cell(times + (message or "no reason given"))
        text.no_wrap = not in_full
        ago = Text(age((data.at - errors[0].at).total_seconds()))
        rows.append([ago, _cell(name, style), _cell(" ".join(filter(None, (platform, county))) or "-"), text])
    columns: list[str | Column] = [_number("ago"), _fixed("what"), _fixed("where"), "why"]
    return Section("errors", "newest first", _table(columns, rows))


def _problem_list(data: TopData, _width: int) -> Section:
    problems = _problems(data)
    lines = [Text(safe(f"{n}. {text}\n"), style) for n, (text, style) in enumerate(problems, 1)]
    return Section("problems", f"{len(problems):,}", Text("\n").join(lines) if lines else _health(data))


_SECTIONS: dict[ViewName, Callable[[TopData, int], Section]] = {
    "slots": _slots,
    "platforms": _platforms,
    "browsers": _browsers,
    "errors": lambda data, width: _errors(data, width, in_full=True),
    "problems": _problem_list,
}


# The graphs


class _Graph(NamedTuple):
    label: str
    values: Sequence[float | None]
    now: str
    style: str = ""
    top: float | None = None
    """Value of the highest bar; None: the largest value."""


class Graphs:
    """As high as there are lines for, in two columns where they are wide."""

    def __init__(self, graphs: Sequence[_Graph]) -> None:
        self._graphs = graphs

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        in_two = options.max_width >= _WIDE_GRAPHS and len(self._graphs) > _RATE_GRAPHS
        columns = [self._graphs[:_RATE_GRAPHS], self._graphs[_RATE_GRAPHS:]] if in_two else [self._graphs]
        lines = max(1, (options.height or 0) // len(columns[0]))
        width = options.max_width // len(columns) - 24
        grid = Table.grid(*(Column(ratio=1) for _ in columns), expand=True)
        grid.add_row(*(Group(*(_drawn(graph, width, lines) for graph in column)) for column in columns))
        yield grid


def _drawn(graph: _Graph, width: int, lines: int) -> Text:
    bars = bar_graph(graph.values, max(0, width), lines, graph.top)
    style = graph.style if any(graph.values) else _DIM
    above = [Text(" " * 10 + line, style, no_wrap=True) for line in bars[:-1]]
    last = Text.assemble((graph.label.ljust(10), _DIM), (bars[-1], style), f"{graph.now:>12}", no_wrap=True)
    return Text("\n", no_wrap=True, overflow="crop").join([*above, last])


_RATE_GRAPHS = 4
_BARS = "▁▂▃▄▅▆▇█"


def bar_graph(values: Sequence[float | None], width: int, lines: int, top: float | None = None) -> list[str]:
    """The values over the whole width, on so many lines, the highest line first; `·` for nothing."""
    scaled = []
    for n in range(width):
        part = values[n * len(values) // width : max(n * len(values) // width + 1, (n + 1) * len(values) // width)]
        scaled.append(max((value or 0 for value in part), default=0))
    highest = top or max(scaled, default=0) or 1
    eighths = [max(1, round(min(value / highest, 1) * lines * 8)) if value > 0 else 0 for value in scaled]
    return [
        "".join(_BARS[min(bar - below, 8) - 1] if bar > below else " " if below else "·" for bar in eighths)
        for below in range(8 * (lines - 1), -1, -8)
    ]


def _rates(data: TopData, *, all_graphs: bool) -> Section:
    rates = data.rates
    graphs = [
        _Graph("scraped", rates.completed, _per_minute(rates.completed), _GOOD),
        _Graph("failed", rates.failed, _per_minute(rates.failed), "red"),
        _Graph("delivered", rates.delivered, _per_minute(rates.delivered), _NAME),
        _Graph("tasks in", rates.fetched, _per_minute(rates.fetched)),
    ]
    samples = [sample.sample for sample in data.samples] if all_graphs else []
    note = f"{RATE_STEPS * STEP_SECONDS // 60} min"
    if samples:
        note += "; memory, CPU, task time 1 h"
        graphs += [
            _sampled("memory", [sample.ram_percent for sample in samples], "%", 100.0),
            _sampled("CPU", [sample.cpu_percent for sample in samples], "%", 100.0),
            _sampled("task time", [sample.average_execution_time_ms for sample in samples], "ms"),
        ]
    return Section("rates", note, Graphs(graphs), grows=True)


def _per_minute(values: Sequence[int]) -> str:
    """Counts the last full minute: the current step is not over yet."""
    return f"{sum(values[-60 // STEP_SECONDS - 1 : -1]):,}/min"


def _sampled(label: str, values: Sequence[float | None], unit: str, top: float | None = None) -> _Graph:
    """One value per minute, the current one last."""
    now = "-" if values[-1] is None else f"{values[-1]:,.0f} {unit}"
    return _Graph(label, [*[None] * (60 - len(values)), *values], now, top=top)
