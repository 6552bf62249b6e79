"""`parcelpost doctor` where Firestore is the upstream."""

from __future__ import annotations

from pathlib import Path

import pytest

from parcelpost.cli.health.doctor import make_context
from parcelpost.cli.health.upstream import check_upstream
from parcelpost.settings import sources
from tests.firestore.server import FirestoreServer


async def asked(folder: Path, monkeypatch: pytest.MonkeyPatch, host: str) -> tuple[str, str]:
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", host)
    flags = {"worker.upstream": "firestore", "firestore.raw": str(folder / "raw"), "firestore.timeout_seconds": "2"}
    found = sources.diagnose(config=None, environment={}, flags=flags)
    (result,) = await check_upstream(make_context(folder / "none.db", found, deep=False))
    return result.state, result.summary or result.findings[0].message


async def test_it_is_asked_and_changed_by_nothing(
    server: FirestoreServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await asked(tmp_path, monkeypatch, server.host) == ("ok", "Firestore responds and accepts our credentials")


async def test_that_it_is_not_there_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state, what = await asked(tmp_path, monkeypatch, "127.0.0.1:1")
    assert state == "error"
    assert what.startswith("Firestore ")
