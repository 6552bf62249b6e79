"""For those who read results: the record of a result's document, wherever it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from parcelpost.errors import InvalidInput, RawFileDamaged
from parcelpost.model import Json
from parcelpost.raw_store import RawStore


class _Reference(Struct, frozen=True):
    """What `data_in_raw_store` says."""

    store: str
    sha256: str
    bytes: Annotated[int, Meta(ge=0)]


async def open_record(result: Mapping[str, object], store: RawStore) -> dict[str, Json]:
    """Of a document in `results`; from `store`, which the reader has opened, where the document only names the record.

    What comes from the store has the hash and the size that the document says. Raises InvalidInput for a document that
    is no result, or names another store; RawFileDamaged for a record that is not there or not the one named.
    """
    try:
        if "data" in result:
            return msgspec.convert(result["data"], dict[str, Json])
        reference = msgspec.convert(result.get("data_in_raw_store"), _Reference)
    except msgspec.ValidationError as error:
        raise InvalidInput(
            f"the document is no result: {error}", hint="'parcelpost firestore show layout' says what a result holds"
        ) from None
    if reference.store != store.address:
        other = f"the record is in another store: {reference.store[:200]!a}"
        raise InvalidInput(other, hint="open that one, if you trust it")
    data = await store.open_record(reference.sha256, reference.bytes)
    if data is None:
        raise RawFileDamaged(f"there is no record {reference.sha256[:64]!a} in {store.address}")
    return msgspec.json.decode(data, type=dict[str, Json])
