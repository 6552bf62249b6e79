"""Crawlee with its SQL storage: the queue, the records and the pages in one SQLite file."""

from __future__ import annotations

import asyncio
import logging
import sys

from crawlee import ConcurrencySettings
from crawlee.configuration import Configuration
from crawlee.crawlers import ParselCrawler, ParselCrawlingContext
from crawlee.storage_clients import SqlStorageClient

from bench.scrape.peers import fields


async def main(urls: str) -> None:
    configuration = Configuration(purge_on_start=False)
    storage = SqlStorageClient(connection_string="sqlite+aiosqlite:///results.db")
    many = fields.CONCURRENCY
    crawler = ParselCrawler(
        configuration=configuration,
        storage_client=storage,
        concurrency_settings=ConcurrencySettings(min_concurrency=many, max_concurrency=many, desired_concurrency=many),
        respect_robots_txt_file=True,
    )

    @crawler.router.default_handler
    async def handle(context: ParselCrawlingContext) -> None:
        page = await context.http_response.read()
        key = context.request.url.rpartition("=")[2]
        await (await context.get_key_value_store()).set_value(key, page, content_type="text/html")
        await context.push_data({"url": context.request.url, **fields.read(context.selector)})

    await crawler.run(fields.urls_of(urls))


if __name__ == "__main__":
    logging.captureWarnings(True)
    asyncio.run(main(sys.argv[1]))
