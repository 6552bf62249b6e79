"""The upper part of the screen: who works here, whether all is well, and the facts of queue, outbox, sync and store."""

from __future__ import annotations

from collections.abc import Iterator

from parcelpost.cli.output import age, count, record_noun, size
from parcelpost.cli.overview import Delivered, Overview, remark
from parcelpost.cli.top.how import How
from parcelpost.cli.top.seen import Seen
from parcelpost.cli.top.text import Line, Span, Style, cells, wrapped
from parcelpost.worker.status import WorkerStatus

_LABEL = 8
_OLD_SECONDS = 30


def title(seen: Seen, width: int, how: How) -> Line:
    clock = f"{seen.at:%H:%M:%S} UTC"
    stopped = "paused  " if how.paused else ""
    who, style = _who(seen, how)
    room = width - cells(clock) - cells(stopped) - 13
    words = wrapped(who, max(room, 1), 1)
    text = words[0] if words else ""
    space = " " * max(1, room - cells(text) + 1)
    return (Span("parcelpost  ", "title"), Span(text, style), Span(space), Span(stopped, "warn"), Span(clock, "dim"))


def _who(seen: Seen, how: How) -> tuple[str, Style]:
    known = {one.owner for one in seen.statuses}
    others = [one for one in seen.overview.workers if one.id not in known] if seen.overview else []
    if not seen.statuses and not others:
        return ("no worker is running" if seen.overview else ""), "warn"
    if len(seen.statuses) + len(others) == 1 and seen.statuses:
        return _one(seen.statuses[0], seen, how), "good"
    names = [how.text(one.name) for one in seen.statuses] + [how.text(one.id) for one in others]
    return f"{count(len(names), 'worker')}: {', '.join(names)}" if len(names) > 1 else names[0], "good"


def _one(one: WorkerStatus, seen: Seen, how: How) -> str:
    where = f" {how.either('→', '->')} {how.text(one.upstream)}" if one.upstream else ""
    up = age((seen.at - one.started_at).total_seconds())
    return f"{how.text(one.name)}{how.dot}{how.text(one.mode)}{where}{how.dot}up {up}"


def verdict(seen: Seen, width: int, most: int, how: How) -> list[Line]:
    """That all is well, or what is wrong and what to do."""
    if seen.problem is not None:
        since = age((seen.at - seen.problem.since).total_seconds())
        text = f"For {since} the store cannot be read: {how.text(seen.problem.error)}. {_hint(seen, how)}"
        return [(Span(part, "bad"),) for part in wrapped(text, width, most)]
    if seen.overview is None:
        return []
    problems = seen.overview.problems
    if not problems:
        return _well(remark(seen.overview, seen.at), seen, width, most, how)
    more = f" (+{len(problems) - 1} more{': key 6' if how.is_live else ''})" if len(problems) > 1 else ""
    text = how.text(f"Attention: {problems[0].what}. What to do: {problems[0].remedy}.")
    lines = wrapped(text, width - cells(more) if most == 1 else width, most)
    if more and cells(lines[-1]) + cells(more) > width:
        lines = [*lines[:-1], *wrapped(lines[-1], width - cells(more), 1)]
    found: list[Line] = [(Span(part, "bad"),) for part in lines]
    found[-1] = (*found[-1], Span(more, "warn"))
    return found


def _well(but: str, seen: Seen, width: int, most: int, how: How) -> list[Line]:
    """And what is no fault but worth a word."""
    if not but:
        return [(Span("All is well.", "good"), *_as_of(seen))]
    return [(Span(part, "warn"),) for part in wrapped(how.text(f"All is well{but}."), width, most)]


def _hint(seen: Seen, how: How) -> str:
    hint = how.text(seen.problem.hint) if seen.problem else ""
    return f"What to do: {hint}." if hint else ""


def _as_of(seen: Seen) -> Line:
    old = (seen.at - seen.overview_at).total_seconds() if seen.overview_at else 0
    return (Span(f"  As of {age(old)} ago.", "dim"),) if old > _OLD_SECONDS else ()


def facts(seen: Seen, how: How) -> Iterator[Line]:
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
    return Span(label.ljust(_LABEL), "dim"), Span(text, style)


def _sync(seen: Seen, found: Overview, how: How) -> Line:
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


def _round(verb: str, one: Delivered | None, seen: Seen) -> str:
    if one is None:
        return ""
    noun = record_noun(one.record_type, one.record_count)
    return f"{verb} {one.record_count:,} {noun} {age((seen.at - one.at).total_seconds())} ago"


def _store(seen: Seen, found: Overview, how: How) -> Line:
    usage = found.storage
    parts = [
        f"{size(usage.total)} of {size(usage.max_bytes)}, {found.used_percent:g} %",
        f"{size(usage.disk_free)} free on disk",
        f"backup {age(found.backup.age_seconds)} old" if found.backup else "no backup",
    ]
    return _fact("store", how.dot.join(parts), "plain" if usage.level == "fine" else "bad")
