"""The goals of the store's benchmark: by how much which peers must be beaten."""

from __future__ import annotations

import pytest

from bench.measure import Run
from bench.store.command import OPERATIONS, STDLIB_NAME, Comparison, rate_goals
from bench.store.contenders import CEILING, OURS, Durability
from bench.store.peers import AIOSQLITE, STDLIB


def _compared(ours: float, durability: Durability) -> Comparison:
    """We do `ours` operations in the time in which everybody else does one."""
    contenders = [OURS, *AIOSQLITE, *STDLIB, CEILING]
    runs = {
        (contender.name, operation): [Run(1, 1 / ours if contender is OURS else 1.0, [1.0])]
        for contender in contenders
        for operation in OPERATIONS
    }
    return Comparison(runs, {contender.name: durability for contender in contenders}, contenders)


@pytest.mark.parametrize(("operation", "least"), [("claim+save @1", 1.2), ("claim+save @16", 5), ("enqueue @16", 5)])
@pytest.mark.parametrize("peer", STDLIB_NAME)
def test_a_peer_that_survives_power_loss_must_be_beaten_with_and_without_wal(
    operation: str, least: float, peer: str
) -> None:
    for rate, is_met in ((least * 0.99, False), (least * 1.01, True)):
        goals = {goal.name: goal.met for goal in rate_goals(_compared(rate, Durability("WAL", "FULL")))}
        assert goals[f"{operation}: rate / {peer}"] == is_met


def test_a_peer_that_loses_tasks_with_the_power_need_not_be_beaten() -> None:
    goals = [goal.name for goal in rate_goals(_compared(1.0, Durability("WAL", "NORMAL")))]
    assert f"claim+save @16: rate / {STDLIB_NAME[1]}" not in goals
