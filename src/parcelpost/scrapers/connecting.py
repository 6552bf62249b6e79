"""Connections that go to the very address that was checked, or to the operator's proxy."""

from __future__ import annotations

from collections.abc import Iterable

import httpcore2
import httpx2

from parcelpost.errors import InvalidSettings
from parcelpost.scrapers.guard import Guard

_MOST_CONNECTIONS = 100
_KEEP_ALIVE_SECONDS = 4.0  # common servers hang up after five: a request never meets a connection about to close
_SCHEMES = ("http", "https", "socks5", "socks5h")


def open_pool(guard: Guard, proxy: str = "", login: str = "") -> httpcore2.AsyncConnectionPool:
    """`login`: `user:password` for the proxy. Raises InvalidSettings, which never quotes either of them."""
    ssl_context = httpx2.create_ssl_context()
    if not proxy:
        return httpcore2.AsyncConnectionPool(
            ssl_context=ssl_context,
            max_connections=_MOST_CONNECTIONS,
            keepalive_expiry=_KEEP_ALIVE_SECONDS,
            network_backend=_CheckedNetwork(guard),
        )
    url = proxy_url(proxy)
    user, _, password = login.partition(":")
    kind = httpcore2.AsyncHTTPProxy if url.scheme in (b"http", b"https") else httpcore2.AsyncSOCKSProxy
    return kind(
        proxy_url=url,
        proxy_auth=(user, password) if login else None,
        ssl_context=ssl_context,
        max_connections=_MOST_CONNECTIONS,
        keepalive_expiry=_KEEP_ALIVE_SECONDS,
    )


def proxy_url(text: str) -> httpcore2.URL:
    """Raises InvalidSettings."""
    try:
        url = httpx2.URL(text)
    except (httpx2.InvalidURL, UnicodeError):
        url = httpx2.URL()
    if url.scheme not in _SCHEMES or not url.host or url.userinfo:
        raise InvalidSettings(
            "fetch.proxy must look like http://proxy.example.org:3128 or socks5://127.0.0.1:1080",
            hint="a user name and password go into PARCELPOST_FETCH_PROXY_LOGIN, as user:password",
        )
    return httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=b"/")


class _CheckedNetwork(httpcore2.AsyncNetworkBackend):
    """Names are resolved here, once: whoever answers DNS cannot give one address to the check and another to us."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._network = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        try:
            addresses = await self._guard.addresses(host, port)
        except OSError as error:
            raise httpcore2.ConnectError(f"no address for {host}: {error.strerror or error}") from error
        failure: Exception = httpcore2.ConnectError(f"no address for {host}")
        for address in addresses:
            try:
                return await self._network.connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failure = error
        raise failure
