"""Every setting with its type, default and bounds, and how a value is read from text and from TOML."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta, Struct, field, inspect

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
    keep_artifacts_days: Days = 7.0
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
_MOST_SHOWN = 60


class Key(Struct, frozen=True):
    """One thing that can be set."""

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
"""Every key by its name, `section.key`, in the order of the sections."""


def from_text(key: Key, text: str) -> Any:
    """The value that an environment variable or a flag gives. Raises ValueError."""
    text = text if isinstance(inspect.type_info(key.type), inspect.StrType) else text.strip()
    return from_toml(key, _parsed(key, text))


def from_toml(key: Key, value: Any) -> Any:
    """The value that the file gives; a size may be text with a unit. Raises ValueError."""
    if key.is_size and isinstance(value, str):
        value = _size(value)
    found = msgspec.convert(value, key.type)  # a ValidationError is a ValueError
    for text in found if isinstance(found, tuple) else (found,):
        if isinstance(text, str) and _UNPRINTABLE.search(text):
            raise ValueError
    if isinstance(found, tuple) and not all(found):
        raise ValueError
    return found


def form(key: Key, *, in_file: bool = False) -> str:
    """What a right value is, to follow `must be`."""
    match inspect.type_info(key.type):
        case inspect.IntType() if key.is_size:
            return "a size: bytes, or with a unit as in 512MiB or 2GB"
        case inspect.IntType(ge=least, le=most):
            return f"a whole number from {least} to {most}"
        case inspect.FloatType(gt=above, ge=least, le=most):
            limit = f"more than {above}" if least is None else f"at least {least}"
            return f"{key.field.rpartition('_')[2]}, {limit} and at most {most}"
        case inspect.LiteralType():
            return f"one of {', '.join(get_args(key.type))}"
        case inspect.VarTupleType(item_type=inspect.LiteralType(values=names)):
            return f"a list of {', '.join(sorted(map(str, names)))}, or of none of them"
        case inspect.VarTupleType():
            return 'a list of names, as ["a", "b"]' if in_file else "a list of names, comma separated"
        case inspect.BoolType():
            return "true or false"
        case inspect.StrType(pattern=str()):
            return "a time of day from 00:00 to 23:59"
        case _:
            return "text without control characters"


def shown(key: Key, given: Any) -> str:
    """What was given, for a message, or '' where it might be something to hide: free text may hold anything."""
    if form(key).startswith("text"):
        return ""
    text = ("true" if given else "false") if isinstance(given, bool) else ascii(given)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


def as_text(key: Key, value: Any) -> str:
    """As a person would write it: what `from_text` reads as the same value."""
    if isinstance(value, tuple):
        return ",".join(value)
    if key.is_size:
        exact = [f"{value // 1024**power}{letter}iB" for power, letter in enumerate("KMGT", 1) if _fits(value, power)]
        return exact[-1] if exact else str(value)
    return str(value).removesuffix(".0")


def _fits(value: int, power: int) -> bool:
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
    found = _SIZE.fullmatch(text)
    if not found or found[2].lower() not in _UNITS:
        raise ValueError
    number = float(found[1]) if "." in found[1] else int(found[1])
    return int(number * _UNITS[found[2].lower()])


_SECRET = re.compile(r"(token|password|passwd|secret|api_?key|credentials?)$", re.IGNORECASE)
_MOST_NAMES_SHOWN = 80
_NEAR = 0.8
"""How alike a name without its section must be: `batchsize` is meant to be `batch_size`, `nosection` not `seconds`."""
SEE_PAGE = "'parcelpost init' writes a file with every key and what it means"


class Problem(Struct, frozen=True, kw_only=True):
    """Why these settings cannot be used, and what to do about it."""

    what: str
    remedy: str


class Gathering:
    def __init__(self) -> None:
        self.values: dict[str, Any] = {name: key.default for name, key in KEYS.items()}
        self.origins: dict[str, str] = dict.fromkeys(KEYS, "default")
        self.platforms: dict[str, PlatformSettings] = {}
        self.field_maps: dict[str, FieldMapSettings] = {}
        self.problems: list[Problem] = []
        self.warnings: list[str] = []

    def text(self, name: str, text: str, origin: str) -> None:
        """A value from the environment or a flag."""
        if (key := KEYS.get(name)) is None:
            self._unknown(name, origin)
            return
        try:
            self._set(key, from_text(key, text), origin)
        except ValueError:
            self._bad(key, form(key), shown(key, text), origin)

    def toml(self, name: str, value: Any, origin: str) -> None:
        """A value from the file."""
        if (key := KEYS.get(name)) is None:
            self._unknown(name, origin)
            return
        try:
            self._set(key, from_toml(key, value), origin)
        except ValueError:
            self._bad(key, form(key, in_file=True), shown(key, value), origin)

    def problem(self, what: str, remedy: str) -> None:
        self.problems.append(Problem(what=what, remedy=remedy))

    def _set(self, key: Key, value: Any, origin: str) -> None:
        self.values[key.name] = value
        self.origins[key.name] = origin

    def _bad(self, key: Key, right: str, given: str, origin: str) -> None:
        but = f", not {given}" if given else ""
        self.problem(f"{origin}: {key.name} must be {right}{but}", SEE_PAGE)

    def _unknown(self, name: str, origin: str) -> None:
        short = name if len(name) <= _MOST_NAMES_SHOWN else f"{name[:_MOST_NAMES_SHOWN]}..."
        if _SECRET.search(name):
            self.problem(
                f"{origin}: {short} looks like a secret, and secrets are no settings",
                "take it out, and put the token into PARCELPOST_GATEWAY_TOKEN or into the file that "
                "gateway.token_file names; change it if others could read it here",
            )
            return
        close = nearest(name)
        self.problem(
            f"{origin}: there is no setting {short}" + (f"; the nearest is {close}" if close else ""), SEE_PAGE
        )


def nearest(name: str) -> str:
    """The key that was probably meant, or ''. The same name in another section comes first."""
    _, _, field = name.rpartition(".")
    same = [key.name for key in KEYS.values() if key.field == field]
    close = difflib.get_close_matches(name, same or KEYS, n=1, cutoff=0.0 if same else 0.6)
    if not close and (
        fields := difflib.get_close_matches(field, [key.field for key in KEYS.values()], n=1, cutoff=_NEAR)
    ):
        close = [key.name for key in KEYS.values() if key.field == fields[0]]
    return close[0] if close else ""
