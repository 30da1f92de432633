"""The index: records by key (spec 03).

A query walks the chains as a broker does, from the newest file to the oldest, with one difference:
the number of an item must be smaller than that of the item before it in the walk. A broker spins
for ever in a loop of two items (spec 07, B17). Hits are candidates: different texts may have the
same hash, so the records themselves must be compared with topic and key.

All file sizes of a store, those of its index files with them; see `disk/sizes.py`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import NamedTuple, Self

from ...formats.index_file import file_size
from ..disk.broker_conf import BrokerConfig
from ..disk.byte_reader import note, unread_of
from ..disk.compressed import plain_name
from ..disk.file_queue import Foreign, is_file
from ..disk.layout import Layout
from ..disk.sizes import Size, commit_log_size, consume_queue_size, timer_log_size
from ..errors import UnreadableRange, from_os_error
from .files import Geometry, IndexFile

FOREVER_MS = (1 << 63) - 1
TAG = "T"
"""Index type of tags (since 5.4.0); keys and unique keys have none."""


class Hit(NamedTuple):
    """One item that a query found."""

    physical_offset: int
    path: str
    number: int


@dataclass
class Answer:
    """What a query found, newest file first. damaged: files whose chain for the key is broken."""

    hits: list[Hit] = field(default_factory=list)
    damaged: list[IndexFile] = field(default_factory=list)


class Index:
    """All index files of a store, oldest first. Use as a context manager or `close`.

    >>> [hit.physical_offset for hit in store.index.query("orders", "key28").hits]
    [12189]
    """

    def __init__(self, files: list[IndexFile], foreign: list[Foreign]) -> None:
        self.files = files
        self.foreign = foreign

    @classmethod
    def open(cls, directory: str | os.PathLike[str], config: BrokerConfig | None = None) -> Index:
        """List the index files; none where the directory is missing. Raises Unreadable."""
        config = config or BrokerConfig()
        paths, foreign = _list(os.fspath(directory))
        slots, items = _geometry(paths, config)
        geometry = Geometry(slots.value, items.value)
        return cls([_open(path, geometry) for path in paths], foreign)

    def query(
        self,
        topic: str,
        key: str,
        *,
        begin_ms: int = 0,
        end_ms: int = FOREVER_MS,
        limit: int | None = None,
        index_type: str = "",
    ) -> Answer:
        """Candidates for a key of a topic, stored within [begin_ms, end_ms] as the index tells.

        index_type: `T` looks for a tag. limit: most hits, 64 at most in a broker, None for all.
        Order: newest file first, in it newest item first. Raises Unreadable.
        """
        from ...formats.hashing import index_hash

        key_hash = index_hash(topic, key if not index_type else f"{index_type}#{key}")
        answer = Answer()
        for file in reversed(self.files):
            header = file.header
            if header.begin_timestamp <= end_ms and header.end_timestamp >= begin_ms:
                _search(file, key_hash, begin_ms, end_ms, limit, answer)
            if header.begin_timestamp < begin_ms or len(answer.hits) == limit:
                break
        return answer

    def close(self) -> None:
        """Close the files."""
        for file in self.files:
            file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _search(
    file: IndexFile,
    key_hash: int,
    begin_ms: int,
    end_ms: int,
    limit: int | None,
    answer: Answer,
) -> None:
    """Add the hits of one file. What cannot be read of it is a broken chain, and is noted."""
    try:
        _follow(file, key_hash, begin_ms, end_ms, limit, answer)
    except UnreadableRange as error:
        note(unread_of(error))
        answer.damaged.append(file)


def _follow(
    file: IndexFile, key_hash: int, begin_ms: int, end_ms: int, limit: int | None, answer: Answer
) -> None:
    """Add the hits of one file. A broken chain ends the walk and is noted."""
    if not file.last or file.slots <= 0:
        return
    number = file.slot(key_hash % file.slots)
    bound = file.last + 1
    begin = file.header.begin_timestamp
    while number != 0:
        if not 0 < number < bound:
            answer.damaged.append(file)
            return
        item = file.item(number)
        same_slot = item.key_hash >= 0 and (item.key_hash - key_hash) % file.slots == 0
        if not same_slot or item.time_diff < 0:
            answer.damaged.append(file)
            return
        stored_ms = begin + item.time_diff * 1000
        if item.key_hash == key_hash and begin_ms <= stored_ms <= end_ms:
            answer.hits.append(Hit(item.physical_offset, file.path, number))
            if len(answer.hits) == limit:
                return
        if stored_ms < begin_ms:
            return
        number, bound = item.previous, number


def open_index_file(path: str | os.PathLike[str], config: BrokerConfig | None = None) -> IndexFile:
    """One index file, wherever it lies. Raises Missing, Unreadable."""
    config = config or BrokerConfig()
    slots, items = (config.size(name) for name in ("maxHashSlotNum", "maxIndexNum"))
    usual = Geometry(slots[0], items[0])
    if slots[1] == items[1] == "default":
        usual = _own_geometry(os.fspath(path), usual) or usual
    return IndexFile(path, usual)


def _list(directory: str) -> tuple[list[str], list[Foreign]]:
    """Paths of the index files by name, and what is none."""
    paths: dict[str, str] = {}
    foreign: list[Foreign] = []
    try:
        with os.scandir(directory) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                name = plain_name(entry.name)
                if not (name.isascii() and name.isdigit()):
                    foreign.append(Foreign(entry.path, "its name is not a time"))
                elif not is_file(entry):
                    foreign.append(Foreign(entry.path, "not a file"))
                elif name in paths:
                    foreign.append(Foreign(entry.path, f"the same time as {paths[name]}"))
                else:
                    paths[name] = entry.path
    except FileNotFoundError:
        pass
    except OSError as error:
        raise from_os_error(error, directory) from error
    return [paths[name] for name in sorted(paths)], foreign


def geometry_of(directory: str | os.PathLike[str], config: BrokerConfig) -> tuple[Size, Size]:
    """Numbers of slots and of items of a store's index files, and where they come from."""
    return _geometry(_list(os.fspath(directory))[0], config)


