"""`python -m bench nation`: a PostgreSQL ledger of a hundred thousand, half a million and two million parcels.

Each ledger is filled by the database itself, with made-up parcels of two versions each, in counties of 50,000. Then all
of them are measured in turn, so that other work on the machine slows each of them alike.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import shutil
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from statistics import median

import asyncpg
import msgspec

from bench.gateway import client
from bench.measure import add_dir_option, machine, scratch
from bench.report import Goal, Report, Table, at_most, progress
from parcelpost.clock import SystemClock
from parcelpost.gateway.ledger.base import Ledger
from parcelpost.gateway.ledger.factory import open_ledger
from parcelpost.gateway.ledger.search_schema import COLUMNS, MAP_COLUMNS, NUMBER_BITS, PARCELS
from parcelpost.gateway.models import (
    ChangeFilter,
    IngestedResult,
    ParcelFilter,
    ParcelKey,
    SearchFilter,
    SearchOrder,
    SourceKey,
)
from parcelpost.search_fields import search_fields

NAME = "nation"
HELP = "a PostgreSQL ledger of up to two million parcels: what grows with it"

GROWTH_GOAL = 1.5
PARCELS_PER_COUNTY = 50_000

PLATFORM = "qpublic"
STATES = "AL CT FL GA IL IN MD MS NJ TN".split()  # noqa: SIM905 - as readable
_CHUNK = 100_000
_BATCH = 100
_TASKS = 50
_PAGE = 100
_NOW = datetime(2026, 1, 8, tzinfo=UTC)
_WEEK = timedelta(days=7)
_LEASE = timedelta(minutes=15)
_MAX_BYTES_PER_PARCEL = 12_000
"""More than a filled ledger takes: there must be so much space."""


@dataclass(frozen=True, slots=True)
class Plan:
    sizes: tuple[int, ...]
    rounds: int


_FULL = Plan(sizes=(100_000, 500_000, 2_000_000), rounds=40)
_QUICK = Plan(sizes=(20_000, 50_000, 100_000), rounds=15)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_dir_option(parser)


def run(arguments: argparse.Namespace) -> Report:
    plan = _QUICK if arguments.quick else _FULL
    needed = sum(plan.sizes) * _MAX_BYTES_PER_PARCEL
    if shutil.disk_usage(arguments.dir).free < needed:
        raise SystemExit(f"{arguments.dir} has less than {needed / 1e9:.0f} GB free; choose another folder with --dir")
    with scratch(arguments.dir) as folder, client.postgres(arguments.dir) as server:
        where = machine(folder)
        progress(f"measuring in {arguments.dir} ({where['file_system']}), load {where['load']}")
        measured = asyncio.run(_measure(plan, server))
    tables = [_times_table(plan, measured), _sizes_table(plan, measured)]
    data = {
        "machine": where,
        "plan": asdict(plan),
        "seconds": {what: {size: measured.seconds[what, size] for size in plan.sizes} for what in measured.names},
        "bytes_per_parcel": measured.bytes_per_parcel,
    }
    return Report(NAME, _targets(plan, measured), tables, data)


# Filling

# A parcel's number tells everything about it: n is its parcel_no and its source_no.
_NUMBERS = f"""
WITH given AS (
    SELECT n, (n - 1) / {PARCELS_PER_COUNTY} AS county_no, md5(n::text) AS chance
    FROM generate_series($1::bigint, $2::bigint) n
), made AS (
    SELECT n, chance,
           ('{{{",".join(STATES)}}}'::text[])[1 + county_no % {len(STATES)}] AS state, 'county-' || county_no AS county,
           lpad(n::text, 10, '0') AS number,
           'N' || upper(substr(chance, 1, 3)) || ' ' || upper(substr(chance, 4, 4)) AS owner,
           n % 9000 + 100 || ' ' || upper(substr(chance, 8, 4)) || ' ST' AS situs,
           n % 20 = 0 AS delinquent, (n % 1000) * 100 AS due, n % 20 = 0 AS has_lien
    FROM given
)
"""
_RECORD = """jsonb_build_object(
    'parcel_id', number, 'owner_names', jsonb_build_array(owner), 'situs_address', situs, 'delinquent', delinquent,
    'tax_due', due / 100.0, 'market_value', 150000 + n % 1000 + {version} * 1000, 'assessed_value', 120000 + n % 1000,
    'year_built', 1950 + n % 70, 'living_area', 900 + n % 2000, 'tax_year', 2025, 'legal_description',
    'LOT ' || n % 40 || ' BLK ' || n % 90 || ' ' || chance || md5(chance), 'sales', jsonb_build_array(
        jsonb_build_object('date', '2011-04-05', 'price', 189000 + n % 999, 'book', substr(chance, 9, 4)),
        jsonb_build_object('date', '1998-10-15', 'price', 89000 + n % 999, 'book', substr(chance, 14, 4))),
    'tax_bills', jsonb_build_array(
        jsonb_build_object('year', 2025, 'amount', 3214.55 + n % 99, 'paid', 0, 'number', substr(chance, 20, 8)),
        jsonb_build_object('year', 2024, 'amount', 3114.55 + n % 99, 'paid', 3114.55, 'number', substr(chance, 12, 8)),
        jsonb_build_object('year', 2023, 'amount', 3014.55 + n % 99, 'paid', 3014.55, 'number', substr(chance, 2, 8))),
    'liens', CASE WHEN has_lien THEN jsonb_build_array(jsonb_build_object(
        'certificate_number', n::text, 'certificate_year', 2024, 'status', 'open', 'face_amount', due / 100.0))
        ELSE '[]'::jsonb END)::text"""
_FACTS = """jsonb_build_object(
    'owner', jsonb_build_array(owner), 'values', jsonb_build_object('market_value', 15100000 + n % 1000 * 100),
    'delinquent', delinquent, 'tax_due_cents', due, 'fingerprint', chance)::text"""
_TARGET = "jsonb_build_object('parcel_id', number, 'state', state, 'county', county)::text"
_SITE = f"lower('{PLATFORM}/' || state || '/' || county)"
_GROUP_NO = f"((n - 1) / {PARCELS_PER_COUNTY} * 2 + delinquent::int + 1)"
_SCRAPED = "TIMESTAMPTZ '2026-01-01' + n % 600000 * INTERVAL '1 second'"

_FILL = (
    f"""INSERT INTO parcels (parcel_no, state, county, parcel_norm, parcel_id, owner, situs, delinquent, tax_due_cents,
            lien_count, scraped_at, received_at, first_seen_at) OVERRIDING SYSTEM VALUE
        SELECT n, state, county, number, number, owner, situs, delinquent, due, has_lien::int, {_SCRAPED}, {_SCRAPED},
               {_SCRAPED} - INTERVAL '7 days' FROM made""",
    f"""INSERT INTO sources (source_no, parcel_no, platform, parcel_id, is_partial, task_id, scraped_at, received_at,
            first_seen_at, owner, situs, delinquent, tax_due_cents, target, search) OVERRIDING SYSTEM VALUE
        SELECT n, n, '{PLATFORM}', number, FALSE, 'w2-' || n, {_SCRAPED}, {_SCRAPED}, {_SCRAPED} - INTERVAL '7 days',
               owner, situs, delinquent, due, {_TARGET}, lower(number || E'\\n' || owner || E'\\n' || situs)
        FROM made""",
    *(
        f"""INSERT INTO results (source_no, task_id, worker_id, scraped_at, received_at, late, parse_duration_ms,
                idempotency_key, raw_sha256, raw_file, data)
            SELECT n, 'w{version}-' || n, 'worker-' || n % 50, {_SCRAPED} - {2 - version} * INTERVAL '7 days',
                   {_SCRAPED} - {2 - version} * INTERVAL '7 days', FALSE, 8, 'w{version}-' || n || ':' || chance,
                   chance || md5(chance), NULL, {_RECORD.format(version=version)} FROM made"""
        for version in (1, 2)
    ),
    f"""INSERT INTO source_facts (source_no, task_id, scraped_at, facts)
        SELECT n, 'w2-' || n, {_SCRAPED}, {_FACTS} FROM made""",
    f"""INSERT INTO changes (change_no, found_at, kind, parcel_no, source_no, task_id, scraped_at, subject, before,
            after)
        SELECT n, {_SCRAPED}, 'value.changed', n, n, 'w2-' || n, {_SCRAPED}, '', '{{"market_value":150000}}',
               '{{"market_value":151000}}' FROM made""",
    """INSERT INTO liens (lien_no, parcel_no, lien_key, certificate_number, certificate_year, status, amount_cents)
            OVERRIDING SYSTEM VALUE
        SELECT n, n, '2024/' || n, n::text, 2024, 'open', due FROM made WHERE has_lien""",
    f"""INSERT INTO lien_sources (lien_no, source_no, position, task_id, scraped_at, certificate_number,
            certificate_year, status, amount_cents, json)
        SELECT n, n, 0, 'w2-' || n, {_SCRAPED}, n::text, 2024, 'open', due, '{{}}' FROM made WHERE has_lien""",
    f"""INSERT INTO tasks (task_id, platform, type, priority, state, target, attempts, max_attempts, max_retries,
            created_at, ended_at, refresh_of, site, turn)
        SELECT 'w2-' || n, '{PLATFORM}', 'refresh', 4, 'done', {_TARGET}, 1, 5, 3, {_SCRAPED}, {_SCRAPED}, n, {_SITE}, n
        FROM made""",
    f"""INSERT INTO tasks (task_id, platform, type, priority, state, target, max_attempts, max_retries, created_at,
            refresh_of, site, turn)
        SELECT 'w3-' || n, '{PLATFORM}', 'refresh', 4, 'queued', {_TARGET}, 5, 3, {_SCRAPED}, n, {_SITE},
               n % {PARCELS_PER_COUNTY}
        FROM made WHERE n % 10 = 0""",
    f"""INSERT INTO leases (task_id, worker_id, granted_at, expires_at, ended_at, ended_as)
        SELECT 'w2-' || n, 'worker-' || n % 50, {_SCRAPED}, {_SCRAPED} + INTERVAL '1 hour', {_SCRAPED}, 'done'
        FROM made""",
    f"""INSERT INTO search_parcels ({", ".join(COLUMNS)})
        SELECT ({_GROUP_NO} << {NUMBER_BITS}) + n, {_GROUP_NO}, n, n, state, county,
               number, number, owner, situs, '{PLATFORM}', NULL, NULL, NULL, 'unscheduled', delinquent::int,
               (151000 + n % 1000) * 100, due, has_lien::int, CASE WHEN has_lien THEN due END, NULL, '2011-04-05', NULL,
               NULL, extract(epoch FROM {_SCRAPED})::bigint * 1000, extract(epoch FROM {_SCRAPED})::bigint * 1000,
               0, NULL, NULL, NULL, n, NULL
        FROM made""",
    f"""INSERT INTO search_parcels_words (rowid, words)
        SELECT ({_GROUP_NO} << {NUMBER_BITS}) + n,
               array_to_tsvector(ARRAY(
                   SELECT DISTINCT unnest(
                       string_to_array(lower(owner || ' ' || situs || ' ' || number), ' ')
                       || ARRAY['·s·' || lower(state), '·c·' || replace(county, '-', '·')])))
        FROM made""",
)
_GROUPS = f"""
INSERT INTO search_parcels_groups (group_no, map_no, state, county, platforms, delinquent, has_liens, land_use,
    tax_year, status, freshness, number_of_rows, changed)
