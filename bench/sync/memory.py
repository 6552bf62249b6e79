"""How much resident memory it takes to drain a large outbox, in a fresh process.

`measure_memory` starts that process, which is this module run as a program.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.store.memory import MB, peak_bytes


@dataclass(frozen=True, slots=True)
class Memory:
    results: int
    peak_mb: float
    before_mb: float
    """With everything imported and nothing opened."""
    per_second: float

    @property
    def growth_mb(self) -> float:
        return self.peak_mb - self.before_mb


def measure_memory(folder: Path, url: str, results: int) -> Memory:
    command = [sys.executable, "-m", "bench.sync.memory", str(folder), url, str(results)]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    return Memory(**json.loads(printed))


async def _drain(folder: Path, url: str, results: int) -> Memory:
    from bench.sync.draining import drain

    before = peak_bytes()
    run = await drain(folder, url, results)
    return Memory(results, peak_bytes() / MB, before / MB, run.rate)


def main() -> None:
    folder, url, results = sys.argv[1:]
    print(json.dumps(asdict(asyncio.run(_drain(Path(folder), url, int(results))))))


if __name__ == "__main__":
    main()
