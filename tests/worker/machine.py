"""A folder in which `proc` and `sys` are laid out as on a machine."""

from __future__ import annotations

from pathlib import Path

MIB = 1024**2
GIB = 1024**3
UNLIMITED = 9_223_372_036_854_771_712
"""What version 1 says where there is no limit."""


class Machine:
    """8 GiB, 2 of them used; no control group until one is made."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.use_memory(2 * GIB)

    def use_memory(self, used: int, total: int = 8 * GIB) -> None:
        text = f"MemTotal: {total // 1024} kB\nMemFree: 7 kB\nMemAvailable: {(total - used) // 1024} kB\n"
        self.write("proc/meminfo", text)

    def write(self, path: str, text: str | int) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")

    def is_in(self, group: str, *, seen_from: str = "/", others: str = "") -> None:
        """A process in a group of version 2; `seen_from`: the group that stands at the mount point."""
        self.write("proc/self/cgroup", f"{others}0::{group}")
        line = f"31 23 0:28 {seen_from} /sys/fs/cgroup rw,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate"
        self.write("proc/self/mountinfo", f"23 1 8:1 / / rw - ext4 /dev/sda1 rw\n{line}")

    def is_in_v1(self, group: str, *, seen_from: str = "/") -> None:
        controllers = ("memory", "cpu,cpuacct")
        lines = [f"{number}:{name}:{group}" for number, name in enumerate(controllers, 1)]
        self.write("proc/self/cgroup", "\n".join([*lines, "3:name=systemd:/", "0::/"]))
        mounts = [
            f"3{number} 31 0:3{number} {seen_from} /sys/fs/cgroup/{name} rw,relatime - cgroup cgroup rw,{name}"
            for number, name in enumerate(controllers)
        ]
        unified = "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw"
        self.write("proc/self/mountinfo", "\n".join([unified, *mounts]))

    def group(
        self, path: str, *, limit: int | str = "max", used: int = 0, high: int | str = "max", **stat: int
    ) -> None:
        """Of version 2, below the mount point."""
        folder = f"sys/fs/cgroup{path}"
        self.write(f"{folder}/memory.max", limit)
        self.write(f"{folder}/memory.high", high)
        self.write(f"{folder}/memory.current", used)
        self.write(f"{folder}/memory.stat", "\n".join(f"{name} {size}" for name, size in stat.items()))

    def group_v1(self, path: str, *, limit: int = UNLIMITED, used: int = 0, **stat: int) -> None:
        folder = f"sys/fs/cgroup/memory{path}"
        self.write(f"{folder}/memory.limit_in_bytes", limit)
        self.write(f"{folder}/memory.usage_in_bytes", used)
        self.write(f"{folder}/memory.stat", "\n".join(f"total_{name} {size}" for name, size in stat.items()))
