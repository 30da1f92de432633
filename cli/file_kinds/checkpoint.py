"""The checkpoint, `config/timercheck`, `abort` and `lock`: files that are, or begin with, one record."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...formats.derive import columns_of
from ...formats.kinds import KINDS
from ...store.disk.compressed import read_regular
from ...store.inspect.recognise import Recognised
from ..options import Common
from .chunks import Chunk, only_record, single

_TEXTS = ("abort", "lock")
_TEXT_BYTES = 4096


def chunks(what: Recognised, at: int | None, raw: bool, common: Common) -> Iterator[Chunk]:
    """One record: a text, or fields; those that a short file lacks are zero, as for a broker."""
    kind = KINDS[what.kind]
    ((_, schema),) = kind.layouts
    names = [column.name for column in columns_of(schema)]
    if what.kind in _TEXTS:
        data = read_regular(what.path, _TEXT_BYTES)
        fields = dict.fromkeys(names, data.decode("utf-8", "replace"))
    else:
        data = read_regular(what.path, schema.sizeof())
        fields = schema.parse(data.ljust(schema.sizeof(), b"\0"))
    yield single({"type": kind.record_type, **{name: fields[name] for name in names}}, data, schema)


def summary(what: Recognised, common: Common) -> dict[str, Any]:
    return only_record(chunks(what, None, False, common))
