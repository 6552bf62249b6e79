"""The examples of docs/gateway.md and docs/exploring.md, run as they are written."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
from pathlib import Path

import pytest

from parcelpost.clock import SystemClock
from tests.gateway.filling import fill
from tests.gateway.served import served

DOCS = Path(__file__).parents[2] / "docs"
PAGE, SEARCH_PAGE = DOCS / "gateway.md", DOCS / "exploring.md"
EXAMPLES = [
    line
    for page in (PAGE, SEARCH_PAGE)
    for block in re.findall(r"```sh\n(.*?)```", page.read_text(), re.DOTALL)
    for line in block.splitlines()
]


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
async def test_every_example_works(tmp_path: Path) -> None:
    assert len(EXAMPLES) > 10
    tokens = {"PARCELPOST_ADMIN_TOKENS": "ruling"}
    async with served(tmp_path / "gateway", tokens) as gateway:
        await fill(gateway.ledger, gateway.raw_store, SystemClock().now(), parcels=6)
        curl_file = tmp_path / ".curlrc"
        curl_file.write_text('fail-with-body\nheader = "Authorization: Bearer ruling"\n')
        environment = {**os.environ, "GATEWAY": gateway.address, "TOKEN": "ruling", "CURL_HOME": str(tmp_path)}
        for example in EXAMPLES:
            run = await asyncio.create_subprocess_shell(
                example, cwd=tmp_path, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
            )
            told, _ = await run.communicate()
            assert run.returncode == 0, (example, told)
            if "-o " not in example:
                json.loads(told)
    assert (tmp_path / "parcels.csv").read_text().startswith("platform,state,county,parcel_id")
    assert (tmp_path / "page.html.gz").read_bytes()[:2] == b"\x1f\x8b"


def test_every_parameter_of_the_search_is_named() -> None:
    from parcelpost.gateway.api.search import SearchParams

    ranges = [
        name.partition("_")[2] if name[:4] in ("min_", "max_") else name for name in SearchParams.__struct_fields__
    ]
    text = SEARCH_PAGE.read_text()
    assert [name for name in ranges if f"`{name}`" not in text] == []
