"""A server's end closes every connection, one that has only just come too."""

from __future__ import annotations

import asyncio
import gc
import socket

import pytest

from parcelpost.files_and_sockets import tcp_server

HOST = "127.0.0.1"
PATIENCE = 60.0


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(await reader.readline())
    writer.close()
    await writer.wait_closed()


def _end_of(client: socket.socket) -> bytes:
    """All that comes until the other side has closed. Raises TimeoutError where it never does."""
    client.settimeout(PATIENCE)
    found = b""
    try:
        while chunk := client.recv(1024):
            found += chunk
    except ConnectionError:
        pass
    return found


async def test_who_asks_is_answered() -> None:
    with socket.socket() as client:
        async with tcp_server(_echo, HOST) as port:
            client.connect((HOST, port))
            client.sendall(b"hello\n")
            assert await asyncio.to_thread(_end_of, client) == b"hello\n"


@pytest.mark.parametrize("turns", range(8))
async def test_one_that_has_only_just_come_is_closed(turns: int) -> None:
    """A connection goes through several turns of the loop before it is served."""
    with socket.socket() as client:
        async with tcp_server(_echo, HOST) as port:
            client.connect((HOST, port))
            for _ in range(turns):
                await asyncio.sleep(0)
        assert _end_of(client) == b""
    gc.collect()  # and nobody complains of what was left open


async def test_of_too_many_connections_the_oldest_are_cut_and_the_newest_is_answered() -> None:
    clients = [socket.socket() for _ in range(50)]
    try:
        async with tcp_server(_echo, HOST, max_connections=5) as port:
            for client in clients:
                await asyncio.to_thread(client.connect, (HOST, port))
            for client in clients[:45]:
                assert await asyncio.to_thread(_end_of, client) == b""
            for client in clients[45:]:
                client.sendall(b"hello\n")
                assert await asyncio.to_thread(_end_of, client) == b"hello\n"
    finally:
        for client in clients:
            client.close()


async def test_one_that_takes_nothing_does_not_hold_up_the_end() -> None:
    began = asyncio.Event()

    async def endless(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        began.set()
        while True:
            writer.write(b"x" * 1_000_000)
            await writer.drain()

    with socket.socket() as client:
        async with asyncio.timeout(PATIENCE), tcp_server(endless, HOST) as port:
            client.connect((HOST, port))
            await began.wait()
        with pytest.raises(ConnectionRefusedError), socket.socket() as late:
            late.connect((HOST, port))
