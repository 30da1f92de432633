"""`mqstore put --from`: many messages, answered when they have reached the disk."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from ..store.errors import InvalidInput, LimitExceeded
from ..store.write.bulk import STEP_ROWS
from ..store.write.message_columns import columns_of
from ..store.write.message_json import MessageReader, is_message
from ..store.write.new_message import NewMessage
from ..store.write.put import Stored, StoreWriter
from .ndjson_input import Line, read_portions
from .put import Target, answer, held_interrupts, new_reader

if TYPE_CHECKING:
    from .output import Output

_SYNC_SECONDS = 1.0
"""How often messages are brought to the disk that nobody asked for at once."""
_WAITING_MESSAGES = 1 << 16
"""Messages that wait for the disk at most."""


def put_many(
    target: Target, source: str, keep_times: bool, at_once: bool, out: Output
) -> Iterator[dict[str, Any]]:
    """Append what comes from `source` and answer it.

    at_once: bring each portion to the disk as it comes; otherwise once a second. A line that makes
    no sense ends it: what stands before it is appended and answered. Raises InvalidInput.
    """
    portions = read_portions(source)
    first = next(portions, None)
    if first is None:
        return
    reader = new_reader(keep_times)
    _check(reader, first)
    with target.writer(reader) as writer:
        stream = _Stream(writer, reader)
        try:
            for portion in chain([first], portions):
                stream.append(portion)
                if at_once or stream.due:
                    yield from stream.acknowledge()
                    out.flush()
        except (InvalidInput, LimitExceeded):
            yield from stream.acknowledge()
            out.flush()
            raise
        yield from stream.acknowledge()
        out.flush()
    if stream.skipped:
        target.common.warn(
            f"{stream.skipped} records left out: damage, BLANKs, stale records are no messages"
        )


def _check(reader: MessageReader, portion: Sequence[Line]) -> None:
    """Refuse a first message that makes no sense before anything is touched."""
    line = portion[0]
    if is_message(line.record):
        _message(reader, line)


def _message(reader: MessageReader, line: Line) -> NewMessage:
    try:
        return reader.message(line.record)
    except InvalidInput as error:
        raise InvalidInput(f"line {line.number}: {error}") from None


class _Stream:
    """Messages on their way: appended, then on disk, then answered."""

    def __init__(self, writer: StoreWriter, reader: MessageReader) -> None:
        self.skipped = 0
        self._writer = writer
        self._reader = reader
        self._waiting: list[tuple[Stored, NewMessage]] = []
        self._synced = time.monotonic()

    @property
    def due(self) -> bool:
        """Whether it is time to bring the waiting messages to the disk."""
        late = time.monotonic() - self._synced > _SYNC_SECONDS
        return late or len(self._waiting) > _WAITING_MESSAGES

    def append(self, portion: Sequence[Line]) -> None:
        """Append the messages of a portion, up to the first line that makes no sense.

        Raises InvalidInput, LimitExceeded with the number of that line.
        """
        lines: list[Line] = []
        messages: list[NewMessage] = []
        problem: InvalidInput | None = None
        for line in portion:
            if not is_message(line.record):
                self.skipped += 1
                continue
            try:
                messages.append(_message(self._reader, line))
            except InvalidInput as error:
                problem = error
                break
            lines.append(line)
        for first in range(0, len(messages), STEP_ROWS):
            step = slice(first, first + STEP_ROWS)
            self._append_step(lines[step], messages[step])
        if problem is not None:
            raise problem

    def _append_step(self, lines: Sequence[Line], messages: Sequence[NewMessage]) -> None:
        try:
            with held_interrupts():
                stored = self._writer.append_columns(columns_of(messages)).rows()
                self._waiting += zip(stored, messages, strict=True)
        except (InvalidInput, LimitExceeded):
            # none of them was written; which one is it?
            for line, message in zip(lines, messages, strict=True):
                try:
                    with held_interrupts():
                        self._waiting.append((self._writer.append(message), message))
                except (InvalidInput, LimitExceeded) as error:
                    raise type(error)(f"line {line.number}: {error}") from None

    def acknowledge(self) -> Iterator[dict[str, Any]]:
        """Bring everything to the disk, and answer it."""
        if self._waiting:
            with held_interrupts():
                self._writer.sync()
        waiting, self._waiting = self._waiting, []
        self._synced = time.monotonic()
        for stored, message in waiting:
            yield answer(stored, message)
