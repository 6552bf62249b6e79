"""Crawls one after the other in one process: `python -m tests.contrib.crawls SITE '[{"SETTING": value, ...}, ...]'`.

Before each, a line with its number goes to both outputs; at the end of each, whether it failed to begin to the first.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from scrapy.utils.reactor import install_reactor

install_reactor("twisted.internet.asyncioreactor.AsyncioSelectorReactor")

from scrapy.crawler import AsyncCrawlerRunner  # noqa: E402
from scrapy.utils.defer import deferred_f_from_coro_f  # noqa: E402
from scrapy.utils.log import configure_logging  # noqa: E402
from twisted.internet.task import react  # noqa: E402

from tests.contrib.county_spider import CountySpider  # noqa: E402


def say(number: int) -> None:
    for output in (1, 2):
        os.write(output, f"--- {number}\n".encode())


async def crawls(_reactor: object, site: str, asked: list[dict[str, Any]]) -> None:
    for number, settings in enumerate(asked):
        say(number)
        runner = AsyncCrawlerRunner(settings)
        try:
            await runner.crawl(CountySpider, site=site, carries_page=settings.get("CARRIES_PAGE", ""))
        except Exception as error:  # noqa: BLE001 - the next one is to begin all the same
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
        os.write(1, b"did not begin\n" if runner.bootstrap_failed else b"")


if __name__ == "__main__":
    configure_logging()
    react(deferred_f_from_coro_f(crawls), (sys.argv[1], json.loads(sys.argv[2])))
