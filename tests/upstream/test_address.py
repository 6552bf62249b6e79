"""Settings that cannot work are told before the first call, and never quoted where they may hold a secret."""

from __future__ import annotations

import pytest

from parcelpost.errors import InvalidSettings
from parcelpost.settings.schema import GatewaySettings
from parcelpost.upstream.gateway import GatewayClient
from parcelpost.upstream.http import base_url
from tests.upstream.factories import NOW


@pytest.mark.parametrize(
    ("url", "base_path", "expected"),
    [
        ("http://127.0.0.1:8080", "/internal", "http://127.0.0.1:8080/internal"),
        ("https://gateway.example.com/", "/internal/", "https://gateway.example.com/internal"),
        ("https://example.com/prefix/", "/internal/parcel", "https://example.com/prefix/internal/parcel"),
        ("http://[::1]:80", "", "http://[::1]"),
        ("http://müller.example", "/x", "http://xn--mller-kva.example/x"),
    ],
)
def test_an_address_that_works(url: str, base_path: str, expected: str) -> None:
    assert base_url(GatewaySettings(url=url, base_path=base_path)) == expected


@pytest.mark.parametrize("url", ["http://a\u2603.example", "http://[::1/hunter2"])
def test_an_address_that_no_client_can_use(url: str) -> None:
    with pytest.raises(InvalidSettings, match=r"gateway\.url") as caught:
        base_url(GatewaySettings(url=url))
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("token", ["", "hunter2 ", "hunter2\r\nX-Evil: 1", "hünter2", "hunter2\0", "hunter2" * 1_000])
async def test_a_token_that_cannot_stand_in_a_header(token: str) -> None:
    with pytest.raises(InvalidSettings, match="PARCELPOST_GATEWAY_TOKEN") as caught:
        async with GatewayClient.open(GatewaySettings(url="http://example.com"), token, "w-1", lambda: NOW):
            pass
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("worker_id", ["a b", "a\n"])
async def test_a_worker_id_that_cannot_stand_in_a_header(worker_id: str) -> None:
    with pytest.raises(InvalidSettings, match=r"worker\.id"):
        async with GatewayClient.open(GatewaySettings(url="http://example.com"), "token", worker_id, lambda: NOW):
            pass


async def test_a_proxy_address_that_cannot_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_PROXY")
    monkeypatch.setenv("HTTP_PROXY", "gopher://hunter2@example.com")
    with pytest.raises(InvalidSettings, match="HTTP_PROXY") as caught:
        async with GatewayClient.open(GatewaySettings(url="http://example.com"), "token", "w-1", lambda: NOW):
            pass
    assert "hunter2" not in str(caught.value)
