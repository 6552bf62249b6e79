"""A store's worker id, shared by all its processes, and the gateway it first found at an address."""

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
"""Prefix of names in `worker_state`; the gateway's address follows."""

_MOST_PROCESSES = 1_000


class WorkerId(Struct, frozen=True):
    worker_id: str


async def settle_worker_id(lpm: LocalPersistenceManager, wanted: str, emit: Emit) -> str:
    """Returns the store's worker id. The first process sets it: `wanted` (`worker.id`), or one with the host's name.

    A gateway may keep its tasks by worker id. Therefore `wanted` replaces another id only if no other process uses the
    store and nothing in it was collected under the old id. Raises InvalidSettings otherwise.
    """
    new = WorkerId(wanted or f"{socket.gethostname()[:40] or 'worker'}-{secrets.token_hex(4)}")
    current = (await lpm.state.put_if_absent(WORKER_ID_STATE, new)).worker_id
    if not wanted or wanted == current:
        return current
    conflict = f"worker.id is {wanted}, but the store {lpm.path} uses the worker ID {current} upstream"
    if peers := lpm.peers():
        raise InvalidSettings(
            f"{conflict}, in {', '.join(peers)}",
            hint=f"leave worker.id unset or set it to {current}, as the other process has it",
        )
    if await lpm.holds_upstream_work():
        raise InvalidSettings(
            f"{conflict}: its tasks were collected under that ID, and the gateway expects their results from it",
            hint=f"finish that first, with 'parcelpost run --until-empty --set worker.id={current}'; "
            f"or, if the gateway no longer knows {current}, 'parcelpost store upstream --worker-id {wanted}'",
        )
    await lpm.state.put(WORKER_ID_STATE, WorkerId(wanted))
    emit(WorkerIdChanged(old=current, new=wanted))
    return wanted


def process_name(lpm: LocalPersistenceManager, worker_id: str) -> str:
    """Returns this process's name among those on the store: the worker's id, `<id>-2` for the second one, ..."""
    number = next(number for number in range(1, _MOST_PROCESSES) if lpm.leader_locks.take(f"worker-{number}"))
    return worker_id if number == 1 else f"{worker_id}-{number}"


def is_last_process(lpm: LocalPersistenceManager) -> bool:
    """Call once, when this process is about to end. If several end at the same time, at least one is the last."""
    lpm.leader_locks.release("worker-")
    return not lpm.leader_locks.is_any_held("worker-")


class MetGateway(Struct, frozen=True, kw_only=True):
    address: str
    ledger_id: str
    """'' if the gateway has no ledger id, like the Go gateway."""
    since: datetime


class KnownGateway:
    """The gateway that the store's processes first found at an address. A different one there gets nothing."""

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
            with contextlib.suppress(StoreError):  # on a full disk it is stored at the next start
                self._known = (await self._lpm.state.put_if_absent(f"{GATEWAY_STATE}{self._address}", new)).ledger_id
        if ledger_id != self._known:
            self.doubt()
            raise AnotherGateway(another_gateway(self._address, ledger_id, self._known or ""))
        self.in_doubt = False

    def doubt(self) -> None:
        self.in_doubt, self._is_read = True, False  # an operator may accept another gateway in the meantime
