"""A ledger with a fleet's days in it: invented people, parcels and workers, the same in every run."""

from __future__ import annotations

import gzip
import hashlib
import io
import random
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from parcelpost.gateway.ledger.base import Ledger
from parcelpost.gateway.models import IngestedResult, WorkerHeartbeat
from parcelpost.model import Broken, PausedSite, Priority, Signal, Target, Task
from parcelpost.object_store import RawStore
from tests.gateway.factories import facts_in, parcel

PLATFORMS = ("grizzly_gis", "mygov_due", "qpublic", "vgsi", "lien_register")
PLACES = (("FL", "harlow"), ("FL", "san-telmo"), ("GA", "alder"), ("CT", "new-wexford"), ("TN", "marrow-creek"))
FIRST = ("Ada", "Bernard", "Clara", "Dmitri", "Esther", "Farid", "Greta", "Hugo", "Ines", "Jonah", "Kiri", "Lionel")
LAST = ("Abernathy", "Bellweather", "Castellane", "Dunmore", "Everly", "Fairbanks", "Grimaldi", "Holloway", "Ivanov")
STREETS = ("Larkspur Ln", "Old Mill Rd", "Sycamore Ave", "Heron Bay Dr", "Quarry St", "Magnolia Ct")
BLOCKED = ("qpublic", "vgsi")
HOLDERS = ("Cypress Ridge Funding LLC", "Blue Heron Tax Partners", "Alder County")


def a_record(dice: random.Random, number: int, state: str, county: str, platform: str) -> dict[str, Any]:
    owners = [f"{dice.choice(LAST)} {dice.choice(FIRST)}".upper() for _ in range(dice.choice((1, 1, 2)))]
    value = dice.randrange(60_000, 640_000, 100)
    due = round(value * 0.0123, 2) if number % 3 == 0 else 0
    return {
        "parcel_id": f"{number % 36 + 1:02}-{number % 12 + 1:02}-{number % 30 + 1:02}-{number:05}",
        "state": state,
        "county": county,
        "platform": platform,
        "owner_names": owners,
        "mailing_lines": [f"PO BOX {100 + number}"],
        "mailing_city": "Port Harlow",
        "mailing_state": state,
        "mailing_zip": f"3{number:04}",
        "situs_address": f"{100 + number * 7} {dice.choice(STREETS)}",
        "situs_city": "Port Harlow",
        "legal_description": f"LOT {number % 40 + 1} BLK {number % 9 + 1} HERON BAY UNIT {number % 4 + 1} AS PER PLAT",
        "land_use_code": "0100",
        "land_use_desc": "Single family",
        "land_area_acres": 0.31,
        "building_area_sqft": 1_640,
        "year_built": 1961 + number % 60,
        "value_year": 2026,
        "value_status": "certified",
        "land_value": value // 4,
        "building_value": value - value // 4,
        "market_value": value,
        "assessed_value": value - 12_500,
        "taxable_value": value - 37_500,
        "homestead": number % 2 == 0,
        "tax_district": "HERON BAY (01)",
        "tax_year": 2025,
        "tax_amount": round(value * 0.0123, 2),
        "tax_due": due,
        "delinquent": due > 0,
        "delinquent_years": [2024, 2025] if due else [],
        "last_sale_date": "2011-06-14",
        "last_sale_price": 142_000,
        "tax_bills": [
            {"tax_year": year, "bill_number": f"{year}-{number:05}", "tax_amount": round(value * 0.012, 2)}
            for year in (2025, 2024)
        ],
        "liens": _liens(dice, number, value) if due else [],
    }


def _liens(dice: random.Random, number: int, value: int) -> list[dict[str, Any]]:
    return [
        {
            "certificate_number": f"{year}-{number * 3 + place:05}",
            "certificate_year": year,
            "tax_year": year - 1,
            "face_amount": round(value * 0.0123 + place * 37.5, 2),
            "interest_rate_pct": dice.choice((5.25, 12.5, 18)),
            "sale_date": f"{year}-06-01",
            "holder_name": dice.choice(HOLDERS),
            "status": dice.choice(("open", "open", "redeemed")),
        }
        for place, year in enumerate((2025, 2024)[: dice.choice((1, 2))])
    ]


def an_arrival(record: Mapping[str, Any], at: datetime, task_id: str, page: bytes | None = None) -> IngestedResult:
    data = msgspec.json.encode(record)
    digest = hashlib.sha256(page).hexdigest() if page else None
    return IngestedResult(
        task_id=task_id,
        source=parcel(record["parcel_id"], record["platform"], record["state"], record["county"]),
        parcel_id=record["parcel_id"],
        data=data,
        search_fields=facts_in(data),
        scraped_at=at,
        parse_duration_ms=12,
        idempotency_key=f"{task_id}:{hashlib.sha256(data).hexdigest()}",
        raw_sha256=digest,
        raw_file=f"{task_id}.html.gz" if digest else None,
    )


async def keep_page(raw_store: RawStore, page: bytes) -> str:
    digest = hashlib.sha256(page).hexdigest()
    await raw_store.put(digest, io.BytesIO(gzip.compress(page, mtime=0)), "page.html.gz", b"{}")
    return digest


def a_task(number: int, platform: str, priority: int = 3) -> Task:
    target = Target(parcel_id=str(number), state="FL", county="harlow")
    return Task(task_id=f"{platform}-{number}", platform=platform, target=target, priority=Priority(priority))


async def fill(ledger: Ledger, raw_store: RawStore, now: datetime, parcels: int = 60) -> None:
    dice = random.Random(7)
    await _tasks(ledger, now)
    await _parcels(ledger, raw_store, dice, now, parcels)
    await _workers(ledger, now)
    await _activity(ledger, dice, now)
    await ledger.add_signals(_signals(), now)