SELECT no >> {NUMBER_BITS}, no >> {NUMBER_BITS}, {", ".join(f"min({name})" for name in MAP_COLUMNS[:4])}, min(liens),
       NULL, NULL, NULL, 'unscheduled', count(*), 1
FROM search_parcels GROUP BY no >> {NUMBER_BITS}
"""
_INDEXES = """
SELECT i.indexrelid::regclass::text, pg_get_indexdef(i.indexrelid)
FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid
WHERE c.relnamespace = 'public'::regnamespace AND NOT i.indisprimary
AND NOT EXISTS (SELECT FROM pg_constraint o WHERE o.conindid = i.indexrelid)
"""
_FILL_SETTINGS = {"synchronous_commit": "off", "jit": "off", "maintenance_work_mem": "512MB"}
_SEQUENCES = ("parcels.parcel_no", "sources.source_no", "liens.lien_no")


async def fill(database: str, size: int) -> int:
    """Returns the bytes per parcel."""
    async with open_ledger(database, 5, SystemClock()):
        pass
    connection = await asyncpg.connect(database, server_settings=_FILL_SETTINGS)
    try:
        indexes = await connection.fetch(_INDEXES)  # made afterwards: that is several times as fast
        for name, _ in indexes:
            await connection.execute(f"DROP INDEX {name}")
        for first in range(1, size + 1, _CHUNK):
            last = min(first + _CHUNK - 1, size)
            progress(f"filling the ledger of {size:,} parcels: {first - 1:,}")
            for statement in _FILL:
                await connection.execute(_NUMBERS + statement, first, last)
        for _, definition in indexes:
            await connection.execute(definition)
        await connection.execute(_GROUPS)
        await connection.execute("UPDATE search_state SET changes = 1, rebuilt_to = 0, rebuild_until = 0")
        for sequence in _SEQUENCES:
            table, _, column = sequence.partition(".")
            await connection.execute(f"SELECT setval(pg_get_serial_sequence('{table}', '{column}'), {size})")
        await connection.execute("VACUUM (ANALYZE)")
        return int(await connection.fetchval("SELECT pg_database_size(current_database())")) // size
    finally:
        await connection.close()


# Measuring


@dataclass(slots=True)
class Measured:
    seconds: dict[tuple[str, int], list[float]]
    """By what is measured and size."""
    bytes_per_parcel: dict[int, int]

    @property
    def names(self) -> list[str]:
        return list(dict.fromkeys(name for name, _ in self.seconds))


Operation = Callable[[], Awaitable[object]]


class Operations:
    """What is measured, each time with other parcels."""

    def __init__(self, ledger: Ledger, size: int) -> None:
        self._ledger = ledger
        self._size = size
        self._dice = random.Random(size)
        self._rounds = 0

    def next_round(self) -> Mapping[str, Operation]:
        """Prepares a round, so that only the ledger's work is measured."""
        self._rounds += 1
        ledger, dice, at = self._ledger, self._dice, _NOW + self._rounds * _WEEK
        known = [self._result(number, at) for number in sorted(dice.sample(range(1, self._size + 1), _BATCH))]
        first = 100_000_000 + self._rounds * _BATCH
        new = [
            self._result(number, at, of_county=dice.randint(1, self._size)) for number in range(first, first + _BATCH)
        ]
        state, county, norm = _place(dice.randint(1, self._size))
        key = ParcelKey(state, county, norm)
        place = ParcelFilter(state=state, county=county)
        one = f"{dice.randint(1, self._size):010}"
        name, other_name = (f"n{number:03x}" for number in dice.sample(range(4096), 2))
        after = dice.randrange(self._size - 2 * _PAGE)
        changed = ChangeFilter(state=state, county=county)
        before_county = (int(norm) - 1) // PARCELS_PER_COUNTY * PARCELS_PER_COUNTY

        async def search(text: str, county: str = "") -> object:
            wanted = SearchFilter(text=text, counties=(county,) if county else ())
            return await ledger.search(PARCELS, wanted, SearchOrder("parcel_id"), 0, 50)

        async def one_parcel() -> object:
            await ledger.parcel(key)
            return await ledger.versions(SourceKey(state, county, norm, PLATFORM), 20)

        return {
            f"ingest: {_BATCH} results of new parcels": lambda: ledger.store(new, "worker-1", at),
            f"ingest: {_BATCH} results of known parcels": lambda: ledger.store(known, "worker-1", at),
            "ingest: look for changes in them": lambda: ledger.find_changes(at, 2 * _BATCH),
            "ingest: show them in the search": lambda: ledger.update_search(at, 2 * _BATCH),
            f"a lease of {_TASKS} tasks": lambda: ledger.grant("worker-1", [PLATFORM], _TASKS, at, at + _LEASE),
            "one parcel with its versions": one_parcel,
            f"a county's list, {_PAGE} parcels": lambda: ledger.parcels(place, key, _PAGE),
            "a search in a county": lambda: search(name, county),
            "a search for a name, everywhere": lambda: search(other_name),
            "a search for a number, everywhere": lambda: search(one),
            "a search for a word of all parcels": lambda: search("st "),
            f"the change feed, {_PAGE} changes": lambda: ledger.changes(ChangeFilter(), after, _PAGE),
            "the change feed of a county": lambda: ledger.changes(changed, before_county, _PAGE),
        }

    def _result(self, number: int, at: datetime, of_county: int = 0) -> IngestedResult:
        state, county, _ = _place(of_county or number)
        norm = f"{number:010}"
        record = {"parcel_id": norm, "owner_names": [f"N{number:X}"], "market_value": self._rounds * 1000, "tax_due": 5}
        record |= {"situs_address": f"{number % 9000} MAIN ST", "legal_description": "LOT " * 250}
        data = msgspec.json.encode(record)
        return IngestedResult(
            task_id=f"m{self._rounds}-{number}",
            source=SourceKey(state, county, norm, PLATFORM),
            parcel_id=norm,
            data=data,
            search_fields=search_fields(record, data),
            scraped_at=at,
            parse_duration_ms=8,
            idempotency_key=f"m{self._rounds}-{number}",
            target="{}",
        )


