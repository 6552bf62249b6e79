"""Every platform from the order to the record: real processes, a real site, the facts that were invented for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from parcelpost.simulator.parcels import World, auction_cases
from parcelpost.simulator.sites import SITES
from tests.acceptance.counties import Simulated, data, parcelpost, results, scrape, simulated, written
from tests.simulator import facts
from tests.simulator.asking import wrong
from tests.simulator.facts import Facts

WORLD = World(seed=1, county="invented", size=1_200)
PARCELS = [name for name, site in SITES.items() if site.parcel_id]
LISTS = ("deedauction", "govease", "pioneer_taxdeed")
FEW = 3
WHERE = {"arcgis": "1=1", "socrata": "cycle='90 Day Notice'"}

Key = tuple[str, str]
"""Platform and number."""


def wanted() -> Iterator[tuple[Key, Facts]]:
    """What must be in the store."""
    for platform in PARCELS:
        for number in range(1, (WORLD.size if platform in WHERE else FEW) + 1):
            fact = facts.of_parcel(platform, WORLD.at(number))
            yield (platform, fact["parcel_id"]), fact
    for platform, pages in [*((name, range(1, 3)) for name in LISTS), ("realauction", range(1, WORLD.size // 25 + 1))]:
        for case in (case for page in pages for case in auction_cases(WORLD, page)):
            fact = facts.of_case(platform, case)
            yield (platform, fact["parcel_id"] or fact["case_number"]), fact
    for parcel in WORLD.register.all():
        if parcel.certificates:
            yield ("lien_register", parcel.parcel_id), facts.of_register(parcel)


def orders(county: Simulated) -> list[dict[str, str]]:
    where = [{**row, "parcel_id": "all", "where": WHERE[row["platform"]]} for row in county.tasks(*WHERE, first=1)]
    lists = [*county.tasks(*LISTS, first=2), *county.tasks("realauction", "lien_register")]
    return [*where, *county.tasks(*set(PARCELS) - WHERE.keys(), first=FEW), *lists]


async def test_every_platform_s_tasks_end_with_what_was_invented(tmp_path: Path) -> None:
    with simulated(tmp_path, "--parcels", str(WORLD.size)) as county:
        parcelpost(
            tmp_path, "import", written(tmp_path, orders(county)), "--store", "store.db", settings=county.settings
        )
        said = scrape(tmp_path, county.settings)
    found = {(entry.platform, entry.parcel_id): data(entry) for entry in await results(tmp_path)}
    assert " 0 failed, 0 expired" in said
    expected = dict(wanted())
    assert found.keys() == expected.keys()
    misses = {key: bad for key, fact in expected.items() if (bad := wrong(found[key], fact))}
    assert misses == {}
    assert Counter(platform for platform, _ in found).keys() == SITES.keys()
