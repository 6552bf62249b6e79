"""The `parcelpost store` commands. Backup, restore and salvage are in `store_backup`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import Struct

from parcelpost.cli.commands import store_backup
from parcelpost.cli.output import (
    age,
    count,
    examples,
    fields,
    finding_line,
    finding_lines,
    opener_text,
    outbox_text,
    pause_lines,
    print_json,
    print_lines,
    printable,
    queue_lines,
    size,
    table,
    used_text,
)
from parcelpost.cli.settings_options import (
    AsJson,
    ConfigOption,
    SetOption,
    StoreContext,
    StoreOption,
    store_context,
)
from parcelpost.errors import InvalidInput, StoreInUse, StoreOutdated

if TYPE_CHECKING:
    from parcelpost.cli.health.overview import StoreOverview
    from parcelpost.health_checks import Finding
    from parcelpost.worker.identity import MetGateway


STATUS_EXAMPLES = examples(
    "parcelpost store status",
    "parcelpost store status --store /srv/parcelpost/parcelpost.db",
    "parcelpost store status --json | jq .queue.unsynced",
)


_STORE_AREAS = frozenset({"store", "backup", "outbox", "clock", "tasks"})


def status(
    store_path: StoreOption = None, config: ConfigOption = None, set_: SetOption = None, as_json: AsJson = False
) -> None:
    """Show the state of the store: tasks, results, sizes, backups, and what needs attention.

    Starts with the problems found and their fixes, or `No problems found.` Read-only.
    """
    from msgspec.structs import replace

    from parcelpost.cli import context
    from parcelpost.cli.health import overview
    from parcelpost.health_checks import is_ok

    store = store_context(store_path, config, set_)
    state = context.run_async(store, overview.gather_store_overview(store))
    findings = [finding for finding in state.findings if _concerns_store(finding)]
    state = replace(state, ok=is_ok(findings), findings=findings)
    print_json(state) if as_json else print_lines(_status_lines(state))


def _concerns_store(finding: Finding) -> bool:
    return finding.id.partition(".")[0] in _STORE_AREAS or finding.id in ("worker.crashed", "worker.hung")


def _status_lines(overview: StoreOverview) -> Iterator[str]:
    yield from finding_lines(overview.findings)
    yield ""
    yield from fields(_status_facts(overview))
    yield ""
    yield from queue_lines(overview.queue, overview.platforms)
    yield from pause_lines(overview.paused)


def _status_facts(overview: StoreOverview) -> Iterator[tuple[str, str | None]]:
    from parcelpost.worker.findings import failures_text

    usage = overview.storage
    yield "store", f"{overview.store} (schema version {overview.schema_version})"
    yield "last change", overview.last_change or "none yet"
    yield "outbox", outbox_text(overview.queue)
    yield "failed", failures_text(overview.failures) if overview.failures.failed else None
    yield "used", used_text(usage, overview.used_percent)
    parts = (
        ("database", usage.database),
        ("WAL", usage.wal),
        ("raw files", usage.raw),
        ("journal", usage.journal),
        ("cache (in the database)", overview.cache_bytes),
        ("failure artifacts (in the raw files)", overview.artifact_bytes),
    )
    yield "of which", ", ".join(f"{name} {size(part)}" for name, part in parts)
    yield "disk", f"workers stop below {size(usage.min_free_bytes)} free"
    if usage.lacks_inodes:
        yield "inodes", f"{usage.free_inodes:,} free (workers stop below {usage.min_free_inodes:,})"
    yield (
        "newest backup",
        f"{overview.backup.path}, {age(overview.backup.age_seconds)} old" if overview.backup else None,
    )
    yield "backups", f"{len(overview.backups):,}"
    yield "open in", ", ".join(map(opener_text, overview.workers + overview.commands)) or "no process"
    yield "crashed", ", ".join(map(opener_text, overview.crashed)) or None


CHECK_EXAMPLES = examples(
    "parcelpost store check", "parcelpost store check --deep", "parcelpost store check --json | jq '.findings[].fix'"
)


def check(
    deep: Annotated[
        bool, typer.Option("--deep", help="Also compare every index with its table and every page with its hash.")
    ] = False,
    store_path: StoreOption = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    as_json: AsJson = False,
) -> None:
    """Check the store's integrity: the database file, its references, and the pages of undelivered results.

    Exits with 1 if there is an error, and prints how to fix it. Read-only.
    """
    from parcelpost.cli import context
    from parcelpost.cli.health.store_files import check_store

    store = store_context(store_path, config, set_)
    report = context.run_async(store, check_store(store, deep=deep))
    if as_json:
        print_json(report)
    else:
        print_lines(map(finding_line, report.findings))
        errors = sum(finding.is_error for finding in report.findings)
        print(f"{count(errors, 'error')} found." if errors else "The store is intact.")
        if report.pages:
            how = "compared with their hashes" if deep else "found"
            print(f"{count(report.pages, 'page')} of undelivered results {how if report.ok else 'checked'}.")
    if not report.ok:
        raise typer.Exit(1)


CLEAN_EXAMPLES = examples(
    "parcelpost store clean", "parcelpost store clean --free-space", "parcelpost store clean --full --json"
)

MIGRATE_EXAMPLES = examples(
    "parcelpost store migrate", "parcelpost store migrate --store /srv/parcelpost/parcelpost.db --json"
)


def clean(
    free_space: Annotated[
        bool,
        typer.Option(
            "--free-space",
            help="Also delete delivered results, the page cache and failure artifacts, regardless of their age.",
        ),
    ] = False,
    full: Annotated[
        bool,
        typer.Option(
            "--full",
            help="Also rebuild the file if more than a quarter of it is unused. Workers wait until this is done.",
        ),
    ] = False,
    store_path: StoreOption = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    as_json: AsJson = False,
) -> None:
    """Delete expired data and free disk space. Undelivered results are never deleted."""
    from parcelpost.cli import context

    store = store_context(store_path, config, set_)
    removed, given_back = context.run_async(store, _clean(store, free_space=free_space, full=full))
    if as_json:
        print_json({"removed": removed, "given_back_bytes": given_back})
        return
    print_lines(table(("removed", "count"), [(name.replace("_", " "), number) for name, number in removed.items()]))
    print(f"The database file shrank by {size(given_back)}.")


def migrate(
    store_path: StoreOption = None, config: ConfigOption = None, set_: SetOption = None, as_json: AsJson = False
) -> None:
    """Back up the store and upgrade its schema to this program's version. Stop the workers first."""
    from parcelpost.cli import context

    store = store_context(store_path, config, set_)
    old, new, copy = context.run_async(store, _migrate(store))
    if as_json:
        print_json({"from_version": old, "to_version": new, "backup": copy})
    elif old == new:
        print(f"Nothing to do: the store already has schema version {new}.")
    else:
        print(f"Migrated from schema version {old} to {new}. Backup of the old store: {copy}")