def _geometry(paths: list[str], config: BrokerConfig) -> tuple[Size, Size]:
    slots, items = (Size(*config.size(name)) for name in ("maxHashSlotNum", "maxIndexNum"))
    if slots.origin == items.origin == "default":
        for path in reversed(paths):
            found = _own_geometry(path, Geometry(slots.value, items.value))
            if found is not None:
                return Size(found.slots, "files"), Size(found.items, "files")
    return slots, items


def _own_geometry(path: str, usual: Geometry) -> Geometry | None:
    """What the content of a file tells; the usual geometry is tried before a search."""
    with IndexFile(path, usual) as file:
        if file.last and file.size == file_size(*usual) and file.consistent:
            return usual
        try:
            return file.find_geometry()
        except UnreadableRange as error:
            note(unread_of(error))
            return None


def _open(path: str, usual: Geometry) -> IndexFile:
    """A file with the store's geometry, or with its own where its length is another one."""
    file = IndexFile(path, usual)
    if file.size == file_size(*usual):
        return file
    file.close()
    return IndexFile(path, _own_geometry(path, usual) or usual)


class Sizes(NamedTuple):
    """File sizes in bytes; of an index file the numbers of slots and of items."""

    commit_log: Size
    consume_queue: Size
    index_slots: Size
    index_items: Size
    timer_log: Size

    @property
    def of_index(self) -> Geometry:
        """Numbers of slots and of items of an index file."""
        return Geometry(self.index_slots.value, self.index_items.value)


def sizes_of(layout: Layout) -> Sizes:
    """All sizes of a store; of one layout they are looked for once. Raises Unreadable, InvalidInput."""
    return layout.once(_sizes)


def _sizes(layout: Layout) -> Sizes:
    slots, items = geometry_of(layout.index, layout.broker_config)
    return Sizes(
        commit_log=commit_log_size(layout),
        consume_queue=consume_queue_size(layout),
        index_slots=slots,
        index_items=items,
        timer_log=timer_log_size(layout),
    )
