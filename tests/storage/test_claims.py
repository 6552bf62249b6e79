"""Claims that pass over sites: what they get is what a claim without those sites' tasks would get."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import timedelta

from parcelpost.clock import ManualClock
from parcelpost.model import Claim, Priority, Site
from parcelpost.storage.lpm import LocalPersistenceManager
from tests.storage.factories import NOW, a_task

HARTFORD, AVON = Site("vgsi", "CT", "hartford"), Site("vgsi", "CT", "avon")


def ids(claims: Sequence[Claim]) -> list[str]:
    return [claim.task.task_id for claim in claims]


async def test_a_site_is_passed_over_and_comes_back_in_its_old_place(lpm: LocalPersistenceManager) -> None:
    await lpm.add_tasks(a_task(f"h{n}") for n in range(50))
    await lpm.add_tasks([a_task("a1", county="avon"), a_task("e1", platform="echo")])
    assert ids(await lpm.claim(1, exclude_sites={HARTFORD})) == ["a1"]
    assert ids(await lpm.claim(5, exclude_sites={HARTFORD})) == ["e1"]
    assert ids(await lpm.claim(2)) == ["h0", "h1"]
    assert ids(await lpm.claim(5, exclude_sites={HARTFORD})) == []


async def test_leases_and_pauses_hold_for_open_sites_too(lpm: LocalPersistenceManager, clock: ManualClock) -> None:
    await lpm.add_tasks([a_task("h1"), a_task("a1", county="avon", lease_expires_at=NOW + timedelta(hours=1))])
    clock.advance(7_200)
    assert ids(await lpm.claim(1, exclude_sites={HARTFORD})) == []
    await lpm.pause_platform("vgsi")
    assert ids(await lpm.claim(1, exclude_sites={AVON})) == []


async def test_the_order_is_that_of_all_other_tasks(lpm: LocalPersistenceManager) -> None:
    chance = random.Random(7)
    tasks = [
        a_task(
            f"t{n}",
            platform=chance.choice(["vgsi", "qpublic", "echo"]),
            state=chance.choice(["", "CT", "FL"]),
            county=chance.choice(["", "avon", "Åland", "x' y"]),
            priority=chance.choice(list(Priority)),
        )
        for n in range(400)
    ]
    await lpm.add_tasks(tasks)
    passed = set(chance.sample(sorted({task.site for task in tasks}, key=str), 12))
    wanted = sorted((task for task in tasks if task.site not in passed), key=lambda task: task.priority)
    found = [*await lpm.claim(7, exclude_sites=passed), *await lpm.claim(1_000, exclude_sites=passed)]
    assert ids(found) == [task.task_id for task in wanted]
