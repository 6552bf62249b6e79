"""A Scrapy item -> a task and its result."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from hashlib import sha256
from typing import Any

import msgspec
from itemadapter import ItemAdapter
from msgspec import Struct
from scrapy.http import Response

from parcelpost.errors import InvalidInput
from parcelpost.model import Json, Page, Result, Source, Target, Task
from parcelpost.places import normalized
from parcelpost.scrapers.plain import plain

OWN_FIELDS = ("parcel_id", "state", "county", "url", "html")


class Items(Struct, frozen=True, kw_only=True):
    platform: str
    state: str
    county: str
    fields: Mapping[str, str]
    """Which field of an item holds our `parcel_id`, `state`, `county`, `url` and `html`, where it has another name."""

    def read(self, item: Any, response: Response | None, now: datetime) -> tuple[Task, Result]:
        """Raises InvalidInput. The same content of the same parcel is the same task."""
        found = ItemAdapter(item)
        page = _page(found.get(self._name("html")), response)
        target = Target(
            parcel_id=self._text(found, "parcel_id"),
            state=self._text(found, "state") or self.state,
            county=self._text(found, "county") or self.county,
            url=self._text(found, "url") or (page.url if page else ""),
        )
        if not target.parcel_id:
            name = self._name("parcel_id")
            raise InvalidInput(f"the item has no {name}", hint="name its field in PARCELPOST_FIELDS")
        target = normalized(target)
        data = self._record(found, target)
        return self._task(target, data), Result(data=data, scraped_at=now, page=page)

    def _record(self, found: ItemAdapter, target: Target) -> dict[str, Json]:
        own = {"parcel_id": target.parcel_id, "state": target.state, "county": target.county}
        try:
            said = {name: plain(value) for name, value in found.asdict().items() if name != self._name("html")}
        except (TypeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidInput(f"the item is not JSON: {error}") from None
        return {**own, "platform": self.platform, **said}

    def _task(self, target: Target, data: Mapping[str, Json]) -> Task:
        place = [self.platform, target.state, target.county, target.parcel_id]
        content = msgspec.json.encode([place, data], order="sorted")
        task_id = f"scrapy-{sha256(content).hexdigest()[:40]}"
        return Task(task_id=task_id, platform=self.platform, target=target, source=Source.CLI, type="scrapy")

    def _name(self, own: str) -> str:
        return self.fields.get(own, own)

    def _text(self, found: ItemAdapter, own: str) -> str:
        value = found.get(self._name(own))
        return "" if value is None else str(value).strip()


def _page(carried: object, response: Response | None) -> Page | None:
    """What the item carries goes before the response it was read from."""
    if isinstance(carried, str) and carried:
        return Page(body=carried.encode(errors="replace"), content_type="text/html; charset=utf-8")
    if isinstance(carried, bytes) and carried:
        return Page(body=carried)
    source = carried if isinstance(carried, Response) else response
    if source is None:
        return None
    kind = source.headers.get("Content-Type") or b"text/html"
    return Page(body=source.body, content_type=kind.decode("latin-1"), url=source.url)
