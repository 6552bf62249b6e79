"""Everything its OpenAPI document allows is asked of the gateway: no 5xx, and no undeclared answer."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis.errors import Unsatisfiable
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from parcelpost.gateway.api.descriptions import FIELDS, PARAMETER_EXAMPLES, PARAMETERS
from tests.gateway.conftest import fresh_schema
from tests.gateway.process import a_gateway
from tests.gateway.stage import a_client, some_context
from tests.lengths import short_and_long

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
HEADERS = {"X-Worker-ID": "w-1", "Host": "127.0.0.1:8700"}
LONGEST_QUERY = 8_000  # a longer one is refused in plain text before it is a request
EXAMPLES = settings(
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture
def addresses(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[str, ...]]:
    """Of a gateway on SQLite and one on PostgreSQL: what is asked takes longer to make up than to be answered."""
    monkeypatch.setenv("NO_PROXY", "*")
    databases = {"sqlite": str(tmp_path / "sqlite" / "gateway.db")}
    with contextlib.suppress(pytest.skip.Exception):  # where there is no PostgreSQL, only the other is asked
        databases["postgres"] = asyncio.run(fresh_schema(request.getfixturevalue("postgres_server")))
    with contextlib.ExitStack() as stack:
        yield tuple(stack.enter_context(_gateway(tmp_path / name, place)) for name, place in databases.items())


def _gateway(folder: Path, database: str) -> contextlib.AbstractContextManager[str]:
    folder.mkdir()
    return a_gateway(folder, requests_per_second=1_000_000, database=database)


async def test_every_payload_has_a_named_schema_and_an_example_that_fits_it(tmp_path: Path) -> None:
    async with some_context(tmp_path) as context, a_client(context) as client:
        document = (await client.get("/openapi.json")).json()
    components = document["components"]
    names = set(re.findall(r"#/components/schemas/(\w+)", json.dumps(document["paths"])))
    assert len(names) >= 30
    for name in names:
        (example,) = components["schemas"][name]["examples"]
        schema = {"$ref": f"#/components/schemas/{name}", "components": components}
        Draft202012Validator(schema).validate(example)


async def test_every_reference_leads_somewhere(tmp_path: Path) -> None:
    async with some_context(tmp_path) as context, a_client(context) as client:
        document = (await client.get("/openapi.json")).json()
    references = set(re.findall(r'"\$ref": "([^"]*)"', json.dumps(document)))
    assert len(references) >= 30
    for reference in references:
        node = document
        for part in reference.removeprefix("#/").split("/"):
            assert part in node, reference
            node = node[part]
    listed = [one["schema"] for one in document["paths"]["/v1/search/parcels"]["get"]["parameters"]]
    assert [schema["items"]["enum"] for schema in listed if "enum" in schema.get("items", {})]
    operation = document["paths"]["/v1/parcels"]["get"]
    assert operation["summary"] not in operation["description"]


async def test_every_parameter_and_field_is_described_and_every_example_fits(tmp_path: Path) -> None:
    async with some_context(tmp_path) as context, a_client(context) as client:
        document = (await client.get("/openapi.json")).json()
    components = document["components"]
    operations = [operation for path in document["paths"].values() for operation in path.values()]
    parameters = [parameter for operation in operations for parameter in operation["parameters"]]
    assert len(parameters) > 200
    assert "$defs" not in json.dumps(document)
    for parameter in parameters:
        assert parameter["description"], parameter["name"]
        assert Draft202012Validator(parameter["schema"]).is_valid(parameter["example"]), parameter
    fields = {
        f"{name}.{field}": about
        for name, schema in components["schemas"].items()
        for field, about in schema.get("properties", {}).items()
    }
    assert len(fields) > 400
    assert [name for name, about in fields.items() if not about.get("description")] == []
    assert [
        name for name, schema in components["schemas"].items() if "enum" not in schema and "examples" not in schema
    ] == []
    shown = {about["description"] for about in fields.values()}
    assert [name for name, text in FIELDS.items() if text not in shown] == []
    assert [name for name, text in PARAMETERS.items() if (name, text) not in _texts(parameters)] == []
    assert {parameter["name"] for parameter in parameters} == set(PARAMETER_EXAMPLES)
    described = {name: about["description"] for name, about in fields.items()}
    assert described["Fleet.alive"].startswith("Workers that")
    assert described["MapCluster.delinquent"] == "Number of delinquent parcels."
    assert described["LatestChanges.changes"] == "Changes, newest first."
    assert described["WebhookRetry.attempts"] == "How often the change was sent."


def _texts(parameters: Sequence[dict[str, Any]]) -> set[tuple[str, str]]:
    return {(parameter["name"], parameter["description"]) for parameter in parameters}


@pytest.mark.slow
@short_and_long("examples", (1,), (100,))
def test_no_answer_is_a_surprise(subtests: pytest.Subtests, addresses: tuple[str, ...], examples: int) -> None:
    document: Any = schemathesis.openapi.from_url(f"{addresses[0]}/openapi.json")
    for mode in schemathesis.GenerationMode:
        with subtests.test(mode=mode):
            assert asked(document, addresses, mode, examples) >= 11


def asked(document: Any, addresses: tuple[str, ...], mode: schemathesis.GenerationMode, examples: int) -> int:
    """How many operations were asked, each so many times."""
    number = 0
    for operation in (found.ok() for found in document.get_all_operations()):

        @settings(EXAMPLES, max_examples=examples)
        @given(case=operation.as_strategy(generation_mode=mode))
        def ask(case: Any) -> None:
            assume(len(urlencode(case.query or {}, doseq=True)) < LONGEST_QUERY)
            for address in addresses:
                case.call_and_validate(address, headers=HEADERS, checks=CHECKS)

        with contextlib.suppress(Unsatisfiable):  # it takes nothing that could be wrong
            ask()
            number += 1
    return number
