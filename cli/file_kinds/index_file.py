"""Index files: one, or all of a store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...formats.index_file import HEADER, ITEM, items_offset
from ...store.disk.broker_conf import BrokerConfig
from ...store.disk.compressed import is_compressed, plain_of, whole_size
from ...store.disk.file_queue import MappedFile
from ...store.errors import Missing
from ...store.index.read import Index, IndexFile, open_index_file
from ...store.inspect.recognise import Recognised
from ..options import Common
from .chunks import Chunk, RecordArray, single
from .one_file import broken, files_at, unreadable


def chunks(what: Recognised, at: int | None, raw: bool, common: Common) -> Iterator[Chunk]:
    """Header and items of index files, oldest file first. at: number of the first item."""
    listed = files_at(what.path)
    for file in index_files(what.path, common.config()):
        name = Path(file.path).name
        with file:
            try:
                packed = is_compressed(file.path)
            except Missing:
                if not listed.has_expired(MappedFile(file.path, int(name), 0)):
                    raise
                continue
            header = {"type": "index_header", "file": name, **file.header._asdict()}
            yield single(header, HEADER.build(file.header._asdict()), HEADER)
            for first, items in file.columns():
                begin = max(0, (at or 0) - first)
                items, first = items[begin:], first + begin
                hashes = items["key_hash"].tolist()
                yield RecordArray(
                    "index_item",
                    ITEM,
                    items,
                    "number",
                    range(first, first + len(items)),
                    {"file": name},
                    {"slot": [key_hash % file.slots if file.slots > 0 else 0 for key_hash in hashes]},
                    begin=items_offset(file.slots),
                )
        yield from unreadable(file.path)
        if packed and (content := plain_of(file.path)).problem:
            yield broken(name, 0, whole_size(file.path), content, silent=True)


def summary(what: Recognised, common: Common) -> dict[str, Any]:
    """The header of one file; for several files the sum of items and the time range."""
    files = index_files(what.path, common.config())
    headers = [file.header for file in files]
    shape = {"slots": files[0].slots, "items": files[0].items} if files else {}
    for file in files:
        file.close()
    if len(files) == 1:
        return {**shape, **headers[0]._asdict()}
    used = [header for header in headers if header.index_count > 1]
    return {
        **shape,
        "index_items": sum(header.index_count - 1 for header in used),
        "begin_timestamp": min((header.begin_timestamp for header in used), default=0),
        "end_timestamp": max((header.end_timestamp for header in used), default=0),
    }


def index_files(path: Path, config: BrokerConfig) -> list[IndexFile]:
    """The index files at a path, oldest first."""
    return [open_index_file(path, config)] if path.is_file() else Index.open(path, config).files
