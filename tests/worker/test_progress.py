"""How the work stands is said when it begins, when it has changed, and when it ends."""

from __future__ import annotations

from parcelpost.events import WorkProgress
from tests.worker.rig import Rig, a_janitor


async def test_it_is_said_at_first_and_then_only_when_it_has_changed(rig: Rig) -> None:
    janitor = a_janitor(rig.lpm, rig.clock, rig.events.append)
    await rig.save("t1")
    await janitor.report_progress()
    await janitor.report_progress()
    await rig.lpm.give_up(await rig.claim("t2"), "no")
    await rig.claim("t3")
    await janitor.report_progress()
    one = WorkProgress(pending=0, processing=0, completed=1, not_found=0, failed=0, expired=0, unsynced=1, rejected=0)
    two = WorkProgress(pending=0, processing=1, completed=1, not_found=0, failed=1, expired=0, unsynced=2, rejected=0)
    assert rig.events == [one, two]
    await janitor.report_progress(even_if_unchanged=True)
    assert rig.events == [one, two, two]
