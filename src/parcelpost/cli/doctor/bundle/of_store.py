"""The store: its schema, its numbers, its last rounds of sync, and what went wrong, with names replaced."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

from msgspec.structs import asdict

from parcelpost.cli import overview, platform_health
from parcelpost.cli.doctor.bundle.scrubbing import Scrubber
from parcelpost.cli.doctor.report import Case
from parcelpost.cli.running import CLOCK, looking, openers
from parcelpost.storage import backup, queries
from parcelpost.storage.history import Metrics, SyncLog
from parcelpost.storage.queries import ErrorRow

_MOST_ROUNDS = 500
_MOST_SITES = 1_000
_MOST_TROUBLES = 200
_MOST_SAMPLES = 2_000
_SAMPLES_OF = timedelta(days=1)
_KINDS = frozenset({"tasks", "results", "raw_files", "learning_signals", "agent_metrics", "reports", "selectors"})


async def schema(case: Case, scrub: Scrubber) -> Any:
    async with looking(case.store) as database:
        found = await database.read(queries.schema)
    applied = [asdict(one) | {"applied_at": scrub.moment(one.applied_at)} for one in found.applied]
    return asdict(found) | {"applied": applied}


async def counts(case: Case, scrub: Scrubber) -> Any:
    async with looking(case.store) as database:
        rows = await database.read(queries.table_counts)
        tasks = await database.read(queries.task_counts)
        results = await database.read(queries.result_counts)
    return {
        "rows": rows,
        "tasks": [asdict(one) | {"platform": scrub.platform(one.platform)} for one in tasks[:_MOST_SITES]],
        "results": [asdict(one) | {"platform": scrub.platform(one.platform)} for one in results[:_MOST_SITES]],
    }


async def state(case: Case, scrub: Scrubber) -> Any:
    found = await overview.gather(case.store)
    away = found.sync.away
    alive, dead = await openers(case.store)
    return {
        "queue": found.queue,
        "storage": found.storage,
        "write_ahead_log_bytes": case.wal_bytes,
        "backups": [
            {"bytes": about.st_size, "age_seconds": round(CLOCK.now().timestamp() - about.st_mtime)}
            for about in (path.stat() for path in backup.list_backups(case.store))
        ],
        "open_in": len(alive),
        "left_by_dead": len(dead),
        "away": away
        and {
            "since": away.since,
            "until": away.until,
            "failures": away.failures,
            "denied": away.denied,
            "reason": scrub.words(away.reason),
        },
        "paused_platforms": [
            {"platform": scrub.platform(name), "until": scrub.moment(one.until), "reason": scrub.words(one.reason)}
            for name, one in found.paused.items()
        ],
        "paused_by_gateway": sum(one.paused_since is not None for one in found.statuses),
        "short_of_memory": sum(one.memory is not None for one in found.statuses),
        "fields_lost": len([one for one in found.broken if not one.field.found_otherwise]),
        "platforms_that_wait_for_a_browser": [scrub.platform(one.platform) for one in found.browser_waits],
    }


async def sync_log(case: Case, scrub: Scrubber) -> Any:
    async with looking(case.store) as database:
        rounds = await SyncLog(database, CLOCK).recent(_MOST_ROUNDS)
    return [
        {
            "at": one.created_at,
            **asdict(one.round),
            "record_type": one.round.record_type if one.round.record_type in _KINDS else "other",
            "error": scrub.words(one.round.error),
        }
        for one in rounds
    ]


async def platforms(case: Case, scrub: Scrubber) -> Any:
    known = await platform_health.of_store(case.store)
    return [
        {
            "platform": scrub.platform(one.platform),
            "state": scrub.state(one.state),
            "county": scrub.county(one.county),
            "completed": one.completed,
            "failed": one.failed,
            "trying_again": one.trying_again,
            "last_success": one.last_success,
            "last_error": scrub.words(one.last_error),
            "last_error_at": one.last_error_at,
        }
        for one in known.sites[:_MOST_SITES]
    ]


async def errors(case: Case, scrub: Scrubber) -> Any:
    async with looking(case.store) as database:
        found = await database.read(queries.error_rows, _MOST_TROUBLES)
    told = [_trouble(one, scrub) for one in found]
    commonest = Counter(one["error"] for one in told).most_common()
    return {"commonest": [{"error": text, "count": number} for text, number in commonest], "newest": told}


def _trouble(one: ErrorRow, scrub: Scrubber) -> dict[str, Any]:
    return {
        "task": scrub.pseudonym("task", one.task_id),
        "parcel": scrub.pseudonym("parcel", one.parcel_id),
        "platform": scrub.platform(one.platform),
        "state": scrub.state(one.state),
        "county": scrub.county(one.county),
        "status": one.status,
        "attempts": one.attempts,
        "at": scrub.moment(one.at),
        "error": scrub.words(one.error),
    }


async def metrics(case: Case, _: Scrubber) -> Any:
    async with looking(case.store) as database:
        samples = await Metrics(database, CLOCK).since(CLOCK.now() - _SAMPLES_OF, _MOST_SAMPLES)
    return [{"at": one.timestamp, **asdict(one.sample)} for one in samples]
