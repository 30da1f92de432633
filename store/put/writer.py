"""Appending messages to a store as its broker would: `StoreWriter` (spec 01, 1.15)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...formats.message import MESSAGE
from ...formats.message_properties import ends_with_crc
from ..broker.dispatch_record import dispatch_record
from ..log.write import place
from ..queues.write import unit_bytes
from .new_message import (
    NewBatch,
    NewMessage,
    Stored,
    WriterOptions,
    check_record,
    check_stored,
    inner,
    record_fields,
    split,
    stays_whole,
)
from .open_store import OpenStore

if TYPE_CHECKING:
    from ...formats.derive import Columns
    from .bulk import Steps, StoredColumns

__all__ = ["StoreWriter", "Stored", "WriterOptions"]

_UNINDEXED = 1024  # most records that wait to be indexed


class StoreWriter(OpenStore):
    """Appends to one store; a context manager. Open with `StoreWriter.open`.

    >>> with StoreWriter.open("store") as writer:  # doctest: +SKIP
    ...     stored = writer.append(NewMessage(b"T", b"hello"))
    ...     writer.sync()  # now it is acknowledged
    """

    _ahead: Steps | None = None
    """The steps begun by `append_ahead`."""

    def append(self, message: NewMessage) -> Stored:
        """Append one message: log, queue and index; on disk after `sync`.

        Raises InvalidInput, LimitExceeded for a message that a broker refuses, or would not store like this; then
        nothing was written. After any other error the store is left for `recover`. The other methods that append also
        take copies of records, and check less.
        """
        self.settle()
        now_ms = self.clock()
        fields = record_fields(message, self.rules, now_ms)
        check_stored(message, self.rules, len(self.delay_levels), now_ms)
        found = dispatch_record(
            message.topic,
            message.properties,
            fields["sys_flag"],
            fields["store_timestamp"],
            index_tags=self.profile.start.dispatch.index_tags,
            delay_levels=self.delay_levels,
        )
        odd = found.names_queues or self.rules.append_crc or self.queues.ext is not None
        odd |= self.kinds.special(found.topic, message) or self.database is not None
        if odd or ends_with_crc(message.properties):
            return self._append_columns_of([message])[0]
        queue = (found.topic, message.queue_id)
        self.check_queue(queue)
        if found.has_unit:
            fields["queue_offset"] = self.queues.next_offsets.get(queue, 0)
        size = len(MESSAGE.build(fields))
        check_record(size, self.rules)
        place(self.log.position, size, self.log.file_size)
        with self.writing(fields["store_timestamp"]):
            fields["physical_offset"] = self.log.append(size)
            record = MESSAGE.build(fields)
            self.log.write(fields["physical_offset"], record)
            self.log.remember(record)
            if found.has_unit:
                unit = unit_bytes(fields["physical_offset"], size, found.tags_code)
                self.queues.add(queue, fields["queue_offset"], unit)
            self._unindexed.append((found.key_hashes, fields))
            if len(self._unindexed) >= _UNINDEXED:
                self.index_records()
        self.note(fields["physical_offset"], fields["store_timestamp"], {found.topic: queue[1]})
        return Stored(
            found.topic,
            message.queue_id,
            fields["queue_offset"],
            fields["physical_offset"],
            size,
            self.rules.store_host,
        )

    def append_columns(self, columns: Columns | dict[str, Any]) -> StoredColumns:
        """Append many messages given as columns of MESSAGE, see `bulk.append_columns`."""
        from .bulk import append_columns

        return append_columns(self, columns)

    def append_ahead(self, columns: Mapping[str, Any]) -> StoredColumns:
        """Like `append_columns`, for a stream of columns: up to 16,384 messages at once.

        When this returns, records may still be in writing; their units and index items are written with the next call,
        at the latest with `sync` or `close`.
        """
        from .bulk import Steps

        if self._ahead is None:
            self._ahead = Steps(self, aside=True)
        return self._ahead.append_all(columns)

    def settle(self) -> None:
        """Complete what `append_ahead` has begun."""
        steps, self._ahead = self._ahead, None
        if steps is not None:
            steps.finish()

    def _append_columns_of(self, messages: list[NewMessage], *, whole: bool = False) -> list[Stored]:
        """Append by columns messages for which `append` has no code of its own."""
        from .bulk import append_columns
        from .message_columns import columns_of

        return append_columns(self, columns_of(messages), whole=whole).rows()

    def records_of(self, batch: NewBatch) -> list[NewMessage]:
        """The messages to append together for a batch that a client sends.

        One batch record for a topic with batch queues, else one message each. Raises InvalidInput, LimitExceeded for a
        batch that a broker refuses.
        """
        if self.is_batch_topic(batch.request.topic) and stays_whole(batch, self.profile):
            return [inner(batch, self.rules)]
        return split(batch, self.rules)

    def append_together(self, messages: list[NewMessage]) -> list[Stored]:
        """Append messages to one file of the log, all or none. Raises what `append` raises."""
        return self._append_columns_of(messages, whole=True)