def _place(number: int) -> tuple[str, str, str]:
    county_no = (number - 1) // PARCELS_PER_COUNTY
    return STATES[county_no % len(STATES)], f"county-{county_no}", f"{number:010}"


async def _measure(plan: Plan, server: str) -> Measured:
    seconds: defaultdict[tuple[str, int], list[float]] = defaultdict(list)
    sizes: dict[int, int] = {}
    async with AsyncExitStack() as stack:
        operations: dict[int, Operations] = {}
        for size in plan.sizes:
            database = await client.fresh_database(server, f"nation-{size}")
            sizes[size] = await fill(database, size)
            operations[size] = Operations(
                await stack.enter_async_context(open_ledger(database, 5, SystemClock())), size
            )
        os.sync()
        for number in range(plan.rounds + 1):
            progress(f"round {number} of {plan.rounds}")
            for size in plan.sizes:
                for name, operation in operations[size].next_round().items():
                    start = time.perf_counter()
                    await operation()
                    if number:  # the first prepares statements
                        seconds[name, size].append(time.perf_counter() - start)
    return Measured(dict(seconds), sizes)


# Reporting


def _growth(plan: Plan, measured: Measured, name: str) -> float:
    """Of the lower quartile: what other work on the machine slows is above it."""
    return _typical(measured.seconds[name, plan.sizes[-1]]) / _typical(measured.seconds[name, plan.sizes[0]])


