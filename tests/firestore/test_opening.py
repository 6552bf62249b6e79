"""Credentials are found, used and never told; the emulator needs none."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from parcelpost.clock import SystemClock
from parcelpost.errors import InvalidSettings
from parcelpost.settings.schema import FirestoreSettings
from parcelpost.upstream.firestore.client import FirestoreClient, open_firestore
from tests.firestore.conftest import ROOT
from tests.firestore.server import FirestoreServer
from tests.upstream.factories import an_entry

VARIABLE = "GOOGLE_APPLICATION_CREDENTIALS"
PAGE = Path(__file__).parents[2] / "docs" / "firestore.md"


@pytest.fixture
def key() -> dict[str, str]:
    """A service account's key, as Google's console gives it."""
    private = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
    text = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return {
        "type": "service_account",
        "project_id": "of-the-key",
        "private_key_id": "abc",
        "private_key": text.decode(),
        "client_email": "worker@of-the-key.iam.gserviceaccount.com",
        "token_uri": "http://127.0.0.1:9/token",
    }


async def _open(folder: Path, environment: Mapping[str, str] | None = None, **settings: Any) -> None:
    chosen = FirestoreSettings(**{"raw": str(folder / "raw"), **settings})
    async with open_firestore(chosen, environment or {}, "w-1", SystemClock()):
        pass


async def test_a_key_file_is_enough(tmp_path: Path, key: dict[str, str]) -> None:
    file = tmp_path / "key.json"
    file.write_text(json.dumps(key))
    await _open(tmp_path, credentials_file=str(file))


@pytest.mark.parametrize("name", ["firestore.credentials_file", VARIABLE])
@pytest.mark.parametrize(
    "harm", ["cut off", "no key", "a list as key", "a list", "a folder", "missing", "another file"]
)
async def test_a_bad_key_is_told_without_a_word_of_it(
    tmp_path: Path, key: dict[str, str], monkeypatch: pytest.MonkeyPatch, name: str, harm: str
) -> None:
    file = tmp_path / "key.json"
    texts = {
        "cut off": json.dumps(key)[:-20],
        "no key": json.dumps({**key, "private_key": "-----BEGIN SECRET"}),
        "a list as key": json.dumps({**key, "private_key": ["-----BEGIN SECRET"]}),
        "a list": json.dumps(["SECRET", key]),
        "another file": json.dumps({"password": "SECRET"}),
    }
    if harm in texts:
        file.write_text(texts[harm])
    elif harm == "a folder":
        file.mkdir()
    monkeypatch.setenv(VARIABLE, str(file))
    setting = {} if name == VARIABLE else {"credentials_file": str(file)}
    with pytest.raises(InvalidSettings, match=f"^{re.escape(f'{name} {file}')} cannot be (read|used)") as error:
        await _open(tmp_path, os.environ, **setting)
    told = f"{error.value} {error.value.hint} {error.value.__cause__}"
    assert not re.search("SECRET|BEGIN|MII", told)
    assert VARIABLE in error.value.hint


async def test_a_key_named_by_the_environment_is_enough(tmp_path: Path, key: dict[str, str]) -> None:
    file = tmp_path / "key.json"
    file.write_text(json.dumps(key))
    await _open(tmp_path, {VARIABLE: str(file)})


async def test_without_credentials_it_says_how_to_name_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "missing.json"))
    with pytest.raises(InvalidSettings, match="no credentials for Firestore") as error:
        await _open(tmp_path, project="p")
    assert "GOOGLE_APPLICATION_CREDENTIALS" in error.value.hint


@pytest.mark.parametrize(
    "place",
    [
        "gs://",
        "s3://",
        "ftp://host/folder",
        "/dev/null/x",
        "memory:///",
        "https://host/raw?sig=SECRET",
        "https://me:SECRET@host/raw",
    ],
)
async def test_a_raw_store_that_is_none_is_refused(tmp_path: Path, place: str) -> None:
    with pytest.raises(InvalidSettings, match=r"firestore\.raw(?!.*SECRET)"):
        await _open(tmp_path, {"FIRESTORE_EMULATOR_HOST": "127.0.0.1:1"}, raw=place)


async def test_the_emulator_gets_no_credentials(server: FirestoreServer, client: FirestoreClient) -> None:
    await client.get_work(1, ["echo"])
    assert set(server.credentials) == {"Bearer owner"}


async def test_the_example_of_the_page_adds_a_task(
    server: FirestoreServer, client: FirestoreClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", server.host)
    await asyncio.to_thread(exec, _examples()[0], {})
    assert list(server.all(f"{ROOT}/tasks")) == ["hartford-1-23-4"]
    (task,) = (await client.get_work(5, ["vgsi"])).tasks
    assert (task.task_id, task.platform, task.target.county) == ("hartford-1-23-4", "vgsi", "hartford")


async def test_the_pages_other_example_reads_records(
    server: FirestoreServer,
    client: FirestoreClient,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", server.host)
    await client.submit_results([an_entry("t1", data=b'{"a":1}'), an_entry("t2", data=b'{"a":[[2]]}')])
    await asyncio.to_thread(exec, _examples()[1].replace("gs://my-bucket/raw", str(tmp_path / "raw")), {})
    assert sorted(capsys.readouterr().out.splitlines()) == ["{'a': 1}", "{'a': [[2]]}"]


def _examples() -> list[str]:
    found = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    return [code.replace("my-project", "p") for code in found]
