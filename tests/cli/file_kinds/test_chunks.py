"""Chunks of records: how rows, ranges and single records become what is printed."""

from __future__ import annotations

import numpy as np
import pytest

from mqstore.cli.file_kinds.chunks import NonRecordRange, RecordArray, only_record, single
from mqstore.formats.derive import dtype_of
from mqstore.formats.timer_wheel import SLOT


def test_records_have_what_stands_before_and_what_marks_them() -> None:
    slots = np.zeros(2, dtype_of(SLOT))
    slots["num"] = (-1, 3)
    rows = RecordArray(
        "slot",
        SLOT,
        slots,
        "slot",
        [7, 8],
        {"file": "f"},
        {"leads": [1, 2]},
        marks=lambda record: {"state": "odd"} if record["num"] < 0 else {},
    )
    first, second = rows.records()
    assert list(first) == ["type", "file", "slot", "leads", *slots.dtype.names, "state"]
    assert (first["slot"], first["leads"], first["num"], first["state"]) == (7, 1, -1, "odd")
    assert second["num"] == 3 and "state" not in second
    pieces = list(rows.pieces())
    assert [(piece.title, piece.position) for piece in pieces] == [
        ("slot file f slot 7", 224),
        ("slot file f slot 8", 256),
    ]
    assert b"".join(piece.data for piece in pieces) == slots.tobytes()


def test_zeros_and_what_is_silent_are_no_records() -> None:
    damage = {"type": "damage", "position": 0, "size": 1, "reason": "r"}
    assert list(NonRecordRange(damage).records()) == [damage]
    assert not [*NonRecordRange(damage, silent=True).records(), *NonRecordRange(damage | {"type": "zeros"}).records()]
    assert not [*NonRecordRange(damage).pieces()]


def test_a_file_that_is_one_record_has_one() -> None:
    one = single({"type": "lock", "content": "lock"}, b"lock", SLOT)
    assert only_record([one]) == {"content": "lock"}
    for chunks in ([], [one, one]):
        with pytest.raises(ValueError, match="values to unpack"):
            only_record(chunks)
