"""The checkpoint, `config/timercheck`, and other files that begin with one record."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .chunks import Chunk, Single, only_record

if TYPE_CHECKING:
    from ...store.inspect.recognise import Recognised
    from ..options import Common


def chunks(what: Recognised, at: int | None, raw: bool, common: Common) -> Iterator[Chunk]:
    """One record; fields that a short file lacks are zero, as for a broker."""
    from ...formats.derive import columns_of
    from ...formats.kinds import KINDS
    from ...store.disk.compressed import read_regular

    kind = KINDS[what.kind]
    ((_, schema),) = kind.layouts
    data = read_regular(what.path, schema.sizeof())
    fields = schema.parse(data.ljust(schema.sizeof(), b"\0"))
    record = {"type": kind.record_type, **{c.name: fields[c.name] for c in columns_of(schema)}}
    yield Single(record, data, schema)


def summary(what: Recognised, common: Common) -> dict[str, Any]:
    """The fields of the record."""
    return only_record(chunks(what, None, False, common))
