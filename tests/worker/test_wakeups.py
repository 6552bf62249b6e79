"""Idle slots share the moments at which hosts may be asked again."""

from __future__ import annotations

from parcelpost.clock import ManualClock
from parcelpost.worker.executor import WakeUps


def test_one_slot_comes_back_for_each_host() -> None:
    wake_ups = WakeUps(1.0, ManualClock())
    assert wake_ups.next_in("a", [0.2, 0.5]) == 0.2
    assert wake_ups.next_in("b", [0.2, 0.5]) == 0.5
    assert wake_ups.next_in("c", [0.2, 0.5]) == 1.0


def test_a_host_that_opens_sooner_is_not_left_to_one_who_comes_later() -> None:
    wake_ups = WakeUps(1.0, ManualClock())
    assert wake_ups.next_in("a", [0.9]) == 0.9
    assert wake_ups.next_in("b", [0.3, 0.9]) == 0.3
    assert wake_ups.next_in("c", [0.3, 0.9]) == 1.0


def test_a_slot_that_is_woken_early_keeps_its_host() -> None:
    clock = ManualClock()
    wake_ups = WakeUps(1.0, clock)
    wake_ups.next_in("a", [0.9])
    clock.advance(0.4)
    assert wake_ups.next_in("a", [0.5]) == 0.5


def test_a_promise_that_is_past_counts_no_more() -> None:
    clock = ManualClock()
    wake_ups = WakeUps(1.0, clock)
    wake_ups.next_in("a", [0.2])
    clock.advance(0.3)
    assert wake_ups.next_in("b", [0.2]) == 0.2


def test_nobody_comes_later_than_an_idle_slot_would() -> None:
    wake_ups = WakeUps(1.0, ManualClock())
    assert wake_ups.next_in("a", [600.0]) == 1.0
    assert wake_ups.next_in("b", []) == 1.0
