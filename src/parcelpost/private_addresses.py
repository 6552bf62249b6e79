"""Which addresses may be requested, and connections that go only to the address that was checked.

A task or a webhook names a URL, and a redirect or DNS may name another: none of them may lead into the operator's own
network."""

from __future__ import annotations

import asyncio
import re
import select
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any
from urllib.parse import urlsplit

import httpcore2
import httpx2

from parcelpost.errors import InvalidSettings

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Host, port -> its addresses. Raises OSError."""

_USUAL_PORTS = {"http": (80, 8000, 8080), "https": (443, 8443)}
_ALL_USUAL_PORTS = frozenset(port for ports in _USUAL_PORTS.values() for port in ports)
_MAX_URL_CHARS = 8_000
_NUMBER = re.compile(r"(?:0x[0-9a-f]*|[0-9]+)\.?", re.IGNORECASE | re.ASCII)
_NAME = re.compile(
    r"(?=.{1,254}\Z)(?!-)(?:[A-Za-z0-9_-]{1,63}\.)*[A-Za-z0-9_-]{1,63}(?<!-)\.?",
    re.ASCII,
)
_MAX_PORT = 65_535

# Written out because `ipaddress.is_private` differs between Python versions.
_NOT_PUBLIC_IPV4 = [
    IPv4Network(text)
    for text in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",
        "100.64.0.0/10",  # carrier-grade NAT; Alibaba Cloud's metadata
        "127.0.0.0/8",
        "168.63.129.16/32",  # Azure's host
        "169.254.0.0/16",  # link-local; metadata of most clouds
        "172.16.0.0/12",
        "192.0.0.0/24",  # IETF protocols; Oracle Cloud's metadata
        "192.0.2.0/24",  # documentation, as two more below
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and the broadcast address
    )
]
_PUBLIC_IPV6 = IPv6Network("2000::/3")
_NOT_PUBLIC_IPV6 = [
    IPv6Network(text)
    for text in (
        "2001::/23",  # IETF protocols, with Teredo
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4
        "3fff::/20",  # documentation
    )
]
_EMBEDS_IPV4 = [IPv6Network("::ffff:0:0/96"), IPv6Network("64:ff9b::/96")]  # mapped; NAT64


def is_loopback(host: str) -> bool:
    name = host.strip("[]").lower()
    if _is_loopback_name(name):
        return True
    try:
        address = ip_address(name)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def _is_loopback_name(host: str) -> bool:
    name = host.lower().rstrip(".")
    return name == "localhost" or name.endswith(".localhost")


def is_local_url(url: str) -> bool:
    """Whether the URL leads to this machine."""
    return is_loopback(urlsplit(url).hostname or "")


async def resolve(host: str, port: int) -> Sequence[str]:
    """With the operating system's resolver."""
    entries = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in entries))


class AddressRefused(Exception):
    """The address may not be requested."""


class NoAddress(Exception):
    """The host has no address."""


