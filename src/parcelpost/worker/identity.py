"""The worker id of a store, the same for all its processes, and the gateway that it first met at an address."""

from __future__ import annotations

import contextlib
import secrets
import socket
from datetime import datetime

from msgspec import Struct

from parcelpost.clock import Clock
from parcelpost.errors import AnotherGateway, InvalidSettings, StoreError
from parcelpost.events import Emit, WorkerIdChanged
from parcelpost.storage.lpm import LocalPersistenceManager
from parcelpost.upstream.http import another_gateway

WORKER_ID_STATE = "identity"
GATEWAY_STATE = "gateway "
"""With its address: the name under which the store keeps which one it met there."""

_MOST_PROCESSES = 1_000


class WorkerId(Struct, frozen=True):
    worker_id: str


async def settle_worker_id(lpm: LocalPersistenceManager, wanted: str, emit: Emit) -> str:
    """Returns the store's worker id. The first process decides: `wanted` (`worker.id`), else one with the host's name.

    A gateway may keep a list of tasks per worker id, so `wanted` takes the place of another id only while the store
    holds nothing that was collected under that one and no other process uses it. Raises InvalidSettings otherwise.
    """
    new = WorkerId(wanted or f"{socket.gethostname()[:40] or 'worker'}-{secrets.token_hex(4)}")
    kept = (await lpm.state.put_if_absent(WORKER_ID_STATE, new)).worker_id
    if not wanted or wanted == kept:
        return kept
    conflict = f"worker.id is {wanted}, but the store {lpm.path} uses the worker ID {kept} upstream"
    if peers := lpm.peers():
        raise InvalidSettings(
            f"{conflict}, in {', '.join(peers)}",
            hint=f"leave worker.id unset or set it to {kept}, as the other process has it",
        )
    if await lpm.holds_upstream_work():
        raise InvalidSettings(
            f"{conflict}: its tasks were collected under that ID, and the gateway expects their results from it",
            hint=f"finish that first, with 'parcelpost run --until-empty --set worker.id={kept}'; "
            f"or, if the gateway no longer knows {kept}, 'parcelpost store upstream --worker-id {wanted}'",
        )
    await lpm.state.put(WORKER_ID_STATE, WorkerId(wanted))
    emit(WorkerIdChanged(old=kept, new=wanted))
    return wanted


def process_name(lpm: LocalPersistenceManager, worker_id: str) -> str:
    """What this process is called among those of its store: the worker's id, or `...-2` for a second one, and so on."""
    number = next(number for number in range(1, _MOST_PROCESSES) if lpm.leader_locks.take(f"worker-{number}"))
    return worker_id if number == 1 else f"{worker_id}-{number}"


def is_last_process(lpm: LocalPersistenceManager) -> bool:
    """Call once, when this process has no more to do. Of several that end at once, at least one is the last."""
    lpm.leader_locks.release("worker-")
    return not lpm.leader_locks.is_any_held("worker-")


class MetGateway(Struct, frozen=True, kw_only=True):
    address: str
    ledger_id: str
    """'': it gives none, as the Go gateway does."""
    since: datetime


class KnownGateway:
    """Which gateway the store met first at an address, for all its processes. Another one there gets nothing of it."""

    def __init__(self, lpm: LocalPersistenceManager, address: str, clock: Clock) -> None:
        self._lpm = lpm
        self._address = address
        self._clock = clock
        self._known: str | None = None
        self._is_read = False
        self.in_doubt = True

    async def expected(self) -> str | None:
        if not self._is_read:
            met = await self._lpm.state.get(f"{GATEWAY_STATE}{self._address}", MetGateway)
            self._known, self._is_read = (met.ledger_id if met else None), True
        return self._known

    async def met(self, ledger_id: str) -> None:
        if await self.expected() is None:
            new = MetGateway(address=self._address, ledger_id=ledger_id, since=self._clock.now())
            self._known = ledger_id
            with contextlib.suppress(StoreError):  # a full disk: it is met again at the next start
                self._known = (await self._lpm.state.put_if_absent(f"{GATEWAY_STATE}{self._address}", new)).ledger_id
        if ledger_id != self._known:
            self.doubt()
            raise AnotherGateway(another_gateway(self._address, ledger_id, self._known or ""))
        self.in_doubt = False

    def doubt(self) -> None:
        self.in_doubt, self._is_read = True, False  # an operator may have accepted another meanwhile
