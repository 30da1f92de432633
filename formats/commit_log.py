"""CommitLog: a file is records, then a BLANK (spec/01-commitlog.md, 1.1, 1.14).

What stands at a position is told by the magic code behind the size.
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

#: Any item, by its size alone.
ITEM = Struct("bytes" / GreedyBytes)
#: What every record begins with.
HEAD = Struct("total_size" / Int32sb * "whole record, this field included", "magic_code" / Int32ub * "kind of record")
HEAD_BYTES = HEAD.sizeof()
#: Bytes of the field in which an item names its own position.
POSITION_BYTES = Int64sb.sizeof()
#: That field in bulk.
POSITION_DTYPE = dtype_of(Struct("position" / Int64sb))["position"]
#: total_size in bulk. Unsigned: one below zero is too large then, and no cursor moves backwards.
SIZE_DTYPE = dtype_of(Struct("size" / Int32ub))["size"]


@dataclass(frozen=True)
class Frame:
    """How the items of a log file are chained: where size, magic code and own position stand.

    Items are the records of a plain log, or the DLedger entries around them (spec 1.13). All
    offsets count from the start of the item. `payload` is where the record begins in it;
    `smallest` the smallest size of an item that holds one; `spare` the bytes that a writer keeps
    free behind an item.
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
        """What the native kernel follows a chain by: kernel/src/chain.rs."""
        places = (self.size_offset, self.magic_offset, self.position_offset)
        return np.array([*places, self.payload, self.smallest, *self.magics], np.int64)

    @cached_property
    def sizes(self) -> Ints:
        """The same for items that may name any position."""
        return np.where(np.arange(len(self.numbers)) == 2, -1, self.numbers)


_LATER = frozenset(
    {"flag", "reconsume_times"} | {f"{host}_host.{part}" for host in ("born", "store") for part in ("ip", "address")}
)
#: What has to hold of a record in a plain log besides what the frame says. Spec 1.14.
IN_FRAME = ChainRules(("body", "body_crc"), later=_LATER)
#: The same of one in a DLedger entry, whose frame does not look into it.
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
