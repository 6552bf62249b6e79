"""A store for programs whose loop is another one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from parcelpost.contrib.scrapy import StoreThread
from parcelpost.errors import NotAStore
from parcelpost.storage import StoreOptions
from tests.storage.factories import a_result, a_task, look

FORGETFUL = """
import sys
from pathlib import Path
from parcelpost.contrib.scrapy import StoreThread
from parcelpost.storage import StoreOptions
StoreThread(Path(sys.argv[1]), StoreOptions(), "forgetful").open().result()
"""


def test_work_is_done_on_the_stores_own_loop(tmp_path: Path) -> None:
    store = StoreThread(tmp_path / "store.db", StoreOptions(), "test")
    store.open().result()
    assert store.submit(lambda lpm: lpm.add_result(a_task(), a_result())).result()
    store.close().result()
    store.close().result()
    assert look(tmp_path / "store.db", "SELECT status FROM tasks") == [("completed",)]


def test_what_was_never_opened_or_could_not_be_opened_can_be_closed(tmp_path: Path) -> None:
    StoreThread(tmp_path / "store.db", StoreOptions(), "test").close().result()
    (tmp_path / "store.db").write_text("something else, and longer than a header of SQLite is, by far")
    store = StoreThread(tmp_path / "store.db", StoreOptions(), "test")
    with pytest.raises(NotAStore):
        store.open().result()
    with pytest.raises(NotAStore):
        store.close().result()


def test_a_program_that_forgets_to_close_it_ends_all_the_same(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", FORGETFUL, str(tmp_path / "store.db")], check=True, timeout=60)
    assert list((tmp_path / "store.db-live").glob("forgetful*")) == []
