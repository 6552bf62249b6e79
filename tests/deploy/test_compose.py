"""The compose file, against the schema of compose files and against the image that it starts."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from typing import Any

import jsonschema_rs
import pytest

from parcelpost.settings import Settings
from tests.deploy.files import COMPOSE, ROOT, container_steps, documents

(FILE,) = documents(COMPOSE)
SERVICES: dict[str, Any] = FILE["services"]


def test_it_is_a_compose_file() -> None:
    schema = files("check_jsonschema.builtin_schemas.vendor").joinpath("compose-spec.json").read_text(encoding="utf-8")
    faults = jsonschema_rs.validator_for(json.loads(schema)).iter_errors(FILE)
    assert [f"{fault.instance_path}: {fault.message}" for fault in faults] == []


def test_it_is_a_gateway_a_database_and_two_workers_with_stores_of_their_own() -> None:
    assert set(SERVICES) == {"database", "gateway", "worker-1", "worker-2"}
    mounts = {name: service["volumes"][0].split(":") for name, service in SERVICES.items()}
    assert len({volume for volume, _ in mounts.values()}) == 4
    assert {volume for volume, _ in mounts.values()} == set(FILE["volumes"])
    assert {place for name, (_, place) in mounts.items() if name != "database"} == {"/var/lib/parcelpost"}
    assert (COMPOSE.parent / SERVICES["gateway"]["build"]["context"]).resolve() == ROOT
    assert (ROOT / SERVICES["gateway"]["build"]["dockerfile"]).is_file()


def test_secrets_are_files_that_are_not_in_the_repository() -> None:
    for name, secret in FILE["secrets"].items():
        assert secret == {"file": f"secrets/{name}"}
    named = {name for service in SERVICES.values() for name in service["secrets"]}
    assert named == set(FILE["secrets"])
    mounted = re.findall(r"/run/secrets/(\w+)", COMPOSE.read_text(encoding="utf-8"))
    assert set(mounted) == named
    assert not (COMPOSE.parent / "secrets").exists()
    assert "secrets/" in (ROOT / ".gitignore").read_text(encoding="utf-8")
    page = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8")
    assert set(re.findall(r"> (\w+)$", page, re.MULTILINE)) == named


@pytest.mark.parametrize("name", ["worker-1", "worker-2"])
def test_workers_have_time_to_drain(name: str) -> None:
    seconds = int(SERVICES[name]["stop_grace_period"].removesuffix("s"))
    assert seconds >= Settings().worker.drain_seconds + 45


@pytest.mark.parametrize("name", SERVICES)
def test_each_is_started_again_and_looked_at_and_its_log_is_bounded(name: str) -> None:
    service = SERVICES[name]
    assert service["restart"] == "unless-stopped"
    assert service["logging"]["options"]["max-size"]
    own = "healthcheck" in service
    assert own or (service["image"] == "parcelpost" and "HEALTHCHECK" in dict(container_steps(1)))


def test_the_gateway_is_open_to_this_machine_only() -> None:
    assert SERVICES["gateway"]["ports"] == ["127.0.0.1:8700:8700"]
    assert "ports" not in SERVICES["database"]
    assert FILE["networks"]["inside"] == {"internal": True}
    assert SERVICES["database"]["networks"] == ["inside"]
