"""Everything Parcelpost raises on purpose.

ParcelpostError
├── InvalidInput          the value itself is at fault
├── InvalidSettings       a setting is unknown or has a bad value
│   ├── AddressNotFree    the address to listen at cannot be used for now
│   └── TooFewFiles       the limit of open files is too low
├── UpstreamError         the gateway did not do it
│   ├── Unavailable       it is away, overloaded or answered nonsense (retry helps, later)
│   ├── Unauthorized      it does not know us, or is not the gateway (a person must look)
│   │   └── AnotherGateway    it is not the one that this store works with (a person must look)
│   ├── Refused           it says that what was sent is bad
│   ├── TooLarge          it says that what was sent is too large
│   └── NotOffered        it does not have this optional part
├── UpstreamLost          a run that ends by itself waited for its upstream in vain
├── LedgerError           the gateway's own ledger could not do it
│   └── LedgerAway        its database does not answer for now (retry helps)
├── RawStoreAway          raw files cannot be kept or found for now (retry helps)
│   └── RawStoreDenied    their store does not let us in (a person must look)
├── RawFileDamaged        a raw file is not what its name says
└── StoreError            the local store failed
    ├── StoreBusy         another program holds the file (retry helps)
    ├── StoreFull         no room on the disk (retry helps once there is room)
    ├── StoreReadOnly     the file or its folder cannot be written
    ├── StoreCorrupt      the file is damaged
    ├── StoreNotFound     there is no store at that path
    ├── NotAStore         the file is something else
    ├── StoreTooNew       written by a newer program
    ├── StoreOutdated     needs `parcelpost store migrate`
    ├── MigrationEdited   an applied migration is not the one this program carries
    ├── StoreInUse        refused because a live process has the store open
    ├── BackupBehind      refused because the store holds what the backup does not
    ├── BackupFailed      a backup could not be made or did not verify
    ├── StoreFailed       the disk or the file system reported an error
    ├── StoreGone         its files were deleted, moved or replaced while it was open (retry helps once they are back)
    └── StoreClosed       used after it was closed
"""

from __future__ import annotations


class ParcelpostError(Exception):
    """Something went wrong."""

    hint = ""
    """What the operator can do next."""
    retry_helps = False
    """Whether the same call may succeed later with nothing changed by a person."""
    exit_code = 1
    """Of a command that ends with it."""

    def __init__(self, message: str = "", *, hint: str = "") -> None:
        super().__init__(message or (type(self).__doc__ or "").strip().splitlines()[0])
        if hint:
            self.hint = hint


def extra_hint(extra: str) -> str:
    """Parcelpost is on no index: an extra is installed from the clone that it came from."""
    return f"in the project's clone: pip install '.[{extra}]'"


class InvalidInput(ParcelpostError):
    """The value cannot be stored as it is."""

    hint = "correct the named field and try again; nothing was stored"


class InvalidSettings(ParcelpostError):
    """A setting is unknown or has a bad value."""

    hint = "see 'parcelpost config check'; 'parcelpost init' writes a file with every key and what it means"
    exit_code = 2


class AddressNotFree(InvalidSettings):
    """The address to listen at cannot be used for now."""

    exit_code = 1  # what listens there may end: a service manager is to try again


class TooFewFiles(InvalidSettings):
    """The system lets this process have too few files open."""

    hint = "raise the limit: 'ulimit -n', LimitNOFILE= of a systemd unit, --ulimit nofile= of a container"

    @classmethod
    def of(cls, whom: str, needed: int, allowed: int) -> TooFewFiles:
        return cls(f"{whom} needs {needed:,} open files, and the system allows this process only {allowed:,}")


class UpstreamError(ParcelpostError):
    """The gateway did not do it."""


