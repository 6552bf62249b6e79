"""How busy the processors are, of those that a control group allows."""

from __future__ import annotations

from pathlib import Path

import pytest

from parcelpost.clock import ManualClock
from parcelpost.worker.machine import Cpu
from tests.worker.machine import Machine


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_the_real_processors_are_between_idle_and_busy() -> None:
    cpu = Cpu(ManualClock())
    assert all(0 <= cpu.percent() <= 100 for _ in range(3))


def _used(machine: Machine, version: int, seconds: float) -> None:
    if version == 2:
        machine.write("sys/fs/cgroup/cpu.stat", f"usage_usec {round(seconds * 10**6)}\nuser_usec 1")
    else:
        machine.write("sys/fs/cgroup/cpu,cpuacct/cpuacct.usage", round(seconds * 10**9))


@pytest.mark.parametrize("version", [1, 2])
def test_a_quota_that_is_used_up_is_a_hundred_percent(machine: Machine, version: int) -> None:
    clock = ManualClock()
    if version == 2:
        machine.is_in("/")
        machine.write("sys/fs/cgroup/cpu.max", "50000 100000")
    else:
        machine.is_in_v1("/")
        machine.write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", 50_000)
        machine.write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", 100_000)
    _used(machine, version, 1_000)
    cpu = Cpu(clock, machine.root)
    clock.advance(10)
    _used(machine, version, 1_005)
    assert cpu.percent() == 100
    clock.advance(10)
    _used(machine, version, 1_009.95)
    assert cpu.percent() >= 98.9


@pytest.mark.parametrize("limit", ["max 100000", "", "nonsense", "50000 0", "0 100000", "50000"])
def test_without_a_quota_it_is_the_machine(machine: Machine, limit: str) -> None:
    machine.is_in("/")
    machine.write("sys/fs/cgroup/cpu.max", limit)
    _used(machine, 2, 0)
    cpu = Cpu(ManualClock(), machine.root)
    _used(machine, 2, 1_000_000)
    assert 0 <= cpu.percent() <= 100
