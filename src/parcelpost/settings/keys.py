"""Every key an operator may set, with its default. docs/settings.md describes each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

KIB, MIB, GIB = 1024, 1024**2, 1024**3

Seconds = Annotated[float, Meta(gt=0, le=31_536_000)]
Days = Annotated[float, Meta(gt=0, le=36_500)]
Bytes = Annotated[int, Meta(ge=0, le=2**62)]
Floor = Annotated[int, Meta(ge=0, le=2**62)]
SomeBytes = Annotated[int, Meta(ge=KIB, le=2**62)]
Count = Annotated[int, Meta(ge=1, le=1_000_000)]
Percent = Annotated[float, Meta(gt=0, le=100)]
Port = Annotated[int, Meta(ge=0, le=65_535)]

Mode = Literal["ondemand", "legacy", "standalone"]
UpstreamKind = Literal["gateway", "firestore"]


class WorkerSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    mode: Mode = "ondemand"
    upstream: UpstreamKind = "gateway"
    id: str = ""
    """'': made once and kept beside the store."""
    platforms: tuple[str, ...] = ()
    """(): all that are installed."""
    drain_seconds: Seconds = 30.0
    give_up_seconds: Seconds = 300.0


class GatewaySettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    url: str = ""
    base_path: str = "/internal"
    token_file: str = ""
    timeout_seconds: Seconds = 30.0
    max_answer_bytes: SomeBytes = 32 * MIB


class FirestoreSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Used where `worker.upstream` is firestore."""

    project: str = ""
    """'': that of the environment or of the credentials."""
    database: str = "(default)"
    root: str = "parcelpost/main"
    """A document's path below which all collections are; '': the database's own."""
    credentials_file: str = ""
    """A service account's key; '': what the environment has."""
    raw: str = ""
    """A folder, gs://bucket/prefix, s3://bucket/prefix, or another address that obstore knows."""
    lease_seconds: Seconds = 900.0
    max_attempts: Annotated[int, Meta(ge=1, le=1_000)] = 5
    idle_seconds: Seconds = 30.0
    """Between two looks at a queue that is empty."""
    timeout_seconds: Seconds = 30.0


class StorageSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    path: str = "local_data/parcelpost.db"
    synchronous: Literal["FULL", "NORMAL"] = "FULL"
    busy_timeout_seconds: Seconds = 10.0
    hung_after_seconds: Seconds = 60.0
    max_bytes: SomeBytes = GIB
    min_free_bytes: Bytes = 256 * MIB
    min_free_inodes: Floor = 1_000
    max_target_bytes: SomeBytes = 256 * KIB
    max_result_bytes: SomeBytes = 16 * MIB
    max_page_bytes: SomeBytes = 64 * MIB
    cache_max_bytes: Bytes = 256 * MIB
    cache_ttl_hours: Annotated[float, Meta(gt=0, le=87_600)] = 24.0
    keep_tasks_days: Days = 7.0
    keep_results_days: Days = 7.0
    keep_metrics_days: Days = 30.0
    keep_sync_log_days: Days = 14.0
    keep_signals_days: Days = 30.0
    keep_evidence_days: Days = 7.0
    keep_backups: Count = 7


class CollectorSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    low_water: Annotated[int, Meta(ge=0, le=1_000_000)] = 50
    high_water: Count = 200
    poll_seconds: Seconds = 5.0


class ExecutorSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    slots: Annotated[int, Meta(ge=1, le=1_000)] = 4
    task_timeout_seconds: Seconds = 300.0
    idle_seconds: Seconds = 1.0
    retry_min_seconds: Seconds = 30.0
    retry_max_seconds: Seconds = 1_800.0
    cool_down_seconds: Seconds = 300.0
    cool_down_max_seconds: Seconds = 3_600.0
    max_task_age_hours: Annotated[float, Meta(ge=0, le=87_600)] = 0.0
    """0: a task waits for as long as it takes."""


class FetchSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    user_agent: str = ""
    """'': the program's name and version, and the contact."""
    contact: str = ""
    pace_seconds: Annotated[float, Meta(ge=0, le=86_400)] = 1.0
    concurrency_per_host: Annotated[int, Meta(ge=1, le=64)] = 2
    timeout_seconds: Seconds = 60.0
    max_page_bytes: SomeBytes = 32 * MIB
    proxy: str = ""
    allow_private: tuple[str, ...] = ()
    obey_robots: bool = True
    counties_file: str = ""
    field_maps_folder: str = ""


class BrowserSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    executable: str = ""
    """'': the first that is found."""
    most: Annotated[int, Meta(ge=0, le=64)] = 4
    sandbox: Literal["auto", "on", "off"] = "auto"
    tasks_per_browser: Count = 100
    max_age_seconds: Seconds = 3_600.0
    max_browser_bytes: SomeBytes = GIB
    idle_seconds: Seconds = 60.0
    page_seconds: Seconds = 60.0
    max_page_bytes: SomeBytes = 64 * MIB
    max_navigations: Annotated[int, Meta(ge=1, le=1_000)] = 10
    block: tuple[Literal["image", "font", "media", "tracker"], ...] = ("image", "font", "media", "tracker")


class SyncSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    backoff_min_seconds: Seconds = 30.0
    backoff_max_seconds: Seconds = 300.0
    batch_size: Annotated[int, Meta(ge=1, le=1_000)] = 50
    batch_bytes: SomeBytes = 4 * MIB
    max_rejections: Annotated[int, Meta(ge=1, le=1_000)] = 5
    raw_uploads: Annotated[int, Meta(ge=1, le=64)] = 4


class HeartbeatSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    seconds: Seconds = 30.0


Moment = Annotated[str, Meta(pattern=r"^([01]\d|2[0-3]):[0-5]\d$")]


class JanitorSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    backup_at: Moment = "02:00"
    clean_at: Moment = "03:00"
    """Local time."""


class ResourcesSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of the memory that this worker may use: the machine's, or its control group's."""

    slow_percent: Percent = 75.0
    no_new_tasks_percent: Percent = 85.0
    stop_browsers_percent: Percent = 95.0
    sample_seconds: Seconds = 5.0


class HttpSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    host: str = "127.0.0.1"
    port: Port = 0
    """0: no health and metrics pages."""


class ServerSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The gateway that this machine serves, as `gateway` is the one that a worker calls."""

    host: str = "127.0.0.1"
    port: Port = 8700
    base_path: str = "/internal"
    database: str = "gateway_data/gateway.db"
    """An SQLite file, or postgresql://..."""
    raw: str = "gateway_data/raw"
    """A folder, or s3://bucket/prefix."""
    worker_tokens_file: str = ""
    read_tokens_file: str = ""
    admin_tokens_file: str = ""
    open_read: bool = False
    tls_certificate: str = ""
    tls_key: str = ""
    lease_seconds: Seconds = 900.0
    max_lease_hours: Annotated[float, Meta(gt=0, le=87_600)] = 24.0
    max_attempts: Annotated[int, Meta(ge=1, le=1_000)] = 5
    requests_per_second: Annotated[float, Meta(gt=0, le=1_000_000)] = 500.0
    workers_per_token: Annotated[int, Meta(ge=1, le=100_000)] = 1_000
    max_body_bytes: SomeBytes = 32 * MIB
    max_raw_bytes: SomeBytes = 64 * MIB
    keep_days: Days = 30.0
    keep_workers_days: Days = 30.0


class LogSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "human", "json"] = "auto"
    """auto: for people on a terminal, JSON lines elsewhere."""


class PlatformSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A parser that somebody has already; with `class`, the others are names of its methods."""

    scrape: str = ""
    parse: str = ""
    class_: str = field(default="", name="class")


class FieldMapSettings(Struct, frozen=True, kw_only=True):
    """A field map as the file has it; the scrapers say whether it is one."""

    origin: str
    given: Mapping[str, Any]


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    worker: WorkerSettings = WorkerSettings()
    gateway: GatewaySettings = GatewaySettings()
    firestore: FirestoreSettings = FirestoreSettings()
    storage: StorageSettings = StorageSettings()
    collector: CollectorSettings = CollectorSettings()
    executor: ExecutorSettings = ExecutorSettings()
    fetch: FetchSettings = FetchSettings()
    browser: BrowserSettings = BrowserSettings()
    sync: SyncSettings = SyncSettings()
    heartbeat: HeartbeatSettings = HeartbeatSettings()
    janitor: JanitorSettings = JanitorSettings()
    resources: ResourcesSettings = ResourcesSettings()
    http: HttpSettings = HttpSettings()
    server: ServerSettings = ServerSettings()
    log: LogSettings = LogSettings()
    platforms: Mapping[str, PlatformSettings] = {}
    """By name; only the file has them."""
    field_maps: Mapping[str, FieldMapSettings] = {}
    """By name; only the file has them."""


SECTIONS_OF_NAMES = ("platforms", "field_maps")
"""Sections whose keys are names that the operator chooses."""
