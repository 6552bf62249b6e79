"""Which format a name means, and which tables go into which file."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from parcelpost.errors import InvalidInput, ParcelpostError
from parcelpost.export import Format
from parcelpost.export.exporter import ExportPlan, plan_export
from tests.export.factories import an_entry, exported


def files(what: ExportPlan) -> dict[str, list[str]]:
    return {name: [table.name for table in tables] for name, tables in what.files.items()}


def test_a_name_says_what_is_written(subtests: pytest.Subtests) -> None:
    for output, form, tables, expected in [
        ("out/a.csv", None, None, {"a.csv": ["parcels"]}),
        ("a.CSV", None, ["liens"], {"a.CSV": ["liens"]}),
        ("a.ndjson", None, None, {"a.ndjson": ["parcels"]}),
        ("a.xlsx", None, None, {"a.xlsx": ["parcels", "liens"]}),
        ("a.gpkg", None, ["sales", "parcels", "sales"], {"a.gpkg": ["parcels", "sales"]}),
        ("a.geojson", None, None, {"a.geojson": ["parcels"]}),
        ("a.dat", Format.PARQUET, None, {"a.dat": ["parcels"]}),
        ("out/", None, None, {"parcels.csv": ["parcels"], "liens.csv": ["liens"]}),
        ("out", Format.PARQUET, None, {"parcels.parquet": ["parcels"], "liens.parquet": ["liens"]}),
        ("out/", Format.EXCEL, None, {"parcelpost.xlsx": ["parcels", "liens"]}),
        ("out/", Format.GEOJSON, None, {"parcels.geojson": ["parcels"]}),
        ("-", None, None, {"-": ["parcels"]}),
        ("-", Format.CSV, ["liens"], {"-": ["liens"]}),
    ]:
        with subtests.test(output=output, form=form, tables=tables, expected=expected):
            assert files(plan_export(output, form, tables)) == expected


def test_a_folder_that_is_there_needs_no_slash(tmp_path: Path) -> None:
    what = plan_export(str(tmp_path), Format.JSONL, None)
    assert (what.folder, files(what)) == (tmp_path, {"parcels.jsonl": ["parcels"], "liens.jsonl": ["liens"]})


@pytest.mark.parametrize(
    ("output", "form", "tables", "problem", "hint"),
    [
        ("a.xls", None, None, "cannot tell the format of a.xls", ".xlsx"),
        ("parcels", None, None, "cannot tell the format of parcels", "--format"),
        ("a.csv", None, ["parcels", "liens"], "a csv file can contain only one table, not 2", "handover/ --format csv"),
        ("-", None, ["parcels", "liens"], "stdout can contain only one table", "handover/"),
        ("-", Format.EXCEL, None, "xlsx cannot be written to stdout", "csv and jsonl"),
        ("a.xlsx", None, ["leins"], "there is no table 'leins'", "parcels, liens"),
        ("a.geojson", None, ["liens"], "GeoJSON can contain only parcels", "gpkg"),
    ],
)
def test_what_cannot_be_written_is_said_before_anything_is_done(
    output: str, form: Format | None, tables: list[str] | None, problem: str, hint: str
) -> None:
    with pytest.raises(InvalidInput, match=problem) as refused:
        plan_export(output, form, tables)
    assert hint in refused.value.hint


@pytest.mark.parametrize(("name", "package"), [("a.xlsx", "xlsxwriter"), ("a.parquet", "pyarrow")])
async def test_a_missing_package_is_named_with_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, package: str
) -> None:
    monkeypatch.delitem(sys.modules, "parcelpost.export.excel", raising=False)
    monkeypatch.delitem(sys.modules, "parcelpost.export.parquet", raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ParcelpostError, match=f"needs the package {package}") as missing:
        await exported(tmp_path / name, an_entry())
    assert "pip install '.[export]'" in missing.value.hint
    assert list(tmp_path.iterdir()) == []
