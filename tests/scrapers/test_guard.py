"""Nothing that a task, a redirect or a name server says leads into the worker's own network."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from parcelpost.errors import InvalidSettings
from parcelpost.scrapers.fetch.errors import CannotFetch
from parcelpost.scrapers.fetch.exchange import FetchGuard
from tests.scrapers.fetching import fetching
from tests.website import Website

REFUSED = [
    "file:///etc/passwd",
    "ftp://example.org/",
    "gopher://example.org/",
    "javascript:alert(1)",
    "//example.org/",
    "example.org",
    "",
    "http://",
    "http://user:secret@example.org/",
    "http://user@example.org/",
    "http://127.0.0.1/",
    "http://127.0.0.1:80/",
    "http://0.0.0.0/",
    "http://10.1.2.3/",
    "http://172.16.0.1/",
    "http://192.168.1.1/",
    "http://100.64.0.1/",
    "http://169.254.169.254/latest/meta-data/",
    "http://255.255.255.255/",
    "http://224.0.0.1/",
    "http://2130706433/",
    "http://0x7f000001/",
    "http://0x7f.1/",
    "http://0177.0.0.1/",
    "http://127.1/",
    "http://127.0.0.1./",
    "http://[::1]/",
    "http://[::]/",
    "http://[fe80::1]/",
    "http://[fc00::1]/",
    "http://[fec0::1]/",
    "http://[ff02::1]/",
    "http://[::ffff:127.0.0.1]/",
    "http://[::ffff:a9fe:a9fe]/",
    "http://[::127.0.0.1]/",
    "http://[2002:7f00:1::]/",
    "http://[64:ff9b::7f00:1]/",
    "http://168.63.129.16/",
    "http://192.0.0.192/",
    "http://198.18.0.1/",
    "http://203.0.113.7/",
    "http://[::ffff:168.63.129.16]/",
    "http://[64:ff9b::a83f:8110]/",
    "http://[64:ff9b:1::808:808]/",
    "http://[2002:a83f:8110::]/",
    "http://[2002:808:808::]/",
    "http://[2001:0:808:808::1]/",
    "http://[2001:db8::1]/",
    "http://[3fff::1]/",
    "http://[5f00::1]/",
    "http://[64:ff9b::a9fe:a9fe]/",
    "http://8.8.8.8:22/",
    "http://8.8.8.8:6379/",
    f"http://example.org/{'a' * 9000}",
    "http://exa mple.org/",
    "http://exam\tple.org/",
    "http://a..example.org/",
    "http://.example.org/",
    "http://-a.example.org/",
    f"http://{'a' * 64}.org/",
    f"http://{'a.' * 127}example.org/",
    "http://example.org:0/",
    "http://example.org:99999/",
    "http://8.8.8.8:-1/",
]
PUBLIC = [
    "http://8.8.8.8/",
    "https://8.8.4.4:8443/x?y=1",
    "http://168.63.129.17/",
    "http://192.0.1.1/",
    "http://[2606:4700::1111]/",
    "http://[64:ff9b::808:808]/",
    "http://[::ffff:8.8.8.8]/",
]


async def test_an_address_that_may_not_be_asked_is_refused() -> None:
    assert [url for url in REFUSED if await _may_be_asked(url)] == []


def test_a_long_name_may_be_asked() -> None:
    for host in (f"{'a' * 63}.org", f"{'a.' * 125}org.", "a_b--c.example.org."):
        assert FetchGuard().url(f"https://{host}/").host.rstrip(".") == host.rstrip(".")


async def test_a_public_address_may_be_asked() -> None:
    assert [url for url in PUBLIC if not await _may_be_asked(url)] == []


async def _may_be_asked(url: str) -> bool:
    guard = FetchGuard()
    try:
        checked = guard.url(url)
        return len(await guard.addresses(checked.host, checked.port or 80)) == 1
    except CannotFetch:
        return False


@pytest.mark.parametrize(
    "addresses",
    [["127.0.0.1"], ["8.8.8.8", "10.0.0.1"], ["::1"], ["169.254.169.254"], ["::ffff:192.168.0.1"], ["fe80::1%eth0"]],
)
async def test_a_name_that_leads_to_a_private_address_is_refused(addresses: Sequence[str]) -> None:
    async def resolve(host: str, port: int) -> Sequence[str]:
        return addresses

    with pytest.raises(CannotFetch, match="private"):
        await FetchGuard(resolve=resolve).addresses("rebound.example.org", 80)


async def test_what_is_allowed_may_be_asked_on_any_port() -> None:
    async def resolve(host: str, port: int) -> Sequence[str]:
        return ["10.9.8.7"]

    guard = FetchGuard(["10.0.0.0/8", "Intranet.example.org", "::1"], resolve)
    assert await guard.addresses("10.1.2.3", 9_999) == ["10.1.2.3"]
    assert await guard.addresses("any.example.org", 9_999) == ["10.9.8.7"]
    assert await guard.addresses("::1", 1) == ["::1"]
    narrow = FetchGuard(["intranet.example.org"], resolve)
    assert await narrow.addresses("INTRANET.example.org", 81) == ["10.9.8.7"]
    with pytest.raises(CannotFetch):
        await narrow.addresses("other.example.org", 80)


async def test_a_name_that_the_resolver_cannot_encode_is_refused() -> None:
    for host in ("a..b", "a" * 64):
        with pytest.raises(CannotFetch, match="cannot be resolved"):
            await FetchGuard().addresses(host, 80)


def test_a_bad_entry_is_named() -> None:
    with pytest.raises(InvalidSettings, match="not/a/host"):
        FetchGuard(["not/a/host"])


async def test_the_connection_goes_to_the_address_that_was_checked(site: Website) -> None:
    """The name is resolved once: a second answer, given to the connection alone, would be private."""
    given = iter([["127.0.0.1"], ["127.0.0.2"]])

    async def resolve(host: str, port: int) -> Sequence[str]:
        return next(given)

    site.page("/", b"here")
    async with fetching(resolve=resolve) as one:
        page = await one.session.get(f"http://county.example.org:{site.port}/")
    assert page.body == b"here"
    assert site.asked[0].headers["host"] == f"county.example.org:{site.port}"
    assert next(given) == ["127.0.0.2"]


@pytest.mark.parametrize(
    "location",
    [
        "http://169.254.169.254/latest/meta-data/",
        "http://127.0.0.2/",
        "http://2130706434/",
        "file:///etc/passwd",
        "http://[::1]/",
        "http://inside.example.org/",
        "http://user:pass@127.0.0.1/",
        "http://[bad",
    ],
)
async def test_a_redirect_is_checked_like_the_first_address(site: Website, location: str) -> None:
    async def resolve(host: str, port: int) -> Sequence[str]:
        return ["10.0.0.1"]

    site.page("/", b"", 302, Location=location)
    async with fetching(resolve=resolve) as one:
        with pytest.raises(CannotFetch):
            await one.session.get(f"{site.url}/")
    assert site.paths == ["/"]
