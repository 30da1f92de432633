"""Parquet and Arrow files that come in: batches of rows, columns all the way where they are plain.

The columns are named as the JSON fields of a message. What is not plain (compressed bodies, JSON in a
cell, records that are no messages) becomes rows, and takes the way of NDJSON.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..formats.derive.ragged import Ints
from ..store.arrow.messages import record_of
from ..store.errors import InvalidInput, Unsupported, from_os_error
from ..store.write.bulk import STEP_ROWS
from .ndjson_input import Line

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa


class Rows(NamedTuple):
    """A batch of rows and their numbers, from 1 on."""

    numbers: Ints
    batch: pa.RecordBatch

    def some(self, kept: npt.NDArray[np.bool_]) -> Rows:
        """The rows for which `kept` holds."""
        import pyarrow as pa

        return Rows(self.numbers[kept], self.batch.filter(pa.array(kept)))

    def lines(self) -> list[Line]:
        """The rows one by one, as NDJSON would have them. Raises InvalidInput."""
        rows = zip(self.numbers.tolist(), self.batch.to_pylist(), strict=True)
        return [Line(number, record_of(row, number)) for number, row in rows]


def read_rows(path: Path, form: str, note: Callable[[int], None]) -> Iterator[Rows]:
    """The rows of a file: `parquet` or `arrow` (file or stream).

    note: told how many bytes were read. Raises Missing, Unreadable, InvalidInput, Unsupported.
    """
    import numpy as np

    try:
        import pyarrow as pa
    except ImportError:
        raise Unsupported(
            f"{form} files need pyarrow", hint="pip install 'mqstore[arrow]'"
        ) from None
    try:
        size = path.stat().st_size
        first, seen = 1, 0
        for batch, share in (_parquet if form == "parquet" else _arrow)(path):
            yield Rows(np.arange(first, first + batch.num_rows), batch)
            first += batch.num_rows
            note(int(size * share) - seen)
            seen = int(size * share)
    except OSError as error:
        if error.errno is None:  # what pyarrow says of a file that makes no sense
            raise InvalidInput(f"not a {form} file: {error}", path=path) from None
        raise from_os_error(error, path) from error
    except pa.ArrowInvalid as error:
        raise InvalidInput(f"not a {form} file: {error}", path=path) from None


def _parquet(path: Path) -> Iterator[tuple[pa.RecordBatch, float]]:
    """Batches, and which share of the file they end."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        rows = 0
        for batch in file.iter_batches(batch_size=STEP_ROWS):
            rows += batch.num_rows
            yield batch, rows / file.metadata.num_rows


def _arrow(path: Path) -> Iterator[tuple[pa.RecordBatch, float]]:
    import pyarrow as pa

    with pa.memory_map(str(path)) as source:
        try:
            file = pa.ipc.open_file(source)
            batches = (file.get_batch(n) for n in range(file.num_record_batches))
        except pa.ArrowInvalid:
            source.seek(0)
            batches = iter(pa.ipc.open_stream(source))
        for batch in batches:
            for begin in range(0, batch.num_rows, STEP_ROWS):
                yield batch.slice(begin, STEP_ROWS), source.tell() / source.size()
