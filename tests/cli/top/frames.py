"""Data for the screen in every state, made by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from parcelpost.cli.context import Opener
from parcelpost.cli.health.overview import StoreOverview, SyncedRound, SyncState, WorkerBrowser
from parcelpost.cli.top.data import Rates, StoreFailure, TopData
from parcelpost.health_checks import Finding
from parcelpost.model import QueueDepth
from parcelpost.storage.claims import Pause
from parcelpost.storage.health import Level, Usage
from parcelpost.storage.history import Sample, TimedSample
from parcelpost.storage.queries import Ends, Failures, RecentError, RunningTask
from parcelpost.worker.backoff import Offline
from parcelpost.worker.status import WorkerStatus

AT = datetime(2026, 11, 16, 13, 42, 57, tzinfo=UTC)
START = "parcelpost run --mode ondemand --gateway URL"

HOSTILE = (
    "evil\x1b[2J\x1b]0;owned\x07\r\n\x9b31m\u202e[bold]x[/bold]\u200b" + "e\u0301\u0301\u0301" * 5 + "\U0001f4a5字"
)
"""Escape codes, line ends, reversed direction, markup, combining marks that pile up, characters of two cells."""


def ago(seconds: float) -> datetime:
    return AT - timedelta(seconds=seconds)


def overview(**changes: object) -> StoreOverview:
    usage = Usage(
        database=20_000_000,
        wal=100_000,
        raw=3_000_000,
        journal=0,
        total=23_100_000,
        max_bytes=1 << 30,
        disk_free=44 << 30,
        min_free_bytes=1 << 28,
        free_inodes=1 << 20,
        min_free_inodes=1_000,
        level=Level.FINE,
    )
    fields: dict[str, object] = {
        "ok": True,
        "findings": [],
        "store": "local_data/parcelpost.db",
        "queue": QueueDepth(),
        "platforms": {},
        "schema_version": 1,
        "last_change": "",
        "cache_bytes": 0,
        "artifact_bytes": 0,
        "backups": [],
        "sync": SyncState(last_upload=None, last_download=None, outage=None),
        "storage": usage,
        "used_percent": 2.2,
        "paused": {},
        "failures": Failures(failed=0, ended=0, platforms={}, commonest=""),
        "statuses": [],
        "schedules": [],
        "broken": [],
        "browser_waits": [],
        "workers": [],
        "crashed": [],
        "commands": [],
        "backup": None,
    }
    return StoreOverview(**(fields | changes))  # type: ignore[arg-type]


def empty() -> TopData:
    """A store nobody has used."""
    return TopData(at=AT, store="local_data/parcelpost.db", start=START, overview=overview(), overview_at=AT)


FAILURE = StoreFailure(
    at=AT,
    since=ago(9),
    finding=Finding.of("store.unreadable", "another program holds the lock", "close it"),
)


def busy(text: str = "", platforms: int = 4, slots: int = 6) -> TopData:
    """Everything there is to show; `text` is in whatever comes from pages and other programs."""
    names = [f"{text}{name}{n or ''}" for n in range(3) for name in ("vgsi", "qpublic", "grizzly_gis", "beacon")]
    names = names[:platforms]
    counts = {"pending": 1_240, "delayed": 12, "processing": 2, "completed": 98_123, "failed": 12}
    failing = {names[1]: Ends(failed=40, ended=400)} if platforms > 1 else {}
    found = overview(
        ok=False,
        findings=[
            Finding.of("outbox.rejected", f"the upstream rejected 2 results {text}", "see 'parcelpost results list'"),
            Finding.of("backup.none", "there is no backup yet", "run 'parcelpost store backup'"),
        ],
        workers=[Opener(id="worker-4711-8a1c66f0", pid=4711, since="2026-11-16T10:00:00.000Z")],
        sync=SyncState(
            last_upload=SyncedRound(ago(12), "results", 50),
            last_download=SyncedRound(ago(70), "tasks", 100),
            outage=None,
        ),
        paused={names[0]: Pause("2026-11-16T14:30:00.000Z", f"it blocked us {text}")},
        failures=Failures(failed=40, ended=4_000, platforms=failing, commonest="x"),
    )
    wave = tuple(int(20 + 18 * ((n * 7) % 11) / 11) for n in range(60))
    return TopData(
        at=AT,
        store="local_data/parcelpost.db",
        start=START,
        overview=found,
        overview_at=ago(3),
        queue=QueueDepth(
            pending=4_960,
            delayed=48,
            processing=6,
            completed=392_492,
            failed=48,
            unsynced=118,
            rejected=2,
            oldest_unsynced_seconds=380.0,
        ),
        platforms=dict.fromkeys(names, counts),
        statuses=(
            WorkerStatus(
                name=f"host-1a2b3c4d{text}",
                worker_id=f"host-1a2b3c4d{text}",
                owner="worker-4711-8a1c66f0",
                published_at=ago(3),
                started_at=ago(3 * 3_600),
                mode="ondemand",
                upstream=f"gateway.example.org{text}",
                slots=8,
                version="1.0",
            ),
        ),
        running=tuple(
            RunningTask(
                task_id=f"31-1S-17-00354-{n:03}-9e75ae1f{text}",
                platform=names[n % len(names)],
                state="FL",
                county=f"columbia{text}",
                parcel_id=f"31-1S-17-00354-{n:03}{text}",
                claimed_by="worker-4711-8a1c66f0",
                started_at=ago(n * 17),
                retries=n % 3,
                browser=1 if n == 2 else None,
            )
            for n in range(slots)
        ),
        browsers=(
            WorkerBrowser(
                browser_id=1,
                status="busy",
                current_task_id=f"31-1S{text}",
                tasks_completed=41,
                launches=2,
                memory_mb=312,
                pid=4801,
                created_at=ago(900),
                restarted_at=None,
                last_health_check=ago(2),
                owner="worker-4711-8a1c66f0",
                owner_lives=True,
            ),
            WorkerBrowser(
                browser_id=2,
                status="crashed",
                current_task_id=None,
                tasks_completed=7,
                launches=3,
                memory_mb=None,
                pid=None,
                created_at=ago(900),
                restarted_at=ago(60),
                last_health_check=ago(2),
                owner="old",
                owner_lives=False,
            ),
        ),
        rates=Rates(completed=wave, failed=(0,) * 55 + (1, 0, 3, 0, 1), delivered=wave[::-1], fetched=(0, 100) * 30),
        samples=tuple(
            TimedSample(
                timestamp=ago(60 * (30 - n)),
                sample=Sample(cpu_percent=40.0 + n, ram_percent=35.0, average_execution_time_ms=694 + n),
            )
            for n in range(30)
        ),
        errors=(
            *(_error("again", n * 4, f"503 Service Unavailable{text}", names[0], text) for n in range(1, 4)),
            _error("failed", 40, f"the page has no table of values{text}", names[-1], text),
            _error("rejected", 300, f"422: amount_due is not a number{text}", names[0], text),
            RecentError(
                kind="upload", at=ago(700), platform="", county="", parcel_id="", error=f"did not answer in 30 s{text}"
            ),
        ),
    )


def away() -> TopData:
    data = busy()
    gone = Offline(since=ago(400), until=ago(-180), failures=4, reason="503 Service Unavailable")
    sync = SyncState(last_upload=None, last_download=None, outage=gone)
    note = Finding.of("upstream.offline", f"the gateway has been offline for 7 min: {gone.reason}", "no action needed")
    return replace(data, overview=overview(sync=sync, workers=data.overview.workers, findings=[note]))


def _error(kind: str, seconds: float, error: str, platform: str, text: str) -> RecentError:
    return RecentError(
        kind=kind, at=ago(seconds), platform=platform, county=f"lee{text}", parcel_id=f"1-2{text}", error=error
    )
