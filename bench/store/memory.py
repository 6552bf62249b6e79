"""How much resident memory it takes to add many tasks from an iterator, in a fresh process.

`measure_memory` starts that process, which is this module run as a program.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from bench.measure import MB, peak_bytes


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


async def _add_tasks(folder: Path, count: int) -> Memory:
    from bench.store.contenders import OPTIONS, make_tasks, store_path
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
