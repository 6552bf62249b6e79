"""What gateways report."""

from __future__ import annotations

from parcelpost.events.event import Event


class GatewayStarted(Event, frozen=True):
    """The gateway takes requests."""

    address: str
    database: str
    raw: str


class GatewayStopped(Event, frozen=True):
    """It has answered what it had begun, and ended."""


class TokensRead(Event, frozen=True):
    """A file of tokens was read, at the start or because it changed."""

    kind: str
    """Worker, read, admin."""
    file: str
    names: list[str]
    open_to_all: bool
    """Every user of the machine can read it."""


class TokensNotRead(Event, frozen=True):
    """A file of tokens changed and cannot be read or understood; what it held before stays good."""

    kind: str
    file: str
    problem: str


class WorkerJoined(Event, frozen=True):
    """A worker made its first request to this process."""

    worker_id: str
    token: str
    """Its name."""


class AccessDenied(Event, frozen=True):
    """A request had no right to what it asked for. At most one a second."""

    client: str
    path: str
    reason: str
    more: int
    """Denied since the last event."""


class LeasesEnded(Event, frozen=True):
    """Leases ended without a word."""

    queued: int
    """Tasks that wait again."""
    dead: int
    """Tasks after their last attempt."""


class LedgerPruned(Event, frozen=True):
    """What is past its time was removed from the ledger."""

    removed: int
    """Rows."""


class LedgerLost(Event, frozen=True):
    """The ledger's database does not answer; what needs it is answered with 503."""

    reason: str


class LedgerFound(Event, frozen=True):
    """The ledger's database answers again."""

    away_seconds: float


class RequestPutOff(Event, frozen=True):
    """A request was answered with 503, as the ledger or the store of raw files is away. At most one in ten seconds."""

    path: str
    reason: str
    more: int
    """Put off since the last event."""


class DownloadCut(Event, frozen=True):
    """A download was cut off on its way, as the ledger or the store of raw files went away."""

    path: str
    reason: str


class RequestFailed(Event, frozen=True):
    """A request met an error of ours and was answered with 500."""

    path: str
    error: str
