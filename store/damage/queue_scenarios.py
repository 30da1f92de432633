"""What can go wrong with consume queues, their extension and the index."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from ...formats.consume_queue import UNIT_BYTES
from ...formats.derive import offset_of
from ...formats.index_file import HEADER, HEADER_BYTES, ITEM, ITEM_BYTES, items_offset
from ..disk.edits import Edit
from ..disk.file_queue import MappedFileQueue, file_name
from ..disk.layout import COMPACTION, COMPACTION_LOG
from ..disk.snapshot import Entry
from ..errors import NotFound
from ..index.files import Header
from ..index.read import open_index_file
from ..index.write import file_name as index_file_name
from ..queues.edits import last_byte
from .scenario import Scene, create, cut, killed, remove, scenario, write, zeros

_MOVED_UNITS = 1 << 16
"""At most so many units move up."""
_ENDLESS_FILES = 20
_LONG_AGO = datetime(1970, 1, 1)
"""Names then follow the newest file, not the clock: the same for the same seed."""


def _place(files: MappedFileQueue, queue_offset: int) -> tuple[str, int, int]:
    """File of a unit, its byte there, and the bytes from there to the file's end."""
    file = files.file_at(queue_offset * UNIT_BYTES)
    if file is None:
        raise NotFound("no file has the unit", offset=queue_offset * UNIT_BYTES)
    at = queue_offset * UNIT_BYTES - file.start
    return file.path, at, file.size - at


@scenario("queue-order", 495, 467, 7355)
def _queue_order(scene: Scene) -> Iterator[Edit]:
    """A unit of a queue is lost and the others moved up: logic queue order maybe wrong."""
    files, first, end = scene.queue(3)
    with files:
        number = scene.rng.randrange(first, end - 2)
        path, at, room = _place(files, number)
        size = min(room, (end - number) * UNIT_BYTES, _MOVED_UNITS * UNIT_BYTES)
        rest = files.read(number * UNIT_BYTES + UNIT_BYTES, size - UNIT_BYTES)
    yield write(path, at, rest + bytes(size - len(rest)), "units of a queue moved up by one")


@scenario("queue-hole")
def _queue_hole(scene: Scene) -> Iterator[Edit]:
    """Units in the middle of a queue are zeros."""
    files, first, end = scene.queue(3)
    with files:
        number = scene.rng.randrange(first + 1, end - 1)
        path, at, room = _place(files, number)
    size = min(room, scene.rng.randint(1, end - 1 - number) * UNIT_BYTES)
    yield zeros(path, at, size, "units of a queue")


@scenario("queue-behind", 678, 1434, 405)
def _queue_behind(scene: Scene) -> Iterator[Edit]:
    """The last units of a queue never reached the disk, the checkpoint says they did."""
    files, first, end = scene.queue(2)
    with files:
        path, at, room = _place(files, scene.rng.randrange(max(first + 1, end - 10), end))
    yield zeros(path, at, room, "the last units of a queue")
    yield from killed(scene)


@scenario("empty-queue-file", 9728, 10108)
def _empty_queue_file(scene: Scene) -> Iterator[Edit]:
    """Behind the last file of a queue there is an empty one: newPosition < 0."""
    files, _, _ = scene.queue()
    with files:
        path = f"{files.directories[0]}/{file_name(files.files[-1].start + files.file_size)}"
    yield create(path, b"", "an empty file behind a queue")


@scenario("queues-deleted", 8032, 495)
def _queues_deleted(scene: Scene) -> Iterator[Edit]:
    """All consume queues are deleted, as advice on the web says."""
    found = scene.files_of("consumequeue/**/*")
    if not found:
        raise NotFound("the store has no consume queues", path=scene.store.layout.root)
    for path in found:
        yield remove(path, "a file of a consume queue")


@scenario("ext-cut", 10758)
def _ext_cut(scene: Scene) -> Iterator[Edit]:
    """The extension of a queue ends before the units that point into it."""
    path = scene.file_of("consumequeue_ext/*/*/*", "extension of consume queues")
    size = path.stat().st_size
    yield zeros(path, size // 4, size - size // 4, "units of an extension")


def _newest_index(scene: Scene) -> Path:
    found = scene.files_of("index/*")
    if not found:
        raise NotFound("the store has no index", path=scene.store.layout.root)
    return found[-1]


@scenario("index-destroyed", 8007, 4463)
def _index_destroyed(scene: Scene) -> Iterator[Edit]:
    """The newest index file has lost its header."""
    yield zeros(_newest_index(scene), 0, HEADER_BYTES, "header of the newest index file")
    yield from killed(scene)


@scenario("index-gone", 3868)
def _index_gone(scene: Scene) -> Iterator[Edit]:
    """The newest index file is gone."""
    yield remove(_newest_index(scene), "the newest index file")


@scenario("index-loop", 8018)
def _index_loop(scene: Scene) -> Iterator[Edit]:
    """An item of the index names itself as the one before it: an endless loop."""
    path = _newest_index(scene)
    with open_index_file(path, scene.store.config) as index:
        if index.last < 1:
            raise NotFound("the newest index file has no items", path=path)
        number = scene.rng.randint(1, index.last)
        at = items_offset(index.slots) + number * ITEM_BYTES
    data = ITEM.previous.build(number)
    yield write(path, at + offset_of(ITEM, "previous"), data, f"item {number} names itself")


@scenario("index-cut")
def _index_cut(scene: Scene) -> Iterator[Edit]:
    """The newest index file ends early."""
    path = _newest_index(scene)
    yield cut(path, scene.rng.randrange(path.stat().st_size), "the newest index file ends early")


@scenario("index-endless", 7539)
def _index_endless(scene: Scene) -> Iterator[Edit]:
    """One index file after the other was begun and never filled: they fill the disk."""
    newest = _newest_index(scene)
    size = newest.stat().st_size
    with open_index_file(newest, scene.store.config) as index:
        end = index.header
    fields = (
        end.end_timestamp,
        end.end_timestamp,
        end.end_physical_offset,
        end.end_physical_offset,
    )
    header = HEADER.build(dict(zip(Header._fields, (*fields, 0, 1), strict=True)))
    name = newest.name
    for _ in range(_ENDLESS_FILES):
        name = index_file_name(_LONG_AGO, name)
        yield create(newest.with_name(name), header, "an index file without an item", size)


@scenario("compaction-cut")
def _compaction_cut(scene: Scene) -> Iterator[Edit]:
    """The log of a compaction topic lost its end, its queue still points there."""
    path = scene.file_of(f"{COMPACTION}/{COMPACTION_LOG}/*/*/*", "log of a compaction topic")
    entry = Entry(path.name, str(path), path.stat().st_size, directory=False)
    end = last_byte(entry, 0)
    at = scene.rng.randrange(end // 4, end // 2)
    yield zeros(path, at, end - at, "the end of a compaction log")
    yield from killed(scene)
