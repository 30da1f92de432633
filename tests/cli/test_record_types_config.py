"""Which record types a dump of each kind of file of `config/` has."""

from __future__ import annotations

import pytest

from mqstore.cli.record_types import types_of_kind
from mqstore.formats.kinds import KINDS


@pytest.mark.parametrize(
    ("kind", "tables"),
    [
        ("topics", ("topic_config", "data_version")),
        ("subscription-group", ("subscription_group", "forbidden", "data_version")),
        ("lmq-consumer-offset", ("consumer_offset", "data_version")),
        ("consumer-filter", ("consumer_filter",)),
        ("tiered-store-metadata", ("tiered_topic", "tiered_queue", "tiered_segment")),
        ("epoch-file", ("epoch_file", "epoch")),
    ],
)
def test_the_types_of_a_kind_are_those_of_its_tables(kind: str, tables: tuple[str, ...]) -> None:
    assert types_of_kind(kind) == (*tables, "config_value", "damage")


def test_the_types_of_config_are_those_of_its_files() -> None:
    files = [kind.name for kind in KINDS.values() if kind.file and kind.place == "config"]
    types = types_of_kind("config")
    assert set(types) == {"rocksdb_entry", *(each for name in files for each in types_of_kind(name))}
    assert types[:4] == types_of_kind("topics") and types[-1] == "rocksdb_entry"
