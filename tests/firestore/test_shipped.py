"""What is shipped for a project of Firebase: indexes as its tools take them, and rules that name real fields."""

from __future__ import annotations

import json
import re
from pathlib import Path

SHIPPED = Path(__file__).parents[2] / "src" / "parcelpost" / "upstream" / "firestore" / "project"
INDEXES = json.loads((SHIPPED / "firestore.indexes.json").read_text())
LAYOUT = (SHIPPED / "README.md").read_text()
RULES = (SHIPPED / "firestore.rules").read_text()


def test_the_indexes_have_the_form_that_firebase_takes() -> None:
    assert set(INDEXES) == {"indexes", "fieldOverrides"}
    for index in INDEXES["indexes"]:
        assert set(index) == {"collectionGroup", "queryScope", "fields"}
        assert index["queryScope"] == "COLLECTION"
        assert len(index["fields"]) > 1, "one field has an index anyway"
        assert all(set(field) == {"fieldPath", "order"} for field in index["fields"])
        assert {field["order"] for field in index["fields"]} <= {"ASCENDING", "DESCENDING"}
    overrides = INDEXES["fieldOverrides"]
    for override in overrides:
        assert {"collectionGroup", "fieldPath", "indexes"} <= set(override) <= {*override, "ttl"}
    names = [(override["collectionGroup"], override["fieldPath"]) for override in overrides]
    assert len(names) == len(set(names))


def test_the_folder_can_be_deployed_as_it_is() -> None:
    project = json.loads((SHIPPED / "firebase.json").read_text())
    assert all((SHIPPED / file).is_file() for file in project["firestore"].values())
    assert "firebase deploy --only firestore" in LAYOUT


def test_every_field_that_an_index_or_a_rule_names_is_in_the_layout() -> None:
    of_indexes = {field["fieldPath"] for index in INDEXES["indexes"] for field in index["fields"]}
    of_overrides = {override["fieldPath"] for override in INDEXES["fieldOverrides"]} - {"broken"}  # of a heartbeat
    of_rules = set(re.findall(r"\'(\w+)\'", "".join(re.findall(r"hasOnly\((.*?)\)", RULES, flags=re.DOTALL))))
    assert of_rules
    for name in of_indexes | of_overrides | of_rules:
        assert f"`{name}`" in LAYOUT, name


MOMENTS = {
    ("tasks", "lease_expires_at"), ("tasks", "leased_at"), ("tasks", "created_at"), ("tasks", "ended_at"),
    ("results", "received_at"), ("results", "scraped_at"), ("parcels", "received_at"), ("parcels", "scraped_at"),
    ("workers", "last_seen_at"), ("selectors", "last_seen_at"), ("metrics", "timestamp"),
    ("signal_batches", "expires_at"),
}  # fmt: skip


def test_moments_that_only_rise_have_no_index_of_their_own() -> None:
    overrides = INDEXES["fieldOverrides"]
    exempt = {(one["collectionGroup"], one["fieldPath"]) for one in overrides if one["indexes"] == []}
    assert exempt >= MOMENTS
    assert [one["collectionGroup"] for one in overrides if one.get("ttl")] == ["signal_batches"]


def test_the_brackets_of_the_rules_are_closed() -> None:
    text = re.sub(r"//.*|\'[^\']*\'", "", RULES)
    for opening, closing in ("{}", "()", "[]"):
        assert text.count(opening) == text.count(closing)
