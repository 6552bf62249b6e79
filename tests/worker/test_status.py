"""The published status: one row for each process, written when it changes and now and then."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from parcelpost.worker.status import PUBLISH_SECONDS, Publisher, WorkerStatus, delete_old_statuses, read_statuses
from tests.hostile import HostileGateway
from tests.worker.rig import SOON_BUSY, Rig, nobody_writes, rigged


def a_status(rig: Rig, name: str = "worker-1") -> WorkerStatus:
    now = rig.clock.now()
    return WorkerStatus(
        name=name, worker_id="worker-1", owner=rig.lpm.owner_id, published_at=now, started_at=now, mode="ondemand"
    )


async def test_it_is_written_when_it_changes_and_every_thirty_seconds(rig: Rig) -> None:
    status = a_status(rig)
    publisher = Publisher(rig.context, lambda: replace(status, published_at=rig.clock.now()))

    async def published_after(seconds: float) -> tuple[float, tuple[str, ...]]:
        rig.clock.advance(seconds)
        await publisher.publish()
        (row,) = await read_statuses(rig.lpm.state)
        return (rig.clock.now() - row.published_at).total_seconds(), row.platforms

    assert await published_after(0) == (0, ())
    assert await published_after(10) == (10, ())
    status = replace(status, platforms=("vgsi",))
    assert await published_after(0) == (0, ("vgsi",))
    assert await published_after(PUBLISH_SECONDS - 1) == (PUBLISH_SECONDS - 1, ("vgsi",))
    assert await published_after(1) == (0, ("vgsi",))
    assert await published_after(-3_600) == (0, ("vgsi",)), "a clock that was set back delays nothing"


async def test_a_store_that_cannot_be_written_is_tried_again(tmp_path: Path) -> None:
    async with HostileGateway() as gateway, rigged(tmp_path, gateway, SOON_BUSY) as rig:
        publisher = Publisher(rig.context, lambda: a_status(rig))
        with nobody_writes(rig):
            await publisher.publish()
        assert await read_statuses(rig.lpm.state) == []
        await publisher.publish()
        assert len(await read_statuses(rig.lpm.state)) == 1


async def test_each_process_has_its_row_and_the_newest_comes_first(rig: Rig) -> None:
    for name in ("worker-1", "worker-1-2"):
        rig.clock.advance(1)
        await Publisher(rig.context, lambda name=name: a_status(rig, name)).publish()  # type: ignore[misc]
    assert [status.name for status in await read_statuses(rig.lpm.state)] == ["worker-1-2", "worker-1"]


async def test_rows_of_workers_that_are_gone_are_deleted_after_a_month(rig: Rig) -> None:
    for name, days in (("worker-1", 31), ("worker-1-2", 1)):
        await Publisher(rig.context, lambda name=name: a_status(rig, name)).publish()  # type: ignore[misc]
        rig.clock.advance(days * 86_400)
    await delete_old_statuses(rig.lpm.state, rig.clock.now())
    assert [status.name for status in await read_statuses(rig.lpm.state)] == ["worker-1-2"]
