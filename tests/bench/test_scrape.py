"""The benchmark's site and contenders: each peer scrapes all pages of the site and stores them."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.scrape import runs
from bench.scrape.contenders import CONTENDERS, Contender


@pytest.mark.slow
@pytest.mark.parametrize("contender", CONTENDERS, ids=lambda contender: contender.name)
def test_every_contender_scrapes_and_stores_all_pages(tmp_path: Path, contender: Contender) -> None:
    with runs.site(5, 8_000) as ports:
        cost = runs.run(contender, tmp_path, ports, 5)
    assert cost.lost == 0
    assert cost.cpu_seconds > 0