class Guard:
    """Refuses private addresses and unusual ports.

    `allowed`: networks (`10.0.0.0/8`), addresses and host names that are exempt. Raises InvalidSettings for others.
    """

    setting = "server.allow_private"
    """What `allowed` is, for messages."""
    refused: type[Exception] = AddressRefused
    no_address: type[Exception] = NoAddress
    """What it raises."""

    def __init__(self, allowed: Iterable[str] = (), resolve: Resolve = resolve) -> None:
        self._resolve = resolve
        self._networks: list[Network] = []
        self._hosts: set[str] = set()
        for entry in allowed:
            self._allow(entry.strip().lower())

    def url(self, text: str) -> httpx2.URL:
        """Parses a URL and checks what can be checked without DNS. Raises AddressRefused."""
        if len(text) > _MAX_URL_CHARS:
            raise self.refused(f"the URL is longer than {_MAX_URL_CHARS:,} characters")
        try:
            url = httpx2.URL(text)
            host = url.raw_host.decode("ascii")
        except (httpx2.InvalidURL, UnicodeError, ValueError, TypeError):
            raise self.refused(f"{text!r:.200} is not a valid URL") from None
        if url.scheme not in _USUAL_PORTS:
            raise self.refused(f"{text!r:.200} is not an http or https URL")
        if url.userinfo:
            raise self.refused("the URL contains a user name or password")
        literal = _literal(host)
        if literal is None and (not _NAME.fullmatch(host) or _NUMBER.fullmatch(host.rstrip(".").rpartition(".")[2])):
            raise self.refused(f"{host!r:.200} is not a valid host name")
        if not 0 < port_of(url) <= _MAX_PORT:
            raise self.refused(f"{url.port} is not a valid port")
        if literal is not None or _is_loopback_name(host):
            self._check(host, literal or IPv4Address("127.0.0.1"), port_of(url))
        elif not self._networks:  # else its address may be in one of them
            self._check_port(host, port_of(url))
        return url.copy_with(fragment=None) if url.fragment else url

    async def addresses(self, host: str, port: int) -> list[str]:
        """Resolves a host and checks all its addresses. Raises AddressRefused, NoAddress, and OSError for an unknown
        name.
        """
        literal = _literal(host)
        if literal is not None:
            self._check(host, literal, port)
            return [str(literal)]
        try:
            addresses = [_parsed(text) for text in await self._resolve(host, port)]
        except (ValueError, OverflowError) as error:  # such as a label or port that the resolver cannot encode
            raise self.refused(f"{host!r:.200} cannot be resolved: {error}") from error
        if not addresses:
            raise self.no_address(f"{host} has no address")
        for address in addresses:
            self._check(host, address, port)
        return [str(address) for address in addresses]

    def _allow(self, entry: str) -> None:
        try:
            self._networks.append(ip_network(entry.strip("[]"), strict=False))
        except ValueError:
            if not _NAME.fullmatch(entry):
                raise InvalidSettings(
                    f"{self.setting} contains {entry!r:.100}, which is not a network, address or host name",
                    hint="write it as 127.0.0.1, 10.0.0.0/8 or intranet.example.org",
                ) from None
            self._hosts.add(entry.rstrip("."))

    def _check(self, host: str, address: Address, port: int) -> None:
        if host.lower().rstrip(".") in self._hosts or any(address in network for network in self._networks):
            return
        if not _is_public(address):
            where = host if host == str(address) else f"{host} ({address})"
            raise self.refused(f"{where} is a private address; add it to {self.setting} to allow it")
        self._check_port(host, port)

    def _check_port(self, host: str, port: int) -> None:
        if port not in _ALL_USUAL_PORTS and host.lower().rstrip(".") not in self._hosts:
            raise self.refused(f"port {port} is unusual for a website; add {host} to {self.setting} to allow it")


def port_of(url: httpx2.URL) -> int:
    return _USUAL_PORTS[url.scheme][0] if url.port is None else url.port


def origin_of(url: httpx2.URL) -> str:
    """Scheme, host and port."""
    host = url.raw_host.decode("ascii").lower()
    return f"{url.scheme}://{f'[{host}]' if ':' in host else host}:{port_of(url)}"


def _literal(host: str) -> Address | None:
    try:
        return _parsed(host.strip("[]"))
    except ValueError:
        return None


def _parsed(text: str) -> Address:
    return ip_address(text.partition("%")[0])


def _is_public(address: Address) -> bool:
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _NOT_PUBLIC_IPV4)
    if any(address in network for network in _EMBEDS_IPV4):
        return _is_public(IPv4Address(int(address) & 0xFFFFFFFF))
    return address in _PUBLIC_IPV6 and not any(address in network for network in _NOT_PUBLIC_IPV6)


_MAX_CONNECTIONS = 100
_KEEP_ALIVE_SECONDS = 4.0  # less than the five seconds after which common servers close idle connections
_SCHEMES = ("http", "https", "socks5", "socks5h")


def open_connection_pool(guard: Guard, proxy: str = "", login: str = "") -> httpcore2.AsyncConnectionPool:
    """`login`: `user:password` for the proxy. Raises InvalidSettings, whose message never contains either."""
    ssl_context = httpx2.create_ssl_context()
    if not proxy:
        return httpcore2.AsyncConnectionPool(
            ssl_context=ssl_context,
            max_connections=_MAX_CONNECTIONS,
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
        max_connections=_MAX_CONNECTIONS,
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
    """Resolves names itself, once, so that DNS cannot return one address to the check and another to the connection."""

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
                stream = await self._network.connect_tcp(address, port, timeout, local_address, socket_options)
                return _Stream(stream)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failure = error
        raise failure


class _Stream(httpcore2.AsyncNetworkStream):
    """Says cheaply whether the server has closed it: the pool asks that of its idle connections for every request."""

    def __init__(self, stream: httpcore2.AsyncNetworkStream) -> None:
        self._stream = stream
        self._socket = stream.get_extra_info("socket")

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return await self._stream.read(max_bytes, timeout)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.AsyncNetworkStream:
        return _Stream(await self._stream.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        if info != "is_readable":
            return self._stream.get_extra_info(info)
        handle = self._socket.fileno()
        if handle < 0:  # closed
            return True
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        return bool(poll.poll(0))
