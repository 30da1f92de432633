"""Parquet and Arrow files that come in: batches of rows, columns all the way where they are plain.

What is not plain (JSON in a cell, records that are no messages, what is refused) becomes rows, and
takes the way of NDJSON.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..formats.derive.ragged import Flags, Ints
from ..store.arrow import require_arrow
from ..store.arrow.messages import record_of
from .ndjson_input import Line

if TYPE_CHECKING:
    import pyarrow as pa


class NumberedRows(NamedTuple):
    """A batch of rows and their numbers, from 1 on."""

    numbers: Ints
    batch: pa.RecordBatch

    def some(self, kept: Flags) -> NumberedRows:
        """The rows for which `kept` holds."""
        import pyarrow as pa

        return NumberedRows(self.numbers[kept], self.batch.filter(pa.array(kept)))

    def lines(self) -> list[Line]:
        """The rows one by one, as NDJSON would have them. Raises InvalidInput."""
        rows = zip(self.numbers.tolist(), self.batch.to_pylist(), strict=True)
        return [Line(number, record_of(row, number)) for number, row in rows]


def read_rows(
    path: Path, form: str, note: Callable[[int], None], tell: Callable[[str], None]
) -> Iterator[NumberedRows]:
    """The rows of a file: `parquet` or `arrow` (file or stream).

    note: told how many bytes were read. tell: told what is not taken of its path. Raises Missing, Unreadable,
    InvalidInput, Unsupported.
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
    """The rows of all Parquet and Arrow files below a directory, in the order of their times.

    Raises as `read_rows`.
    """
    require_arrow("no parquet files")
    from ..store.arrow.append_rows import files_of, sorted_batches, unread_folders

    files = files_of([path])
    for line in unread_folders(files):
        tell(line)
    yield from _numbered(sorted_batches(files, note))


def _numbered(batches: Iterator[pa.RecordBatch]) -> Iterator[NumberedRows]:
    import numpy as np

    first = 1
    for batch in batches:
        yield NumberedRows(np.arange(first, first + batch.num_rows), batch)
        first += batch.num_rows
