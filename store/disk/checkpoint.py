"""The checkpoint file: how far a broker had flushed its store (spec 04, 4.1)."""

from __future__ import annotations

import os
from typing import NamedTuple

from ...formats.checkpoint import FIELDS
from ...formats.fixed import numbers_of
from ..errors import Missing
from .regular_file import read_regular

_FIELDS = numbers_of(FIELDS)


class Checkpoint(NamedTuple):
    """The fields of a checkpoint: times in ms since 1970, offsets in bytes of the commit log.

    Versions that do not know a field leave it 0. The names are those of the schema.
    """

    physic_msg_timestamp: int = 0
    logics_msg_timestamp: int = 0
    index_msg_timestamp: int = 0
    master_flushed_offset: int = 0
    confirm_phy_offset: int = 0
    logics_physical_offset: int = 0

    @classmethod
    def from_bytes(cls, data: bytes) -> Checkpoint:
        """The fields of the file's content; missing bytes count as zeros, as in a broker."""
        return cls(*_FIELDS.unpack(data[: _FIELDS.size].ljust(_FIELDS.size, b"\0")))


def read_checkpoint(path: str | os.PathLike[str]) -> Checkpoint | None:
    """The checkpoint at `path`, None where there is none. Raises Unreadable."""
    try:
        return Checkpoint.from_bytes(read_regular(path, _FIELDS.size))
    except Missing:
        return None
