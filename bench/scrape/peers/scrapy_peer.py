"""Scrapy with JOBDIR, and the SQLite pipeline that most people write: a commit for each item."""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import scrapy
from scrapy.crawler import CrawlerProcess
from scrapy.http import Response, TextResponse

from bench.scrape.peers import fields


class SQLitePipeline:
    def open_spider(self) -> None:
        self._db = sqlite3.connect("results.db")
        self._db.execute("CREATE TABLE IF NOT EXISTS results (url TEXT PRIMARY KEY, data TEXT, page BLOB)")

    def close_spider(self) -> None:
        self._db.close()

    def process_item(self, item: dict[str, Any]) -> dict[str, Any]:
        row = (item["url"], json.dumps(item["data"]), item["page"])
        self._db.execute("INSERT OR REPLACE INTO results VALUES (?, ?, ?)", row)
        self._db.commit()
        return item


class ParcelSpider(scrapy.Spider):
    name = "parcels"

    async def start(self) -> AsyncIterator[scrapy.Request]:
        for url in fields.urls_of(self.settings["URLS"]):
            yield scrapy.Request(url)

    def parse(self, response: Response) -> Iterator[dict[str, Any]]:
        assert isinstance(response, TextResponse)
        yield {"url": response.url, "data": fields.read(response.selector), "page": response.body}


def main(urls: str) -> None:
    process = CrawlerProcess(
        {
            "URLS": urls,
            "JOBDIR": str(Path("job")),
            "ROBOTSTXT_OBEY": True,
            "CONCURRENT_REQUESTS": fields.CONCURRENCY,
            "CONCURRENT_REQUESTS_PER_DOMAIN": fields.CONCURRENCY,
            "DOWNLOAD_DELAY": 0,
            "ITEM_PIPELINES": {SQLitePipeline: 300},
            "LOG_LEVEL": "INFO",
        }
    )
    process.crawl(ParcelSpider)
    process.start()


if __name__ == "__main__":
    main(sys.argv[1])
