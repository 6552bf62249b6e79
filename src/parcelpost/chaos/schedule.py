"""What is done to a run, and when: profiles, and the schedule that a seed makes of one."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

PHASES_IN_A_COMMAND = ("migration", "backup", "cleaning")
PHASES_AT_A_START = ("start-up", "recovery")
PHASES_AT_WORK = ("claim", "save", "saved", "upload", "submit", "report", "receipt", "drain")
PHASES = (*PHASES_AT_A_START, *PHASES_IN_A_COMMAND, *PHASES_AT_WORK)
PARCELS = 300
LEASE_SECONDS = 15


class Step(Struct, frozen=True, kw_only=True):
    at: float
    """Seconds from the start."""
    fault: str
    target: str = ""
    """A worker, a store or a gateway."""
    seconds: float = 0.0
    detail: str = ""
    rate: float = 1.0
    """The share of the requests that are hit."""
    delay: float = 0.0
    """Of an answer, in seconds."""
    with_county: bool = False
    """Whether a network fault hits the requests to the county, too."""
    number: int = 0
    """The parcel to poison, or the seed of the bytes that are damaged and of the requests that are hit."""

    def __str__(self) -> str:
        parts = (
            *(self.target, self.detail, f"#{self.number}" if self.number else ""),
            *(f"{self.rate:.0%}" if self.rate < 1 else "", f"by {self.delay:.1f} s" if self.delay else ""),
            *("county, too" if self.with_county else "", f"for {self.seconds:.1f} s" if self.seconds else ""),
        )
        return f"{self.at:7.1f} s  {self.fault:18} {' '.join(filter(None, parts))}".rstrip()


class Profile(Struct, frozen=True, kw_only=True):
    """The processes of a run and how hard they are hit."""

    summary: str
    stores: Mapping[str, int]
    """How many workers work on each."""
    gateways: int = 1
    postgres: bool = False
    disks: bool = False
    """Each store is on a disk of its own, where this is possible."""
    small: str = ""
    """The store with a small cap, which is reached within a minute."""
    gap_seconds: float
    """Between the begins of two faults, on average."""
    pace_seconds: float = 0.08
    """Between two requests of one worker to the county."""
    weights: Mapping[str, float]


_KILLS: dict[str, float] = {"kill": 5, "kill-in-phase": 6, "pause": 0.7, "take-over": 1, "terminate": 1}
_NETWORK: dict[str, float] = {"network": 3, "gateway-away": 0.8, "kill-gateway": 1, "lease-expiry": 0.3, "poison": 0.3}
_SITE: dict[str, float] = {"site": 1}
_STORE: dict[str, float] = {
    "lock-store": 0.4,
    "raw-folder-away": 0.4,
    "raw-folder-deleted": 0.2,
    "corrupt-copy": 0.2,
    "clock-jump": 0.5,
    "memory-limit": 0.2,
    "file-size-limit": 0.3,
}
_DISK: dict[str, float] = {"power-cut": 1.5, "disk-full": 1, "disk-read-only": 0.3, "disk-fails": 0.3}

PROFILES: Mapping[str, Profile] = {
    "laptop": Profile(
        summary="one gateway on SQLite; three workers on two stores; a fault every three seconds",
        stores={"a": 2, "b": 1},
        small="b",
        gap_seconds=3.0,
        weights=_KILLS | _NETWORK | _SITE | _STORE,
    ),
    "fleet": Profile(
        summary="two gateways on PostgreSQL; six workers on four stores",
        stores={"a": 2, "b": 2, "c": 1, "d": 1},
        small="d",
        gateways=2,
        postgres=True,
        gap_seconds=1.8,
        pace_seconds=0.2,
        weights=_KILLS | _NETWORK | _SITE | _STORE,
    ),
    "disk": Profile(
        summary="three workers on two stores, each on a disk that loses its power, fills up and fails",
        stores={"a": 2, "b": 1},
        disks=True,
        gap_seconds=5.0,
        weights={"kill": 1, "kill-in-phase": 1, "network": 0.5, **{name: 3 * rate for name, rate in _DISK.items()}},
    ),
    "hostile": Profile(
        summary="three workers on two stores with disks of their own; every fault, often two at a time",
        stores={"a": 2, "b": 1},
        small="b",
        disks=True,
        gap_seconds=1.8,
        weights=_KILLS | _NETWORK | _SITE | _STORE | _DISK,
    ),
}

SITE_FAULTS = ("slow", "500", "429", "challenge", "truncated", "redesign", "charset", "reset")
NETWORK_TROUBLES = (
    "refused",
    "swallowed",
    "delayed",
    "cut",
    "doubled",
    "doubled-answer",
    "misdirected",
    "garbage",
    "busy",
)
COUNTY_TROUBLES = ("refused", "swallowed", "delayed", "cut", "garbage")
GATEWAY_SIGNALS = ("SIGKILL", "SIGKILL", "SIGTERM", "SIGSTOP")

_SECONDS: Mapping[str, tuple[float, float]] = {
    "pause": (0.3, 3.0),
    "take-over": (0.0, 1.0),
    "network": (1.0, 6.0),
    "gateway-away": (8.0, 12.0),
    "lease-expiry": (LEASE_SECONDS + 2.0, LEASE_SECONDS + 2.0),
    "kill-gateway": (0.2, 3.0),
    "site": (1.0, 5.0),
    "lock-store": (0.5, 5.0),
    "raw-folder-away": (0.5, 4.0),
    "raw-folder-deleted": (0.5, 4.0),
    "clock-jump": (3.0, 10.0),
    "memory-limit": (1.0, 3.0),
    "file-size-limit": (1.0, 3.0),
    "disk-full": (2.0, 6.0),
    "disk-read-only": (1.0, 4.0),
    "disk-fails": (0.5, 2.0),
}
"""How long a fault lasts; of `take-over`, after a peer has claimed a task. The others are over at once."""
_FAVOUR = 30
_JUDGED_SECONDS = 10.0
_OF_STORES = {"network", "lock-store", "raw-folder-away", "raw-folder-deleted", "corrupt-copy", *_DISK}
_OF_GATEWAYS = {"kill-gateway"}
_OF_ALL = {"gateway-away", "poison", "site"}


def worker_names(profile: Profile, at_least: int = 1) -> list[str]:
    """Those of stores with at least so many workers."""
    stores = {store: count for store, count in profile.stores.items() if count >= at_least}
    return [f"{store}{number}" for store, count in stores.items() for number in range(1, count + 1)]


def make_schedule(profile: Profile, seed: int, seconds: float, favour: Collection[str] = ()) -> Sequence[Step]:
    """Returns the steps by time: the same for the same arguments. Those in `favour` come first and far more often."""
    first = {name: weight for name, weight in profile.weights.items() if name in favour} or profile.weights
    weights = {name: weight * (_FAVOUR if name in favour else 1) for name, weight in profile.weights.items()}
    chance = random.Random(f"chaos/{seed}")  # noqa: S311 - no secrets
    steps: list[Step] = []
    at = 2.0
    while at < seconds:
        among = weights if steps else first
        fault = chance.choices(list(among), list(among.values()))[0]
        steps.append(_step(profile, fault, round(at, 1), chance))
        at += chance.uniform(0.2, 1.8) * profile.gap_seconds
        if fault == "gateway-away" and fault in favour:  # judged only where nothing else troubles the workers
            at += steps[-1].seconds + _JUDGED_SECONDS
    return steps


def _step(profile: Profile, fault: str, at: float, chance: random.Random) -> Step:
    seconds = round(chance.uniform(*_SECONDS.get(fault, (0.0, 0.0))), 1)
    step = Step(at=at, fault=fault, target=_target(profile, fault, chance), seconds=seconds)
    match fault:
        case "kill-in-phase":
            phase = chance.choice((*PHASES, "save", "saved", "claim"))
            number = chance.choices(("SIGKILL", "SIGSTOP", "SIGTERM"), (8, 1, 1))[0]
            return replace(step, detail=f"{phase} {number}")
        case "kill-gateway":
            return replace(step, detail=chance.choice(GATEWAY_SIGNALS))
        case "site":
            return replace(step, detail=chance.choice(SITE_FAULTS))
        case "network":
            kind = chance.choice(NETWORK_TROUBLES)
            return replace(
                step,
                detail=kind,
                rate=chance.choice((0.3, 0.7, 1.0)),
                delay=round(chance.uniform(0.1, 5.0), 1) if kind == "delayed" else 0.0,
                with_county=kind in COUNTY_TROUBLES and chance.random() < 0.3,
                number=chance.randrange(1, 10**6),
            )
        case "clock-jump":
            return replace(step, detail=f"{chance.choice((-3_600, -120, -5, 5, 120, 3_600)):+}")
        case "poison":
            return replace(step, number=chance.randint(1, PARCELS))
        case "corrupt-copy":
            return replace(step, number=chance.randrange(1, 10**6))
        case _:
            return step


def _target(profile: Profile, fault: str, chance: random.Random) -> str:
    if fault in _OF_ALL:
        return ""
    if fault in _OF_GATEWAYS:
        return f"gateway{chance.randint(1, profile.gateways)}"
    if fault in _OF_STORES:
        return chance.choice(sorted(profile.stores))
    return chance.choice(worker_names(profile, at_least=2 if fault == "take-over" else 1))
