"""`rocketmq-damage` without Spark: its columns, and what of stores cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from mqstore.pipeline.sources.damage import DamageSource
from mqstore.pipeline.sources.parts import PartsReader
from mqstore.store.arrow.views import COLUMNS
from mqstore.store.errors import InvalidInput, NotAStore

from ...stores import unpack


def rows(names: list[str], **options: str) -> list[dict[str, object]]:
    """What tasks read of some columns."""
    reader = DamageSource(options).reader(StructType([StructField(name, StringType()) for name in names]))
    assert isinstance(reader, PartsReader)
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


def test_what_cannot_be_read_is_a_row_of_the_columns_asked_for(tmp_path: Path) -> None:
    root = unpack("4.9.7-killed-page", tmp_path)
    (tmp_path / "empty").mkdir()
    found = rows(["store", "size"], paths=f'["{tmp_path}/empty", "{root}"]')
    assert [row["store"] for row in found] == [f"{tmp_path}/empty", str(root)]
    assert [row["size"] for row in found] == [None, 4109]
    assert rows(["reason"], path=str(unpack("5.3.3-v2", tmp_path))) == []


def test_damage_ends_the_query_where_that_is_asked(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(NotAStore):
        rows(["store"], path=str(tmp_path / "empty"), on_damage="fail")


def test_columns_are_those_asked_for_and_others_are_named(tmp_path: Path) -> None:
    every = DamageSource({"path": str(tmp_path)}).schema()
    assert every == ", ".join(f"{name} {sql}" for name, sql in COLUMNS.items())
    asked = DamageSource({"path": str(tmp_path), "fields": "reason,position"}).schema()
    assert [field.split()[0] for field in asked.split(", ")] == ["reason", "position"]
    with pytest.raises(InvalidInput, match="no column 'topic'"):
        DamageSource({"path": str(tmp_path), "fields": "topic"}).schema()
