"""Memory is bounded (I8): any number of tasks goes in from an iterator."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
MAX_BYTES = 150 * 1024**2

SCRIPT = """
import asyncio, pathlib, resource, sys
from parcelpost.storage import LocalPersistenceManager
from tests.storage.making import a_task

async def main():
    async with LocalPersistenceManager.open(sys.argv[1]) as lpm:
        added = await lpm.add_tasks(a_task(f"t{n}", extra={"pad": "x" * 250}) for n in range(200_000))
        assert added.new == 200_000, added

def peak_bytes():
    # On Linux getrusage counts what the parent had when it started this process; the kernel's own file does not.
    if sys.platform == "linux":
        status = pathlib.Path("/proc/self/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)

asyncio.run(main())
print(peak_bytes())
"""


def test_two_hundred_thousand_tasks_fit_into_150_mb(store: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(store)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < MAX_BYTES
