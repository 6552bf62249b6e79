"""The parts of the screen below its head: rates, slots, platforms, browsers, errors. Each is a heading and its rows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from parcelpost.cli.browser_seen import SeenBrowser
from parcelpost.cli.output import age, count
from parcelpost.cli.overview import remark
from parcelpost.cli.store_status import attention_lines
from parcelpost.cli.top.graphs import graph
from parcelpost.cli.top.grid import Cell, grid, heading
from parcelpost.cli.top.how import How
from parcelpost.cli.top.rates import PART_SECONDS, PARTS
from parcelpost.cli.top.seen import Seen
from parcelpost.cli.top.text import Line, Span, Style, cells, width_of, wrapped
from parcelpost.storage.queries import RecentError, RunningTask

_PER_MINUTE_PARTS = 60 // PART_SECONDS
_LABEL = 10
_WIDE_SLOTS = 90
_SLOT_COLUMNS = ("for", "platform", "county", "parcel", "task", "try", "browser")
_MOST_WHY_LINES = 8
_KINDS: dict[str, tuple[str, Style]] = {
    "failed": ("failed", "bad"),
    "again": ("to retry", "warn"),
    "refused": ("refused", "bad"),
    "upload": ("delivery", "warn"),
    "download": ("no tasks", "warn"),
}


def rates(seen: Seen, width: int, how: How, rows_each: int = 1) -> list[Line]:
    """Each graph on so many lines."""
    found, last = seen.rates, seen.samples[-1].sample if seen.samples else None
    rows: list[Line] = [
        *_rate("scraped", found.completed, "good", width, how, rows_each),
        *_rate("failed", found.failed, "bad", width, how, rows_each),
        *_rate("delivered", found.delivered, "accent", width, how, rows_each),
        *_rate("tasks in", found.fetched, "plain", width, how, rows_each),
    ]
    if last is not None:
        samples = [one.sample for one in seen.samples]
        cpu, memory = [one.cpu_percent for one in samples], [one.ram_percent for one in samples]
        took = [one.average_execution_time_ms for one in samples]
        rows += [
            *_graph("memory", memory, _number(last.ram_percent, "%"), "plain", width, how, rows_each, most=100.0),
            *_graph("cpu", cpu, _number(last.cpu_percent, "%"), "plain", width, how, rows_each, most=100.0),
            *_graph("avg task", took, _number(last.average_execution_time_ms, "ms"), "plain", width, how, rows_each),
        ]
    return [heading("rates", "10 min; memory, cpu: 1 h" if last else "10 min", width, ascii_only=how.ascii_only), *rows]


def _rate(label: str, values: tuple[int, ...], style: Style, width: int, how: How, rows: int) -> list[Line]:
    """A minute that is over: the part that runs is not full yet."""
    lately = values[-_PER_MINUTE_PARTS - 1 : -1]
    return _graph(label, values, f"{sum(lately):,}/min", style, width, how, rows)


def _graph(
    label: str,
    values: Sequence[float | None],
    now: str,
    style: Style,
    width: int,
    how: How,
    rows: int,
    most: float | None = None,
) -> list[Line]:
    """In a wide window every value takes several cells, in a high one several lines; what it is, stands on the last."""
    wide = max(1, (width - _LABEL - 12) // PARTS)
    room = max(0, min(PARTS * wide, width - _LABEL - 12))
    stretched = [value for value in values for _ in range(wide)]
    lines = graph(stretched, room, rows, ascii_only=how.ascii_only, most=most)
    bars = style if any(values) else "dim"
    above: list[Line] = [(Span(" " * _LABEL), Span(line, bars)) for line in lines[:-1]]
    return [*above, (Span(label.ljust(_LABEL), "dim"), Span(lines[-1], bars), Span(f"  {now}"))]


def _number(value: float | None, unit: str) -> str:
    return "-" if value is None else f"{value:,.0f} {unit}"


def slots(seen: Seen, width: int, how: How) -> list[Line]:
    places, busy = sum(one.slots for one in seen.statuses), seen.busy_slots
    others = f", {seen.held - busy:,} held by others" if seen.held > busy else ""
    note = f"{busy:,} of {places:,} busy{others}" if places else f"{seen.held:,} busy"
    top = heading("slots", note, width, ascii_only=how.ascii_only)
    if seen.running:
        rows = [_running(one, seen.at, how) for one in seen.running]
        wanted = [name for name in _SLOT_COLUMNS if name not in _spared(seen, width)]
        return [top, *grid(wanted, [[row[name] for name in wanted] for row in rows], width)]
    idle = "Nothing runs at this moment."
    if seen.overview is not None and not seen.overview.workers:
        idle = f"No worker is running. Start one with '{seen.start}'"
    return [top, *((Span(part, "dim"),) for part in wrapped(how.text(idle), width, 3))]


def _spared(seen: Seen, width: int) -> set[str]:
    """Columns that would say nothing, or take the room of others."""
    in_no_browser = all(one.browser is None for one in seen.running)
    return ({"browser"} if in_no_browser else set()) | ({"task"} if width < _WIDE_SLOTS else set())


def _running(one: RunningTask, now: datetime, how: How) -> dict[str, Cell]:
    ran = (now - one.started_at).total_seconds() if one.started_at else 0.0
    place = f"{one.county}, {one.state}" if one.county else one.state
    return {
        "for": Span(age(ran), "warn" if ran > 60 else "plain"),
        "platform": Span(how.text(one.platform), "accent"),
        "county": how.text(place),
        "parcel": how.text(one.parcel_id),
        "task": Span(how.text(one.task_id), "dim"),
        "try": one.retries + 1,
        "browser": f"{one.browser}" if one.browser else "-",
    }


def platforms(seen: Seen, width: int, how: How) -> list[Line]:
    paused = seen.overview.paused if seen.overview else {}
    names = sorted(
        {*seen.platforms, *paused},
        key=lambda name: (
            not seen.held_of(name),
            -_open(seen.platforms.get(name, {})),
            name,
        ),  # what runs is seen first
    )
    top = heading("platforms", f"{len(names):,}", width, ascii_only=how.ascii_only)
    if not names:
        return [heading("platforms", "no tasks yet", width, ascii_only=how.ascii_only)]
    return [
        top,
        *grid(
            ("platform", "to do", "later", "running", "done", "failed", "state"),
            [_platform(name, seen, how) for name in names],
            width,
        ),
    ]


def _open(counts: dict[str, int]) -> int:
    return sum(counts.get(status, 0) for status in ("pending", "delayed", "processing"))


def _platform(name: str, seen: Seen, how: How) -> tuple[Cell, ...]:
    counts = seen.platforms.get(name, {})
    return (
        Span(how.text(name), "accent"),
        counts.get("pending", 0),
        counts.get("delayed", 0),
        seen.held_of(name),
        counts.get("completed", 0) + counts.get("not_found", 0),
        counts.get("failed", 0) + counts.get("expired", 0),
        _state(name, seen, how),
    )


def _state(name: str, seen: Seen, how: How) -> Span:
    if seen.overview is None:
        return Span("-")
    if pause := seen.overview.paused.get(name):
        until = f"until {pause.until[11:16]}" if pause.until else "until resumed"
        return Span(how.text(f"paused {until}: {pause.reason}"), "warn")
    lately = seen.overview.failures.platforms.get(name)
    if lately is None:
        return Span("fine", "good")
    share = lately.failed / max(lately.ended, 1)
    return Span(f"{share:.0%} failed in 24 h", "bad" if share > 0.05 else "plain")


def browsers(seen: Seen, width: int, how: How) -> list[Line]:
    if not seen.browsers:
        waits = seen.overview.browser_waits if seen.overview else []
        text = f"none, and {count(len(waits), 'platform')} wait for one" if waits else "none runs, none was needed"
        return [heading("browsers", text, width, ascii_only=how.ascii_only, style="bad" if waits else "title")]
    top = heading("browsers", f"{len(seen.browsers):,}", width, ascii_only=how.ascii_only)
    rows: list[tuple[Cell, ...]] = [
        (
            one.browser_id,
            _browser_state(one),
            how.text(one.current_task_id or "-"),
            one.tasks_completed,
            one.launches,
            f"{one.memory_mb:,} MiB" if one.memory_mb else "-",
            age((seen.at - (one.restarted_at or one.created_at)).total_seconds()),
        )
        for one in seen.browsers
    ]
    return [top, *grid(("id", "state", "task", "done", "launches", "memory", "age"), rows, width)]


def _browser_state(one: SeenBrowser) -> Span:
    if not one.owner_lives:
        return Span("left behind", "bad")
    return Span(one.status, "good" if one.status in ("idle", "busy") else "bad")


def errors(seen: Seen, width: int, how: How) -> list[Line]:
    alike = _alike(seen.troubles)
    top = heading("errors", "the newest first" if alike else "none", width, ascii_only=how.ascii_only)
    if not alike:
        return [top]
    rows: list[tuple[str, Span, str, str]] = []
    for one, number in alike:
        kind, style = _KINDS.get(one.kind, (one.kind, "plain"))
        where = how.text(" ".join(part for part in (one.platform, one.county) if part) or "-")
        times = f"{number}x " if number > 1 else ""
        ago = age((seen.at - one.at).total_seconds())
        why = times + how.text(one.error or "no reason was given")
        rows.append((ago, Span(kind, style), where, why))
    if how.view == "errors":
        return [top, *_in_full(rows, width)]
    return [top, *grid(("ago", "what", "where", "why"), rows, width)[1:]]


def _in_full(rows: list[tuple[str, Span, str, str]], width: int) -> list[Line]:
    """Each with all of its reason below it, where that is longer than the line."""
    found: list[Line] = []
    for row in rows:
        *_, why = row
        (short,) = grid(("ago", "what", "where"), [row[:3]], width)[1:]
        room = width - width_of(short) - 2
        if cells(why) <= room:
            found.append((*short, Span(f"  {why}")))
        else:
            found += [short, *((Span(f"  {part}"),) for part in wrapped(why, width - 2, _MOST_WHY_LINES))]
    return found


def _alike(troubles: tuple[RecentError, ...]) -> list[tuple[RecentError, int]]:
    """The newest of those that say the same of the same site, and how many they are."""
    found: dict[tuple[str, str, str, str], list[RecentError]] = {}
    for one in troubles:
        found.setdefault((one.kind, one.platform, one.county, one.error), []).append(one)
    return [(ones[0], len(ones)) for ones in found.values()]


def attention(seen: Seen, width: int, how: How) -> list[Line]:
    problems = seen.overview.problems if seen.overview else []
    top = heading("attention", f"{len(problems):,}", width, ascii_only=how.ascii_only)
    lines: list[Line] = []
    for text in attention_lines(problems, remark(seen.overview, seen.at) if seen.overview else ""):
        lines += [(Span(part, "bad" if problems else "good"),) for part in wrapped(how.text(text), width, 20)]
        lines.append(())
    return [top, *lines]
