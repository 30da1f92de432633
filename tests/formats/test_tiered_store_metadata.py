"""The metadata of a tiered store as the real classes of 5.3.3 and 5.5.0 wrote it: all of it is described."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mqstore.formats.tiered_store_metadata import TABLES
from mqstore.store.settings.parse import entries, parse

from .. import tiered


@pytest.fixture(scope="module", params=tiered.VERSIONS)
def value(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[Any, Any]:
    """What stands in the file."""
    root = tiered.unpack(request.param, tmp_path_factory.mktemp("metadata"))
    (path,) = (each for each in Path(root).rglob("tieredStoreMetadata.json") if each.is_file())
    found: dict[Any, Any] = parse(path.read_bytes()).value
    return found


def test_each_table_is_there_and_no_other(value: dict[Any, Any]) -> None:
    members = {table.member for table in TABLES}
    assert members - value.keys() == set()
    assert {name for name in value.keys() - members if isinstance(value[name], dict)} == set()


@pytest.mark.parametrize("table", TABLES, ids=lambda table: str(table.member))
def test_entries_have_the_columns_that_are_described(value: dict[Any, Any], table: Any) -> None:
    found = list(entries(table, value[table.member], {}))
    assert found, "the store has some of each"
    columns = {field.column: field for field in table.columns}
    for row in found:
        told = {name: item for name, item in row.items() if name in columns}
        assert told.keys() == columns.keys() & row.keys()
        assert all(columns[name].fits(item) for name, item in told.items())
        assert len(told) > len(columns) // 2


def test_positions_of_segments(value: dict[Any, Any]) -> None:
    """A segment begins where the ones before it of its file end."""
    for table in TABLES[2:]:
        ends: dict[str, int] = {}
        for row in sorted(entries(table, value[table.member], {}), key=lambda row: int(row["base_offset"])):
            assert row["base_offset"] == ends.get(row["path"], row["base_offset"])
            ends[row["path"]] = row["base_offset"] + row["size"]
