"""How much memory this worker may use: the real machine's, and layouts of control groups that this one may not have."""

from __future__ import annotations

import sys
from pathlib import Path

import psutil
import pytest

from parcelpost.worker.machine import Memory, fullest, groups, memories
from tests.worker.machine import GIB, MIB, Machine


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def of_groups(machine: Machine) -> list[tuple[int, int]]:
    """Limit and use in MiB, without the machine's own."""
    return [(one.limit_bytes // MIB, one.used_bytes // MIB) for one in memories(machine.root)[1:]]


# The real one


def test_the_real_machine_has_as_much_memory_as_psutil_says() -> None:
    machine, *limits = memories()
    assert machine.limit_bytes == psutil.virtual_memory().total
    assert 0 < machine.used_bytes < machine.limit_bytes
    assert all(0 < one.limit_bytes < machine.limit_bytes for one in limits)


@pytest.mark.skipif(sys.platform != "linux", reason="control groups are Linux's")
def test_the_real_groups_of_this_process_are_found() -> None:
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    found = groups("memory")
    if not found:
        pytest.skip("no control groups are mounted here")
    assert all(group.folder.is_dir() for group in found)
    assert all((group.folder / "cgroup.procs").exists() for group in found)
    assert found[0].version == (1 if any(":memory:" in line for line in lines) else 2)


def test_where_there_is_no_proc_the_machine_is_asked_another_way(tmp_path: Path) -> None:
    (only,) = memories(tmp_path)
    assert only.limit_bytes == psutil.virtual_memory().total
    assert 0 < only.percent < 100


# Layouts


def test_without_a_group_it_is_the_machine(machine: Machine) -> None:
    assert memories(machine.root) == [Memory(limit_bytes=8 * GIB, used_bytes=2 * GIB)]
    assert fullest(memories(machine.root)).percent == 25


def test_a_container_sees_its_own_group_at_the_top(machine: Machine) -> None:
    machine.is_in("/")
    machine.group("", limit=1024 * MIB, used=700 * MIB, inactive_file=100 * MIB)
    assert of_groups(machine) == [(1024, 600)]
    assert round(fullest(memories(machine.root)).percent, 1) == 58.6


def test_all_groups_above_count(machine: Machine) -> None:
    machine.is_in("/system.slice/parcelpost.service")
    machine.group("/system.slice/parcelpost.service", limit=4096 * MIB, used=100 * MIB)
    machine.group("/system.slice", limit=512 * MIB, used=500 * MIB)
    assert of_groups(machine) == [(4096, 100), (512, 500)]
    assert fullest(memories(machine.root)).limit_bytes == 512 * MIB


def test_the_machine_counts_where_it_is_fuller(machine: Machine) -> None:
    machine.is_in("/")
    machine.group("", limit=1024 * MIB, used=100 * MIB)
    machine.use_memory(7 * GIB)
    assert fullest(memories(machine.root)) == Memory(limit_bytes=8 * GIB, used_bytes=7 * GIB)


@pytest.mark.parametrize("limit", ["max", 8 * GIB, 2**62, 0, "nonsense"])
def test_a_limit_that_limits_nothing_is_none(machine: Machine, limit: int | str) -> None:
    machine.is_in("/")
    machine.group("", limit=limit, used=100 * MIB)
    assert of_groups(machine) == []


def test_where_a_group_is_slowed_down_its_memory_ends(machine: Machine) -> None:
    machine.is_in("/")
    machine.group("", limit=1024 * MIB, high=512 * MIB, used=600 * MIB)
    assert of_groups(machine) == [(512, 600)]
    assert fullest(memories(machine.root)).percent == 100


@pytest.mark.parametrize(
    ("stat", "used"),
    [
        ({"inactive_file": 300 * MIB}, 700),
        ({"inactive_file": 100 * MIB, "active_file": 500 * MIB}, 400),
        ({"inactive_file": 100 * MIB, "active_file": 500 * MIB, "file_mapped": 200 * MIB}, 600),
        ({"inactive_file": 100 * MIB, "active_file": 50 * MIB, "file_mapped": 200 * MIB}, 900),
        ({"inactive_file": 2_000 * MIB}, 0),
        ({}, 1000),
    ],
)
def test_a_cache_of_files_is_free_unless_it_is_a_program_that_runs(
    machine: Machine, stat: dict[str, int], used: int
) -> None:
    machine.is_in("/")
    machine.group("", limit=2_000 * MIB, used=1_000 * MIB, **stat)
    assert of_groups(machine) == [(2_000, used)]


def test_version_1(machine: Machine) -> None:
    machine.is_in_v1("/docker/abc")
    machine.group_v1("/docker/abc", limit=1024 * MIB, used=900 * MIB, inactive_file=100 * MIB, active_file=50 * MIB)
    machine.group_v1("/docker", limit=2048 * MIB, used=1000 * MIB)
    machine.group_v1("", used=1500 * MIB)
    assert of_groups(machine) == [(1024, 750), (2048, 1000)]


@pytest.mark.parametrize("group", ["/docker/abc", "/elsewhere", "/../../host"])
def test_a_container_that_sees_only_its_own_group_has_that_one(machine: Machine, group: str) -> None:
    machine.is_in_v1(group, seen_from="/docker/abc")
    machine.group_v1("", limit=1024 * MIB, used=900 * MIB)
    assert of_groups(machine) == [(1024, 900)]
    machine.is_in(group, seen_from="/docker/abc")
    machine.group("", limit=512 * MIB, used=300 * MIB)
    assert of_groups(machine) == [(512, 300)]


def test_a_group_of_a_similar_name_is_another(machine: Machine) -> None:
    machine.is_in("/docker/abcdef", seen_from="/docker/abc")
    machine.group("", limit=512 * MIB, used=300 * MIB)
    machine.group("/def", limit=256 * MIB, used=200 * MIB)
    assert of_groups(machine) == [(512, 300)]


def test_a_group_that_is_gone_leaves_those_above(machine: Machine) -> None:
    machine.is_in("/a/b")
    machine.group("/a", limit=512 * MIB, used=300 * MIB)
    assert of_groups(machine) == [(512, 300)]


def test_version_2_is_asked_where_version_1_does_not_have_the_memory(machine: Machine) -> None:
    machine.is_in("/", others="5:devices:/x\n3:name=systemd:/x\n")
    machine.group("", limit=512 * MIB, used=300 * MIB)
    assert of_groups(machine) == [(512, 300)]


@pytest.mark.parametrize("text", ["", "nonsense", "0::", ":::", "0::/\n" * 3, "\x00\xff"])
def test_files_that_make_no_sense_limit_nothing(machine: Machine, text: str) -> None:
    machine.write("proc/self/cgroup", text)
    machine.write("proc/self/mountinfo", f"{text}\n - - -\n1 2 3 - cgroup2")
    assert of_groups(machine) == []
