"""The loop that people write without a framework: asyncio, httpx2 and aiosqlite, and a commit for each page."""

from __future__ import annotations

import asyncio
import json
import sys
from urllib.parse import urlsplit
from urllib.robotparser import RobotFileParser

import aiosqlite
import httpx2
from parsel import Selector

from bench.scrape.peers import fields

_SCHEMA = """
CREATE TABLE IF NOT EXISTS tasks (url TEXT PRIMARY KEY, status TEXT NOT NULL DEFAULT 'pending');
CREATE INDEX IF NOT EXISTS tasks_status ON tasks (status);
CREATE TABLE IF NOT EXISTS results (url TEXT PRIMARY KEY, data TEXT NOT NULL, page BLOB NOT NULL);
"""
_CLAIM = """
UPDATE tasks SET status = 'processing'
WHERE url = (SELECT url FROM tasks WHERE status = 'pending' LIMIT 1) RETURNING url
"""


class Loop:
    def __init__(self, db: aiosqlite.Connection, client: httpx2.AsyncClient) -> None:
        self._db, self._client = db, client
        self._robots = RobotFileParser()
        self._lock = asyncio.Lock()

    async def run(self, urls: list[str]) -> None:
        await self._db.executescript(_SCHEMA)
        await self._db.executemany("INSERT OR IGNORE INTO tasks (url) VALUES (?)", [(url,) for url in urls])
        await self._db.execute("UPDATE tasks SET status = 'pending' WHERE status = 'processing'")
        await self._db.commit()
        start = urlsplit(urls[0])
        robots = await self._client.get(f"{start.scheme}://{start.netloc}/robots.txt")
        self._robots.parse(robots.text.splitlines())
        await asyncio.gather(*[self._work() for _ in range(fields.CONCURRENCY)])

    async def _work(self) -> None:
        while (url := await self._claim()) is not None:
            if not self._robots.can_fetch("*", url):
                continue
            response = await self._client.get(url)
            response.raise_for_status()
            record = fields.read(Selector(response.text))
            async with self._lock:
                row = (url, json.dumps(record), response.content)
                await self._db.execute("INSERT OR REPLACE INTO results VALUES (?, ?, ?)", row)
                await self._db.execute("UPDATE tasks SET status = 'done' WHERE url = ?", (url,))
                await self._db.commit()

    async def _claim(self) -> str | None:
        async with self._lock:
            rows = await self._db.execute_fetchall(_CLAIM)
            await self._db.commit()
        return next((row[0] for row in rows), None)


async def main(urls: str) -> None:
    async with aiosqlite.connect("results.db") as db, httpx2.AsyncClient() as client:
        await Loop(db, client).run(fields.urls_of(urls))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
