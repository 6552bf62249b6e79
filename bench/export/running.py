"""One export in a fresh process: how fast, and in how much memory.

`measure` starts that process, which is this module run as a program.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.store.memory import MB, peak_bytes


@dataclass(frozen=True, slots=True)
class Measured:
    records: int
    seconds: float
    peak_mb: float

    @property
    def per_second(self) -> float:
        return self.records / self.seconds


def measure(who: str, store: Path, output: Path, county: str = "") -> Measured:
    command = [sys.executable, "-m", "bench.export.running", who, str(store), str(output), county]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    return Measured(**json.loads(printed))


def main() -> None:
    from bench.export.contenders import CONTENDERS

    who, store, output, county = sys.argv[1:]
    start = time.perf_counter()
    records = CONTENDERS[who](Path(store), Path(output), county)
    print(json.dumps(asdict(Measured(records, time.perf_counter() - start, peak_bytes() / MB))))


if __name__ == "__main__":
    main()