async def _tasks(ledger: Ledger, now: datetime) -> None:
    sizes = {"grizzly_gis": (4, 30, 180, 320), "mygov_due": (0, 12, 140, 0), "qpublic": (2, 0, 60, 410)}
    sizes |= {"vgsi": (0, 45, 210, 90), "lien_register": (0, 0, 0, 24)}
    for platform, counts in sizes.items():
        for priority, count in enumerate(counts, 1):
            tasks = [a_task(priority * 10_000 + number, platform, priority) for number in range(count)]
            await ledger.add_tasks(tasks, now - timedelta(minutes=17 * priority))
    granted = await ledger.grant("harlow-01", ["grizzly_gis", "vgsi"], 24, now, now + timedelta(minutes=15))
    for one in granted[:3]:
        await ledger.end_task(one.task.task_id, "harlow-01", error="no such page", again=False, now=now)


async def _parcels(ledger: Ledger, raw_store: RawStore, dice: random.Random, now: datetime, parcels: int) -> None:
    for number in range(parcels):
        state, county = PLACES[number % len(PLACES)]
        record = a_record(dice, number, state, county, PLATFORMS[number % 4])
        page = f"<html><title>{record['parcel_id']}</title><script>alert(1)</script></html>".encode()
        await keep_page(raw_store, page)
        last = now - timedelta(minutes=3 * (parcels - number))
        before = {**record, "market_value": record["market_value"] - 4_000, "owner_names": ["HOLLOWAY JUNE"]}
        before["liens"] = [{**lien, "status": "open"} for lien in record["liens"]][:1]
        for days, version in ((90, before), (30, record), (7, record)):
            at = last - timedelta(days=days)
            await ledger.store([an_arrival(version, at, f"old-{number}-{days}")], "harlow-02", at)
        await ledger.store([an_arrival(record, last, f"done-{number}", page)], "harlow-01", last)


def a_beat(worker_id: str, **changes: Any) -> WorkerHeartbeat:
    given: dict[str, Any] = {
        "active_tasks": 4,
        "completed_last_minute": 38,
        "platforms": PLATFORMS[:3],
        "cpu_percent": 31.0,
        "memory_percent": 44.0,
        "queue": {"pending": 212, "processing": 4, "completed": 9_120, "failed": 31, "unsynced": 18},
        "oldest_unsynced_seconds": 9.0,
        "version": "0.4.0",
        "disk_free_bytes": 48 * 1024**3,
    }
    return WorkerHeartbeat(worker_id=worker_id, **{**given, **changes})


async def _workers(ledger: Ledger, now: datetime) -> None:
    behind = {"pending": 90, "unsynced": 1_240, "rejected": 2}
    beats: Sequence[tuple[WorkerHeartbeat, int]] = [
        (a_beat("harlow-01"), 4),
        (
            a_beat(
                "harlow-02",
                failed_last_minute=6,
                blocked=(PausedSite("qpublic", "GA", "alder"),),
                broken=_broken(),
                platforms=BLOCKED,
            ),
            21,
        ),
        (a_beat("boat-17", paused=True, active_tasks=0, completed_last_minute=0, queue=behind), 48),
        (a_beat("attic", active_tasks=0, version="0.3.2", completed_last_minute=0), 7_300),
        (a_beat("cellar", active_tasks=0, completed_last_minute=0, queue=None, leaving=True), 600),
    ]
    await ledger.claim_worker_id("harlow-01", "harlow", ["harlow"], 9, now, now)
    for beat, ago in beats:
        at = now - timedelta(seconds=ago)
        await ledger.record_heartbeat(beat, at, at + timedelta(minutes=15), at - timedelta(days=1))
    await ledger.add_command("sync-now", "boat-17", now, now - timedelta(minutes=5))


async def _activity(ledger: Ledger, dice: random.Random, now: datetime) -> None:
    this_minute = now.replace(second=0, microsecond=0)
    for back in range(240):
        wave = 30 + 14 * ((back // 20) % 3) + dice.randrange(10)
        done = {"vgsi": wave - dice.randrange(4), "grizzly_gis": 22 + dice.randrange(8), "qpublic": 3, "mygov_due": 9}
        counts = {(platform, outcome): number for platform, number in done.items() for outcome in ("done", "stored")}
        counts |= {("vgsi", "granted"): wave, ("vgsi", "failed"): back % 5, ("grizzly_gis", "granted"): 31}
        counts |= {("qpublic", "failed"): 2 if back % 3 else 6, ("qpublic", "expired"): back % 2}
        counts |= {("qpublic", "granted"): 9, ("mygov_due", "granted"): 14}
        counts |= {("mygov_due", "not_found"): 2, ("mygov_due", "duplicate"): 1}
        await ledger.add_activity(counts, this_minute - timedelta(minutes=back))


def _signals() -> list[Signal]:
    """Of a field that most pages do not have: no failure."""
    given: dict[str, Any] = {"platform": "vgsi", "field": "co_owner", "selector": "#lblCoOwner", "selector_type": "css"}
    return [Signal(**given, success=place % 4 == 0) for place in range(32)]


def _broken() -> tuple[Broken, ...]:
    given: dict[str, Any] = {"platform": "qpublic", "state": "GA", "county": "alder"}
    given |= {"success_rate": 0.1, "used_to": 1.0}
    return tuple(
        Broken(**given, field=field, failing=(f"css {selector}",), example="qpublic-1", found_otherwise=found)
        for field, selector, found in (
            ("owner_names", "#ctlBodyPane_ctl02_lblOwner", False),
            ("tax_due", "td.due > span", False),
            ("year_built", "#lblYear", True),
        )
    )
