"""A process that was stopped while it delivered must not go on where it was: a peer has done so."""

from __future__ import annotations

from parcelpost.storage.locks import live_folder
from tests import traps
from tests.hostile import HostileGateway
from tests.hostile_http import Reply, Request
from tests.worker.rig import Rig


async def test_who_has_lost_the_leader_lock_in_the_middle_of_a_round_sends_nothing_more(rig: Rig) -> None:
    lock = live_folder(rig.lpm.path) / "sync.leader"
    new = lock.with_name("sync.leader.of-a-peer")

    def taken_over(gateway: HostileGateway, request: Request) -> Reply:
        new.touch()
        new.replace(lock)
        return gateway.answer(request)

    await rig.save("t1", page=b"<html>1</html>")
    await rig.save("t2", "t3")
    rig.gateway.play("raw-files", taken_over)
    assert await rig.sync.step() > 0
    assert (rig.gateway.count("raw-files"), rig.gateway.count("results")) == (1, 0)
    assert rig.offline is None, "the gateway is not to blame"
    rig.gateway.play("results", traps.status(503))
    await rig.settle()
    assert set(rig.gateway.submissions) == {"t1", "t2", "t3"}, "once the peer has gone, this one delivers again"
