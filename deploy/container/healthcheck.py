"""Health check of the container: exits with 0 if the worker or the gateway in it is healthy."""

from __future__ import annotations

import os
import sys
import urllib.error
import urllib.request

WORKER = f"http://127.0.0.1:{os.environ.get('PARCELPOST_HTTP_PORT', '9100')}/healthz"
GATEWAY = f"http://127.0.0.1:{os.environ.get('PARCELPOST_SERVER_PORT', '8700')}/health"


def is_healthy(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=4) as response:  # noqa: S310 - loopback
            return bool(response.status == 200)
    except (OSError, urllib.error.URLError):
        return False


if __name__ == "__main__":
    sys.exit(not (is_healthy(WORKER) or is_healthy(GATEWAY)))
