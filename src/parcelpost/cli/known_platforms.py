"""The platforms and counties that the settings know, put together for whoever needs them."""

from __future__ import annotations

from pathlib import Path

from msgspec import structs

from parcelpost.scrapers.configured import Configured
from parcelpost.scrapers.counties import known
from parcelpost.scrapers.factory import ScraperFactory
from parcelpost.scrapers.field_map import FieldMap
from parcelpost.scrapers.field_map_files import of_document, of_folder
from parcelpost.scrapers.known_maps import FieldMaps
from parcelpost.scrapers.sites import Sites
from parcelpost.settings import Settings


def sites(settings: Settings) -> Sites:
    """Nothing is fetched with these. Raises InvalidSettings for what is wrong with a county or a field map."""
    counties = known(settings.fetch.counties_file)
    return Sites(counties=counties, field_maps=FieldMaps(_own_maps(settings), counties))


def _own_maps(settings: Settings) -> list[FieldMap]:
    """The operator's field maps. Raises InvalidSettings."""
    folder = settings.fetch.field_maps_folder
    written = [of_document(name, one.given, one.origin) for name, one in settings.field_maps.items()]
    return [*written, *(of_folder(Path(folder)) if folder else ())]


def factory(settings: Settings, sites: Sites) -> ScraperFactory:
    """Nothing is imported yet."""
    made = ScraperFactory(sites.clock, sites=sites)
    for name, place in settings.platforms.items():
        made.configure(name, Configured(**structs.asdict(place)))
    return made
