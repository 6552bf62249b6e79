"""What somebody offers as a platform -> how it is called."""

from __future__ import annotations

from functools import partial

from msgspec import structs

from parcelpost.model import Outcome, Page, Target
from parcelpost.scrapers.adapted import Adapted, How, how
from parcelpost.scrapers.county_platform import CountyPlatform
from parcelpost.scrapers.platform import NotReadable, Parse, Scrape, Usable
from parcelpost.scrapers.sites import Sites

_NO_PARSE = NotReadable("it has no parse function")


def usable(name: str, offered: object, sites: Sites = Sites()) -> Usable:  # noqa: B008 - frozen
    """Raises TypeError for what is no platform, and whatever making an object of a class raises."""
    if isinstance(offered, CountyPlatform):
        return _of_county(structs.replace(offered, name=name), sites)
    if (said := how(offered)) is not None:
        return of_adapted(name, Adapted(offered, said, sites.session))
    made = offered() if isinstance(offered, type) else offered
    if isinstance(made, CountyPlatform):
        return _of_county(structs.replace(made, name=name), sites)
    scrape: Scrape | None = getattr(made, "scrape", None)
    parse: Parse | None = getattr(made, "parse", None)
    if scrape is None and callable(getattr(made, "fetch", None)) and callable(parse):
        return of_adapted(name, Adapted(made, How(scrape="fetch", parse="parse"), sites.session))
    scrape = made if scrape is None and callable(made) else scrape
    if not callable(scrape):
        raise TypeError(f"a {type(made).__name__} is no platform: it has no scrape(task) and is no function")
    return Usable(scrape, parse if callable(parse) else _NO_PARSE)


def of_adapted(name: str, adapted: Adapted) -> Usable:
    return Usable(adapted.scrape, partial(adapted.parse, name) if adapted.can_read else _NO_PARSE)


def _of_county(platform: CountyPlatform, sites: Sites) -> Usable:
    return Usable(sites.scrape(platform), partial(_parsed, platform))


def _parsed(platform: CountyPlatform, page: Page, target: Target) -> Outcome:
    return platform.parse(page, target).outcome