async def _clean(store: StoreContext, *, free_space: bool, full: bool) -> tuple[dict[str, int], int]:
    """Returns how many of each kind were removed, and by how many bytes the file shrank."""
    from msgspec import structs

    from parcelpost.cli.context import open_for_writing, require_store
    from parcelpost.cli.progress import Meter

    require_store(store.path)
    before = store.path.stat().st_size
    async with open_for_writing(store) as lpm, Meter("cleaning"):
        cleaned = await (lpm.maintenance.relieve(full=full) if free_space else lpm.maintenance.clean(full=full))
    return structs.asdict(cleaned), max(0, before - store.path.stat().st_size)


async def _migrate(store: StoreContext) -> tuple[int, int, str | None]:
    """Returns the versions before and after, and the path of the backup."""
    from parcelpost.cli.context import CLOCK, open_for_reading, store_options
    from parcelpost.cli.progress import Meter
    from parcelpost.events import Event, StoreOpened
    from parcelpost.storage import LocalPersistenceManager, migrations
    from parcelpost.storage.snapshot import copies

    try:
        async with open_for_reading(store) as database:
            version = await database.read(migrations.version)
            return version, version, None
    except StoreOutdated:
        events: list[Event] = []
    async with (
        Meter("migrating"),
        LocalPersistenceManager.open(
            store.path,
            options=store_options(store.settings),
            clock=CLOCK,
            emit=events.append,
            worker="cli",
            create=False,
        ),
    ):
        (opened,) = (event for event in events if isinstance(event, StoreOpened))
    version = opened.schema_version
    made = (store.path.parent / "backups").glob(f"{copies(store.path)}_before_v{version}_*.db")
    newest = max(made, key=lambda copy: copy.name, default=None)
    return version - len(opened.migrated), version, str(newest) if newest else None


UPSTREAM_EXAMPLES = examples(
    "parcelpost store upstream",
    "parcelpost store upstream --worker-id hartford-2",
    "parcelpost store upstream --accept-gateway",
)