class Unavailable(UpstreamError):
    """The gateway is away."""

    hint = "nothing to do: everything is kept here and sent when the gateway is back"
    retry_helps = True

    def __init__(
        self,
        message: str = "",
        *,
        retry_after: float = 0.0,
        hint: str = "",
        timed_out: bool = False,
        takes_nothing: bool = False,
    ) -> None:
        super().__init__(message, hint=hint)
        self.retry_after = retry_after
        """Seconds: the gateway asked for no call before that. 0: it said nothing."""
        self.timed_out = timed_out
        """It was asked and did not answer in time: less at once may help."""
        self.takes_nothing = takes_nothing
        """It answers, and stores nothing of all that it is sent."""


class Unauthorized(UpstreamError):
    """The gateway does not take our token, or its address is wrong."""

    hint = "check PARCELPOST_GATEWAY_TOKEN and gateway.url; everything is kept here meanwhile"
    retry_helps = True


class AnotherGateway(Unauthorized):
    """Another gateway answers at the address."""

    hint = (
        "start the gateway that was there, with its own database, or correct gateway.url; if it was replaced on "
        "purpose, 'parcelpost store upstream --accept-gateway'. Nothing is delivered meanwhile, everything is kept"
    )


class Refused(UpstreamError):
    """The gateway says that what was sent is bad."""

    hint = (
        "look at 'parcelpost results list --delivery rejected'; what is refused is kept and can be sent again by hand"
    )


class TooLarge(UpstreamError):
    """The gateway says that what was sent is too large."""

    hint = "raise the gateway's limit on request bodies, then 'parcelpost results retry --all'"


class NotOffered(UpstreamError):
    """This gateway does not have this optional part."""

    hint = "nothing to do: everything else goes on without it"


class UpstreamLost(ParcelpostError):
    """The upstream was away for too long."""

    hint = "'parcelpost doctor' says what is wrong; everything is kept, and the same command goes on from here"
    exit_code = 3


class LedgerError(ParcelpostError):
    """The gateway's ledger could not do it."""

    hint = "check server.database and the database's own log"


class LedgerAway(LedgerError):
    """The ledger's database does not answer for now."""

    hint = "check that the database runs and has room; the gateway goes on by itself when it answers"
    retry_helps = True


class RawStoreAway(ParcelpostError):
    """The store of raw files does not answer for now."""

    hint = "check server.raw, the room on its disk, and for s3:// the credentials and the endpoint"
    retry_helps = True


class RawStoreDenied(RawStoreAway):
    """The store of raw files does not let us in, or is not there."""


class RawFileDamaged(ParcelpostError):
    """A raw file is not what its name says."""

    hint = "get it from a backup of the raw store, or have its task done again"


class StoreError(ParcelpostError):
    """The local store failed."""


class StoreBusy(StoreError):
    """Another program holds the store's lock."""

    hint = "close the other program that writes to this file (an SQLite shell with an open transaction?)"
    retry_helps = True


class StoreFull(StoreError):
    """The store's disk is full."""

    hint = "free some disk space, then run it again; a running worker goes on by itself"
    retry_helps = True


class StoreReadOnly(StoreError):
    """The store cannot be written."""

    hint = "check who owns the file and its folder, and whether the file system is mounted read-only"


class StoreCorrupt(StoreError):
    """The store's file is damaged."""

    hint = "run 'parcelpost store check': it says whether to salvage what can be read, or to restore a backup"


class StoreNotFound(StoreError):
    """There is no store at that path."""

    hint = "check the path, or let a worker create the store by running it"


class NotAStore(StoreError):
    """The file is not a Parcelpost store."""

    hint = "point --store at another path; this file was left as it is"


class StoreTooNew(StoreError):
    """The store was written by a newer program."""

    hint = "upgrade this program, or restore a backup made before the upgrade"


class StoreOutdated(StoreError):
    """The store has an older schema than this program."""

    hint = "run 'parcelpost store migrate' (a backup is made first)"


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

    hint = "look at the system log for disk errors; what was confirmed before is safe"
    retry_helps = True


class StoreGone(StoreError):
    """The store's files were moved or deleted."""

    hint = (
        "put them back, and a running worker goes on; if they are lost, stop it and restore a backup "
        "with 'parcelpost store restore --latest'"
    )
    retry_helps = True


class StoreClosed(StoreError):
    """The store has been closed."""

    hint = "use it inside its 'async with' block"
