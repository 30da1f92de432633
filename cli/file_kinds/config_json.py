"""A file of `config/`: the entries of its tables, or what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...store.disk.compressed import read_regular
from ...store.inspect.recognise import Recognised
from ...store.settings.read import LARGEST_BYTES, read_config_file, summary_of
from ..options import Common
from .chunks import Chunk, NonRecordRange, RecordPiece, SingleRecords
from .one_file import unreadable


def chunks(what: Recognised, at: int | None, raw: bool, common: Common) -> Iterator[Chunk]:
    """The entries from number `at` on, then the range that cannot be read."""
    yield from file_chunks(what.path, what.kind, at or 0, common)


def file_chunks(path: Path, kind: str, at: int, common: Common) -> Iterator[Chunk]:
    from itertools import islice

    file = read_config_file(path, kind)
    if file.note:
        common.warn(f"{path}: {file.note}")
    yield SingleRecords(
        islice(file.records(), at, None),
        lambda: iter((RecordPiece(path.name, 0, read_regular(path, LARGEST_BYTES), None),)),
    )
    if lost := list(unreadable(str(path))):
        yield from lost
    elif file.problem is not None:
        common.warn(f"{path}: {summary_of(file).text}")
        size, reason = max(file.problem.size, 1), f"{path.name}: {file.problem.reason}"
        yield NonRecordRange.damage(file.problem.position, size, reason)


def summary(what: Recognised, common: Common) -> dict[str, Any]:
    """The content, and whether a broker accepts it."""
    found = summary_of(read_config_file(what.path, what.kind))
    return {"state": found.state, "contents": [found.text]}
