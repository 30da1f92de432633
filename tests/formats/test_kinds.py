"""The kinds of files: each is described by its module, and told apart from all others."""

from __future__ import annotations

from importlib import import_module

import pytest

from mqstore import formats
from mqstore.formats.kinds import KINDS, FileKind, Syntax

KIND = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


@KIND
def test_a_kind_is_named_like_its_module_which_describes_it(kind: FileKind) -> None:
    assert KINDS[kind.name] is kind
    module = import_module(f"{formats.__name__}.{kind.name.replace('-', '_')}")
    assert kind.description == (module.__doc__ or "").strip() != ""
    for name in kind.modules:
        assert import_module(f"{formats.__name__}.{name}").__doc__


@KIND
def test_a_kind_is_bytes_or_text(kind: FileKind) -> None:
    """Layouts with names of their own, or tables; what is generic has neither."""
    names = [name for name, _ in kind.layouts]
    assert len(set(names)) == len(names)
    assert not (kind.layouts and kind.tables)
    if kind.tables:
        assert kind.record_type == kind.tables[0].record_type
        assert kind.file or kind.syntax is not Syntax.JSON
    else:
        assert not kind.file
        assert kind.layouts or kind.name == "config"


def test_names_of_text_files_are_different() -> None:
    places = [(kind.place, kind.file) for kind in KINDS.values() if kind.file]
    assert len(set(places)) == len(places)
    assert ("config", "topics.json") in places and ("compaction", "position-checkpoint") in places
    alone = [kind.file for kind in KINDS.values() if kind.tables and not kind.reads_backup]
    assert alone == ["brokerIdentity"]


@KIND
def test_records_of_one_type_have_one_shape(kind: FileKind) -> None:
    """`--format json` names it: a type of records is of one kind, or of kinds with the same layout."""
    same = [other for other in KINDS.values() if other.record_type == kind.record_type and other.layouts]
    described = {
        tuple(column for column in ("physical_offset", "size") if column in schema._subcons)
        for other in same
        for name, schema in other.layouts[:1]
        if other.name != "dledger"
        for _ in [name]
        if hasattr(schema, "_subcons")
    }
    assert len(described) <= 1
