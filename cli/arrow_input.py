"""Read Parquet and Arrow files: batches of rows, which stay columns as long as the rows are plain.

Rows that are not plain (JSON in a cell, records that are not messages, rows to be refused) become `Line`s, and are
handled like NDJSON.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..formats.derive.ragged import Flags, Ints
from ..store.arrow import require_arrow
from ..store.put.message_json import record_of
from .ndjson_input import Line

if TYPE_CHECKING:
    import pyarrow as pa


class NumberedRows(NamedTuple):
    """A batch of rows and their numbers; the first row that is read has number 1."""

    numbers: Ints
    batch: pa.RecordBatch

    def some(self, kept: Flags) -> NumberedRows:
        import pyarrow as pa

        return NumberedRows(self.numbers[kept], self.batch.filter(pa.array(kept)))

    def lines(self) -> list[Line]:
        """The rows one by one, as NDJSON would have them. Raises InvalidInput."""
        rows = zip(self.numbers.tolist(), self.batch.to_pylist(), strict=True)
        return [Line(number, record_of(row, number)) for number, row in rows]


def read_rows(
    path: Path, form: str, note: Callable[[int], None], tell: Callable[[str], None]
) -> Iterator[NumberedRows]:
    """Yield the rows of a file of the form `parquet` or `arrow` (file or stream).

    note: called with the number of bytes read since the last call. tell: called with a line for each kind of folder
    NAME=VALUE above the file that is not a column. Raises Missing, Unreadable, InvalidInput, Unsupported.
    """
    require_arrow(f"no {form} files")
    from ..store.arrow.append_rows import batches_of, unread_folders

    for line in unread_folders([path]):
        tell(line)

    def batches() -> Iterator[pa.RecordBatch]:
        seen = 0
        for batch, share in batches_of(path, form):
            yield batch
            note((now := int(path.stat().st_size * share)) - seen)
            seen = now

    yield from _numbered(batches())


def read_directory(path: Path, note: Callable[[int], None], tell: Callable[[str], None]) -> Iterator[NumberedRows]:
    """Yield the rows of all Parquet and Arrow files below a directory, in the order of their times.

    tell: also called with a line about what is not read. The rest is as for `read_rows`.
    """
    require_arrow("no parquet files")
    from ..store.arrow.append_rows import files_of, sorted_batches, unread_folders

    files = files_of([path], tell)
    for line in unread_folders(files):
        tell(line)
    yield from _numbered(sorted_batches(files, note))


def _numbered(batches: Iterator[pa.RecordBatch]) -> Iterator[NumberedRows]:
    import numpy as np

    first = 1
    for batch in batches:
        yield NumberedRows(np.arange(first, first + batch.num_rows), batch)
        first += batch.num_rows
