"""Everything its OpenAPI document allows is asked of the gateway: no 5xx, and no undeclared answer."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.gateway.conftest import fresh_schema
from tests.gateway.process import a_gateway

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
HEADERS = {"X-Worker-ID": "w-1", "Host": "127.0.0.1:8700"}
LONGEST_QUERY = 8_000  # a longer one is refused in plain text before it is a request
EXAMPLES = settings(
    max_examples=20,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
    derandomize=True,
    database=None,
)


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def document(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("gateway")
    database = str(folder / "gateway.db")
    if request.param == "postgres":
        database = asyncio.run(fresh_schema(request.getfixturevalue("postgres_server")))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_PROXY", "*")
        with a_gateway(folder, requests_per_second=1_000_000, database=database) as address:
            yield schemathesis.openapi.from_url(f"{address}/openapi.json")


@pytest.mark.parametrize("mode", list(schemathesis.GenerationMode), ids=lambda mode: mode.value)
def test_no_answer_is_a_surprise(document: Any, mode: schemathesis.GenerationMode) -> None:
    asked = 0
    for operation in (found.ok() for found in document.get_all_operations()):

        @EXAMPLES
        @given(case=operation.as_strategy(generation_mode=mode))
        def ask(case: Any) -> None:
            assume(len(urlencode(case.query or {}, doseq=True)) < LONGEST_QUERY)
            case.call_and_validate(headers=HEADERS, checks=CHECKS)

        with contextlib.suppress(Unsatisfiable):  # it takes nothing that could be wrong
            ask()
            asked += 1
    assert asked >= 11
