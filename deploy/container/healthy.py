"""Ends with 0 where what runs in this container answers that it turns: a worker, or a gateway whose ledger is there."""

from __future__ import annotations

import os
import sys
import urllib.error
import urllib.request

WORKER = f"http://127.0.0.1:{os.environ.get('PARCELPOST_HTTP_PORT', '9100')}/healthz"
GATEWAY = f"http://127.0.0.1:{os.environ.get('PARCELPOST_SERVER_PORT', '8700')}/health"


def answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=4) as answer:  # noqa: S310 - ours
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False


if __name__ == "__main__":
    sys.exit(not (answers(WORKER) or answers(GATEWAY)))
