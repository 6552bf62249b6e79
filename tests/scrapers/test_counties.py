"""Counties are data: what comes with the package is sound, and what an operator writes is checked."""

from __future__ import annotations

from pathlib import Path

import pytest

from parcelpost.errors import InvalidSettings
from parcelpost.scrapers.counties import County, load_counties, parse_counties
from parcelpost.scrapers.platforms import LISTS, NAMES, RENDERED, county_platform

ENTRY = '[[county]]\nplatform = "vgsi"\nstate = "CT"\ncounty = "hartford"\n'


def test_every_entry_is_of_a_platform_that_there_is() -> None:
    found = list(load_counties())
    assert found
    assert {one.platform for one in found} <= set(NAMES)
    assert all(one.site.startswith("https://") for one in found)


def test_lists_are_of_the_platforms_whose_pages_are_lists() -> None:
    assert {name for name in NAMES if (one := county_platform(name)) is not None and one.is_list} == LISTS


def test_a_profile_is_for_the_platforms_that_render() -> None:
    platforms = [one for name in NAMES if (one := county_platform(name)) is not None]
    asking = {one.name for one in platforms if "fetch_or_render" in one.fetch.__code__.co_names}
    assert asking == RENDERED
    for name in RENDERED:
        assert (
            parse_counties("test", f'{ENTRY.replace("vgsi", name)}site = "https://x"\nprofile = "me"\n')[0].profile
            == "me"
        )


@pytest.mark.parametrize("county", ["columbia", "Columbia", " COLUMBIA County "])
def test_a_county_is_found_however_it_is_written(county: str) -> None:
    found = load_counties().find("grizzly_gis", "fl", county)
    assert found is not None
    assert found.takes(found.example)
    assert load_counties().find("grizzly_gis", "GA", county) is None


def test_an_operators_entry_goes_before_ours(tmp_path: Path) -> None:
    file = tmp_path / "counties.toml"
    file.write_text(
        '[[county]]\nplatform = "grizzly_gis"\nstate = "FL"\ncounty = "columbia"\nsite = "http://127.0.0.1:8123/x"\n'
    )
    found = load_counties(str(file)).find("grizzly_gis", "FL", "columbia")
    assert found is not None
    assert found.base == "http://127.0.0.1:8123/x"
    assert load_counties(str(file)).find("grizzly_gis", "FL", "union") is not None


def test_a_bad_entry_is_named_with_what_is_wrong(subtests: pytest.Subtests) -> None:
    for text, said in [
        ("not toml", "not valid TOML"),
        ("[county]\nplatform = 1", "[[county]]"),
        ("[[counties]]\n", "[[county]]"),
        (ENTRY, "site or url"),
        (f'{ENTRY}site = "ftp://x"\n', "site must begin"),
        (f'{ENTRY}site = "https://x"\nhost = "y"\n', "host"),
        (f'{ENTRY}site = "https://x"\nparcel = "("\n', "regular expression"),
        (f'{ENTRY}site = "https://x"\nparcel = "\\\\d+"\nexample = "a"\n', "example"),
        (f'{ENTRY}site = "https://x"\nids = {{ AppID = 7 }}\n', "ids"),
        (f'{ENTRY}site = "https://x"\nprofile = "me"\n', "vgsi fetches its pages without a browser"),
        (f'{ENTRY}site = "https://x"\npace_seconds = -1\n', "pace_seconds"),
        (f'{ENTRY}site = "https://x"\npace_seconds = nan\n', "pace_seconds"),
        (f'{ENTRY}site = "https://x"\npace_seconds = inf\n', "pace_seconds"),
        ('[[county]]\nplatform = "vgsi"\nstate = "Conn"\ncounty = "x"\nsite = "https://x"\n', "two letters"),
    ]:
        with subtests.test(text=text, said=said):
            with pytest.raises(InvalidSettings) as error:
                parse_counties("mine.toml", text)
            assert said in str(error.value)
            assert "mine.toml" in str(error.value)


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(InvalidSettings, match=r"nowhere\.toml cannot be read"):
        load_counties("nowhere.toml")


@pytest.mark.parametrize(
    ("url", "owned"),
    [
        ("https://county.example.org/x", True),
        ("https://COUNTY.example.org:443/x", True),
        ("https://other.example.org/x", True),
        ("http://county.example.org/x", False),
        ("https://county.example.org:8443/x", False),
        ("https://county.example.org.evil.org/x", False),
        ("https://evil.org/?county.example.org", False),
        ("https://county.example.org@evil.org/", False),
        ("", False),
    ],
)
def test_a_county_owns_its_hosts_and_no_other(url: str, owned: bool) -> None:
    site, hosts = "https://county.example.org/base", ("other.example.org",)
    county = County(platform="p", state="FL", county="c", site=site, hosts=hosts)
    assert county.owns(url) is owned
