"""Findings about a worker, its store's space and its failed tasks.

The worker shows them at `/readyz`; `status`, `top` and `doctor` show them from what it has published in the store.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from datetime import datetime, timedelta

from parcelpost.errors import Unauthorized
from parcelpost.health_checks import Finding
from parcelpost.model import Broken
from parcelpost.storage.health import Level, Usage
from parcelpost.storage.queries import Failures
from parcelpost.units import age, count, size
from parcelpost.worker.backoff import COLLECTOR, HEARTBEAT, SYNC, Offline
from parcelpost.worker.status import BrowserWait, WorkerStatus

_LONG_OFFLINE = timedelta(days=1)
_MAX_REASON_CHARS = 200
_KEPT = "results are kept in the store and sent when it is back"


def status_findings(status: WorkerStatus, now: datetime, *, is_running: bool = True) -> Iterator[Finding]:
    """Yields findings of a worker, except browser waits and lost fields."""
    upstream = upstream_label(status)
    if outage := worst_outage(status):
        yield from _outage_findings(outage, upstream, now, is_running=is_running)
    if not is_running:
        return
    if status.paused_since is not None:
        resume = f"parcelpost gateway command resume --worker {shlex.quote(status.worker_id)}"
        yield Finding.of(
            "worker.paused",
            f"{upstream} has paused worker {status.worker_id}: it starts no tasks, and only delivers results",
            f"resume it on the gateway's dashboard or with '{resume}' on the gateway's machine, or restart the worker",
            resume,
        )
    if memory := status.memory:
        check = "worker.tight_memory" if memory.starts_tasks else "worker.low_memory"
        fix = "stop other programs or add memory; it recovers on its own (see the settings under 'resources')"
        since = f"for {age((now - memory.since).total_seconds())}"
        yield Finding.of(check, f"worker {status.name}: {memory.summary} ({since})", fix)
    if status.slow is not None:
        yield Finding.of("upstream.slow", slow_text(status, now), "no action needed: batches grow again on their own")


def upstream_label(status: WorkerStatus) -> str:
    return "Firestore" if status.upstream == "Firestore" else "the gateway"


def worst_outage(status: WorkerStatus) -> Offline | None:
    """Returns an outage that needs an operator, else that of the sync, collector or heartbeat, in this order."""
    outages = [status.outages[loop] for loop in (SYNC, COLLECTOR, HEARTBEAT) if loop in status.outages]
    return next((outage for outage in outages if outage.denied), outages[0] if outages else None)


def _outage_findings(outage: Offline, upstream: str, now: datetime, *, is_running: bool) -> Iterator[Finding]:
    since = age((now - outage.since).total_seconds())
    if outage.denied:
        message = f"{upstream} rejected our credentials: {outage.reason}"
        yield Finding.of("upstream.unauthorized", message, outage.remedy or Unauthorized.hint)
        return
    if outage.takes_nothing:
        yield Finding.of(
            "upstream.not_storing",
            f"{upstream} has responded but stored nothing for {since}: {outage.reason}",
            "see the gateway's log; results are kept in the store and sent again later",
        )
        return
    state = "has responded with errors" if outage.responded else "has been offline"
    message = f"{upstream} {state} for {since}: {outage.reason}"
    if is_running and now - outage.since >= _LONG_OFFLINE:
        yield Finding.of("upstream.long_offline", message, f"run 'parcelpost doctor' to find out why; {_KEPT}")
    elif is_running:
        yield Finding.of("upstream.offline", message, f"no action needed: {_KEPT}")


def slow_text(status: WorkerStatus, now: datetime) -> str:
    slow = status.slow
    if slow is None:
        return ""
    since = age((now - slow.since).total_seconds())
    return (
        f"{upstream_label(status)} is slow: for {since} results have been sent in batches of about {slow.batch_size:,}"
    )


def browser_wait_finding(wait: BrowserWait) -> Finding:
    fix = wait.remedy or "run 'parcelpost browser doctor' to see what is missing"
    return Finding.of("browser.waiting", wait.text, fix)


def field_finding(field: Broken, page: str = "") -> Finding:
    """`page`: the path of a raw page on which the field is missing."""
    since = f" since {field.since:%Y-%m-%d %H:%M} UTC" if field.since else ""
    place = f"{field.platform} {field.state}/{field.county}: {field.field}"
    failing = ", ".join(field.failing) or "all selectors"
    example = page or f"the page of task {field.example}"
    if field.same_value:
        message = f"{place} is the same on many parcels: {field.same_value!r}"
        return Finding.of("site.selector_failed", message, f"check whether it is a heading of the page ({example})")
    if field.found_otherwise:
        message = f"{place} is found by other selectors{since}; failing: {failing}"
        return Finding.of("site.selector_failed", message, f"nothing is lost yet; update the selectors ({example})")
    rates = f"on {field.success_rate:.0%} of pages{since}, down from {field.used_to:.0%}"
    return Finding.of(
        "site.field_lost",
        f"{place} is found {rates}; failing: {failing}",
        f"see {example}; once the parser is fixed, run 'parcelpost reparse'",
        "parcelpost reparse",
    )


def usage_finding(usage: Usage, store_option: str) -> Finding | None:
    """`store_option`: ` --store PATH`, or '' if commands use this store by default."""
    if usage.level is Level.FINE:
        return None
    check = "store.nearly_full" if usage.level is Level.COLLECTOR_STOPS else "store.full"
    clean = f"parcelpost store clean --free-space{store_option}"
    effect = "no new tasks are collected" if usage.level is Level.COLLECTOR_STOPS else "no tasks are started"
    if usage.lacks_inodes:
        message = f"no free inodes: the disk has room for only {count(usage.free_inodes, 'more file')}, so {effect}"
        return Finding.of(
            check, message, f"delete files on that disk (see 'df -i'), or delivered data with '{clean}'", clean
        )
    if usage.lacks_disk:
        message = f"only {size(usage.disk_free)} are free on the disk, so {effect}"
        return Finding.of(check, message, "free disk space; workers then resume on their own")
    message = f"the store uses {size(usage.total)} of at most {size(usage.max_bytes)}, so {effect}"
    return Finding.of(check, message, f"run '{clean}' to delete delivered data, or raise storage.max_bytes", clean)


def failures_text(failures: Failures, when: str = "in the last 24 h") -> str:
    platforms = ""
    if failures.hopeless and failures.failed < failures.ended:
        platforms = f", including all of {', '.join(failures.hopeless)}"
    reason = failures.commonest[:_MAX_REASON_CHARS] or "no reason given"
    total = count(failures.ended, "task")
    return f"{failures.failed:,} of {total} failed {when}{platforms}, most often with: {reason}"


def failures_finding(failures: Failures, store_option: str) -> Finding | None:
    if not failures.are_many:
        return None
    listing = f"parcelpost tasks list --status failed{store_option}"
    retry = f"parcelpost tasks retry --status failed{store_option}"
    fix = f"list them with '{listing}'; once the cause is fixed, retry them with '{retry}'"
    return Finding.of("tasks.failing", failures_text(failures), fix, f"{retry} --yes")
