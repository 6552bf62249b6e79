"""How the work stands is said when it begins, when it has changed, and when it ends."""

from __future__ import annotations

from parcelpost.events import WorkStands
from parcelpost.worker.janitor import Progress
from tests.worker.rig import Rig


async def test_it_is_said_at_first_and_then_only_when_it_has_changed(rig: Rig) -> None:
    progress = Progress(rig.lpm, rig.events.append, 60.0)
    await rig.save("t1")
    assert await progress.step() == 60
    await progress.step()
    await rig.lpm.give_up(await rig.claim("t2"), "no")
    await rig.claim("t3")
    await progress.step()
    one = WorkStands(pending=0, running=0, completed=1, not_found=0, failed=0, expired=0, unsynced=1, rejected=0)
    two = WorkStands(pending=0, running=1, completed=1, not_found=0, failed=1, expired=0, unsynced=2, rejected=0)
    assert rig.events == [one, two]
    await progress.tell()
    assert rig.events == [one, two, two]
