"""County entries and tasks for scraping the simulated counties with a worker."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from parcelpost.scrapers.platform import fetch_by_url
from parcelpost.scrapers.platforms import county_platform
from parcelpost.simulator.parcels import AUCTION_DAY, World, page_count
from parcelpost.simulator.sites import SITES

TASK_COLUMNS = ("platform", "state", "county", "parcel_id", "url", "auction_date")


def counties_toml(address: str, worlds: Mapping[str, World]) -> str:
    """In the form of the package's own counties."""
    return "\n".join(_entry(address, platform, world) for platform, world in worlds.items())


def sample_parcel_id(platform: str, world: World) -> str:
    """The first parcel's number, as the platform writes it; '' where it shows lists."""
    number_as = SITES[platform].parcel_id
    return number_as(1) if number_as is not None and world.size else ""


def task_rows(address: str, worlds: Mapping[str, World]) -> Iterator[tuple[str, ...]]:
    """A row for each parcel, or for each page of a list."""
    for platform, world in worlds.items():
        site = SITES[platform]
        start = (platform, site.state, world.county)
        if site.parcel_id is not None:
            yield from ((*start, site.parcel_id(number), "", "") for number in range(1, world.size + 1))
        elif platform == "realauction":
            yield *start, AUCTION_DAY.isoformat(), "", AUCTION_DAY.isoformat()
        else:
            count = page_count(world) if "{page}" in site.address else 1
            urls = (f"{address}/{platform}{site.address.replace('{page}', str(page))}" for page in range(1, count + 1))
            yield from ((*start, f"page-{page}", url, "") for page, url in enumerate(urls, 1))


def _entry(address: str, platform: str, world: World) -> str:
    site = SITES[platform]
    lines = ["[[county]]", f'platform = "{platform}"', f'state = "{site.state}"', f'county = "{world.county}"']
    lines.append(f'site = "{address}/{platform}{site.begins}"')
    platform_code = county_platform(platform)
    if site.parcel_id is not None and platform_code is not None and platform_code.fetch is fetch_by_url:
        lines.append(f'url = "{address}/{platform}{site.address}"')
    if site.ids:
        ids = ", ".join(f'{name} = "{value}"' for name, value in site.ids.items())
        lines.append(f"ids = {{ {ids} }}")
    return "\n".join([*lines, ""])
