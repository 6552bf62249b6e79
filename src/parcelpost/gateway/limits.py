"""Rate limits for workers, and how long they should wait between polls."""

from __future__ import annotations

import math
from collections import OrderedDict

from msgspec import Struct

from parcelpost.clock import Clock
from parcelpost.gateway.errors import ApiError

_MAX_WORKERS = 20_000
_ALIVE_SECONDS = 300.0
_RECOUNT_SECONDS = 5.0
_BURST_SECONDS = 2.0
_MAX_DELAY_SECONDS = 1.0
_MAX_EMPTY_POLLS_PER_SECOND = 20
_RETRY_WITH_TASKS, _RETRY_WITHOUT, _MAX_RETRY = 5, 30, 600


class _Bucket(Struct):
    tokens: float
    at: float


class RateLimiter:
    """A token bucket for each worker token, holding up to two seconds of requests. Worker ids are not limited:
    a worker can claim any id.

    Slightly fast workers (several parallel uploads) are delayed, much faster ones are rejected. The table of workers is
    bounded: the one that has been silent longest is dropped, and counts as new when it returns.
    """

    def __init__(self, requests_per_second: float, clock: Clock) -> None:
        self._rate = requests_per_second
        self._most = max(requests_per_second * _BURST_SECONDS, 1.0)
        self._clock = clock
        self._buckets: dict[str, _Bucket] = {}
        self._workers: OrderedDict[str, float] = OrderedDict()
        """Worker ID -> time of its last request."""
        self._alive = 0
        self._counted_at = -math.inf

    def is_new(self, worker_id: str) -> bool:
        """Records a request. Returns whether it is the worker's first."""
        is_new = worker_id not in self._workers
        self._workers[worker_id] = self._clock.monotonic()
        self._workers.move_to_end(worker_id)
        if len(self._workers) > _MAX_WORKERS:
            self._workers.popitem(last=False)
        return is_new

    def take(self, token: str) -> float:
        """Counts a request and returns how many seconds to delay it. Raises ApiError (429) above the limit."""
        now = self._clock.monotonic()
        bucket = self._buckets.setdefault(token, _Bucket(self._most, now))  # the operator's tokens: not many
        bucket.tokens = min(self._most, bucket.tokens + (now - bucket.at) * self._rate)
        bucket.at = now
        wait = max(0.0, (1 - bucket.tokens) / self._rate)
        if wait > _MAX_DELAY_SECONDS:
            raise self._limit_error(wait)
        bucket.tokens -= 1
        return wait

    def retry_after(self, tasks: int) -> int:
        """Returns the seconds until the next poll, so that all workers together do not poll too often."""
        if tasks:
            return _RETRY_WITH_TASKS
        return min(max(_RETRY_WITHOUT, math.ceil(self._count() / _MAX_EMPTY_POLLS_PER_SECOND)), _MAX_RETRY)

    def _count(self) -> int:
        now = self._clock.monotonic()
        if now - self._counted_at >= _RECOUNT_SECONDS:
            self._counted_at = now
            self._alive = sum(now - at <= _ALIVE_SECONDS for at in self._workers.values())
        return self._alive

    def _limit_error(self, wait: float) -> ApiError:
        seconds = str(max(1, math.ceil(wait)))
        headers = {
            "Retry-After": seconds,
            "X-RateLimit-Limit": f"{self._rate:g}",
            "X-RateLimit-Remaining": "0",
            "X-RateLimit-Reset": seconds,
        }
        return ApiError(429, f"rate limit: this token allows {self._rate:g} requests per second", headers=headers)
