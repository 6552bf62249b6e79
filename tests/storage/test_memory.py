"""Memory is bounded (I8): any number of tasks goes in from an iterator."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.lengths import short_and_long

ROOT = Path(__file__).parents[2]
MAX_BYTES = 150 * 1024**2

SCRIPT = """
import asyncio, pathlib, resource, sys
from parcelpost.storage import LocalPersistenceManager
from tests.storage.factories import a_task

async def main():
    async with LocalPersistenceManager.open(sys.argv[1]) as lpm:
        count, pad = int(sys.argv[2]), "x" * int(sys.argv[3])
        added = await lpm.add_tasks(a_task(f"t{n}", extra={"pad": pad + str(n)}) for n in range(count))
        assert added.new == count, added

def peak_bytes():
    # On Linux getrusage counts what the parent had when it started this process; the kernel's own file does not.
    if sys.platform == "linux":
        status = pathlib.Path("/proc/self/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)

asyncio.run(main())
print(peak_bytes())
"""


@short_and_long("tasks, pad", (20_000, 5_000), (200_000, 250))
def test_any_number_of_tasks_fits_into_150_mb(store: Path, tasks: int, pad: int) -> None:
    """20,000 large tasks are 100 MB, and 200,000 small ones are as many rows to keep account of."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(store), str(tasks), str(pad)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(done.stdout) < MAX_BYTES