def _typical(seconds: Sequence[float]) -> float:
    return median(sorted(seconds)[: max(1, len(seconds) // 2)])


def _targets(plan: Plan, measured: Measured) -> list[Goal]:
    first, last = plan.sizes[0], plan.sizes[-1]
    return [
        at_most(f"{name}: at {last:,} parcels / at {first:,}", GROWTH_GOAL, _growth(plan, measured, name))
        for name in measured.names
    ]


def _times_table(plan: Plan, measured: Measured) -> Table:
    rows = [
        [
            name,
            *(f"{_typical(measured.seconds[name, size]) * 1000:.2f}" for size in plan.sizes),
            f"{_growth(plan, measured, name):.2f}",
        ]
        for name in measured.names
    ]
    return Table("Milliseconds, by parcels in the ledger", ["", *(f"{size:,}" for size in plan.sizes), "growth"], rows)


def _sizes_table(plan: Plan, measured: Measured) -> Table:
    return Table(
        "Size of the database",
        ["parcels", "bytes per parcel", "GB"],
        list(_size_rows(plan, measured)),
        ["With two versions of a record of 1.1 KB, a done task and its lease, and the search index for each parcel."],
    )


def _size_rows(plan: Plan, measured: Measured) -> Iterator[list[str]]:
    for size in plan.sizes:
        each = measured.bytes_per_parcel[size]
        yield [f"{size:,}", f"{each:,}", f"{each * size / 1e9:.1f}"]
