"""What is still done as memory runs out, and how many browsers are safe: laws that hold for all numbers."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from parcelpost.settings.schema import ResourcesSettings
from parcelpost.worker.control import Pressure
from parcelpost.worker.machine import Memory
from parcelpost.worker.resources import UNMEASURED_BROWSER_BYTES, allowed_browsers, next_pressure, safe_browsers
from tests.worker.machine import GIB, MIB

DEFAULTS = ResourcesSettings()


class Figures(Struct, frozen=True, kw_only=True):
    browsers: int = 0
    busy: int = 0
    pss_bytes: int = 0
    pss_per_browser: float | None = None


percents = st.floats(0, 100)
pressures = st.sampled_from(Pressure)


@st.composite
def thresholds(draw: st.DrawFn) -> ResourcesSettings:
    slow, tasks, browsers = sorted(draw(st.lists(st.floats(0.01, 100), min_size=3, max_size=3)))
    return ResourcesSettings(slow_percent=slow, no_new_tasks_percent=tasks, stop_browsers_percent=browsers)


# Pressure


@pytest.mark.parametrize(
    ("percent", "expected"),
    [
        (0, Pressure.FINE),
        (74.9, Pressure.FINE),
        (75, Pressure.SLOW),
        (85, Pressure.NO_NEW_TASKS),
        (95, Pressure.STOP_BROWSERS),
        (100, Pressure.STOP_BROWSERS),
    ],
)
def test_it_rises_at_the_thresholds(percent: float, expected: Pressure) -> None:
    assert next_pressure(Pressure.FINE, percent, DEFAULTS) is expected


@pytest.mark.parametrize(
    ("percent", "expected"),
    [
        (90.3, Pressure.STOP_BROWSERS),
        (90.2, Pressure.NO_NEW_TASKS),
        (80.7, Pressure.SLOW),
        (71.3, Pressure.SLOW),
        (71.2, Pressure.FINE),
    ],
)
def test_it_falls_a_little_below_them(percent: float, expected: Pressure) -> None:
    assert next_pressure(Pressure.STOP_BROWSERS, percent, DEFAULTS) is expected


@given(pressures, percents, thresholds())
def test_looking_again_changes_nothing(before: Pressure, percent: float, settings: ResourcesSettings) -> None:
    after = next_pressure(before, percent, settings)
    assert next_pressure(after, percent, settings) is after


@given(pressures, percents, percents, thresholds())
def test_more_memory_in_use_never_means_less_pressure(
    before: Pressure, one: float, other: float, settings: ResourcesSettings
) -> None:
    less, more = sorted((one, other))
    assert next_pressure(before, less, settings) <= next_pressure(before, more, settings)


@given(st.floats(10, 99), st.lists(st.floats(-0.02, 0.02), min_size=2, max_size=50), thresholds())
def test_use_that_hovers_about_a_threshold_changes_the_pressure_once_at_most(
    middle: float, deviations: list[float], settings: ResourcesSettings
) -> None:
    levels = [Pressure.FINE]
    for deviation in deviations:
        levels.append(next_pressure(levels[-1], middle * (1 + deviation), settings))
    assert all(before <= after for before, after in pairwise(levels))


@given(pressures, thresholds())
def test_an_empty_memory_is_fine_whatever_was(before: Pressure, settings: ResourcesSettings) -> None:
    assert next_pressure(before, 0, settings) is Pressure.FINE


# Browsers

memories = st.builds(
    lambda limit, share: Memory(limit_bytes=limit, used_bytes=int(limit * share)),
    st.integers(MIB, 2**45),
    st.floats(0, 1.1),
)
figures = st.builds(
    Figures,
    browsers=st.integers(0, 100),
    pss_bytes=st.integers(0, 2**45),
    pss_per_browser=st.none() | st.floats(0, 2**40),
)
most = st.integers(0, 64)


def test_an_idle_machine_bears_what_fits_below_slow() -> None:
    machine = [Memory(limit_bytes=8 * GIB, used_bytes=2 * GIB)]
    assert safe_browsers(machine, DEFAULTS, 100) == 4 * GIB // UNMEASURED_BROWSER_BYTES == 11
    assert safe_browsers(machine, DEFAULTS, 4) == 4


def test_what_browsers_use_now_is_theirs_to_use() -> None:
    """Four of them have 1 GiB each, all that is left below slow is 1 GiB: one more fits."""
    machine = [Memory(limit_bytes=8 * GIB, used_bytes=5 * GIB)]
    now = Figures(browsers=4, pss_bytes=4 * GIB, pss_per_browser=GIB)
    assert safe_browsers(machine, DEFAULTS, 100, now) == 5


def test_the_tightest_of_all_bounds_decides_not_the_fullest() -> None:
    machine, container = Memory(limit_bytes=64 * GIB, used_bytes=40 * GIB), Memory(limit_bytes=GIB, used_bytes=0)
    assert machine.percent > container.percent
    assert safe_browsers([machine, container], DEFAULTS, 100) == 2


@given(st.lists(memories, min_size=1, max_size=3), thresholds(), most, figures)
def test_it_is_between_none_and_what_the_operator_wants(
    found: list[Memory], settings: ResourcesSettings, limit: int, now: Figures
) -> None:
    safe = safe_browsers(found, settings, limit, now)
    assert 0 <= safe <= limit
    if limit and all(one.percent < settings.no_new_tasks_percent for one in found):
        assert safe >= 1


@given(st.lists(memories, min_size=1, max_size=3), thresholds(), figures)
def test_more_than_one_fit_below_slow_beside_all_that_is_no_browser(
    found: list[Memory], settings: ResourcesSettings, now: Figures
) -> None:
    safe = safe_browsers(found, settings, 10**6, now)
    each = now.pss_per_browser or UNMEASURED_BROWSER_BYTES
    for one in found:
        if safe > 1:
            others = one.used_bytes - now.pss_bytes
            assert others + safe * each <= one.limit_bytes * settings.slow_percent / 100 * (1 + 1e-9) + 1


@given(memories, memories, thresholds(), most, figures)
def test_another_bound_never_makes_more_of_them_safe(
    one: Memory, other: Memory, settings: ResourcesSettings, limit: int, now: Figures
) -> None:
    assert safe_browsers([one, other], settings, limit, now) <= safe_browsers([one], settings, limit, now)


@given(st.integers(0, 64), st.integers(0, 64))
def test_more_pressure_never_allows_more_browsers_and_only_a_fine_pool_grows(safe: int, browsers: int) -> None:
    allowed = [allowed_browsers(safe, pressure, browsers) for pressure in Pressure]
    assert allowed == sorted(allowed, reverse=True)
    assert allowed[Pressure.FINE] == safe
    assert allowed[Pressure.SLOW] <= max(1, browsers)
    assert allowed[Pressure.STOP_BROWSERS] == 0
