"""What gateways report."""

from __future__ import annotations

from parcelpost.events.event import Event


class GatewayStarted(Event, frozen=True):
    """The gateway takes requests at that address."""

    address: str
    database: str
    raw: str


class GatewayStopped(Event, frozen=True):
    """The gateway has answered what it had begun, and ended."""


class TokensRead(Event, frozen=True):
    """A file of tokens was read, at the start or because it changed: from now on those named are good."""

    kind: str
    file: str
    names: list[str]
    open_to_all: bool


class TokensNotRead(Event, frozen=True):
    """A file of tokens changed and cannot be read or understood; what it held before stays good."""

    kind: str
    file: str
    problem: str


class WorkerJoined(Event, frozen=True):
    """A worker made its first request to this process, with the token of that name."""

    worker_id: str
    token: str


class AccessDenied(Event, frozen=True):
    """A request had no right to what it asked for; `more` were denied since the last such event."""

    client: str
    path: str
    reason: str
    more: int


class LeasesEnded(Event, frozen=True):
    """Leases ended without a word: their tasks are queued again, or dead after their last attempt."""

    queued: int
    dead: int


class LedgerPruned(Event, frozen=True):
    """What is past its time was removed from the ledger."""

    removed: int


class LedgerLost(Event, frozen=True):
    """The ledger's database does not answer; requests that need it are answered with 503."""

    reason: str


class LedgerFound(Event, frozen=True):
    """The ledger's database answers again."""

    away_seconds: float


class RequestPutOff(Event, frozen=True):
    """A request was answered with 503: the ledger or the raw store is away. `more` were since the last such event."""

    path: str
    reason: str
    more: int


class DownloadCut(Event, frozen=True):
    """A download was cut off on its way: what it was read from went away."""

    path: str
    reason: str


class RequestFailed(Event, frozen=True):
    """A request met an error of ours and was answered with 500."""

    path: str
    error: str
