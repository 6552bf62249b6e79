"""How often workers may ask, and how many of them there are."""

from __future__ import annotations

import math
from collections import OrderedDict

from msgspec import Struct

from parcelpost.clock import Clock
from parcelpost.gateway.errors import ApiError

_MOST_WORKERS = 20_000
_ALIVE_SECONDS = 300.0
_COUNT_AGAIN_SECONDS = 5.0
_BURST_SECONDS = 2.0
_LONGEST_DELAY_SECONDS = 1.0
_MOST_EMPTY_POLLS_PER_SECOND = 20
_REST_WITH_TASKS, _REST_WITHOUT, _LONGEST_REST = 5, 30, 600


class _Bucket(Struct):
    tokens: float
    at: float


class RateLimiter:
    """One bucket of requests for the workers of each token, filled at the rate of the settings, two seconds' worth at
    most. It counts the token: a worker can claim any id.

    Workers that are a little too fast (they upload several raw files at a time) are slowed down; those that are far too
    fast are refused.
    The table of workers is bounded: the one that was silent for the longest is forgotten first, and is new again then.
    """

    def __init__(self, requests_per_second: float, clock: Clock) -> None:
        self._rate = requests_per_second
        self._most = max(requests_per_second * _BURST_SECONDS, 1.0)
        self._clock = clock
        self._buckets: dict[str, _Bucket] = {}
        self._workers: OrderedDict[str, float] = OrderedDict()
        """By id: when it last asked."""
        self._alive = 0
        self._counted_at = -math.inf

    def is_new(self, worker_id: str) -> bool:
        """Notes that it asked; whether it had not before."""
        is_new = worker_id not in self._workers
        self._workers[worker_id] = self._clock.monotonic()
        self._workers.move_to_end(worker_id)
        if len(self._workers) > _MOST_WORKERS:
            self._workers.popitem(last=False)
        return is_new

    def take(self, token: str) -> float:
        """Counts a request, and answers the seconds it is to wait. Raises ApiError (429) for one too many."""
        now = self._clock.monotonic()
        bucket = self._buckets.setdefault(token, _Bucket(self._most, now))  # the operator's tokens: not many
        bucket.tokens = min(self._most, bucket.tokens + (now - bucket.at) * self._rate)
        bucket.at = now
        wait = max(0.0, (1 - bucket.tokens) / self._rate)
        if wait > _LONGEST_DELAY_SECONDS:
            raise self._too_many(wait)
        bucket.tokens -= 1
        return wait

    def retry_after(self, tasks: int) -> int:
        """Seconds until asking for work again makes sense: so long that all workers together do not ask too often."""
        if tasks:
            return _REST_WITH_TASKS
        return min(max(_REST_WITHOUT, math.ceil(self._count() / _MOST_EMPTY_POLLS_PER_SECOND)), _LONGEST_REST)

    def _count(self) -> int:
        now = self._clock.monotonic()
        if now - self._counted_at >= _COUNT_AGAIN_SECONDS:
            self._counted_at = now
            self._alive = sum(now - at <= _ALIVE_SECONDS for at in self._workers.values())
        return self._alive

    def _too_many(self, wait: float) -> ApiError:
        seconds = str(max(1, math.ceil(wait)))
        headers = {
            "Retry-After": seconds,
            "X-RateLimit-Limit": f"{self._rate:g}",
            "X-RateLimit-Remaining": "0",
            "X-RateLimit-Reset": seconds,
        }
        return ApiError(429, f"the workers of this token ask more than {self._rate:g} times a second", headers=headers)
