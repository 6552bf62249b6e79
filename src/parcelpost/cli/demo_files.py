"""Where the demonstration's files are."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from parcelpost.cli.output import fields
from parcelpost.errors import InvalidInput


class Files(Struct, frozen=True):
    folder: Path

    @property
    def counties(self) -> Path:
        return self.folder / "counties.toml"

    @property
    def tasks(self) -> Path:
        return self.folder / "tasks.csv"

    @property
    def ledger(self) -> Path:
        return self.folder / "gateway" / "gateway.db"

    @property
    def raw(self) -> Path:
        return self.folder / "gateway" / "raw"

    @property
    def store(self) -> Path:
        return self.folder / "worker" / "parcelpost.db"

    @property
    def parcels(self) -> Path:
        return self.folder / "parcels.csv"

    @property
    def liens(self) -> Path:
        return self.folder / "liens.csv"

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def make(self) -> None:
        """Raises InvalidInput where there is something already, or nothing can be made."""
        hint = "name another folder with --dir"
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self.store.exists() or self.ledger.exists():
                raise InvalidInput(f"there is a demo in {self.folder} already", hint=hint)
            if any(self.folder.iterdir()):
                raise InvalidInput(f"there is something in {self.folder} already", hint=hint)
            for part in (self.ledger, self.store):
                part.parent.mkdir(mode=0o700)
        except FileExistsError:
            raise InvalidInput(f"{self.folder} is not a folder", hint=hint) from None
        except OSError as error:
            raise InvalidInput(f"{self.folder} cannot be used: {error.strerror or error}", hint=hint) from None

    def keep_spreadsheets_only(self) -> None:
        """Where there are none, the folder goes too."""
        for part in self.folder.iterdir():
            if part.is_dir():
                shutil.rmtree(part, ignore_errors=True)
            elif part not in (self.parcels, self.liens):
                part.unlink(missing_ok=True)
        with suppress(OSError):
            self.folder.rmdir()

    def lines(self, *, all_stay: bool) -> list[str]:
        pairs = [("spreadsheets", f"{self.parcels}, {self.liens}")]
        if all_stay:
            logs = ", ".join(str(self.log(name)) for name in ("county", "add", "gateway", "worker"))
            pairs += [
                ("worker's store", f"{self.store}, pages in {self.store.parent / 'data'}"),
                ("gateway's ledger", f"{self.ledger}, pages in {self.raw}"),
                ("what it was given", f"{self.counties}, {self.tasks}"),
                ("logs", logs),
            ]
        return fields(pairs)
