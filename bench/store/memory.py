"""How much resident memory it takes to add many tasks from an iterator, in a fresh process.

`measure_memory` starts that process, which is this module run as a program.
"""

from __future__ import annotations

import asyncio
import json
import resource
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

MB = 1_000_000


@dataclass(frozen=True, slots=True)
class Memory:
    tasks: int
    peak_mb: float
    before_mb: float
    """With everything imported and nothing opened."""
    seconds: float


def measure_memory(folder: Path, tasks: int) -> Memory:
    command = [sys.executable, "-m", "bench.store.memory", str(folder), str(tasks)]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    return Memory(**json.loads(printed))


def peak_bytes() -> int:
    """The most memory this process has had in RAM.

    Linux keeps ru_maxrss across exec, so that a child starts with its parent's peak: VmHWM starts anew.
    """
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


async def _add_tasks(folder: Path, count: int) -> Memory:
    from bench.store.contenders import OPTIONS, store_path
    from bench.store.work import make_tasks
    from parcelpost.storage.lpm import LocalPersistenceManager

    before = peak_bytes()
    start = time.perf_counter()
    async with LocalPersistenceManager.open(store_path(folder), options=OPTIONS) as lpm:
        added = await lpm.add_tasks(make_tasks(count))
    if added.new != count:
        raise RuntimeError(f"{added.new} of {count} tasks were added")
    return Memory(count, peak_bytes() / MB, before / MB, time.perf_counter() - start)


def main() -> None:
    folder, count = sys.argv[1:]
    memory = asyncio.run(_add_tasks(Path(folder), int(count)))
    print(json.dumps({name: getattr(memory, name) for name in Memory.__slots__}))


if __name__ == "__main__":
    main()
