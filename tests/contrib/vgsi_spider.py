"""An existing spider of a simulated town: an item a parcel, as its author once wrote it.

Run as `scrapy runspider vgsi_spider.py -a site=URL -a parcels=N`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import scrapy
from scrapy.http import Response


class VgsiSpider(scrapy.Spider):
    name = "old_vgsi"

    def __init__(self, site: str, parcels: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.site = site
        self.parcels = int(parcels)

    async def start(self) -> AsyncIterator[Any]:
        for number in range(1, self.parcels + 1):
            yield scrapy.Request(f"{self.site}/Parcel.aspx?Pid={number}")

    def parse(self, response: Response) -> Iterator[Any]:
        yield {
            "parcel_id": response.css("#MainContent_lblPid::text").get(),
            "owner_names": [response.css("#MainContent_lblGenOwner::text").get()],
            "market_value": response.css("#MainContent_lblGenAppraisal::text").get("").strip("$").replace(",", ""),
        }
