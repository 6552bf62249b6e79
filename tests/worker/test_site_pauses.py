"""How long a platform that blocks us is left alone. In the executor's tests: what that does to its tasks."""

from __future__ import annotations

from parcelpost.worker.attempt import CoolDowns


def test_it_doubles_up_to_the_longest_for_each_platform_on_its_own() -> None:
    downs = CoolDowns(10.0, 35.0)
    assert [downs.blocked("vgsi", started=100.0 * n, now=100.0 * n + 1) for n in range(4)] == [10, 20, 35, 35]
    assert downs.blocked("other", started=900.0, now=901.0) == 10


def test_an_attempt_from_before_the_pause_neither_lengthens_nor_ends_it() -> None:
    downs = CoolDowns(10.0, 80.0)
    assert downs.blocked("vgsi", started=0.0, now=5.0) == 10
    assert downs.blocked("vgsi", started=4.0, now=6.0) == 0
    downs.worked("vgsi", started=4.0)
    assert downs.blocked("vgsi", started=20.0, now=21.0) == 20


def test_an_attempt_from_before_the_pause_may_request_a_longer_one() -> None:
    downs = CoolDowns(10.0, 80.0)
    assert downs.blocked("vgsi", started=0.0, now=5.0) == 10
    assert downs.blocked("vgsi", started=4.0, now=6.0, requested=5.0) == 0
    assert downs.blocked("vgsi", started=4.0, now=6.0, requested=60.0) == 60
    assert downs.blocked("vgsi", started=7.0, now=8.0) == 58, "what is left of the pause"
    assert downs.blocked("vgsi", started=100.0, now=101.0) == 20


def test_no_request_is_granted_for_more_than_a_day() -> None:
    assert CoolDowns(10.0, 80.0).blocked("vgsi", started=0.0, now=0.0, requested=1e9) == 86_400


def test_it_starts_anew_after_an_attempt_that_worked() -> None:
    downs = CoolDowns(10.0, 80.0)
    for n in range(3):
        downs.blocked("vgsi", started=100.0 * n, now=100.0 * n + 1)
    downs.worked("vgsi", started=500.0)
    downs.worked("never blocked", started=500.0)
    assert downs.blocked("vgsi", started=600.0, now=601.0) == 10
