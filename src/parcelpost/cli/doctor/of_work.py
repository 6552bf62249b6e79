"""What the store says of its worker: room, backups, deliveries, and what is to do."""

from __future__ import annotations

from parcelpost.cli import overview
from parcelpost.cli.doctor.report import Answer, Case, State
from parcelpost.cli.output import age, count, printable, size
from parcelpost.cli.overview import Overview
from parcelpost.cli.running import CLOCK
from parcelpost.cli.status_report import Problem
from parcelpost.cli.store_status import opener_text, outbox_text, used_text


async def look(case: Case) -> list[Answer]:
    found = await overview.gather(case.store)
    said = {
        "space": f"{used_text(found.storage, found.used_percent)}; {size(found.storage.disk_free)} free on the disk",
        "backups": f"the newest is {age(found.backup.age_seconds)} old" if found.backup else "none yet",
        "delivery": _delivery(found),
        "work": _work(found),
        "browser": "",
    }
    problems = _as_of_now(found, case.upstream)
    answers = [Answer(about, text, [one for one in problems if one.about == about]) for about, text in said.items()]
    return [one for one in answers if one.said or one.problems]


def _as_of_now(found: Overview, upstream: State) -> list[Problem]:
    """What the store says of a refusal is older than what the upstream has just said itself, and is not told twice.

    If we are let in now, it is over, unless a worker goes on with what was refused.
    """
    if upstream is State.SKIPPED:
        return found.problems
    over = overview.denials(found.sync)
    kept = [one for one in found.problems if one not in over]
    if upstream is State.WRONG or not over or not found.workers:
        return kept
    what = f"the worker was not let in when it tried last: {found.sync.denied}; the token that is set here is taken"
    remedy = "it tries again by itself; one that was started with another token is started anew"
    return [*kept, Problem(what, remedy, "delivery", warning=True)]


def _delivery(found: Overview) -> str:
    last = found.sync.last_upload
    when = f"the last delivery was {age((CLOCK.now() - last.at).total_seconds())} ago" if last else "no delivery yet"
    away = f"; the last try failed: {found.sync.away.reason}" if found.sync.away else ""
    slow = f"; {overview.slow_text(found.sync.slow, CLOCK.now())}" if found.sync.slow else ""
    return printable(f"{outbox_text(found.queue)}; {when}{away}{slow}")


def _work(found: Overview) -> str:
    workers = ", ".join(map(opener_text, found.workers)) or "no worker is running"
    return f"{count(found.queue.pending + found.queue.processing, 'task')} to do; {workers}"
