"""Many random lives of a store, crashes included, each step compared with a model (I1, I3, I4, I6, I9)."""

from __future__ import annotations

import asyncio
import copy
import itertools
import random
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import rule, run_state_machine_as_test

from parcelpost.model import Claim, Result, Task, TaskStatus
from parcelpost.storage.operator_actions import Selection
from tests.lengths import short_and_long
from tests.storage.crash.agreement import assert_agrees, assert_intact, assert_raw_files, copy_as_a_crash_leaves_it
from tests.storage.crash.store_life import OPTIONS, PAGES, TaskLife, picks
from tests.storage.crash.store_model import StoreModel


class StoreLife(TaskLife):
    """The other half of the rules: the outbox, the janitor, closing and crashing."""

    @rule(pick=picks)
    def deliver(self, pick: random.Random) -> None:
        chosen = self.some_results(pick)
        if pick.random() < 0.8:  # else the raw files are forgotten, and their results must not be marked (I6)
            with_page = [result for result in chosen.values() if result.page is not None]
            assert self.run(self.lpm.mark_raw_synced(list(chosen))) == len(with_page)
            for result in with_page:
                result.raw_synced = True
        fit = [r for r in chosen.values() if r.synced_at is None and (r.page is None or r.raw_synced)]
        assert self.run(self.lpm.mark_synced(list(chosen))) == len(fit)
        for result in fit:
            result.synced_at, result.rejected = self.now, False

    @rule(pick=picks)
    def reject(self, pick: random.Random) -> None:
        chosen = self.some_results(pick)
        fit = [result for result in chosen.values() if result.synced_at is None]
        assert self.run(self.lpm.mark_rejected(list(chosen), "bad parcel")) == len(fit)
        for result in fit:
            result.rejected = True

    @rule()
    def reset_rejected(self) -> None:
        rejected = [result for result in self.model.results().values() if result.rejected]
        assert self.run(self.lpm.operator.retry_results(Selection())).total() == len(rejected)
        for result in rejected:
            result.rejected = False

    @rule()
    def clean(self) -> None:
        cleaned = self.run(self.lpm.maintenance.clean())
        assert (cleaned.results, cleaned.tasks) == self.model.clean(self.now, timedelta(days=OPTIONS.keep_results_days))
        self.run(assert_raw_files(self.lpm, self.model))

    @rule()
    def close_and_reopen(self) -> None:
        self.close()
        assert_intact(self.store)
        self.model.release_all()
        self.open()

    @rule()
    def crash(self) -> None:
        left = self.copy()
        self.close()
        self.go_on_with(left)
        self.model.crash(self.now)

    @rule(pick=picks)
    def crash_with_calls_under_way(self, pick: random.Random) -> None:
        body, turns = pick.choice(PAGES), pick.randrange(60)
        held = [claim for claim in self.claims if self.model.current(claim)]
        saved = pick.choice(held) if held else None
        added = self.some_task(pick)
        step = self.model.step
        left = self.run(self.crash_during(saved, self.a_result(body), added, turns))
        self.close()
        self.go_on_with(left)
        possible = [model for model in self.possible_models(saved, body, added, step) if self.agrees(model)]
        assert possible, "a call happened by half"
        self.model = possible[0]

    def copy(self) -> Path:
        self.lives += 1
        return copy_as_a_crash_leaves_it(self.store, Path(self.folder.name) / f"life{self.lives}")

    def go_on_with(self, left: Path) -> None:
        self.store = left
        self.open()
        assert_intact(self.store)

    async def crash_during(self, saved: Claim | None, result: Result, added: Task, turns: int) -> Path:
        calls: list[asyncio.Future[Any]] = [
            asyncio.ensure_future(self.lpm.add_task(added)),
            asyncio.ensure_future(self.lpm.claim(2)),
        ]
        if saved is not None:
            calls.append(asyncio.ensure_future(self.lpm.save_result(saved, result)))
        for _ in range(turns):
            await asyncio.sleep(0)
        left = self.copy()
        await asyncio.gather(*calls)
        return left

    def possible_models(self, saved: Claim | None, body: bytes | None, added: Task, step: int) -> Iterator[StoreModel]:
        """Each of the calls happened whole or not at all."""
        for is_added, is_claimed, is_saved in itertools.product((False, True), repeat=3):
            model = copy.deepcopy(self.model)
            if is_added:
                model.add(added, self.now)
            for stored in model.claimable(2, None, self.now) if is_claimed else []:
                stored.status, stored.token = TaskStatus.PROCESSING, "a claim that nobody got"
            stored_save = model.current(saved) if saved and is_saved else None
            if stored_save is not None:
                model.end(stored_save, TaskStatus.COMPLETED, self.now, self.a_record(None, body, step))
            model.crash(self.now)
            yield model

    def agrees(self, model: StoreModel) -> bool:
        try:
            self.runner.run(assert_agrees(self.lpm, model, self.now))
        except AssertionError:
            return False
        return True


@pytest.mark.slow
@pytest.mark.timeout(600)
@short_and_long("lives", (9,), (300,))
def test_every_life_of_a_store_goes_as_the_model_says(lives: int) -> None:
    # Without shrinking: a crash in mid-call comes out differently each time, and a life is short enough to read.
    phases = [phase for phase in Phase if phase is not Phase.shrink]
    run_state_machine_as_test(StoreLife, settings=settings(max_examples=lives, stateful_step_count=40, phases=phases))
