"""The loops that call the upstream, by the names under which the store keeps what they know of it."""

from __future__ import annotations

COLLECTOR = "collector"
SYNC = "sync"
HEARTBEAT = "heartbeat"
