"""Who this store is upstream: one worker id, whichever of its processes collects, delivers or beats."""

from __future__ import annotations

import secrets
import socket

from msgspec import Struct

from parcelpost.errors import InvalidSettings
from parcelpost.events import Emit, WorkerIdChanged
from parcelpost.storage.lpm import LocalPersistenceManager

WORKER_ID_STATE = "identity"

_MOST_PROCESSES = 1_000


class WorkerId(Struct, frozen=True):
    worker_id: str


async def settle_worker_id(lpm: LocalPersistenceManager, wanted: str, emit: Emit) -> str:
    """Returns the store's worker id. The first process decides: `wanted` (`worker.id`), else one with the host's name.

    A gateway may keep a list of tasks per worker id, so `wanted` takes the place of another id only while the store
    holds nothing that was collected under that one and no other process uses it. Raises InvalidSettings otherwise.
    """
    new = WorkerId(wanted or f"{socket.gethostname()[:40] or 'worker'}-{secrets.token_hex(4)}")
    kept = (await lpm.state.settle(WORKER_ID_STATE, new)).worker_id
    if not wanted or wanted == kept:
        return kept
    what = f"worker.id is {wanted}, and the store {lpm.path} is worker {kept} upstream"
    if peers := lpm.peers():
        raise InvalidSettings(
            f"{what}, in {', '.join(peers)}",
            hint=f"leave worker.id unset or set it to {kept}, as the other process has it",
        )
    if await lpm.holds_upstream_work():
        raise InvalidSettings(
            f"{what}: what it holds was collected under that id, and its gateway waits for it there",
            hint=f"finish that first, with 'parcelpost run --until-empty --set worker.id={kept}'; "
            f"or, if the gateway no longer knows {kept}, 'parcelpost store upstream --worker-id {wanted}'",
        )
    await lpm.state.put(WORKER_ID_STATE, WorkerId(wanted))
    emit(WorkerIdChanged(old=kept, new=wanted))
    return wanted


def process_name(lpm: LocalPersistenceManager, worker_id: str) -> str:
    """What this process is called among those of its store: the worker's id, or `...-2` for a second one, and so on."""
    number = next(number for number in range(1, _MOST_PROCESSES) if lpm.duties.take(f"worker-{number}"))
    return worker_id if number == 1 else f"{worker_id}-{number}"


def is_last_process(lpm: LocalPersistenceManager) -> bool:
    """Call once, when this process has no more to do. Of several that end at once, at least one is the last."""
    lpm.duties.leave("worker-")
    return not lpm.duties.is_any_held("worker-")
