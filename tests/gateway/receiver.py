"""A receiver of webhooks: a real HTTP server on loopback that verifies with the `standardwebhooks` package."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from standardwebhooks.webhooks import Webhook as Verifier
from standardwebhooks.webhooks import WebhookVerificationError

SECRET = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="


class Receiver:
    def __init__(self, answer: Callable[[BaseHTTPRequestHandler, dict[str, Any]], int | None] | None = None) -> None:
        self.events: list[dict[str, Any]] = []
        """Verified and taken, each with its `id`."""
        self.requests = 0
        self.rejected: list[str] = []
        self.status = 200
        self._answer = answer
        self._server: ThreadingHTTPServer | None = None
        self._port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/hook"

    def start(self) -> None:
        """On the same port as before."""
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                if receiver._server is None:  # on a connection from before
                    self.close_connection = True
                    return
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.requests += 1
                try:
                    event = Verifier(SECRET).verify(body, dict(self.headers.items()))
                except WebhookVerificationError as error:
                    receiver.rejected.append(str(error))
                    status = 401
                else:
                    answered = receiver._answer(self, event) if receiver._answer else receiver.status
                    if answered is None:
                        return  # by itself
                    status = answered
                    if 200 <= status < 300:
                        receiver.events.append({"id": self.headers["webhook-id"], **event})
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), Handler)
        self._server.daemon_threads = True
        self._port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        """Connections are refused from then on."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None


@contextmanager
def receiving(
    answer: Callable[[BaseHTTPRequestHandler, dict[str, Any]], int | None] | None = None,
) -> Iterator[Receiver]:
    receiver = Receiver(answer)
    receiver.start()
    try:
        yield receiver
    finally:
        receiver.stop()
