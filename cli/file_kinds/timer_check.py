"""`config/timercheck`: one record."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .chunks import Chunk, Single, only_record
from .one_file import read_head

if TYPE_CHECKING:
    from ...store.inspect.recognise import Recognised
    from ..options import Common


def chunks(what: Recognised, at: int | None, raw: bool, common: Common) -> Iterator[Chunk]:
    """The fields; what a short file lacks is zero, as for a broker."""
    from ...formats.derive import columns_of
    from ...formats.timer_check import FIELDS, PAGE_BYTES

    data = read_head(what.path, PAGE_BYTES)
    fields = FIELDS.parse(data[: FIELDS.sizeof()].ljust(FIELDS.sizeof(), b"\0"))
    record = {"type": "timer_check", **{c.name: fields[c.name] for c in columns_of(FIELDS)}}
    yield Single(record, data[: FIELDS.sizeof()], FIELDS)


def summary(what: Recognised, common: Common) -> dict[str, Any]:
    """All its fields."""
    return only_record(chunks(what, None, False, common))
