"""The checkpoint, and timercheck, which is read by the same code."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqstore.formats.checkpoint import FIELDS
from mqstore.formats.derive import columns_of, offset_of

from .told import records, summary

NAMES = [column.name for column in columns_of(FIELDS)]
WHOLE = FIELDS.build({name: 1_795_210_973_105 + number for number, name in enumerate(NAMES)})


@pytest.mark.parametrize("fields", range(len(NAMES)))
def test_what_a_short_file_lacks_is_zero(fields: int, tmp_path: Path) -> None:
    """As it is for a broker; of a time that is cut the rest counts as zeros, too."""
    path = tmp_path / "checkpoint"
    path.write_bytes(WHOLE[: offset_of(FIELDS, NAMES[fields]) + 6])
    found = summary(path)
    assert list(found) == NAMES
    assert [found[name] for name in NAMES[:fields]] == [1_795_210_973_105 + n for n in range(fields)]
    assert found[NAMES[fields]] == (1_795_210_973_105 + fields) >> 16 << 16
    assert not any(found[name] for name in NAMES[fields + 1 :])


def test_what_stands_behind_the_record_is_none(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(WHOLE.ljust(4096, b"\xff"))
    (record,) = records(path)
    assert {name: record[name] for name in NAMES} == summary(path)
    assert record["type"] == "checkpoint" and set(record) == {"type", *NAMES}
    assert summary(path)[NAMES[-1]] == 1_795_210_973_105 + len(NAMES) - 1
