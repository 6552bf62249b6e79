"""A worker whose files may not grow past a size: what a quota, or a disk that fails in mid-write, looks like.

Prints one JSON object: what it saw.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import sys
from pathlib import Path

from parcelpost.errors import StoreError
from parcelpost.storage import LocalPersistenceManager
from tests.storage.factories import a_result, a_task, claim_one

_ROOM_BYTES = 200_000


def limit_files(size: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


async def main(store: Path, *, with_pages: bool) -> dict[str, object]:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    body = os.urandom(20_000) if with_pages else None
    async with LocalPersistenceManager.open(store) as lpm:
        confirmed, errors = [], []
        limit_files(store.with_name(f"{store.name}-wal").stat().st_size + _ROOM_BYTES)
        for number in range(100):
            try:
                claim = await claim_one(lpm, a_task(f"t{number}", platform=f"p{number}"))
                confirmed.append(await lpm.save_result(claim, a_result({"note": "x" * 10_000}, body=body)))
            except StoreError as error:
                errors.append(type(error).__name__)
                assert error.hint
                assert error.retry_helps
        limit_files(resource.RLIM_INFINITY)
        claim = await claim_one(lpm, a_task("after", platform="after"))
        confirmed.append(await lpm.save_result(claim, a_result(body=body)))
        depth = await lpm.queue_depth()
    return {"confirmed": confirmed, "errors": errors, "unsynced": depth.unsynced}


if __name__ == "__main__":
    seen = asyncio.run(main(Path(sys.argv[1]), with_pages=sys.argv[2] == "pages"))
    sys.stdout.write(json.dumps(seen))
