"""Parquet: one file for each table. Money is decimal128, so that no cent is lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from parcelpost.export.columns import Column, Kind
from parcelpost.export.tables import Parcel, Table, rows

_ROWS_A_GROUP = 20_000
"""Rows in memory at once, packed by column. What reads the file reads a group at a time."""

_TYPES: Mapping[Kind, Any] = {
    Kind.TEXT: pa.string(),
    Kind.TEXTS: pa.string(),
    Kind.WHOLE: pa.int64(),
    Kind.NUMBER: pa.float64(),
    Kind.MONEY: pa.decimal128(18, 4),
    Kind.FLAG: pa.bool_(),
    Kind.DATE: pa.date32(),
    Kind.MOMENT: pa.timestamp("ms", tz="UTC"),
}


class ParquetSink:
    def __init__(self, streams: Mapping[str, BinaryIO], tables: Sequence[Table]) -> None:
        self.notes: list[str] = []
        self._files = {table.name: _File(streams[table.name], table) for table in tables}

    def write(self, table: Table, parcels: Sequence[Parcel]) -> int:
        return self._files[table.name].write(parcels)

    def close(self) -> None:
        for file in self._files.values():
            file.close()

    def abandon(self) -> None:
        self._files.clear()


class _File:
    def __init__(self, stream: BinaryIO, table: Table) -> None:
        self._table = table
        self._schema = pa.schema([(column.name, _TYPES[column.kind]) for column in table.columns])
        self._writer = pq.ParquetWriter(stream, self._schema, compression="zstd")
        self._group: list[Any] = []
        self._rows = 0

    def write(self, parcels: Sequence[Parcel]) -> int:
        made = list(rows(self._table, parcels))
        if made:
            arrays = [
                _array(column, cells)
                for column, cells in zip(self._table.columns, zip(*made, strict=True), strict=True)
            ]
            self._group.append(pa.record_batch(arrays, schema=self._schema))
            self._rows += len(made)
        if self._rows >= _ROWS_A_GROUP:
            self._flush()
        return len(made)

    def close(self) -> None:
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        if self._group:
            self._writer.write_table(pa.Table.from_batches(self._group, self._schema), row_group_size=self._rows)
        self._group.clear()
        self._rows = 0


def _array(column: Column, cells: Sequence[Any]) -> Any:
    if column.kind is Kind.NUMBER:
        cells = [None if cell is None else float(cell) for cell in cells]
    return pa.array(cells, _TYPES[column.kind])
