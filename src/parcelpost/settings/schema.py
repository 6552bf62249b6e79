"""Every setting with its type, default and limits; conversion of a value from text or TOML."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta, Struct, field, inspect

from parcelpost.schedule import Timing, longest_interval

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
    """'': the store's id, created once."""
    platforms: tuple[str, ...] = ()
    """(): all installed ones."""
    drain_seconds: Seconds = 30.0
    give_up_seconds: Seconds = 300.0
    processes: Annotated[int, Meta(ge=1, le=64)] = 1


class GatewaySettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    url: str = ""
    base_path: str = "/internal"
    token_file: str = ""
    timeout_seconds: Seconds = 30.0
    max_response_bytes: SomeBytes = 32 * MIB


class FirestoreSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Used if `worker.upstream` is firestore."""

    project: str = ""
    """'': from the environment or the credentials."""
    database: str = "(default)"
    root: str = "parcelpost/main"
    """The path of the document that holds all collections; '': the database itself."""
    credentials_file: str = ""
    """A service account's key; '': the environment's credentials."""
    raw: str = ""
    """A folder, gs://bucket/prefix, s3://bucket/prefix, or another address that obstore supports."""
    lease_seconds: Seconds = 900.0
    max_attempts: Annotated[int, Meta(ge=1, le=1_000)] = 5
    idle_seconds: Seconds = 30.0
    """Pause between two queries of an empty queue."""
    timeout_seconds: Seconds = 30.0


class StoreLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the settings and the options of a store have in common."""

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
    keep_artifacts_days: Days = 7.0
    keep_backups: Count = 7


class StorageSettings(StoreLimits, frozen=True, forbid_unknown_fields=True):
    path: str = "local_data/parcelpost.db"


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
    """0: tasks never expire."""


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
    """'': the first one found."""
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
    """Percentages are of the memory that this worker may use: the machine's, or its control group's."""

    slow_percent: Percent = 75.0
    no_new_tasks_percent: Percent = 85.0
    stop_browsers_percent: Percent = 95.0
    sample_seconds: Seconds = 5.0


class HttpSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    host: str = "127.0.0.1"
    port: Port = 0
    """0: no health and metrics pages."""


POSTGRES = ("postgresql://", "postgres://")
"""How `server.database` begins if it is not a file."""


class ServerSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The gateway that runs on this machine; `gateway` is the one that a worker calls."""

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
    lease_seconds: Seconds = 900.0
    max_lease_hours: Annotated[float, Meta(gt=0, le=87_600)] = 24.0
    max_attempts: Annotated[int, Meta(ge=1, le=1_000)] = 5
    requests_per_second: Annotated[float, Meta(gt=0, le=1_000_000)] = 500.0
    workers_per_token: Annotated[int, Meta(ge=1, le=100_000)] = 1_000
    max_body_bytes: SomeBytes = 32 * MIB
    max_raw_bytes: SomeBytes = 64 * MIB
    keep_days: Days = 30.0
    keep_workers_days: Days = 30.0
    allow_private: tuple[str, ...] = ()
    """Receivers that webhooks may call although their address is private or their port unusual."""
    map_outline: str = ""
    """A GeoJSON file."""
    map_tiles: str = ""
    """'': no tile server."""


class LogSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "human", "json"] = "auto"
    """auto: human on a terminal, otherwise JSON lines."""


class PlatformSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A plugin: a function, or a class, whose methods `scrape` and `parse` then name."""

    scrape: str = ""
    parse: str = ""
    class_: str = field(default="", name="class")


class FieldMapSettings(Struct, frozen=True, kw_only=True):
    """A field map as written in the file. The scrapers validate it."""

    origin: str
    given: Mapping[str, Any]


class ScheduleSettings(Struct, frozen=True, kw_only=True):
    """A county that a standalone worker keeps fresh."""

    platform: str
    state: str
    county: str
    timing: Timing
    window_seconds: float
    pace_seconds: float = 0.0
    """Minimum delay between two tasks of a run; `fetch.pace_seconds` applies if it is longer."""
    delinquent_only: bool = False
    file: str = ""
    """A file of parcels, read again by each run. They need not be known."""
    list: bool = False
    """Scrape a whole list instead of known parcels."""
    url: str = ""
    """Address of the list."""
    paused: bool = False

    def fresh_since(self, now: datetime) -> datetime:
        """Returns the time since which a parcel must have been scraped to count as fresh."""
        return now - longest_interval(self.timing) - timedelta(seconds=self.window_seconds)


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
    """By name. Only in the file."""
    field_maps: Mapping[str, FieldMapSettings] = {}
    """By name. Only in the file."""
    schedules: Mapping[str, ScheduleSettings] = {}
    """By name. Only in the file."""


SECTIONS_OF_NAMES = ("platforms", "field_maps", "schedules")
"""Sections whose keys the operator names."""


_UNITS = {
    "": 1,
    "b": 1,
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmgt", 1)},
    **{f"{letter}ib": 1024**power for power, letter in enumerate("kmgt", 1)},
}
_SIZE = re.compile(r"([0-9]{1,30}(?:\.[0-9]{1,30})?) ?([a-z]*)", re.IGNORECASE)
_WHOLE = re.compile(r"[+-]?[0-9]{1,30}")
_BOOLEANS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_MAX_SHOWN_CHARS = 60


class Key(Struct, frozen=True):
    """One setting."""

    section: str
    field: str
    type: Any
    default: Any

    @property
    def name(self) -> str:
        return f"{self.section}.{self.field}"

    @property
    def variable(self) -> str:
        return f"PARCELPOST_{self.section}_{self.field}".upper()

    @property
    def is_size(self) -> bool:
        return self.field.endswith("_bytes")


def _keys() -> dict[str, Key]:
    keys = [
        Key(section.name, field.name, field.type, field.default)
        for section in msgspec.structs.fields(Settings)
        if section.name not in SECTIONS_OF_NAMES
        for field in msgspec.structs.fields(section.type)
    ]
    return {key.name: key for key in keys}


KEYS = _keys()
"""Every setting by its name, `section.key`, ordered by section."""


def from_text(key: Key, text: str) -> Any:
    """Returns the value of an environment variable or a flag. Raises ValueError."""
    text = text if isinstance(inspect.type_info(key.type), inspect.StrType) else text.strip()
    return from_toml(key, _parsed(key, text))


def from_toml(key: Key, value: Any) -> Any:
    """Returns the value of an entry in the file; a size may be text with a unit. Raises ValueError."""
    if key.is_size and isinstance(value, str):
        value = _size(value)
    converted = msgspec.convert(value, key.type)  # a ValidationError is a ValueError
    for text in converted if isinstance(converted, tuple) else (converted,):
        if isinstance(text, str) and _UNPRINTABLE.search(text):
            raise ValueError
    if isinstance(converted, tuple) and not all(converted):
        raise ValueError
    return converted


def form(key: Key, *, in_file: bool = False) -> str:
    """Describes a valid value, to follow `must be`."""
    match inspect.type_info(key.type):
        case inspect.IntType() if key.is_size:
            return "a size in bytes, or with a unit such as 512MiB or 2GB"
        case inspect.IntType(ge=least, le=most):
            return f"a whole number from {least} to {most}"
        case inspect.FloatType(gt=above, ge=least, le=most):
            limit = f"more than {above}" if least is None else f"at least {least}"
            return f"{key.field.rpartition('_')[2]}, {limit} and at most {most}"
        case inspect.LiteralType():
            return f"one of {', '.join(get_args(key.type))}"
        case inspect.VarTupleType(item_type=inspect.LiteralType(values=names)):
            return f"a list of any of {', '.join(sorted(map(str, names)))}, or an empty list"
        case inspect.VarTupleType():
            return 'a list of names, such as ["a", "b"]' if in_file else "a comma-separated list of names"
        case inspect.BoolType():
            return "true or false"
        case inspect.StrType(pattern=str()):
            return "a time of day from 00:00 to 23:59"
        case _:
            return "text without control characters"


def shown(key: Key, given: Any) -> str:
    """Returns the given value for a message, '' for free text, which may contain a secret."""
    if form(key).startswith("text"):
        return ""
    text = ("true" if given else "false") if isinstance(given, bool) else ascii(given)
    return text if len(text) <= _MAX_SHOWN_CHARS else f"{text[:_MAX_SHOWN_CHARS]}..."


def as_text(key: Key, value: Any) -> str:
    """Returns the value as an operator would write it; `from_text` reads it back."""
    if isinstance(value, tuple):
        return ",".join(value)
    if key.is_size:
        exact = [
            f"{value // 1024**power}{letter}iB" for power, letter in enumerate("KMGT", 1) if _is_multiple(value, power)
        ]
        return exact[-1] if exact else str(value)
    return str(value).removesuffix(".0")


def _is_multiple(value: int, power: int) -> bool:
    return value > 0 and value % 1024**power == 0


def _parsed(key: Key, text: str) -> Any:
    match inspect.type_info(key.type):
        case inspect.IntType() if key.is_size:
            return text
        case inspect.IntType():
            if not _WHOLE.fullmatch(text):
                raise ValueError
            return int(text)
        case inspect.FloatType():
            return float(text)
        case inspect.BoolType():
            return _BOOLEANS.get(text.lower(), text)
        case inspect.VarTupleType():
            return [name.strip() for name in text.split(",")] if text else []
        case _:
            return text


def _size(text: str) -> int:
    match = _SIZE.fullmatch(text)
    if not match or match[2].lower() not in _UNITS:
        raise ValueError
    number = float(match[1]) if "." in match[1] else int(match[1])
    return int(number * _UNITS[match[2].lower()])
