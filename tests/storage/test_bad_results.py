"""A result that cannot be stored is refused with a clear error, and harms nobody beside it."""

from __future__ import annotations

import asyncio
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from parcelpost.clock import ManualClock
from parcelpost.errors import InvalidInput
from parcelpost.model import Page, Result
from parcelpost.storage import LocalPersistenceManager, StoreOptions
from tests.storage.factories import NOW, a_result, a_task, claim_one, everything, the_result, the_task
from tests.storage.test_bad_input import BAD_VALUES, LONE, NUL


async def test_bad_data_is_refused_and_its_task_stays_claimed(
    lpm: LocalPersistenceManager, store: Path, subtests: pytest.Subtests
) -> None:
    claim = await claim_one(lpm)
    before = everything(store)
    for name, value in BAD_VALUES.items():
        with subtests.test(name):
            with pytest.raises(InvalidInput, match=r"^data "):
                await lpm.save_result(claim, a_result({"null": None, "value": value}, body=b"<p>"))
            with pytest.raises(InvalidInput, match=r"^data "):
                await lpm.save_result(claim, a_result({"value": value}))
            assert everything(store) == before
    assert [file.name for file in (store.parent / "data").iterdir()] == [".store"], "a page was left behind"
    assert await lpm.save_result(claim, a_result()) is not None


BAD_RESULTS: dict[str, dict[str, Any]] = {
    "scraped_at without a zone": {"scraped_at": datetime(2026, 1, 1)},  # noqa: DTZ001 - the point
    "lone surrogate in screenshot_path": {"screenshot_path": LONE},
    "NUL in screenshot_path": {"screenshot_path": NUL},
    "lone surrogate in log_path": {"log_path": LONE},
    "NUL in log_path": {"log_path": NUL},
    "a time beyond 64 bits": {"execution_time_ms": 2**70},
    "a time that is not whole": {"execution_time_ms": 1.5},
    "a page of text": {"page": Page(body="<p>text</p>")},  # type: ignore[arg-type]
}


@pytest.mark.parametrize("fields", BAD_RESULTS.values(), ids=BAD_RESULTS)
async def test_a_bad_result_is_refused_with_its_page_and_harms_none_saved_beside_it(
    lpm: LocalPersistenceManager, store: Path, fields: dict[str, Any]
) -> None:
    await lpm.add_tasks(a_task(f"t{n}") for n in range(9))
    guilty, *others = await lpm.claim(9)
    bad = Result(**{"data": {}, "scraped_at": NOW, "page": Page(body=b"<p>"), **fields})
    async with asyncio.timeout(60):
        answers = await asyncio.gather(
            *(lpm.save_result(claim, a_result(body=b"<p>")) for claim in others[:4]),
            lpm.save_result(guilty, bad),
            *(lpm.save_result(claim, a_result(body=b"<p>")) for claim in others[4:]),
            return_exceptions=True,
        )
    refusal = answers.pop(4)
    assert isinstance(refusal, InvalidInput), repr(refusal)
    assert all(isinstance(answer, str) for answer in answers)
    assert len(list((store.parent / "data").rglob("*.html.gz"))) == 8, "a page was left behind"
    assert (await lpm.queue_depth()).completed == 8
    assert await lpm.save_result(guilty, a_result()) is not None


async def test_a_result_of_50_mb_is_refused_and_says_what_fits(lpm: LocalPersistenceManager, store: Path) -> None:
    claim = await claim_one(lpm)
    before = everything(store)
    with pytest.raises(InvalidInput, match=r"data takes 52,\d{3},\d{3} bytes as JSON; at most 16,777,216 are allowed"):
        await lpm.save_result(claim, a_result({"pad": "x" * 52_428_800}, body=b"<p>"))
    assert everything(store) == before
    assert [file.name for file in (store.parent / "data").iterdir()] == [".store"], "a page was left behind"
    assert await lpm.save_result(claim, a_result()) is not None


async def test_a_result_at_the_limit_is_stored_and_one_byte_more_is_not(store: Path, clock: ManualClock) -> None:
    async with LocalPersistenceManager.open(store, clock=clock, options=StoreOptions(max_result_bytes=1_000)) as lpm:
        claim = await claim_one(lpm)
        with pytest.raises(InvalidInput, match="1,001 bytes"):
            await lpm.save_result(claim, a_result({"pad": "x" * 991}))
        assert await lpm.save_result(claim, a_result({"pad": "x" * 990})) is not None
        assert len((await the_result(lpm)).data or b"") == 1_000


async def test_a_page_at_the_limit_is_stored_and_one_byte_more_is_not(store: Path, clock: ManualClock) -> None:
    async with LocalPersistenceManager.open(store, clock=clock, options=StoreOptions(max_page_bytes=1_000)) as lpm:
        claim = await claim_one(lpm)
        with pytest.raises(InvalidInput, match="1,001 bytes"):
            await lpm.save_result(claim, a_result(body=b"x" * 1_001))
        assert await lpm.save_result(claim, a_result(body=b"x" * 1_000)) is not None


@pytest.mark.parametrize("text", [LONE, NUL, "x" * 10_000, ""], ids=["lone surrogate", "NUL", "long", "empty"])
async def test_an_error_message_is_never_a_reason_to_refuse(lpm: LocalPersistenceManager, text: str) -> None:
    await lpm.retry_later(await claim_one(lpm, a_task("a", platform="a")), text)
    await lpm.give_up(await claim_one(lpm, a_task("b", platform="b")), text)
    entry = await the_result(lpm, "b")
    await lpm.count_attempt([entry.result_id], text)
    await lpm.mark_rejected([entry.result_id], text)
    await lpm.pause_platform("a", reason=text)
    for kept in ((await the_task(lpm, "a")).error, entry.error, (await the_result(lpm, "b")).last_error):
        assert kept is not None
        assert len(kept) <= 4_000
