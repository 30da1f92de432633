"""What `dump` prints of a commit log: messages, damage, BLANKs, in the order of the log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from ..store.errors import NotFound
from .file_kinds.chunks import Chunk, NonRecordRange, Record, RecordPiece
from .searched_text import check_log

if TYPE_CHECKING:
    from ..store.inspect.recognise import Recognised
    from ..store.log.commit_log import Batch, CommitLog, Extent
    from ..store.log.message import Message
    from ..store.search.selection import Selection
    from .options import Common
    from .progress import Progress


_COMPACTION_LOG = "compaction-log"
_TIERED = "tiered-commit-log"
KINDS = ("store", "commit-log", "dledger", _COMPACTION_LOG, _TIERED)


class DumpedRecords(NamedTuple):
    """A batch of records, valid until the scan continues.

    around: bytes of a DLedger entry before its record, 0 in a plain log.
    """

    batch: Batch
    raw: bool
    max_body_bytes: int
    around: int = 0

    def records(self) -> Iterator[Record]:
        from ..store.log.batch import messages

        return map(self._record, messages(self.batch))

    def lines(self, most: int) -> Iterator[tuple[bytes | memoryview, int]]:
        """At most `most` records as NDJSON: pairs of bytes and their number of records."""
        from ..store.log.batch import messages
        from ..store.log.lines import Lines, lines
        from .json_text import line_of

        batch = self.batch.take(slice(most))
        for one in messages(batch) if self.raw else lines(batch):
            yield one if isinstance(one, Lines) else (line_of(self._record(one)), 1)

    def _record(self, message: Message) -> Record:
        return message.to_json(raw=self.raw, max_body=self.max_body_bytes)

    def pieces(self) -> Iterator[RecordPiece]:
        from ..formats.dledger import ENTRY
        from ..formats.message import MESSAGE

        columns = self.batch.columns
        buffer = columns.ragged("body").buffer
        sizes = columns.ints("total_size").tolist()
        starts = columns.starts.tolist()
        for position, start, size in zip(self.batch.position.tolist(), starts, sizes, strict=True):
            if self.around:
                entry = position - self.around
                head = buffer[start - self.around : start].tobytes()
                yield RecordPiece(f"DLedger entry at {entry}", entry, head, ENTRY, counts=False)
            data = buffer[start : start + size].tobytes()
            yield RecordPiece(f"message at {position}", position, data, MESSAGE)


def commit_log(
    what: Recognised, at: int | None, raw: bool, selection: Selection, common: Common
) -> Iterator[Chunk | DumpedRecords]:
    """The log of a store, of a directory or of a single file, from position `at` on.

    With conditions only the messages that meet them, and silent damage, which the line at the end counts. Raises
    Missing, Refused if the log of a store that had one is missing, so that its messages are.
    """
    from ..store.disk.layout import Layout
    from ..store.inspect.recognise import STORE

    layout = Layout.open(what.path, common.config()) if what.kind == STORE else None
    if selection.topic is not None:
        selection = selection.of_queues(layout)
    logs = open_logs(what, common)
    if layout is not None:
        check_log(layout, common)
    total = sum(log.queue.size for log in logs)
    with common.progress("reading", total) as progress:
        for log in logs:
            yield from _items(log, what, at, raw, selection, progress)
            if len(logs) > 1:
                log.queue.close()


def _items(
    log: CommitLog, what: Recognised, at: int | None, raw: bool, selection: Selection, progress: Progress
) -> Iterator[Chunk | DumpedRecords]:
    from ..store.log.commit_log import Batch

    asks = selection.asks
    crc = not asks or selection.asks_crc  # else only the CRCs of wanted messages are checked
    for item in log.scan(_begin(log, at), crc=crc, reuse=True, noting=selection.noting):
        if isinstance(item, Batch):
            progress.advance(item.end - int(item.position[0]))
            batch = item
            if at is not None and item.position[0] < at:
                batch = batch.take(batch.position >= at)
            batch = selection.wanted(batch)
            if len(batch):
                around = _around(log, int(batch.position[0]))
                yield DumpedRecords(batch.checked(), raw, selection.max_body_bytes, around)
        else:
            progress.advance(item.size)
            if (at is None or item.end > at) and not _is_usual(log, what, item):
                yield NonRecordRange(_range(item), silent=asks)


def _is_usual(log: CommitLog, what: Recognised, item: Extent) -> bool:
    """Whether a range is what compaction leaves in its log, which is not damage."""
    if what.kind != _COMPACTION_LOG:
        return False
    from ..store.search.queue_search import is_usual

    return is_usual(log, item)


def open_logs(what: Recognised, common: Common) -> list[CommitLog]:
    """The logs at a path: the compaction logs of all queues below it, or one log."""
    if what.kind != _COMPACTION_LOG or what.path.is_file():
        return [open_log(what, common)]
    from ..store.disk.layout import COMPACTION, COMPACTION_LOG
    from ..store.log.commit_log import CommitLog
    from .file_kinds.queues import queue_files

    whole = what.path.absolute().name == COMPACTION
    below = what._replace(path=what.path / COMPACTION_LOG) if whole else what
    return [CommitLog(files) for _, _, files in queue_files(below)]


def open_log(what: Recognised, common: Common) -> CommitLog:
    from ..formats.commit_log import DLEDGER, PLAIN
    from ..store.disk.layout import Layout
    from ..store.inspect.recognise import DLEDGER_DATA, STORE
    from ..store.log.commit_log import CommitLog
    from ..store.queues.references import commit_log_of
    from ..store.tiered.segments import open_segments, segment_start
    from .file_kinds.one_file import files_at

    if what.kind == STORE:
        return commit_log_of(Layout.open(what.path, common.config()))
    path = what.path
    if what.kind == _TIERED and (path.is_dir() or segment_start(path.name) is not None):
        return CommitLog(open_segments(what.path))
    frame = DLEDGER if what.kind == "dledger" else PLAIN
    if what.path.is_file():
        return CommitLog.of_file(what.path, frame=frame)
    data = what.path / DLEDGER_DATA
    directory = data if frame is DLEDGER and data.is_dir() else what.path
    return CommitLog(files_at(directory), directory if frame is DLEDGER else None)


def _around(log: CommitLog, position: int) -> int:
    """Bytes of a DLedger entry before its record, at a position."""
    file = log.queue.file_at(position)
    return log.frame_of(file).payload if file is not None else 0


def _begin(log: CommitLog, at: int | None) -> int | None:
    """Where a scan has to start to meet the record boundary at `at`.

    The start of the item with the record at `at`, or the start of the file if no record begins there.
    """
    if at is None:
        return None
    file = log.queue.file_at(at)
    if file is None:
        return at
    try:
        log.record(at)
    except NotFound:
        return file.start
    return at - _around(log, at)


def _range(extent: Extent) -> Record:
    """The record for a range without messages. Preallocated zeros at the end get a type that is not printed."""
    kind = extent.kind.value
    if kind == "blank":
        return {"type": "blank", "physical_offset": extent.position, "size": extent.size}
    if kind == "zeros":
        return {"type": "zeros"}
    return {"type": "damage", "position": extent.position, "size": extent.size, "reason": extent.told}
