"""The panels of the screen: title, verdict, facts, rates, slots, platforms, browsers, errors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from parcelpost.cli.health.overview import Overview, SyncedRound, WorkerBrowser, overview_remark
from parcelpost.cli.health.summary import attention_lines
from parcelpost.cli.output import age, count, record_noun, size
from parcelpost.cli.top.data import PART_SECONDS, PARTS, ScreenData
from parcelpost.cli.top.text import Cell, Line, Span, Style, cells, graph, grid, heading, width_of, wrapped
from parcelpost.cli.top.view import ViewState
from parcelpost.storage.queries import RecentError, RunningTask
from parcelpost.worker.status import WorkerStatus

_FACT_LABEL_WIDTH = 8
_OLD_SECONDS = 30


def title(seen: ScreenData, width: int, how: ViewState) -> Line:
    clock = f"{seen.at:%H:%M:%S} UTC"
    stopped = "paused  " if how.paused else ""
    who, style = _worker_names(seen, how)
    room = width - cells(clock) - cells(stopped) - 13
    words = wrapped(who, max(room, 1), 1)
    text = words[0] if words else ""
    space = " " * max(1, room - cells(text) + 1)
    return (Span("parcelpost  ", "title"), Span(text, style), Span(space), Span(stopped, "warn"), Span(clock, "dim"))


def _worker_names(seen: ScreenData, how: ViewState) -> tuple[str, Style]:
    known = {one.owner for one in seen.statuses}
    others = [one for one in seen.overview.workers if one.id not in known] if seen.overview else []
    if not seen.statuses and not others:
        return ("no worker is running" if seen.overview else ""), "warn"
    if len(seen.statuses) + len(others) == 1 and seen.statuses:
        return _worker_name(seen.statuses[0], seen, how), "good"
    names = [how.text(one.name) for one in seen.statuses] + [how.text(one.id) for one in others]
    return f"{count(len(names), 'worker')}: {', '.join(names)}" if len(names) > 1 else names[0], "good"


def _worker_name(one: WorkerStatus, seen: ScreenData, how: ViewState) -> str:
    where = f" {how.either('→', '->')} {how.text(one.upstream)}" if one.upstream else ""
    up = age((seen.at - one.started_at).total_seconds())
    return f"{how.text(one.name)}{how.dot}{how.text(one.mode)}{where}{how.dot}up {up}"


def verdict(seen: ScreenData, width: int, most: int, how: ViewState) -> list[Line]:
    """That all is well, or what is wrong and what to do."""
    if seen.problem is not None:
        since = age((seen.at - seen.problem.since).total_seconds())
        text = f"For {since} the store cannot be read: {how.text(seen.problem.error)}. {_hint(seen, how)}"
        return [(Span(part, "bad"),) for part in wrapped(text, width, most)]
    if seen.overview is None:
        return []
    problems = seen.overview.problems
    if not problems:
        return _healthy_lines(overview_remark(seen.overview, seen.at), seen, width, most, how)
    more = f" (+{len(problems) - 1} more{': key 6' if how.is_live else ''})" if len(problems) > 1 else ""
    text = how.text(f"Attention: {problems[0].what}. What to do: {problems[0].remedy}.")
    lines = wrapped(text, width - cells(more) if most == 1 else width, most)
    if more and cells(lines[-1]) + cells(more) > width:
        lines = [*lines[:-1], *wrapped(lines[-1], width - cells(more), 1)]
    found: list[Line] = [(Span(part, "bad"),) for part in lines]
    found[-1] = (*found[-1], Span(more, "warn"))
    return found


def _healthy_lines(but: str, seen: ScreenData, width: int, most: int, how: ViewState) -> list[Line]:
    """And what is no fault but worth a word."""
    if not but:
        return [(Span("All is well.", "good"), *_as_of(seen))]
    return [(Span(part, "warn"),) for part in wrapped(how.text(f"All is well{but}."), width, most)]


def _hint(seen: ScreenData, how: ViewState) -> str:
    hint = how.text(seen.problem.hint) if seen.problem else ""
    return f"What to do: {hint}." if hint else ""


def _as_of(seen: ScreenData) -> Line:
    old = (seen.at - seen.overview_at).total_seconds() if seen.overview_at else 0
    return (Span(f"  As of {age(old)} ago.", "dim"),) if old > _OLD_SECONDS else ()


def facts(seen: ScreenData, how: ViewState) -> Iterator[Line]:
    queue, found = seen.queue, seen.overview
    later = f" ({queue.delayed:,} later)" if queue.delayed else ""
    ended = [f"{queue.completed:,} done", f"{queue.failed:,} failed"]
    ended += [f"{queue.not_found:,} not found"] if queue.not_found else []
    ended += [f"{queue.expired:,} expired"] if queue.expired else []
    parts = [f"{queue.pending:,} to do{later}", f"{seen.held:,} running", *ended]
    yield _fact("queue", how.dot.join(parts))
    oldest = f", the oldest for {age(queue.oldest_unsynced_seconds)}" if queue.unsynced else ""
    rejected: Style = "bad" if queue.rejected > queue.rejected_by_operator else "plain"
    yield (
        *_fact("outbox", f"{count(queue.unsynced, 'result')} to deliver{oldest}{how.dot}"),
        Span(f"{queue.rejected:,} rejected", rejected),
    )
    if found is not None:
        yield _sync(seen, found, how)
        yield _store(seen, found, how)


def _fact(label: str, text: str, style: Style = "plain") -> Line:
    return Span(label.ljust(_FACT_LABEL_WIDTH), "dim"), Span(text, style)


def _sync(seen: ScreenData, found: Overview, how: ViewState) -> Line:
    sync = found.sync
    if sync.denied:
        return _fact("sync", f"not let in: {how.text(sync.denied)}", "bad")
    if sync.away is not None:
        left = (sync.away.until - seen.at).total_seconds()
        when = f"next try {'in ' + age(left) if left > 0 else 'now'}" if found.workers else "no worker tries"
        failures = count(sync.away.failures, "failure")
        return _fact("sync", f"backing off, {when} ({failures}): {how.text(sync.away.reason)}", "warn")
    rounds = [_round("sent", sync.last_upload, seen), _round("got", sync.last_download, seen)]
    told = [text for text in rounds if text]
    if not told:
        is_alone = bool(seen.statuses) and not any(one.upstream for one in seen.statuses)
        return _fact("sync", "no upstream: results stay here" if is_alone else "no round yet", "dim")
    return _fact("sync", how.dot.join(told))


def _round(verb: str, one: SyncedRound | None, seen: ScreenData) -> str:
    if one is None:
        return ""
    noun = record_noun(one.record_type, one.record_count)
    return f"{verb} {one.record_count:,} {noun} {age((seen.at - one.at).total_seconds())} ago"


def _store(seen: ScreenData, found: Overview, how: ViewState) -> Line:
    usage = found.storage
    parts = [
        f"{size(usage.total)} of {size(usage.max_bytes)}, {found.used_percent:g} %",
        f"{size(usage.disk_free)} free on disk",
        f"backup {age(found.backup.age_seconds)} old" if found.backup else "no backup",
    ]
    return _fact("store", how.dot.join(parts), "plain" if usage.level == "fine" else "bad")


_PER_MINUTE_PARTS = 60 // PART_SECONDS
_RATE_LABEL_WIDTH = 10
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


def rates(seen: ScreenData, width: int, how: ViewState, rows_each: int = 1) -> list[Line]:
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


def _rate(label: str, values: tuple[int, ...], style: Style, width: int, how: ViewState, rows: int) -> list[Line]:
    """A minute that is over: the part that runs is not full yet."""
    lately = values[-_PER_MINUTE_PARTS - 1 : -1]
    return _graph(label, values, f"{sum(lately):,}/min", style, width, how, rows)


def _graph(
    label: str,
    values: Sequence[float | None],
    now: str,
    style: Style,
    width: int,
    how: ViewState,
    rows: int,
    most: float | None = None,
) -> list[Line]:
    """In a wide window every value takes several cells, in a high one several lines; what it is, stands on the last."""
    wide = max(1, (width - _RATE_LABEL_WIDTH - 12) // PARTS)
    room = max(0, min(PARTS * wide, width - _RATE_LABEL_WIDTH - 12))
    stretched = [value for value in values for _ in range(wide)]
    lines = graph(stretched, room, rows, ascii_only=how.ascii_only, most=most)
    bars = style if any(values) else "dim"
    above: list[Line] = [(Span(" " * _RATE_LABEL_WIDTH), Span(line, bars)) for line in lines[:-1]]
    return [*above, (Span(label.ljust(_RATE_LABEL_WIDTH), "dim"), Span(lines[-1], bars), Span(f"  {now}"))]


def _number(value: float | None, unit: str) -> str:
    return "-" if value is None else f"{value:,.0f} {unit}"


def slots(seen: ScreenData, width: int, how: ViewState) -> list[Line]:
    places, busy = sum(one.slots for one in seen.statuses), seen.busy_slots
    others = f", {seen.held - busy:,} held by others" if seen.held > busy else ""
    note = f"{busy:,} of {places:,} busy{others}" if places else f"{seen.held:,} busy"
    top = heading("slots", note, width, ascii_only=how.ascii_only)
    if seen.running:
        rows = [_running(one, seen.at, how) for one in seen.running]
        wanted = [name for name in _SLOT_COLUMNS if name not in _hidden_columns(seen, width)]
        return [top, *grid(wanted, [[row[name] for name in wanted] for row in rows], width)]
    idle = "Nothing runs at this moment."
    if seen.overview is not None and not seen.overview.workers:
        idle = f"No worker is running. Start one with '{seen.start}'"
    return [top, *((Span(part, "dim"),) for part in wrapped(how.text(idle), width, 3))]


def _hidden_columns(seen: ScreenData, width: int) -> set[str]:
    """Columns that would say nothing, or take the room of others."""
    in_no_browser = all(one.browser is None for one in seen.running)
    return ({"browser"} if in_no_browser else set()) | ({"task"} if width < _WIDE_SLOTS else set())


def _running(one: RunningTask, now: datetime, how: ViewState) -> dict[str, Cell]:
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


def platforms(seen: ScreenData, width: int, how: ViewState) -> list[Line]:
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


def _platform(name: str, seen: ScreenData, how: ViewState) -> tuple[Cell, ...]:
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


def _state(name: str, seen: ScreenData, how: ViewState) -> Span:
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


def browsers(seen: ScreenData, width: int, how: ViewState) -> list[Line]:
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


def _browser_state(one: WorkerBrowser) -> Span:
    if not one.owner_lives:
        return Span("left behind", "bad")
    return Span(one.status, "good" if one.status in ("idle", "busy") else "bad")


def errors(seen: ScreenData, width: int, how: ViewState) -> list[Line]:
    alike = _group_errors(seen.troubles)
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
        return [top, *_full_errors(rows, width)]
    return [top, *grid(("ago", "what", "where", "why"), rows, width)[1:]]


def _full_errors(rows: list[tuple[str, Span, str, str]], width: int) -> list[Line]:
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


def _group_errors(troubles: tuple[RecentError, ...]) -> list[tuple[RecentError, int]]:
    """The newest of those that say the same of the same site, and how many they are."""
    found: dict[tuple[str, str, str, str], list[RecentError]] = {}
    for one in troubles:
        found.setdefault((one.kind, one.platform, one.county, one.error), []).append(one)
    return [(ones[0], len(ones)) for ones in found.values()]


def attention(seen: ScreenData, width: int, how: ViewState) -> list[Line]:
    problems = seen.overview.problems if seen.overview else []
    top = heading("attention", f"{len(problems):,}", width, ascii_only=how.ascii_only)
    lines: list[Line] = []
    for text in attention_lines(problems, overview_remark(seen.overview, seen.at) if seen.overview else ""):
        lines += [(Span(part, "bad" if problems else "good"),) for part in wrapped(how.text(text), width, 20)]
        lines.append(())
    return [top, *lines]
