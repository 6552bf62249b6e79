"""A tunnel through a SOCKS5 proxy, which resolves the name."""

from __future__ import annotations

import asyncio
from ipaddress import IPv4Address, ip_address

from parcelpost.scrapers.fetch_errors import TryLater

_NO_LOGIN, _LOGIN = 0, 2
_V4, _NAME, _V6 = 1, 3, 4
_SIZES = {_V4: 4, _V6: 16}
_REFUSALS = {
    2: "it does not allow this",
    3: "no way to the network",
    4: "no way to the host",
    5: "nobody answers there",
}


async def connect(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, port: int, login: str = ""
) -> None:
    """`login`: `user:password`. Raises TryLater for a refusal, OSError and EOFError."""
    writer.write(bytes([5, 2, _NO_LOGIN, _LOGIN] if login else [5, 1, _NO_LOGIN]))
    version, method = await reader.readexactly(2)
    if version != 5 or method not in (_NO_LOGIN, _LOGIN if login else _NO_LOGIN):
        raise TryLater(f"{host}: the proxy refused: it takes none of our ways to sign in")
    if method == _LOGIN:
        await _sign_in(reader, writer, host, login)
    writer.write(bytes([5, 1, 0]) + _place(host) + port.to_bytes(2))
    _, refusal, _, kind = await reader.readexactly(4)
    if refusal:
        raise TryLater(f"{host}: the proxy refused: {_REFUSALS.get(refusal, f'its reason is {refusal}')}")
    size = _SIZES[kind] if kind in _SIZES else (await reader.readexactly(1))[0]
    await reader.readexactly(size + 2)


async def _sign_in(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, login: str) -> None:
    user, _, password = login.partition(":")
    writer.write(bytes([1]) + _short(user.encode()) + _short(password.encode()))
    if (await reader.readexactly(2))[1] != 0:
        raise TryLater(f"{host}: the proxy refused: it does not know us")


def _place(host: str) -> bytes:
    try:
        address = ip_address(host.strip("[]"))
    except ValueError:
        return bytes([_NAME]) + _short(host.encode("ascii"))
    return bytes([_V4 if isinstance(address, IPv4Address) else _V6]) + address.packed


def _short(text: bytes) -> bytes:
    return bytes([len(text[:255])]) + text[:255]
