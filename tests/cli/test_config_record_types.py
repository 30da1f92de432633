"""Which record types a dump of each kind of file of `config/` has."""

from __future__ import annotations

from mqstore.cli.config_record_types import OF_KIND
from mqstore.formats.kinds import KINDS


def test_the_types_of_each_kind_are_those_of_its_tables() -> None:
    for name, kind in KINDS.items():
        if kind.tables:
            declared = dict.fromkeys(table.record_type for table in kind.tables)
            assert OF_KIND[name] == (*declared, "config_value", "damage"), name
