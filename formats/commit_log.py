"""CommitLog: a file is records, then a BLANK (spec/01-commitlog.md, 1.1, 1.14).

The magic code behind the size tells what an item is.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from construct import GreedyBytes, Int32sb, Int32ub, Int64sb, Struct

from . import dledger
from .blank import BLANK, BLANK_BYTES, MAGIC_BLANK
from .derive import dtype_of, minimum_bytes, offset_of
from .derive.program import ChainRules
from .derive.ragged import Ints
from .message import MAGIC_V1, MAGIC_V2, MESSAGE

#: Any item, of known size.
ITEM = Struct("bytes" / GreedyBytes)
#: The beginning of every record.
HEAD = Struct("total_size" / Int32sb * "whole record, this field included", "magic_code" / Int32ub * "kind of record")
HEAD_BYTES = HEAD.sizeof()
#: Bytes of the field with an item's own position.
POSITION_BYTES = Int64sb.sizeof()
#: dtype of that field.
POSITION_DTYPE = dtype_of(Struct("position" / Int64sb))["position"]
#: dtype of total_size. Unsigned, so that a negative size is too large, and no cursor moves backwards.
SIZE_DTYPE = dtype_of(Struct("size" / Int32ub))["size"]


@dataclass(frozen=True)
class Frame:
    """How the items of a log file are chained: where size, magic code and own position are.

    Items are the records of a plain log, or the DLedger entries around them (spec 1.13). All offsets count from the
    start of the item. payload: where the record begins in it. smallest: size of the smallest item that holds a record.
    spare: bytes that a writer keeps free behind an item.
    """

    size_offset: int
    magic_offset: int
    position_offset: int
    magics: tuple[int, ...]
    blank_magic: int
    blank_size_offset: int
    payload: int
    smallest: int
    spare: int

    @cached_property
    def numbers(self) -> Ints:
        """The numbers by which the native kernel follows a chain (kernel/src/chain.rs)."""
        places = (self.size_offset, self.magic_offset, self.position_offset)
        return np.array([*places, self.payload, self.smallest, *self.magics], np.int64)

    @cached_property
    def sizes(self) -> Ints:
        """`numbers` for items whose own position is not checked."""
        return np.where(np.arange(len(self.numbers)) == 2, -1, self.numbers)


_LATER = frozenset(
    {"flag", "reconsume_times"} | {f"{host}_host.{part}" for host in ("born", "store") for part in ("ip", "address")}
)
#: Rules for a record in a plain log besides those of its frame (spec 1.14).
IN_FRAME = ChainRules(("body", "body_crc"), later=_LATER)
#: Rules for a record in a DLedger entry, whose frame tells nothing about it.
IN_ENTRY = ChainRules(
    ("body", "body_crc"),
    size="total_size",
    position="physical_offset",
    known=("magic_code", (MAGIC_V1, MAGIC_V2)),
    later=_LATER,
)


def _plain() -> Frame:
    return Frame(
        size_offset=offset_of(MESSAGE, "total_size"),
        magic_offset=offset_of(MESSAGE, "magic_code"),
        position_offset=offset_of(MESSAGE, "physical_offset"),
        magics=(MAGIC_V1, MAGIC_V2),
        blank_magic=MAGIC_BLANK,
        blank_size_offset=offset_of(BLANK, "total_size"),
        payload=0,
        smallest=minimum_bytes(MESSAGE),
        spare=BLANK_BYTES,
    )


def _dledger() -> Frame:
    header = offset_of(dledger.ENTRY, "body")
    return Frame(
        size_offset=offset_of(dledger.ENTRY, "size"),
        magic_offset=offset_of(dledger.ENTRY, "magic"),
        position_offset=offset_of(dledger.ENTRY, "pos"),
        magics=(dledger.MAGIC_ENTRY, dledger.MAGIC_NOOP, dledger.MAGIC_CONFIG_CHANGE),
        blank_magic=dledger.MAGIC_BLANK & 0xFFFFFFFF,
        blank_size_offset=offset_of(dledger.BLANK, "size"),
        payload=header,
        smallest=header,
        spare=dledger.BLANK.sizeof(),
    )


PLAIN = _plain()
DLEDGER = _dledger()
