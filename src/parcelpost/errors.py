"""The error tree: every error that Parcelpost raises on purpose.

ParcelpostError
├── InvalidInput          the value itself is at fault
├── InvalidSettings       a setting is unknown or has a bad value
│   ├── AddressNotFree    the address to listen on is in use
│   └── TooFewFiles       the limit of open files is too low
├── UpstreamError         a call to the gateway failed
│   ├── Unavailable       it is offline, overloaded or gave an invalid answer (retry helps, later)
│   ├── Unauthorized      it does not accept the token, or the address is wrong (an operator must act)
│   │   └── AnotherGateway    it is not the one that this store works with (an operator must act)
│   ├── Refused           it rejected the request as invalid
│   ├── TooLarge          it rejected the request as too large
│   └── NotOffered        it does not have this optional part
├── UpstreamLost          a run with --until-empty gave up waiting for its upstream
├── LedgerError           the gateway's ledger failed
│   └── LedgerUnavailable  its database is not responding (retry helps)
├── RawStoreUnavailable   raw files cannot be written or read (retry helps)
│   └── RawStoreDenied    their store denies access (an operator must act)
├── RawFileDamaged        a raw file does not have the hash in its name
└── StoreError            the local store failed
    ├── StoreBusy         another program holds the file (retry helps)
    ├── StoreFull         the disk is full (retry helps once there is space)
    ├── StoreReadOnly     the file or its folder cannot be written
    ├── StoreCorrupt      the file is damaged
    ├── StoreNotFound     there is no store at that path
    ├── NotAStore         the file is something else
    ├── StoreTooNew       written by a newer program
    ├── StoreOutdated     needs `parcelpost store migrate`
    ├── MigrationEdited   an applied migration differs from the one in this program
    ├── StoreInUse        refused because a live process has the store open
    ├── BackupBehind      refused because the store holds rows that the backup lacks
    ├── BackupFailed      a backup failed or did not verify
    ├── StoreFailed       the disk or the file system reported an error
    ├── StoreGone         its files were deleted, moved or replaced while it was open (retry helps once they are back)
    └── StoreClosed       used after it was closed
"""

from __future__ import annotations


class ParcelpostError(Exception):
    """Something went wrong."""

    hint = ""
    """What the operator can do about it."""
    retry_helps = False
    """Whether the same call may succeed later without an operator's action."""
    exit_code = 1
    """Exit code of a command that fails with this error."""

    def __init__(self, message: str = "", *, hint: str = "") -> None:
        super().__init__(message or (type(self).__doc__ or "").strip().splitlines()[0])
        if hint:
            self.hint = hint


def extra_hint(extra: str) -> str:
    """Returns how to install an extra. Parcelpost is not on PyPI: it is installed from a clone."""
    return f"in a clone of the repository, run: pip install '.[{extra}]'"


class InvalidInput(ParcelpostError):
    """The value is invalid."""

    hint = "correct the named field and try again; nothing was stored"


class InvalidSettings(ParcelpostError):
    """A setting is unknown or has a bad value."""

    hint = "see 'parcelpost config check'; 'parcelpost init' writes a file that explains every key"
    exit_code = 2


class AddressNotFree(InvalidSettings):
    """The address to listen on is in use."""

    exit_code = 1  # the other program may end, so a service manager should try again


class TooFewFiles(InvalidSettings):
    """The limit of open files is too low."""

    hint = "raise the limit: 'ulimit -n', LimitNOFILE= in a systemd unit, --ulimit nofile= for a container"

    @classmethod
    def of(cls, program: str, needed: int, allowed: int) -> TooFewFiles:
        return cls(f"{program} needs {needed:,} open files, but the system allows this process only {allowed:,}")


class UpstreamError(ParcelpostError):
    """The call to the gateway failed."""


class Unavailable(UpstreamError):
    """The gateway is offline, or responds with an error that may pass."""

    hint = "no action needed: everything is stored locally and sent when the gateway is back"
    retry_helps = True

    def __init__(
        self,
        message: str = "",
        *,
        retry_after: float = 0.0,
        hint: str = "",
        timed_out: bool = False,
        responded: bool = False,
        takes_nothing: bool = False,
    ) -> None:
        super().__init__(message, hint=hint)
        self.retry_after = retry_after
        """Seconds that the gateway wants us to wait; 0 if it did not."""
        self.timed_out = timed_out
        """No answer in time: a smaller batch may help."""
        self.responded = responded or takes_nothing
        """Whether the upstream can be reached, and responds with an error."""
        self.takes_nothing = takes_nothing
        """Whether the upstream responds but stores nothing."""


