"""`rocketmq-log`: the messages in the commit logs of many stores as rows.

A row is a message that a broker would still find; records behind the end of a log are left out. A store that cannot be
read ends the query. A damaged range of a log is skipped, unless it is to end the query, too; the task says so on its
stderr, and `rocketmq-damage` has it as a row. A log is cut anywhere into splits; together they give what one walk over
the log gives.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceReader, Filter
from pyspark.sql.types import StructType

from ...store.arrow.log_columns import COLUMNS, USUAL
from ...store.arrow.log_rows import LogSplit, Pushed, ddl_of, parts_of, rows_of
from ...store.arrow.stores import ReadOptions
from ...store.disk.byte_reader import each_noting
from .log_stream import LogStream, StreamAsk, without_stream_options
from .parts import PartsReader, PassedOver, parts_told
from .pushed import take_filters


class LogSource(DataSource):
    """Options: those of `ReadOptions`; of a stream also those of `StreamAsk`; to write, those of `LogSourceWriter`."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq-log"

    def schema(self) -> str:
        return ddl_of(ReadOptions.of(without_stream_options(self.options)))

    def reader(self, schema: StructType) -> DataSourceReader:
        asked = _asked(self.options, schema)
        return PushingLogReader(asked) if asked.pushdown else LogSourceReader(asked)

    def streamReader(self, schema: StructType) -> LogStream:
        asked = _asked(without_stream_options(self.options), schema)
        return LogStream(asked, StreamAsk.of(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        from .log_writer import LogSourceWriter

        return LogSourceWriter(self.options, schema.names, overwrite)


def _asked(options: Mapping[str, str], schema: StructType) -> ReadOptions:
    """Return what is asked for with the columns of a schema. Raises InvalidInput for an unknown column."""
    asked = replace(ReadOptions.of(options), fields=tuple(schema.names))
    asked.columns(COLUMNS, USUAL)
    return asked


class LogSourceReader(PartsReader):
    """Reads the logs of stores, split by split. `ask.fields`: the columns of the schema."""

    def __init__(self, ask: ReadOptions) -> None:
        super().__init__(ask, partial(parts_told, parts_of, ask), self._rows_of)
        self._ask = ask
        self._pushed = Pushed()

    def _rows_of(self, part: LogSplit) -> Iterator[pa.RecordBatch]:
        passed_over = PassedOver()
        yield from each_noting(rows_of(self._ask, part, passed_over.add, self._pushed), passed_over.noted)
        passed_over.tell()


class PushingLogReader(LogSourceReader):
    """The reader of a session that lets Spark push filters down.

    Spark keeps what it pushed with the DataFrame, and asks no other reader for the next query over it (4.1 to 4.3): a
    DataFrame, or a view, that is queried more than once must not push.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take comparisons of topic, queue, tag, unique key and store time; Spark checks all filters again."""
        self._pushed, rechecked = take_filters(filters)
        return rechecked