class UpstreamIdentity(Struct, frozen=True, kw_only=True):
    """The worker id that the store uses upstream, and the gateways it trusts."""

    worker_id: str | None
    """None: no worker has run yet."""
    gateways: list[MetGateway]
    """The first gateway that answered at each address."""


def upstream(
    worker_id: Annotated[
        str | None,
        typer.Option(
            "--worker-id", metavar="ID", help="Use this worker ID upstream, even if the store still holds tasks."
        ),
    ] = None,
    accept_gateway: Annotated[
        bool,
        typer.Option("--accept-gateway", help="Accept the gateway that responds next, even if it is a different one."),
    ] = False,
    store_path: StoreOption = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    as_json: AsJson = False,
) -> None:
    """Show or change the worker ID that this store uses upstream, and the gateways it accepts.

    All processes on a store share one worker ID. Tasks claimed under the old ID may stay assigned to it at the gateway:
    change the ID only if the gateway no longer knows the old one. If a different gateway responds at a known address,
    nothing is sent to it until you accept it.
    """
    from parcelpost.cli import context

    store = store_context(store_path, config, set_)
    if worker_id is None and not accept_gateway:
        identity = context.run_async(store, _read_identity(store))
    else:
        identity = context.run_async(store, _change_identity(store, worker_id, accept_gateway=accept_gateway))
    print_json(identity) if as_json else print_lines(fields(_identity_lines(identity)))


def _identity_lines(identity: UpstreamIdentity) -> Iterator[tuple[str, str]]:
    from parcelpost.protocol.payloads import ledger_name

    yield "worker ID", printable(identity.worker_id or "none yet: the first worker sets it")
    for gateway in identity.gateways:
        since = f"{gateway.since:%Y-%m-%d %H:%M} UTC"
        yield "gateway", printable(f"{gateway.address}, {ledger_name(gateway.ledger_id)}, since {since}")
    if not identity.gateways:
        yield "gateway", "none yet: the first one that responds is accepted"


async def _read_identity(store: StoreContext) -> UpstreamIdentity:
    from parcelpost.cli.context import CLOCK, open_for_reading
    from parcelpost.storage.worker_state import WorkerState
    from parcelpost.worker.identity import GATEWAY_STATE, WORKER_ID_STATE, MetGateway, WorkerId

    async with open_for_reading(store) as database:
        state = WorkerState(database, CLOCK)
        saved = await state.get(WORKER_ID_STATE, WorkerId)
        gateways = await state.list(GATEWAY_STATE, MetGateway)
    return UpstreamIdentity(worker_id=saved.worker_id if saved else None, gateways=gateways)


async def _change_identity(store: StoreContext, worker_id: str | None, *, accept_gateway: bool) -> UpstreamIdentity:
    from parcelpost.cli.context import open_for_writing
    from parcelpost.settings.validation import is_worker_id
    from parcelpost.worker.identity import GATEWAY_STATE, WORKER_ID_STATE, WorkerId

    if worker_id is not None and not (worker_id and is_worker_id(worker_id)):
        raise InvalidInput("a worker ID must be 1 to 200 printable ASCII characters without spaces")
    async with open_for_writing(store) as lpm:
        if worker_id is not None:
            if peers := lpm.peers():
                raise StoreInUse(f"{store.path} is open in {', '.join(peers)}")
            await lpm.state.put(WORKER_ID_STATE, WorkerId(worker_id))
        if accept_gateway:
            await lpm.state.delete_prefix(GATEWAY_STATE)
    return await _read_identity(store)


app = typer.Typer(
    help="Inspect and maintain the local store.",
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog=examples("parcelpost store status", "parcelpost store check --deep", "parcelpost store backup"),
)
app.command("status", epilog=STATUS_EXAMPLES)(status)
app.command("check", epilog=CHECK_EXAMPLES)(check)
app.command("backup", epilog=store_backup.BACKUP_EXAMPLES)(store_backup.backup)
app.command("restore", epilog=store_backup.RESTORE_EXAMPLES)(store_backup.restore)
app.command("salvage", epilog=store_backup.SALVAGE_EXAMPLES)(store_backup.salvage)
app.command("clean", epilog=CLEAN_EXAMPLES)(clean)
app.command("migrate", epilog=MIGRATE_EXAMPLES)(migrate)
app.command("upstream", epilog=UPSTREAM_EXAMPLES)(upstream)
