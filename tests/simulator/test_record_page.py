"""docs/record.md names the platforms that fill a field."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from parcelpost.scrapers.platforms import county_platform
from parcelpost.simulator.parcels import World
from parcelpost.simulator.sites import SITES
from tests.record_page import fields
from tests.simulator.asking import list_page, parcel_page, records

GROUPS = {
    "appraisers": "broward_bcpa collier_pa grizzly_gis leepa miamidade_pa qpublic vgsi",
    "maps": "arcgis socrata",
}
WORLD = World(seed=3, county="fernhill", size=40)
LISTS = ("liens", "tax_bills", "valuations", "sales", "buildings")


def documented() -> Mapping[str, set[str]]:
    """Platforms by field: `tax_district`, `sales.grantor`."""
    return {
        field.name if field.table == "parcels" else f"{field.table}.{field.name}": {
            name for group in field.platforms for name in GROUPS.get(group, group).split()
        }
        for field in fields()
    }


def filled(record: Mapping[str, Any]) -> Iterator[str]:
    """The fields with a value. A record of a list repeats those of its lien."""
    own = set(record["liens"][0]) if record["record_kind"] == "lien" else set()
    for name, value in record.items():
        if name in LISTS:
            yield from (f"{name}.{member}" for item in value for member, inner in item.items() if inner is not None)
        elif name not in own and value not in (None, []):
            yield name


@pytest.mark.parametrize("platform", [name for name in SITES if county_platform(name) and name != "beacon"])
def test_every_field_that_a_simulated_page_fills_names_its_platform(platform: str) -> None:
    if SITES[platform].parcel_id:
        pages = [parcel_page(platform, WORLD, number) for number in range(1, WORLD.size + 1)]
    else:
        pages = [list_page(platform, WORLD, 1)]
    shown = {field for page in pages for record in records(platform, page) for field in filled(record)}
    known = defaultdict(set, documented())
    assert {field for field in shown if not known[field] & {platform, "all"}} == set()
