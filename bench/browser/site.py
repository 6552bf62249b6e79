"""A county's site in a process of its own: a shell, and data that a script makes the page of."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

_SHELL = """<!doctype html><title>Parcel</title><link rel="stylesheet" href="/style.css"><div id="app">Loading</div>
<script>
const number = new URLSearchParams(location.search).get("parcel");
fetch("/data?parcel=" + number).then(answer => answer.json()).then(rows => {
  const table = document.createElement("table");
  for (const [name, value] of rows) {
    const row = table.insertRow();
    row.insertCell().textContent = name;
    row.insertCell().textContent = value;
  }
  document.getElementById("app").replaceChildren(table);
  document.body.dataset.parcel = number;
});
</script>"""
_STYLE = "\n".join(f".row-{number} {{ margin: {number}px; color: #123456; }}" for number in range(400))
_ROWS = 300


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        asked = urlsplit(self.path)
        if asked.path == "/data":
            (number,) = parse_qs(asked.query)["parcel"]
            rows = [[f"field {row} of parcel {number}", "a value " * 8] for row in range(_ROWS)]
            self._answer("application/json", json.dumps(rows))
        elif asked.path == "/style.css":
            self._answer("text/css", _STYLE)
        else:
            self._answer("text/html", _SHELL)

    def _answer(self, kind: str, text: str) -> None:
        body = text.encode()
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        return


@contextmanager
def site() -> Iterator[str]:
    """Its address."""
    with subprocess.Popen([sys.executable, "-m", "bench.browser.site"], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield f"http://127.0.0.1:{server.stdout.readline().strip()}"
        finally:
            server.terminate()


if __name__ == "__main__":
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as serving:
        print(serving.server_port, flush=True)
        serving.serve_forever()
