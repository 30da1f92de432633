"""Bits of sys_flag: those of the specification, each once, and the values that clients were seen to send."""

from __future__ import annotations

import re
from functools import reduce
from operator import or_
from pathlib import Path

import pytest

from mqstore.formats.sys_flag import COMPRESSION_MASK, TRANSACTION_MASK, SysFlag

SPEC = Path(__file__).parents[2] / "docs" / "spec" / "01-commitlog.md"


def test_every_bit_is_in_the_specification_once() -> None:
    """The rows of its table share no bit, and have all those that have a name here."""
    section = SPEC.read_text(encoding="utf-8").partition("## 1.3 sysFlag bits")[2].partition("\n\nBits")[0]
    rows = [int(bits, 16) for bits in re.findall(r"^\| (0x[0-9A-F]+)", section, re.MULTILINE)]
    every = reduce(or_, rows)
    assert len(rows) == 8 and sum(rows) == every
    named = reduce(or_, map(int, SysFlag))
    assert named | COMPRESSION_MASK == every
    for bit in SysFlag:
        (row,) = [row for row in rows if row & bit]
        assert row & bit == bit, f"{bit!r} is of two rows"
    assert {TRANSACTION_MASK, COMPRESSION_MASK} <= set(rows)


@pytest.mark.parametrize(
    ("value", "state", "compression"),
    [
        (0x1, 0, 0),  # a client of 4.3.1: zlib without its bits
        (0x101, 0, SysFlag.LZ4),
        (0x201, 0, SysFlag.ZSTD),
        (0x301, 0, SysFlag.ZLIB),
        (0x309, SysFlag.COMMIT, SysFlag.ZLIB),
        (0xC, SysFlag.ROLLBACK, 0),
        (-1, SysFlag.ROLLBACK, COMPRESSION_MASK),  # damage: a kind that nobody has
    ],
)
def test_values_that_records_have(value: int, state: int, compression: int) -> None:
    """ROLLBACK is both of the others; of the kinds of compression ZLIB is, but not of the bits there are."""
    assert (value & TRANSACTION_MASK, value & COMPRESSION_MASK) == (state, compression)
    assert SysFlag.PREPARED | SysFlag.COMMIT == SysFlag.ROLLBACK == TRANSACTION_MASK
    assert SysFlag.LZ4 | SysFlag.ZSTD == SysFlag.ZLIB != COMPRESSION_MASK
