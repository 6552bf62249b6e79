"""The manifests: against Kubernetes' own schemas where those are installed, and in what matters to us everywhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest

from parcelpost import __version__
from parcelpost.settings import Settings
from parcelpost.settings.sources import load
from parcelpost.worker.loop import AFTER_DRAIN_SECONDS
from tests.deploy.files import DEPLOY, container_settings, documents, manifest, manifests

NOT_KUBERNETES = {"ScaledObject"}
VERSIONS = ("1.29", "1.34")
CLOSING_SECONDS = 30

named = {f"{path.name} {one['kind']} {one['metadata']['name']}": one for path, one in manifests()}
WORKLOADS = {name: one for name, one in named.items() if "template" in one.get("spec", {})}


@pytest.mark.skipif(find_spec("kubernetes_validate") is None, reason="kubernetes-validate is not installed")
@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_knows_every_field(version: str) -> None:
    validate = import_module("kubernetes_validate").validate
    for one in named.values():
        if one["kind"] not in NOT_KUBERNETES:
            validate(one, version, strict=True)


def test_every_file_is_applied_or_said_not_to_be() -> None:
    (kustomization,) = documents(DEPLOY / "kubernetes" / "kustomization.yaml")
    applied = set(kustomization["resources"])
    by_hand = {"secrets.example.yaml", "autoscaler-hpa.yaml", "deliver-left.yaml"}
    assert applied | by_hand == {path.name for path, _ in manifests()}
    assert not applied & by_hand


@pytest.mark.parametrize("name", WORKLOADS)
def test_what_runs_has_no_rights_and_its_limits(name: str) -> None:
    pod = WORKLOADS[name]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == 10001
    rights = container["securityContext"]
    assert (rights["allowPrivilegeEscalation"], rights["readOnlyRootFilesystem"]) == (False, True)
    assert rights["capabilities"] == {"drop": ["ALL"]}
    assert container["resources"]["requests"].keys() == {"cpu", "memory"}
    assert "memory" in container["resources"]["limits"]
    assert {one["name"] for one in container["volumeMounts"]} == volumes(WORKLOADS[name])


def volumes(workload: Any) -> set[str]:
    claims = workload["spec"].get("volumeClaimTemplates", [])
    own = workload["spec"]["template"]["spec"]["volumes"]
    return {one["name"] for one in own} | {one["metadata"]["name"] for one in claims}


@pytest.mark.parametrize("name", WORKLOADS)
def test_labels_find_their_pods(name: str) -> None:
    spec = WORKLOADS[name]["spec"]
    labels = spec["template"]["metadata"]["labels"]
    if "selector" in spec:
        assert spec["selector"]["matchLabels"] == labels
        selectors = [
            one["spec"]["selector"]
            for one in named.values()
            if one["kind"] in {"Service", "PodDisruptionBudget"} and "selector" in one["spec"]
        ]
        assert [one.get("matchLabels", one) for one in selectors].count(labels) == 2


def secrets_used(value: Any) -> Iterator[tuple[str, str]]:
    """Every secret with the key that is taken from it; '' for all of them."""
    if isinstance(value, dict):
        if "secretKeyRef" in value:
            yield value["secretKeyRef"]["name"], value["secretKeyRef"]["key"]
        if "secretName" in value:
            yield from ((value["secretName"], item["key"]) for item in value.get("items", [{"key": ""}]))
        for one in value.values():
            yield from secrets_used(one)
    elif isinstance(value, list):
        for one in value:
            yield from secrets_used(one)


def test_every_secret_is_one_of_the_example_which_holds_none() -> None:
    examples = {
        one["metadata"]["name"]: one["stringData"] for one in documents(DEPLOY / "kubernetes" / "secrets.example.yaml")
    }
    assert {text for keys in examples.values() for text in keys.values()} == {""}
    for secret, key in secrets_used(list(WORKLOADS.values())):
        assert key in {"", *examples[secret]}
    page = (DEPLOY.parent / "docs" / "operating.md").read_text(encoding="utf-8")
    assert set(re.findall(r"--from-file=(\w+)", page)) == {key for keys in examples.values() for key in keys}


def test_what_keeps_pages_in_s3_has_its_credentials_and_images_are_named_by_version() -> None:
    (container,) = manifest("gateway.yaml", "Deployment")["spec"]["template"]["spec"]["containers"]
    given = {one["name"]: one for one in container["env"]}
    assert given["PARCELPOST_SERVER_RAW"]["value"].startswith("s3://")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        assert given[name]["valueFrom"]["secretKeyRef"]["name"] == "parcelpost-gateway"
    for workload in WORKLOADS.values():
        (container,) = workload["spec"]["template"]["spec"]["containers"]
        assert container["image"].endswith(f"/parcelpost:{__version__}")


def environment(workload: Any) -> dict[str, str]:
    (container,) = workload["spec"]["template"]["spec"]["containers"]
    return {**container_settings(), **{one["name"]: one.get("value", "") for one in container["env"]}}


def settings_of(workload: Any) -> Settings:
    return load(config=None, environment=environment(workload), flags={}).settings


def test_a_worker_has_time_to_drain_and_keeps_its_store() -> None:
    worker = manifest("worker.yaml", "StatefulSet")
    spec, settings = worker["spec"], settings_of(worker)
    grace = spec["template"]["spec"]["terminationGracePeriodSeconds"]
    assert grace >= settings.worker.drain_seconds + AFTER_DRAIN_SECONDS + CLOSING_SECONDS
    assert spec["persistentVolumeClaimRetentionPolicy"] == {"whenScaled": "Retain", "whenDeleted": "Retain"}
    (container,) = spec["template"]["spec"]["containers"]
    mount = next(one["mountPath"] for one in container["volumeMounts"] if one["name"] == "store")
    assert settings.storage.path.startswith(f"{mount}/")
    (claim,) = spec["volumeClaimTemplates"]
    assert (
        int(claim["spec"]["resources"]["requests"]["storage"].removesuffix("Gi")) * 2**30 > settings.storage.max_bytes
    )
    assert settings.http.port == container["ports"][0]["containerPort"]
    (left,) = documents(DEPLOY / "kubernetes" / "deliver-left.yaml")
    assert settings_of(left).storage.path == settings.storage.path


def test_probes_ask_for_pages_that_are_there() -> None:
    worker = manifest("worker.yaml", "StatefulSet")["spec"]["template"]["spec"]["containers"][0]
    probes = {name: worker[f"{name}Probe"]["httpGet"]["path"] for name in ("liveness", "readiness", "startup")}
    assert probes == {"liveness": "/healthz", "readiness": "/readyz", "startup": "/healthz"}
    gateway = manifest("gateway.yaml", "Deployment")["spec"]["template"]["spec"]["containers"][0]
    assert "httpGet" not in gateway["livenessProbe"], "a database that is away is no reason to start it anew"
    assert gateway["readinessProbe"]["httpGet"]["path"] == "/health"
    service = manifest("gateway.yaml", "Service")
    assert (
        settings_of(manifest("worker.yaml", "StatefulSet")).gateway.url
        == f"http://gateway:{service['spec']['ports'][0]['port']}"
    )


def test_both_autoscalers_do_the_same() -> None:
    keda, hpa = (
        manifest("autoscaler-keda.yaml", "ScaledObject")["spec"],
        manifest("autoscaler-hpa.yaml", "HorizontalPodAutoscaler")["spec"],
    )
    worker = manifest("worker.yaml", "StatefulSet")
    assert (
        keda["scaleTargetRef"]
        == hpa["scaleTargetRef"]
        == {"apiVersion": worker["apiVersion"], "kind": worker["kind"], "name": worker["metadata"]["name"]}
    )
    assert (keda["minReplicaCount"], keda["maxReplicaCount"]) == (hpa["minReplicas"], hpa["maxReplicas"])
    assert keda["minReplicaCount"] >= 1
    assert keda["advanced"]["horizontalPodAutoscalerConfig"]["behavior"] == hpa["behavior"]
    (trigger,) = keda["triggers"]
    (metric,) = hpa["metrics"]
    assert (trigger["metricType"], trigger["metadata"]["threshold"]) == (
        "AverageValue",
        metric["external"]["target"]["averageValue"],
    )
    text = (DEPLOY / "kubernetes" / "autoscaler-hpa.yaml").read_text(encoding="utf-8")
    assert f"metricsQuery: {trigger['metadata']['query']}" in text
    assert f"name: {{as: {metric['external']['metric']['name']}}}" in text


def test_workers_go_one_at_a_time_and_slowly() -> None:
    down = manifest("autoscaler-hpa.yaml", "HorizontalPodAutoscaler")["spec"]["behavior"]["scaleDown"]
    (policy,) = down["policies"]
    grace = manifest("worker.yaml", "StatefulSet")["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert (policy["type"], policy["value"]) == ("Pods", 1)
    assert policy["periodSeconds"] >= grace
