"""Small files that tell a broker's progress: checkpoint, timercheck, abort.

`checkpoint`: how far the store had been flushed (spec/04-checkpoint-timer.md, 4.1; writing it: 7.11, step 7).
`config/timercheck`: how far the timer of a 5.x broker had come (spec 04, 4.7).
`abort`: exists while somebody writes, and after a crash (spec 04, 4.2).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ...formats.checkpoint import FIELDS, PAGE_BYTES
from ...formats.fixed import numbers_of, tuple_of
from ...formats.message import SMALLEST
from ...formats.timer_check import FIELDS as TIMER_FIELDS
from ..errors import Missing
from .compressed import read_regular
from .files import Files, write_new

if TYPE_CHECKING:
    from .layout import Layout


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
        """Parse the content of the file; missing bytes count as zeros, as for a broker."""
        return tuple_of(cls, FIELDS, data)


def read_checkpoint(path: str | os.PathLike[str]) -> Checkpoint | None:
    """The checkpoint at `path`, None if there is no file. Raises Unreadable."""
    with suppress(Missing):
        return Checkpoint.from_bytes(read_regular(path, FIELDS.sizeof()))
    return None


def seen_checkpoint(path: str | os.PathLike[str]) -> Checkpoint | None:
    """As `read_checkpoint`, for who only looks: None for a directory, too, with which no broker starts."""
    return None if os.path.isdir(path) else read_checkpoint(path)  # noqa: PTH112


def lost_end(
    layout: Layout,
    fields: Mapping[str, int],
    end: int,
    file_bytes: int,
    named: Iterable[int] = (),
    *,
    torn_end: int = 0,
) -> range:
    """What a log that ends at `end` has lost there, if a controller may make its broker the master: the others cut
    their logs to its end then. It reached up to the confirmed offset, and to where lost records end that something
    names. A start puts the confirmed offset back to the log's end (spec 4.1): so this is known up to the next start.

    fields: of the checkpoint. file_bytes: size of a log file. torn_end: where a torn record at the end would end. A
    master sends parts of records, too: what is confirmed up to the middle of one has lost no record.
    """
    if not layout.may_be_master or layout.log_stop is not None:  # what follows is only not looked at
        return range(0)
    confirmed = fields["confirm_phy_offset"]
    in_blank = confirmed == -(-end // file_bytes) * file_bytes  # it fills the file in which the log ends
    in_record = confirmed < max(torn_end, end + SMALLEST)
    return range(end, max(end, 0 if in_blank or in_record else confirmed, *named))


def is_whole(path: Path) -> bool:
    """Whether there is a checkpoint of full length: no directory, which has as many bytes on many file systems."""
    return path.is_file() and path.stat().st_size == PAGE_BYTES


def checkpoint_bytes(checkpoint: Checkpoint) -> bytes:
    """The bytes of the fields, with which the file begins."""
    return numbers_of(FIELDS).pack(*checkpoint)


def at_last_record(
    before: Checkpoint, *, store_timestamp: int, physical_offset: int, index_timestamp: int | None, fields: int
) -> Checkpoint:
    """The checkpoint of a store whose queues and index are complete up to its last record.

    store_timestamp, physical_offset: of that record. index_timestamp: end time of the newest full index file, None to
    keep the old value. fields: how many fields the broker knows; the others keep their values.
    """
    new = Checkpoint(
        physic_msg_timestamp=store_timestamp,
        logics_msg_timestamp=store_timestamp,
        index_msg_timestamp=before.index_msg_timestamp if index_timestamp is None else index_timestamp,
        master_flushed_offset=before.master_flushed_offset,
        confirm_phy_offset=physical_offset,
        logics_physical_offset=physical_offset,
    )
    return Checkpoint(*new[:fields], *before[fields:])


def write_checkpoint(files: Files, path: Path, checkpoint: Checkpoint) -> None:
    """Write the fields and flush them; a missing or short file is extended to one page."""
    write_parts(files, path, PAGE_BYTES, [(0, checkpoint_bytes(checkpoint))])


def write_parts(files: Files, path: Path, size: int, parts: Iterable[tuple[int, bytes]]) -> None:
    """Write bytes at places of a file, and flush them; a missing or shorter file is extended to `size` bytes."""
    created = not path.exists()
    with files.open_or_create(path) as file:
        if file.size < size:
            file.truncate(size)
        for at, data in parts:
            file.pwrite(data, at)
        file.sync()
    if created:
        files.sync_directory(path.parent)


class TimerCheck(NamedTuple):
    """The fields of timercheck, by the names of the schema: ms since 1970, offsets, versions."""

    last_read_time_ms: int = 0
    last_timer_log_flush_pos: int = 0
    last_timer_queue_offset: int = 0
    master_timer_queue_offset: int = 0
    state_version: int = 0
    timestamp: int = 0
    counter: int = 0

    @classmethod
    def from_bytes(cls, data: bytes) -> TimerCheck:
        """Parse the content of the file; missing bytes count as zeros, as for a broker."""
        return tuple_of(cls, TIMER_FIELDS, data)

    def to_bytes(self) -> bytes:
        """The bytes of the fields, with which the file begins."""
        return numbers_of(TIMER_FIELDS).pack(*self)


def read_timer_check(path: str | os.PathLike[str]) -> TimerCheck | None:
    """The timercheck at `path`, None if there is no file. Raises Unreadable."""
    with suppress(Missing):
        return TimerCheck.from_bytes(read_regular(path, TIMER_FIELDS.sizeof()))
    return None


def create_abort(files: Files, path: Path, *, pid: bool) -> None:
    """Create the file `abort` and flush it, before anything else is written. pid: write the process id, as 5.x does."""
    write_new(files, path, str(os.getpid()).encode() if pid else b"")


def remove_abort(files: Files, path: Path) -> None:
    """Remove the file `abort`; the caller has flushed everything else."""
    files.unlink(path)
    files.sync_directory(path.parent)
