"""A gateway whose certificate cannot be trusted: an operator must act, and can name the authority to trust."""

from __future__ import annotations

import shutil
import ssl
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from parcelpost.errors import Unauthorized, Unavailable
from parcelpost.settings.schema import GatewaySettings
from parcelpost.upstream.gateway import GatewayClient
from tests.upstream.factories import NOW, a_beat

ANSWER = b'{"acknowledged":true}'


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """For 127.0.0.1, signed by itself, and its key in one file."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl, to make a certificate")
    file, part, key = (tmp_path / name for name in ("both.pem", "certificate.pem", "key.pem"))
    words = "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1"
    subprocess.run([*words.split(), "-out", part, "-keyout", key], check=True, capture_output=True)
    file.write_text(part.read_text() + key.read_text())
    return file


class _Gateway(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(ANSWER)))
        self.end_headers()
        self.wfile.write(ANSWER)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Nobody reads it."""


@pytest.fixture
def url(certificate: Path) -> Iterator[str]:
    """In a thread, with which every connection ends: asyncio's go on with their goodbyes after their server."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with HTTPServer(("127.0.0.1", 0), _Gateway) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        yield f"https://127.0.0.1:{server.server_port}"
        server.shutdown()
        serving.join()


async def test_it_is_no_outage_that_ends_by_itself(url: str) -> None:
    async with GatewayClient.open(GatewaySettings(url=url), "secret", "w-1", lambda: NOW) as client:
        with pytest.raises(Unauthorized, match="its certificate is not trusted: self") as raised:
            await client.heartbeat(a_beat())
    assert "SSL_CERT_FILE" in raised.value.hint


async def test_an_authority_of_ones_own_is_trusted_by_its_file(
    url: str, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    async with GatewayClient.open(GatewaySettings(url=url), "secret", "w-1", lambda: NOW) as client:
        assert (await client.heartbeat(a_beat())).commands == []


async def test_another_failure_of_tls_is_an_outage(url: str) -> None:
    async with GatewayClient.open(
        GatewaySettings(url=url.replace("https", "http")), "secret", "w-1", lambda: NOW
    ) as client:
        with pytest.raises(Unavailable):
            await client.heartbeat(a_beat())
