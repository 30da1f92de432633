"""The index of a DLedger log."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from ...formats.dledger_index import UNIT
from ...store.inspect.recognise import Recognised
from ...store.log.commit_log import index_units, is_valid
from ..options import Common
from .chunks import Chunk, RecordArray, state_of_numbers
from .one_file import files_at, lacking


def chunks(what: Recognised, at: int | None, raw: bool, common: Common) -> Iterator[Chunk]:
    """All units that were written. at: number of the first one."""
    with files_at(what.path) as files:
        for part in index_units(files, at or 0):
            numbers = part.number.tolist()
            invalid = {n for n, ok in zip(numbers, is_valid(part).tolist(), strict=True) if not ok}
            marks = partial(state_of_numbers, "invalid", invalid)
            yield RecordArray("dledger_index_unit", UNIT, part.units, "number", numbers, marks=marks)
        yield from lacking(files)


def summary(what: Recognised, common: Common) -> dict[str, Any]:
    units = invalid = 0
    numbers, terms, end = list[int](), list[int](), None
    with files_at(what.path) as files:
        for part in index_units(files):
            valid = is_valid(part)
            units += int(valid.sum())
            invalid += int((~valid).sum())
            good = part.units[valid]
            if len(good):
                numbers += [int(part.number[valid][0]), int(part.number[valid][-1])]
                terms += [int(good["term"].min()), int(good["term"].max())]
                end = int(good["pos"][-1]) + int(good["size"][-1])
    return {
        "units": units,
        "invalid_units": invalid,
        "first_index": min(numbers, default=None),
        "last_index": max(numbers, default=None),
        "first_term": min(terms, default=None),
        "last_term": max(terms, default=None),
        "highest_position": end,
    }
