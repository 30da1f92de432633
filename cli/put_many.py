"""`mqstore put --from`: append many messages, and answer each when it is on disk."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

from ..store.broker.profiles import OLDEST, RecordRules, profile_of
from ..store.counted import counted
from ..store.errors import Corrupted, InvalidInput, LimitExceeded, StoreError
from ..store.log.message import TOMBSTONE
from ..store.put.bulk import AHEAD_ROWS, PresentKeys, StoredColumns
from ..store.put.message_columns import columns_of, columns_where, left_out, new_times
from ..store.put.message_json import BATCH, MessageReader, is_corrupted, is_message, stand_in_of
from ..store.put.new_message import NewBatch, NewMessage, check_copy
from ..store.put.on_damage import CorruptedBodies
from ..store.put.producer import refused_copies
from ..store.put.writer import Stored, StoreWriter
from .arrow_input import NumberedRows, read_directory, read_rows
from .joined_batches import Portion, joined
from .ndjson_input import Line
from .output import Output
from .put_lines import lines_of
from .put_options import InputFormat, PutSourceOptions
from .put_target import Target, answers_of, held_interrupts, new_reader

SYNC_SECONDS = 1.0
"""Seconds between two syncs, unless each portion is synced at once."""
_WAITING_MESSAGES = 1 << 16
"""Messages that wait for a sync at most."""
_FROM_FILES = (InputFormat.PARQUET, InputFormat.ARROW, InputFormat.AVRO)
BORN = "born_timestamp"
_SUFFIXES = {
    ".parquet": InputFormat.PARQUET,
    ".arrow": InputFormat.ARROW,
    ".feather": InputFormat.ARROW,
    ".csv": InputFormat.CSV,
    ".avro": InputFormat.AVRO,
}


Answer = dict[str, Any] | memoryview
"""The answer for a message, or several answers as lines of JSON."""


def put_many(
    target: Target, source: PutSourceOptions, corrupted: CorruptedBodies, out: Output, *, at_once: bool
) -> Iterator[Answer]:
    """Append the messages of the input and yield their answers. at_once: sync each portion, not once a second.

    A line that is not valid ends it; the messages before the line are appended and answered. Raises InvalidInput,
    LimitExceeded, Corrupted.
    """
    path = source.path or ""
    with target.common.progress("putting", _size_of(path)) as progress:
        portions = joined(_portions(path, source.form, progress.advance, target.common.warn))
        first = next((portion for portion in portions if _count(portion)), None)
        if first is None:
            return
        reader = new_reader(source.keep_times, new_keys=not source.resume)
        _check(reader, first)
        with target.writer(reader) as writer:
            stream = _Stream(writer, reader, source, corrupted, out)
            try:
                for portion in chain([first], portions):
                    stream.append(portion)
                    if at_once or stream.due:
                        yield from stream.acknowledge()
            except (InvalidInput, LimitExceeded, Corrupted) as error:
                error.path = None if path == "-" else path
                yield from stream.acknowledge()
                raise
            yield from stream.acknowledge()
    for line in stream.remarks():
        target.common.warn(line)


def _size_of(source: str) -> int:
    path = Path(source)
    if path.is_dir():
        from ..store.arrow.append_rows import FORMS

        return sum(p.stat().st_size for p in path.rglob("*") if p.suffix in FORMS)
    return path.stat().st_size if source != "-" and path.is_file() else 0


def _portions(
    source: str, form: InputFormat | None, note: Callable[[int], None], tell: Callable[[str], None]
) -> Iterator[Portion]:
    path = Path(source)
    if path.is_dir():
        return read_directory(path, note, tell)
    form = form or _SUFFIXES.get(path.suffix, InputFormat.NDJSON)
    if form in _FROM_FILES and source == "-":
        raise InvalidInput(f"{form.value} is read from a file, not from stdin")
    if form is InputFormat.AVRO:
        from . import avro_input

        return avro_input.read_portions(path, note)
    if form in _FROM_FILES:
        return read_rows(path, form.value, note, tell)
    if form is InputFormat.CSV:
        from . import csv_input

        return csv_input.read_portions(source, note)
    from . import ndjson_input

    return ndjson_input.read_portions(source, SYNC_SECONDS, note)


def _count(portion: Portion) -> int:
    return portion.batch.num_rows if isinstance(portion, NumberedRows) else len(portion)


def _lines(portion: Portion) -> Sequence[Line]:
    return portion.lines() if isinstance(portion, NumberedRows) else portion


def _check(reader: MessageReader, portion: Portion) -> None:
    """Refuse an invalid first message before anything is changed, by the rules that all generations have."""
    if isinstance(portion, NumberedRows):
        portion = NumberedRows(portion.numbers[:1], portion.batch.slice(0, 1)).lines()
    if is_message(portion[0].record):
        _message_of(reader, portion[0], profile_of(OLDEST).record)


def _message_of(reader: MessageReader, line: Line, rules: RecordRules) -> NewMessage | NewBatch:
    """The message or batch of a line. rules: of the broker generation. Raises InvalidInput with the number of the
    line.
    """
    with _naming(line):
        if line.record.get(BATCH) is not None:
            return reader.batch(line.record)
        message = reader.message(line.record)
        check_copy(message.topic, message.properties, rules)
        return message


@contextmanager
def _naming(line: Line) -> Iterator[None]:
    """Errors about a message get the number of its line."""
    try:
        yield
    except (InvalidInput, LimitExceeded) as error:
        raise type(error)(f"line {line.number}: {error}") from None


def _identifiable(columns: dict[str, Any], portion: NumberedRows) -> bool:
    """Whether each row has a unique key, or each has a born time."""
    from ..formats.message_properties import UNIQ_KEY
    from ..formats.property_columns import find

    if BORN in portion.batch.schema.names and portion.batch.column(BORN).null_count == 0:
        return True
    return bool((find(columns["properties"], UNIQ_KEY).length > 0).all())


class _Stream:
    """Messages on their way: appended, then synced, then answered."""

    def __init__(
        self,
        writer: StoreWriter,
        reader: MessageReader,
        source: PutSourceOptions,
        corrupted: CorruptedBodies,
        out: Output,
    ) -> None:
        self._skipped = self._tombstones = self._known = self._stored = 0
        self._corrupted = corrupted
        self._writer = writer
        self._rules = writer.profile.start.record
        self._reader = reader
        self._answers = not source.no_answers
        self._out = out
        self._present = PresentKeys.of(writer.layout, writer.copies) if source.resume else None
        self._waiting: list[tuple[Sequence[Stored] | StoredColumns, Iterable[bytes]]] = []
        self._waiting_count = 0
        self._synced = time.monotonic()

    @property
    def due(self) -> bool:
        late = time.monotonic() - self._synced > SYNC_SECONDS
        return late or self._waiting_count > _WAITING_MESSAGES

    def remarks(self) -> Iterator[str]:
        if self._skipped:
            records = counted(self._skipped, "record")
            yield f"{records} left out: damage, BLANKs, fillers and stale records are no messages"
        if self._known:
            yield counted(
                self._known,
                "message left out, because the store already has it",
                "messages left out, because the store already has them",
            )
        copies = self._writer.copies
        yield from left_out(copies.op_records, copies.pop_records, self._tombstones)
        yield from new_times(self._writer.times_replaced)
        if self._writer.lacks_wheel:
            from ..store.findings.next_commands import proposed

            then = proposed(self._writer.layout, "verify")
            due = "a timed message is due already, and the timer has no files"
            yield f"{due}: before a broker starts, run `{then}`, which names the repair, if one is needed"
        yield from self._corrupted.remarks()

    def append(self, portion: Portion) -> None:
        """Append the messages of a portion, up to the first line that is not valid.

        Raises InvalidInput, LimitExceeded, Corrupted with the number of that line.
        """
        columns = None
        if isinstance(portion, NumberedRows) and not self._has_corrupted(portion):
            from ..store.arrow.messages import columns_of_rows  # imports pyarrow

            columns = columns_of_rows(portion.batch, self._reader)
            if columns is not None and self._present is not None and not _identifiable(columns, portion):
                columns = None  # line by line, to name the row in the error
        if not isinstance(portion, NumberedRows) or columns is None:
            self._append_lines(_lines(portion), self._present)
            return
        if self._present is not None:
            kept = self._present.lacks(columns)
            self._known += int((~kept).sum())
            portion, columns = portion.some(kept), columns_where(columns, kept)
        if len(columns["body"]) and not self._append_columns(columns):
            self._append_lines(portion.lines(), None)

    def _has_corrupted(self, portion: NumberedRows) -> bool:
        from ..store.arrow.messages import corrupted_rows
        from ..store.arrow.stores import BODY_CRC_OK

        names = portion.batch.schema.names
        try:
            return BODY_CRC_OK in names and len(corrupted_rows(portion.batch.column(BODY_CRC_OK))) > 0
        except InvalidInput:
            return True  # line by line, to name the row in the error

    def _append_columns(self, columns: dict[str, Any]) -> bool:
        """Append a batch of rows. Return False if a row is refused; then nothing was written."""
        if refused_copies(columns, self._rules):
            return False
        try:
            self._store(self._writer.append_ahead, columns)
        except (InvalidInput, LimitExceeded):
            return False
        return True

    def _append_lines(self, portion: Sequence[Line], present: PresentKeys | None) -> None:
        lines: list[Line] = []
        messages: list[NewMessage] = []
        problem: StoreError | None = None
        for line in portion:
            if not is_message(line.record):
                lost = stand_in_of(line.record) == TOMBSTONE
                self._tombstones += lost
                self._skipped += not lost
                continue
            try:
                what = _message_of(self._reader, line, self._rules)
                if isinstance(what, NewBatch):
                    self._append_steps(lines, messages)
                    lines, messages = [], []
                    self._append_batch(what, present, line)
                    continue
                with _naming(line):
                    if present is not None and self._is_present(present, what, line):
                        continue
                where = f"line {line.number}"
                if is_corrupted(line.record) and not self._corrupted.take(1, where):
                    continue
            except (InvalidInput, Corrupted) as error:
                problem = error
                break
            messages.append(what)
            lines.append(line)
        self._append_steps(lines, messages)
        if problem is not None:
            raise problem

    def _append_steps(self, lines: Sequence[Line], messages: Sequence[NewMessage]) -> None:
        for first in range(0, len(messages), AHEAD_ROWS):
            step = slice(first, first + AHEAD_ROWS)
            self._append_step(lines[step], messages[step])

    def _append_batch(self, batch: NewBatch, present: PresentKeys | None, line: Line) -> None:
        """Append a batch; with `present` only the messages that the store lacks, if an earlier run was interrupted."""
        with _naming(line):
            records = self._writer.records_of(batch)
            for each in records:
                check_copy(each.topic, each.properties, self._rules)
            if present is not None:
                records = [each for each in records if not self._is_present(present, each, line)]
            if records:
                with held_interrupts():
                    stored = self._writer.append_together(records)
                    self._enqueue(stored, [each.properties for each in records], len(stored))

    def _is_present(self, present: PresentKeys, message: NewMessage, line: Line) -> bool:
        known = present.has(message, dated=line.record.get(BORN) is not None)
        self._known += known
        return known

    def _append_step(self, lines: Sequence[Line], messages: Sequence[NewMessage]) -> None:
        try:
            self._store(self._writer.append_columns, columns_of(messages))
        except (InvalidInput, LimitExceeded):
            # nothing was written: append one by one, to name the line in the error
            for line, message in zip(lines, messages, strict=True):
                with _naming(line):
                    self._store(self._writer.append_columns, columns_of([message]))

    def _store(self, append: Callable[[dict[str, Any]], StoredColumns], columns: dict[str, Any]) -> None:
        with held_interrupts():
            stored = append(columns)
            self._enqueue(stored, stored.of(columns["properties"]), len(stored.topic_id))

    def _enqueue(self, stored: Sequence[Stored] | StoredColumns, properties: Iterable[bytes], count: int) -> None:
        self._waiting.append((stored, properties))
        self._waiting_count += count

    def acknowledge(self) -> Iterator[Answer]:
        """Sync the waiting messages, yield their answers, and flush the output. Topics of messages that were left out
        are added, too: an earlier run may have been killed before that.
        """
        while self._present is not None and self._present.queues:
            self._writer.expect(*self._present.queues.pop())
        if self._waiting or self._writer.lacks_topics:
            with held_interrupts():
                self._writer.sync()
            self._stored += self._waiting_count
            if self._stored:
                self._out.note_done(counted(self._stored, "message is stored", "messages are stored"))
        waiting, self._waiting, self._waiting_count = self._waiting, [], 0
        self._synced = time.monotonic()
        for stored, properties in waiting if self._answers else ():
            if self._out.is_lines and isinstance(stored, StoredColumns):
                yield from lines_of(stored, properties)
            else:
                rows = stored.rows() if isinstance(stored, StoredColumns) else stored
                yield from answers_of(rows, properties)
        self._out.flush()