class Unauthorized(UpstreamError):
    """The gateway does not accept the token, or its address is wrong."""

    hint = "check PARCELPOST_GATEWAY_TOKEN and gateway.url; everything is stored locally until then"
    retry_helps = True


class AnotherGateway(Unauthorized):
    """Another gateway answers at the address."""

    hint = (
        "start the earlier gateway with its own database, or correct gateway.url; if it was replaced on purpose, run "
        "'parcelpost store upstream --accept-gateway'. Until then everything is stored locally and nothing is delivered"
    )


class Refused(UpstreamError):
    """The gateway rejected the request as invalid."""

    hint = "see 'parcelpost results list --delivery rejected'; rejected results are kept and can be sent again"


class TooLarge(UpstreamError):
    """The gateway rejected the request as too large."""

    hint = "raise the gateway's limit for request bodies, then run 'parcelpost results retry --all'"


class NotOffered(UpstreamError):
    """The gateway does not have this optional part."""

    hint = "no action needed: everything else works without it"


class UpstreamLost(ParcelpostError):
    """The upstream was unavailable for too long."""

    hint = "'parcelpost doctor' shows the cause; nothing is lost, and the same command continues from here"
    exit_code = 3


class LedgerError(ParcelpostError):
    """The gateway's ledger failed."""

    hint = "check server.database and the database's own log"


class LedgerUnavailable(LedgerError):
    """The ledger's database is not responding."""

    hint = "check that the database is running and has free space; the gateway continues on its own once it responds"
    retry_helps = True


class RawStoreUnavailable(ParcelpostError):
    """The store of raw files is not responding."""

    hint = "check server.raw, the free space on its disk, and for s3:// the credentials and the endpoint"
    retry_helps = True


class RawStoreDenied(RawStoreUnavailable):
    """The store of raw files denies access, or does not exist."""


class RawFileDamaged(ParcelpostError):
    """A raw file does not have the hash in its name."""

    hint = "restore it from a backup of the raw store, or run its task again"


class StoreError(ParcelpostError):
    """The local store failed."""


class StoreBusy(StoreError):
    """Another program holds the store's lock."""

    hint = "close the other program that writes to this file (an SQLite shell with an open transaction?)"
    retry_helps = True


class StoreFull(StoreError):
    """The store's disk is full."""

    hint = "free some disk space, then run it again; a running worker continues on its own"
    retry_helps = True


class StoreReadOnly(StoreError):
    """The store is not writable."""

    hint = "check the owner of the file and its folder, and whether the file system is mounted read-only"


class StoreCorrupt(StoreError):
    """The store's file is damaged."""

    hint = "run 'parcelpost store check' to find out whether to salvage readable rows or restore a backup"


class StoreNotFound(StoreError):
    """There is no store at that path."""

    hint = "check the path"


class NotAStore(StoreError):
    """The file is not a Parcelpost store."""

    hint = "point --store at another path; this file was not changed"


class StoreTooNew(StoreError):
    """The store was written by a newer program."""

    hint = "upgrade this program, or restore a backup made before the upgrade"


class StoreOutdated(StoreError):
    """The store has an older schema than this program."""

    hint = "run 'parcelpost store migrate' (it makes a backup first)"


class MigrationEdited(StoreError):
    """A migration that was applied to this store differs from the one in this program."""

    hint = "install the program version that last wrote this store, or restore a backup"


class StoreInUse(StoreError):
    """A live process has the store open."""

    hint = "stop the worker first"
    retry_helps = True


class BackupBehind(StoreError):
    """The store has changes that the backup lacks."""

    hint = "add --force to replace the store anyway; it is kept in backups/"


class BackupFailed(StoreError):
    """The backup failed, or is damaged."""

    hint = "check the disk with 'parcelpost store check'; older backups were kept"
    retry_helps = True


class StoreFailed(StoreError):
    """The disk or the file system reported an error."""

    hint = "check the system log for disk errors; everything that was confirmed before is safe"
    retry_helps = True


class StoreGone(StoreError):
    """The store's files were moved or deleted."""

    hint = (
        "put them back: a running worker then continues; if they are lost, stop it and restore a backup "
        "with 'parcelpost store restore --latest'"
    )
    retry_helps = True


class StoreClosed(StoreError):
    """The store has been closed."""

    hint = "use it inside its 'async with' block"
