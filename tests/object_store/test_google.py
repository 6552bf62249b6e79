"""Raw files in Cloud Storage: an imitation of its answers, asked by the real client."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

import pytest

from parcelpost.errors import RawStoreDenied, RawStoreUnavailable
from parcelpost.object_store import RawStore, open_any_raw_store

PAGE = b"<html>a page</html>"
SHA256 = hashlib.sha256(PAGE).hexdigest()
PATH = f"/bucket/raw/{SHA256[:2]}/{SHA256[2:4]}/{SHA256}"


class Bucket(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.status = 200

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Bucket
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._answer(200 if self._name in self.server.objects else 404)

    def do_PUT(self) -> None:
        self.server.objects[self._name] = self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(200)

    def log_message(self, *_: object) -> None:
        pass

    @property
    def _name(self) -> str:
        return unquote(self.path)

    def _answer(self, status: int) -> None:
        self.server.asked.append(f"{self.command} {self._name}")
        self.send_response(status if self.server.status == 200 else self.server.status)
        size = len(self.server.objects.get(self._name, b"")) if self.command == "HEAD" else 0
        self.send_header("Content-Length", str(size))
        self.send_header("ETag", '"1"')
        self.send_header("Last-Modified", "Sun, 15 Nov 2026 12:00:00 GMT")
        self.end_headers()


@pytest.fixture
def bucket() -> Iterator[Bucket]:
    with Bucket() as server:
        thread = threading.Thread(target=server.serve_forever, args=[0.02])
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def store(bucket: Bucket, tmp_path: Path) -> RawStore:
    key = {"gcs_base_url": bucket.address, "disable_oauth": True, "client_email": "", "private_key": ""}
    file = tmp_path / "key.json"
    file.write_text(json.dumps({**key, "private_key_id": ""}))
    return open_any_raw_store("gs://bucket/raw", {}, setting="firestore.raw", google_key_file=str(file))


async def test_a_page_is_kept_once(bucket: Bucket, store: RawStore) -> None:
    for _ in range(2):
        path = await store.put(SHA256, io.BytesIO(gzip.compress(PAGE)), "name", b'{"task_id": "t1"}')
        assert f"/bucket/raw/{path}" == f"{PATH}.html.gz"
    assert gzip.decompress(bucket.objects[f"{PATH}.html.gz"]) == PAGE
    assert bucket.objects[f"{PATH}/name.json"] == b'{"task_id": "t1"}'
    assert bucket.asked.count(f"PUT {PATH}.html.gz") == 1


async def test_a_record_is_kept_once(bucket: Bucket, store: RawStore) -> None:
    for _ in range(2):
        await store.put_record(SHA256, b"packed")
    assert bucket.objects == {f"{PATH}.json.gz": b"packed"}
    assert bucket.asked.count(f"PUT {PATH}.json.gz") == 1


@pytest.mark.parametrize("status", [401, 403, 404])
async def test_a_bucket_that_does_not_let_us_in_is_told_from_one_that_is_away(
    bucket: Bucket, store: RawStore, status: int
) -> None:
    bucket.status = status
    with pytest.raises(RawStoreDenied):
        await store.put_record(SHA256, b"packed")


async def test_a_bucket_that_is_ill_is_away(bucket: Bucket, store: RawStore) -> None:
    bucket.status = 503
    with pytest.raises(RawStoreUnavailable) as away:
        await store.put_record(SHA256, b"packed")
    assert type(away.value) is RawStoreUnavailable


async def test_a_store_at_any_address_is_asked_a_few_times_only(bucket: Bucket) -> None:
    bucket.status = 503
    store = open_any_raw_store(f"{bucket.address}/bucket/raw", {}, setting="firestore.raw", google_key_file="")
    with pytest.raises(RawStoreUnavailable):
        await store.put_record(SHA256, b"packed")
    assert bucket.asked == [f"HEAD {PATH}.json.gz"] * 3
