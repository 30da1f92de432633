"""Writing `rocketmq-log`: messages become a store, as a broker would append them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from ...store.arrow.messages import columns_of_rows, record_of
from ...store.write.bulk import append_ahead
from ...store.write.message_columns import columns_of
from ...store.write.message_json import MessageReader, is_message
from ...store.write.new_message import NewMessage
from ...store.write.options import WriterOptions
from ...store.write.put import StoreWriter
from ...store.write.unique_keys import UniqueKeys
from ..stage import Stage
from .spool import SpoolWriter

_ROWS = 1 << 14


class LogWriter(SpoolWriter):
    """Options: `as_broker`, a generation; `keep_times=true`: take store_timestamp."""

    needed = ("topic", "body")

    def __init__(self, options: Mapping[str, str], names: Sequence[str], overwrite: bool) -> None:
        super().__init__(options, names, overwrite, {"as_broker", "keep_times"})

    def replay(self, stage: Stage, batches: Iterable[pa.RecordBatch]) -> None:
        """Append all messages; rows without a topic, which stand for damage, are left out."""
        options = WriterOptions(as_broker=self.options.get("as_broker"))
        keep = self.options.get("keep_times", "false").lower() == "true"
        reader = MessageReader(UniqueKeys(NewMessage.born_host[0]), keep_times=keep)
        with StoreWriter.open(stage.tree, self.config, options) as writer:
            reader.final_separator = writer.profile.final_separator
            first = 1
            for batch in batches:
                for begin in range(0, batch.num_rows, _ROWS):
                    _append(writer, reader, batch.slice(begin, _ROWS), first + begin)
                first += batch.num_rows
            writer.sync()


def _append(writer: StoreWriter, reader: MessageReader, rows: pa.RecordBatch, first: int) -> None:
    """Append some rows, as columns where they are plain. Raises InvalidInput, LimitExceeded."""
    rows = rows.filter(rows.column("topic").is_valid())
    if not rows.num_rows:
        return
    columns = columns_of_rows(rows, reader)
    if columns is None:
        records = (record_of(row, first + n) for n, row in enumerate(rows.to_pylist()))
        columns = columns_of([reader.message(one) for one in records if is_message(one)])
    append_ahead(writer, columns)
