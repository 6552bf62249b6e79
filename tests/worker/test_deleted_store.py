"""What a person forgets beside a worker: the upstream hears how each of its orders ended (I1)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from parcelpost.events import EntryRefused
from parcelpost.model import OutboxEntry, Target, Task
from parcelpost.storage.operator_actions import Flags, PlannedAction, Selection
from tests import traps
from tests.storage.factories import list_results
from tests.worker.rig import Rig


async def test_i1_every_deleted_order_is_reported_as_failed(rig: Rig) -> None:
    await rig.save("saved", page=b"<p>lost</p>")
    target = Target(parcel_id="1", state="CT", county="hartford")
    await rig.lpm.add_task(Task(task_id="pending", platform="vgsi", target=target))
    deleted = await rig.lpm.operator.delete_tasks(Selection(), Flags(force=True))
    assert deleted == {PlannedAction.FAIL_AND_REPORT: 2}
    await rig.settle()
    assert {task_id for task_id, _ in rig.gateway.failed} == {"saved", "pending"}
    assert rig.gateway.submissions == {}
    assert await rig.lpm.operator.delete_tasks(Selection()) == {PlannedAction.APPLY: 2}


async def test_a_record_that_is_deleted_while_it_is_sent_harms_nothing(rig: Rig) -> None:
    await rig.save("t1", "t2", page=b"<p>1</p>")
    rig.gateway.play("results", traps.done_first(traps.reset()), times=1)
    await rig.sync.step()
    assert set(rig.gateway.submissions) == {"t1", "t2"}, "it has them, and we do not know"
    await rig.lpm.operator.delete_results(Selection(task_ids=("t1",)), Flags(force=True))
    await rig.settle()
    assert [task_id for task_id, _ in rig.gateway.failed] == ["t1"]
    assert [entry.synced_at is not None for entry in await list_results(rig.lpm)] == [True, True]


async def test_what_is_deleted_after_it_was_read_is_no_refusal_and_holds_nothing_up(rig: Rig) -> None:
    await rig.save("t1", "t2", page=b"<p>1</p>")
    read = rig.lpm.get_unsynced_results

    async def read_and_forget(*args: object, **kwargs: object) -> Sequence[OutboxEntry]:
        found = await read(*args, **kwargs)  # type: ignore[arg-type]
        await rig.lpm.operator.delete_results(Selection(task_ids=("t1",)), Flags(force=True))
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rig.lpm, "get_unsynced_results", read_and_forget)
        await rig.sync.step()
    assert set(rig.gateway.submissions) == {"t2"}
    started = rig.clock.monotonic()
    await rig.sync.step()
    assert [task_id for task_id, _ in rig.gateway.failed] == ["t1"], "its report does not wait"
    assert rig.clock.monotonic() == started
    assert rig.seen(EntryRefused) == []
