"""Runs one of our commands in a process that ends when its parent ends."""

from __future__ import annotations

import os
import signal
import sys
import threading

from parcelpost.cli.main import main


def _end_with_parent() -> None:
    os.read(0, 1)  # returns when the other end is closed
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    threading.Thread(target=_end_with_parent, daemon=True).start()
    main(sys.argv[1:])
