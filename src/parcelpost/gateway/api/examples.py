"""An example of every payload, shown in the OpenAPI document."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from msgspec import Raw, Struct

from parcelpost.export import Format
from parcelpost.gateway import overview
from parcelpost.gateway.api import responses, search
from parcelpost.gateway.api.fleet import CommandRequest, ReleaseRequest
from parcelpost.gateway.api.health import AllowedRole, Health
from parcelpost.gateway.api.schedules import ActionReply, ActionRequest, ScheduleList
from parcelpost.gateway.api.tasks import DeleteRequest, RefreshRequest, RequeueRequest
from parcelpost.gateway.api.webhooks import ReplayRequest, WebhookList
from parcelpost.gateway.api.worker import RawFileForm
from parcelpost.gateway.counties import County, FailingField, HealthState
from parcelpost.gateway.history import Change, ParcelChange, Scrape
from parcelpost.gateway.map_layers import MapOutline
from parcelpost.gateway.models import (
    FailureGroup,
    Lease,
    LeaseEnd,
    LienSource,
    RunOutcome,
    Scope,
    TaskState,
    WebhookRetry,
    WorkerState,
)
from parcelpost.gateway.schedules import Action, NewSchedule, ScheduleDetail, ScheduleRun, ScheduleState, ScheduleStatus
from parcelpost.gateway.webhooks import NewWebhook, WebhookDetail, WebhookState
from parcelpost.health_checks import Finding
from parcelpost.model import Broken, PausedSite, Signal
from parcelpost.protocol import payloads, server
from parcelpost.settings.secrets import WEBHOOK_SECRET_VARIABLE

_AT = datetime(2026, 11, 17, 9, 30, tzinfo=UTC)
_UNTIL = _AT + timedelta(minutes=15)
_KEY: dict[str, Any] = {"platform": "grizzly_gis", "state": "FL", "county": "harlow", "parcel_id": "01-01-01-00000"}
_TARGET: dict[str, Any] = {name: _KEY[name] for name in ("parcel_id", "state", "county")}
_SHA256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
_PATH = "/v1/parcels/FL/harlow/01-01-01-00000"

_SOURCE: dict[str, Any] = {
    "platform": "grizzly_gis",
    "parcel_id": "01-01-01-00000",
    "partial": False,
    "scraped_at": _AT,
    "first_seen_at": _AT,
    "received_at": _AT,
    "task_id": "t-1",
    "raw_sha256": _SHA256,
    "raw": f"{_PATH}/raw?sha256={_SHA256}",
    "page": f"{_PATH}/page?sha256={_SHA256}",
}
_PARCEL = responses.Parcel(
    **_TARGET,
    owner="ABERNATHY JUNE",
    situs="12 Elm St, Harlow, 34470",
    delinquent=True,
    tax_due=Decimal("1234.50"),
    lien_count=1,
    scraped_at=_AT,
    first_seen_at=_AT,
    received_at=_AT,
    address=_PATH,
    sources=[responses.ParcelSource(**_SOURCE)],
)
_WEBHOOK = WebhookState(
    name="crm",
    receiver="https://crm.example.org",
    secret_variable=WEBHOOK_SECRET_VARIABLE,
    kinds=["lien", "tax.delinquent"],
    platform="",
    state="FL",
    county="",
    field="",
    status="failing",
    since=42,
    behind=0,
    waiting=1,
    gave_up=0,
    delivered=17,
    delivered_at=_AT,
    failing_since=_AT,
    error="the receiver returned 500",
    next_at=_UNTIL,
    created_at=_AT,
)
_LIEN = responses.Lien(
    lien_no=17,
    **_TARGET,
    owner="ABERNATHY JUNE",
    certificate_number="2024-00172",
    certificate_year=2024,
    tax_year=2023,
    status="open",
    holder_name="TAX EASE LLC",
    amount=Decimal("1187.42"),
    sale_date="2024-06-01",
    address=_PATH,
    sources=[LienSource(platform="grizzly_gis", parcel_id="01-01-01-00000", position=0, partial=False, scraped_at=_AT)],
)
_TASK: dict[str, Any] = {
    "task_id": "t-1",
    "type": "scrape",
    "platform": "grizzly_gis",
    "target": _TARGET,
    "priority": 3,
    "state": "failed",
    "attempts": 3,
    "max_attempts": 5,
    "created_at": _AT,
    "ended_at": _UNTIL,
    "error": "the page has no owner",
}
_WORKER = overview.WorkerEntry(
    worker_id="harlow-01",
    state=WorkerState.ALIVE,
    alive=True,
    silent_seconds=12.0,
    first_seen_at=_AT,
    last_seen_at=_AT,
    version="0.1.0",
    paused=False,
    active_tasks=4,
    completed_last_minute=31,
    failed_last_minute=0,
    platforms=["grizzly_gis"],
    blocked=[],
    broken=[],
    cpu_percent=23.5,
    memory_percent=41.0,
    disk_free_bytes=52_000_000_000,
    queue={"pending": 40, "processing": 4, "unsynced": 2},
    unsynced=2,
    lag_seconds=14.0,
    leases=44,
    pending_commands=["pause"],
)
_QUEUE = overview.QueueEntry(platform="grizzly_gis", priority=3, state="queued", tasks=1_200, oldest_seconds=90.0)
_SCRAPE = Scrape(
    scraped_at=_AT,
    received_at=_AT,
    worker_id="harlow-01",
    task_id="t-1",
    late=False,
    parse_duration_ms=12,
    raw_sha256=_SHA256,
    first=False,
    changes=[Change("tax_due", Decimal("1100.00"), Decimal("1234.50"))],
)
_RUN = ScheduleRun(
    due_at=_AT, started_at=_AT, ended_at=None, outcome=RunOutcome.RUNNING, total=4_200, queued=1_260, done=0, failed=0
)
_SCHEDULE = ScheduleStatus(
    failing_since=None,
    name="harlow-weekly",
    platform="grizzly_gis",
    state="FL",
    county="harlow",
    scope=Scope.KNOWN,
    status=ScheduleState.RUNNING,
    message="",
    timing="every 7 days at 02:00 America/New_York",
    window_seconds=86_400.0,
    pace_seconds=2.0,
    created_at=_AT,
    next_run_at=_AT + timedelta(days=7),
    max_age_seconds=691_200.0,
    parcels=4_200,
    fresh=4_158,
    not_found=3,
    fresh_share=0.99,
    is_due=True,
    is_stale=False,
    oldest_at=_AT - timedelta(days=9),
    open_tasks=12,
    run=_RUN,
    last_run=None,
)
_CHANGE = ParcelChange(
    number=42,
    found_at=_AT,
    kind="lien.redeemed",
    **_KEY,
    task_id="t-1",
    scraped_at=_AT,
    subject="2024-00172",
    before=Raw(b'{"number": "2024-00172", "status": "open", "amount": 1187.42}'),
    after=Raw(b'{"number": "2024-00172", "status": "redeemed", "amount": 1187.42}'),
    address=_PATH,
)
_SHOWN: dict[str, Any] = {
    "parcel_id": "01-01-01-00000",
    "owner": "ABERNATHY JUNE",
    "situs": "12 Elm St, Harlow, 34470",
    "county": "harlow",
    "state": "FL",
    "delinquent": True,
    "tax_due": Decimal("1234.50"),
    "liens": 1,
    "address": _PATH,
    "key": 17,
}
_COUNTY = County(
    platform="grizzly_gis",
    state="FL",
    county="harlow",
    parcels=31_250,
    newest_at=_AT,
    oldest_at=_AT - timedelta(days=6),
    changed_at=_AT,
    queued=210,
    succeeded=4_310,
    failed=17,
    success_rate=0.996,
    health=HealthState.HEALTHY,
    ended_last_hour=180,
    blocked_workers=[],
    failing_fields=[
        FailingField(
            field="owner_names",
            selectors=["css #lblOwner"],
            success_rate=0.1,
            used_to=1.0,
            since=_AT,
            example="t-1",
            found_otherwise=False,
            same_value="",
        )
    ],
    schedules=["harlow-weekly"],
    fresh_share=0.97,
    max_age_seconds=691_200.0,
    findings=[Finding.of("site.field_lost", "1 field no longer found: owner_names", "see the newest stored page")],
)
_FAILURES = FailureGroup(
    outcome=TaskState.FAILED,
    reason="HTTP 404",
    platform="grizzly_gis",
    state="FL",
    county="harlow",
    tasks=17,
    last_ended_at=_AT,
    example="t-1",
    example_error="HTTP 404",
)
_EXAMPLES: list[Struct] = [
    PausedSite(platform="grizzly_gis", state="FL", county="harlow"),
    Broken(
        platform="grizzly_gis",
        state="FL",
        county="harlow",
        field="owner_names",
        failing=("css:#owner",),
        success_rate=0.1,
        used_to=0.99,
        since=_AT,
        example="t-1",
    ),
    overview.FailingSelector(field="owner_names", selector="css:#owner", site="FL/harlow", example="t-1", since=_AT),
    server.BadNewTask(position=2, task_id="t-2", problem="target.parcel_id is empty"),
    search.SearchRows(
        rows=[_SHOWN],
        total=1,
        is_exact=True,
        offset=0,
        columns=[
            search.ShownColumn("parcel_id", "Parcel", search.ColumnKind.LINK),
            search.ShownColumn("tax_due", "Tax due", search.ColumnKind.MONEY),
        ],
        formats=[Format.CSV, Format.EXCEL, Format.JSONL, Format.GEOJSON],
    ),
    search.Facets(
        {
            "county": [search.FacetValue("harlow", 1240), search.FacetValue("union", 87)],
            "delinquent": [search.FacetValue(value=False, count=1211), search.FacetValue(value=True, count=116)],
        },
        total=1327,
        is_exact=True,
        max_values=50,
    ),
    search.MapReply(
        clusters=[
            search.MapCluster(
                lon=-82.64,
                lat=30.18,
                count=87,
                delinquent=12,
                lien_amount=Decimal("18420.77"),
                bbox=(-82.7, 30.1, -82.6, 30.2),
            ),
            search.MapCluster(
                lon=-82.5,
                lat=30.1,
                count=1,
                delinquent=1,
                lien_amount=Decimal("1187.42"),
                bbox=(-82.5, 30.1, -82.5, 30.1),
                parcel=_SHOWN,
            ),
        ],
        total=90,
        without_coordinates=2,
    ),
    payloads.WorkReply(
        [
            payloads.GrantedTask(
                task_id="t-1",
                type="scrape",
                platform="grizzly_gis",
                target=_TARGET,
                priority=3,
                created_at=_AT,
                lease_expires_at=_UNTIL,
                attempt=1,
                max_retries=3,
            )
        ],
        5,
    ),
    payloads.ParcelResult(
        task_id="t-1",
        **_KEY,
        data=Raw(b'{"owner_names": ["ABERNATHY JUNE"], "tax_due": 1234.50}'),
        scraped_at=_AT,
        parse_duration_ms=12,
        raw_html_hash=_SHA256,
        idempotency_key="t-1:5d41402a",
    ),
    payloads.ResultsReply(inserted=1, updated=0, failed=0, errors=None, receipts=[payloads.Receipt("t-1", "stored")]),
    RawFileForm("(the page)", '{"task_id": "t-1", "sha256": "9f86d081..."}'),
    payloads.RawFileReply("ok", "9f/9f86d081.gz", _SHA256),
    payloads.Failure(error="the page has no owner", attempts=3, permanent=True),
    payloads.Completion(not_found=True, error="no such parcel"),
    payloads.EndReply("reported", True, "t-1"),
    payloads.ArtifactReply("ok", _SHA256),
    payloads.Heartbeat(
        active_tasks=4,
        completed_last_minute=31,
        platforms=("grizzly_gis",),
        cpu_percent=23.5,
        memory_percent=41.0,
        queue={"pending": 40, "processing": 4, "unsynced": 2},
        version="0.1.0",
    ),
    payloads.HeartbeatReply(commands=["pause"], lease_expires_at=_UNTIL, leases_since=_AT - timedelta(days=1)),
    Signal(platform="grizzly_gis", field="owner_names", selector="#owner", selector_type="css", success=True),
    payloads.AcceptedReply(1, 0),
    payloads.SelectorsReply(
        [
            payloads.RankedSelector(
                platform="grizzly_gis",
                field="owner_names",
                selector="#owner",
                selector_type="css",
                success_rate=0.98,
                samples=1_204,
            )
        ]
    ),
    payloads.ErrorReply(payloads.ErrorDetail("NOT_FOUND", "no such parcel"), "4f3c2b1a09876543"),
    responses.Parcels([_PARCEL], "eyJzdGF0ZSI6IkZMIn0"),
    responses.ParcelDetail(
        _PARCEL,
        [
            responses.SourceDetail(
                **_SOURCE, record=Raw(b'{"tax_due": 1234.50}'), lien_keys=[], history=[_SCRAPE], more_history=False
            )
        ],
    ),
    responses.Liens([_LIEN], None),
    overview.Overview(
        now=_AT,
        version="0.1.0",
        ok=True,
        findings=[Finding.of("queue.failed", "workers gave up on 3 tasks", "find the cause, then retry them")],
        counts={"parcels": 4_200, "liens": 610, "results": 9_100},
        fleet=overview.Fleet(alive=1, paused=0, stopped=0, offline=0),
        workers=[_WORKER],
        totals={"queued": 1_200, "leased": 44, "done": 9_000, "not_found": 12, "failed": 3, "dead": 0},
        ended_last_hour=918,
        queue=[_QUEUE],
        unclaimed_platforms=[],
        activity=overview.Activity(since=_AT, bucket_seconds=120, series={"done": [31, 28]}),
        sync=overview.Sync(2, 14.0),
        platforms=[
            overview.PlatformHealth(
                platform="grizzly_gis",
                succeeded=980,
                failed=20,
                success_rate=0.98,
                state=HealthState.HEALTHY,
                blocked_workers=[],
                failing_selectors=[],
                outdated_selectors=[],
            )
        ],
        schedules=[_SCHEDULE],
        webhooks=[_WEBHOOK],
    ),
    _SCHEDULE,
    ScheduleList([_SCHEDULE]),
    ScheduleDetail(_SCHEDULE, [_RUN]),
    NewSchedule(
        name="harlow-weekly",
        platform="grizzly_gis",
        state="FL",
        county="harlow",
        every="7d",
        at="02:00",
        timezone="America/New_York",
    ),
    ActionRequest(Action.RUN_NOW),
    ActionReply(_SCHEDULE),
    responses.MapLayersReply(tiles="https://tiles.example.org/{z}/{x}/{y}.png", outline="/v1/map/outline"),
    MapOutline([[(-81.97, 28.07), (-81.62, 28.07), (-81.62, 28.31)]]),
    responses.Changes([_CHANGE], 42, more=False),
    responses.LatestChanges([_CHANGE], None),
    responses.Workers([_WORKER]),
    responses.Queue([_QUEUE]),
    responses.Tasks([responses.ListedTask(**_TASK)], None, 1),
    responses.TaskDetail(
        **_TASK,
        leases=[Lease(worker_id="harlow-01", granted_at=_AT, expires_at=_UNTIL, ended_at=_UNTIL, end=LeaseEnd.FAILED)],
        parcel=_PATH,
        artifacts=[
            responses.TaskArtifact(
                kind="screenshot",
                path="/v1/artifacts/screenshot?task_id=t-1",
                worker_id="harlow-01",
                reported_at=_UNTIL,
            )
        ],
    ),
    responses.Failures([_FAILURES], 17),
    responses.Counties([_COUNTY]),
    CommandRequest("pause", worker_id="harlow-01"),
    responses.CommandReply(1),
    ReleaseRequest("harlow-01"),
    responses.ReleaseReply("harlow-01", "county-team"),
    server.NewTask(task_id="t-1", platform="grizzly_gis", target=_TARGET),
    responses.AddedTasks(new=1, known=0, bad=[]),
    RequeueRequest(states=["failed", "dead"], platform="grizzly_gis"),
    DeleteRequest(task_ids=["t-1", "t-2"]),
    responses.DeleteReply(2),
    responses.RequeueReply(17),
    RefreshRequest(platform="grizzly_gis", state="FL", county="harlow", older_than_hours=168),
    responses.RefreshReply(250),
    NewWebhook(
        url="https://crm.example.org/hooks/parcelpost", name="crm", kinds=["lien", "tax.delinquent"], state="FL"
    ),
    ReplayRequest(since=1041),
    WebhookList([_WEBHOOK]),
    WebhookDetail(
        _WEBHOOK,
        [WebhookRetry(change_no=41, attempts=3, first_at=_AT, next_at=_UNTIL, error="the receiver returned 500")],
    ),
    _WEBHOOK,
    Health("ok", [], "0.1.0"),
    AllowedRole("admin"),
]
EXAMPLES: dict[type[Struct], Struct] = {type(example): example for example in _EXAMPLES}
"""Examples by type."""
