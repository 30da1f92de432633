"""`abort` and `lock`: their content as text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .chunks import Chunk, Single, only_record

if TYPE_CHECKING:
    from ...store.inspect.recognise import Recognised
    from ..options import Common


def chunks(what: Recognised, at: int | None, raw: bool, common: Common) -> Iterator[Chunk]:
    """One record with the content."""
    from ...formats.derive import columns_of
    from ...formats.kinds import KINDS
    from ...store.disk.compressed import read_regular

    kind = KINDS[what.kind]
    data = read_regular(what.path, _TEXT_BYTES)
    (_, schema), *_ = kind.layouts
    name = columns_of(schema)[0].name
    yield Single({"type": kind.record_type, name: data.decode("utf-8", "replace")}, data, schema)


def summary(what: Recognised, common: Common) -> dict[str, Any]:
    """The fields of the record."""
    return only_record(chunks(what, None, False, common))


_TEXT_BYTES = 4096
