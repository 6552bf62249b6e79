"""Raw files in a folder and in S3: by their hash, once, under names that cannot leave."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from parcelpost.errors import InvalidSettings, RawStoreUnavailable
from parcelpost.object_store import RawStore, open_raw_store, remove_leftovers, safe_name
from tests.gateway.stage import PAGE

SHA256 = hashlib.sha256(PAGE).hexdigest()
FOLDER = f"{SHA256[:2]}/{SHA256[2:4]}"


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[str, str]]]:
    """A bucket of a real S3 server: its folder, and the environment that finds it."""
    folder = tmp_path_factory.mktemp("s3")
    (folder / "bucket").mkdir()
    address = f"127.0.0.1:{_free_port()}"
    command = [str(Path(sys.executable).with_name("rclone")), "serve", "s3", "--addr", address]
    command += ["--auth-key", "accesskey1,secretkey1", "--config", os.devnull, str(folder)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None
            assert any("Starting s3 server" in line for line in server.stderr)
            keys = {"AWS_ACCESS_KEY_ID": "accesskey1", "AWS_SECRET_ACCESS_KEY": "secretkey1"}
            yield folder / "bucket", {**keys, "AWS_ENDPOINT_URL": f"http://{address}"}
        finally:
            server.terminate()


@pytest.fixture(params=["folder", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[RawStore, Path]:
    """A store, and the folder where its files can be seen."""
    if request.param == "folder":
        return open_raw_store(str(tmp_path / "raw"), {}), tmp_path / "raw"
    folder, environment = request.getfixturevalue("bucket")
    prefix = tmp_path.name
    return open_raw_store(f"s3://bucket/raw/{prefix}", environment), folder / "raw" / prefix


async def _page(store: RawStore, sha256: str) -> bytes | None:
    found = await store.open(sha256)
    if found is None:
        return None
    packed = b"".join([chunk async for chunk in found.chunks])
    assert len(packed) == found.size
    return gzip.decompress(packed)


async def test_a_page_is_kept_with_what_is_told_of_it(place: tuple[RawStore, Path]) -> None:
    store, folder = place
    path = await store.put(SHA256, io.BytesIO(gzip.compress(PAGE)), "echo_CT_p.html.gz", b'{"task_id": "t1"}')
    assert path == f"{FOLDER}/{SHA256}.html.gz"
    assert gzip.decompress((folder / path).read_bytes()) == PAGE
    assert json.loads((folder / FOLDER / SHA256 / "echo_CT_p.html.gz.json").read_bytes()) == {"task_id": "t1"}
    assert await _page(store, SHA256) == PAGE


async def test_a_store_is_well_if_it_can_be_written_however_often(place: tuple[RawStore, Path]) -> None:
    store, folder = place
    for _ in range(2):
        await store.check()
    assert [file.name for file in folder.rglob("*") if file.is_file()] == ["health"]


async def test_a_page_that_is_there_is_not_written_again(place: tuple[RawStore, Path]) -> None:
    store, folder = place
    path = await store.put(SHA256, io.BytesIO(gzip.compress(PAGE)), "one", b"{}")
    before = (folder / path).stat().st_mtime_ns, (folder / path).stat().st_ino
    await store.put(SHA256, io.BytesIO(b"other bytes"), "two", b"{}")
    assert ((folder / path).stat().st_mtime_ns, (folder / path).stat().st_ino) == before
    assert sorted(file.name for file in (folder / FOLDER / SHA256).iterdir()) == ["one.json", "two.json"]


async def test_a_large_page_comes_in_pieces(place: tuple[RawStore, Path]) -> None:
    store, _ = place
    page = os.urandom(12_000_000)
    sha256 = hashlib.sha256(page).hexdigest()
    await store.put(sha256, io.BytesIO(gzip.compress(page, 1)), "large", b"{}")
    found = await store.open(sha256)
    assert found is not None
    pieces = [len(chunk) async for chunk in found.chunks]
    assert sum(pieces) == found.size
    assert len(pieces) > 2


@pytest.mark.parametrize("sha256", ["0" * 64, "../../etc/passwd", "", "A" * 64, "0" * 63])
async def test_what_is_not_there_is_not_found(place: tuple[RawStore, Path], sha256: str) -> None:
    assert await place[0].open(sha256) is None


NAMES = [
    "../../x",
    "/etc/passwd",
    "..",
    ".",
    "",
    ".hidden",
    "a/b",
    "a\\b",
    "a\0b",
    "\u00e9",
    "x" * 5_000,
    "\ud800",
    "a b",
]


async def test_no_name_leaves_the_store(tmp_path: Path) -> None:
    for number, name in enumerate(NAMES):
        folder = tmp_path / str(number)
        store = open_raw_store(str(folder / "raw"), {})
        await store.put(SHA256, io.BytesIO(gzip.compress(PAGE)), name, b"{}")
        files = [file for file in tmp_path.rglob("*") if file.is_file()]
        assert len(files) == 2 * (number + 1), name
        assert len([file for file in files if file.is_relative_to(folder / "raw" / FOLDER)]) == 2, name


def test_names_that_differ_stay_apart() -> None:
    assert len({safe_name(name) for name in [*NAMES, "a-b", "-x"]}) == len(NAMES) + 2
    assert safe_name("echo_CT_hartford_p~1_abc.html.gz") == "echo_CT_hartford_p~1_abc.html.gz"


async def test_files_are_for_their_owner_alone_and_nothing_is_left_staged(tmp_path: Path) -> None:
    top, folder = tmp_path / "data", tmp_path / "data" / "raw"
    store = open_raw_store(str(folder), {})
    await store.put(SHA256, io.BytesIO(gzip.compress(PAGE)), "p", b"{}")
    for one in (top, *top.rglob("*")):
        assert one.stat().st_mode & 0o777 == (0o700 if one.is_dir() else 0o600), one
    assert list((folder / "staging").iterdir()) == []


async def test_a_store_that_does_not_answer_is_away(tmp_path: Path) -> None:
    keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    store = open_raw_store("s3://bucket", {**keys, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{_free_port()}"})
    with pytest.raises(RawStoreUnavailable) as away:
        await store.open(SHA256)
    assert away.value.retry_helps
    with pytest.raises(RawStoreUnavailable):
        await store.check()


@pytest.mark.parametrize("place", ["", "s3://", "gs://bucket", "/dev/null/x"])
def test_what_names_no_store_is_refused(place: str) -> None:
    with pytest.raises(InvalidSettings):
        open_raw_store(place, {})


def test_what_crashes_left_is_removed_once_nobody_can_be_writing_it(tmp_path: Path) -> None:
    now = datetime(2026, 11, 15, 12, tzinfo=UTC)
    staging = tmp_path / "raw" / "staging"
    staging.mkdir(parents=True)
    for name, minutes in (("left", 61), ("being-written", 59)):
        (staging / name).write_bytes(b"half a page")
        at = (now - timedelta(minutes=minutes)).timestamp()
        os.utime(staging / name, (at, at))
    remove_leftovers(str(tmp_path / "raw"), now)
    assert [file.name for file in staging.iterdir()] == ["being-written"]
    remove_leftovers(str(tmp_path / "none"), now)
    remove_leftovers("s3://bucket/raw", now)
