"""What a worker was told, as its loops see it."""

from __future__ import annotations

from parcelpost.worker.control import Control


def said(control: Control) -> tuple[bool, bool, bool]:
    """Whether it may start, leaves, stops."""
    return control.may_start, control.leaving.is_set(), control.stopping.is_set()


async def test_at_first_everything_may_start() -> None:
    control = Control()
    assert said(control) == (True, False, False)
    assert control.platforms is None
    assert control.reason == ""


async def test_a_pause_can_be_taken_back() -> None:
    control = Control()
    control.paused = True
    assert said(control) == (False, False, False)
    control.paused = False
    assert said(control) == (True, False, False)


async def test_to_leave_is_to_drain_and_asked_again_to_stop() -> None:
    control = Control()
    control.interrupt("SIGTERM")
    assert said(control) == (False, True, False)
    control.interrupt("SIGINT")
    assert said(control) == (False, True, True)
    assert control.reason == "SIGTERM", "the first reason is the one that ended it"


async def test_to_leave_at_once_is_to_stop() -> None:
    control = Control()
    control.leave("stop command from the gateway", at_once=True)
    assert said(control) == (False, True, True)
    control.interrupt("SIGTERM")
    assert said(control) == (False, True, True)


async def test_a_drain_that_is_asked_for_after_a_stop_does_not_take_the_stop_back() -> None:
    control = Control()
    control.leave("first", at_once=True)
    control.leave("second", at_once=False)
    assert control.stopping.is_set()


async def test_a_resume_does_not_bring_back_a_worker_that_leaves() -> None:
    control = Control()
    control.paused = True
    control.interrupt("SIGTERM")
    control.paused = False
    assert not control.may_start
