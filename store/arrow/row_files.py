"""Files of rows that come in: Parquet and Arrow, alone or in directories, batch by batch.

The columns are named as the JSON fields of a message. Of an export the topic may stand in the path
alone (`topic=T/`), as Hive and Spark write it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeAlias
from urllib.parse import unquote

import pyarrow as pa

from ..errors import InvalidInput, StoreError, from_os_error
from ..put.bulk import STEP_ROWS

FORMS = {".parquet": "parquet", ".arrow": "arrow", ".feather": "arrow"}
"""By the end of a file's name."""
TOPIC = "topic"
_IN_PATH = f"{TOPIC}="
_Reader: TypeAlias = pa.ipc.RecordBatchFileReader | pa.ipc.RecordBatchStreamReader


def files_of(places: Sequence[Path]) -> list[Path]:
    """The files of rows that some files and directories are; those of a directory by their paths.

    A directory may be called like a file, too, as what Spark writes is: the files in it count.
    Raises InvalidInput for none, Missing.
    """
    found = [file for place in places for file in (_inside(place) if place.is_dir() else [place])]
    if not found:
        raise InvalidInput("no Parquet or Arrow file there", path=places[0])
    for file in found:
        form_of(file)
    return found


def _inside(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*") if p.suffix in FORMS and not p.is_dir())


def form_of(path: Path) -> str:
    """`parquet` or `arrow`. Raises InvalidInput for a name that tells neither."""
    try:
        return FORMS[path.suffix]
    except KeyError:
        raise InvalidInput(f"not a file of {', '.join(FORMS)}", path=path) from None


def batches_of(
    path: Path, form: str, columns: Sequence[str] | None = None
) -> Iterator[tuple[pa.RecordBatch, float]]:
    """Batches of a file, and which share of the file they end.

    form: `parquet` or `arrow` (file or stream). columns: only those, as far as they are there.
    Raises Missing, Unreadable; InvalidInput for what is no such file.
    """
    try:
        for batch, share in (_parquet if form == "parquet" else _arrow)(path, columns):
            yield _with_topic(batch, path, columns), share
    except OSError as error:
        raise _error_of(error, path, form) from error
    except pa.ArrowInvalid as error:
        raise InvalidInput(f"not a {form} file: {error}", path=path) from None


def schema_of(path: Path, form: str) -> pa.Schema:
    """The columns of a file. Raises as `batches_of`."""
    try:
        if form == "parquet":
            import pyarrow.parquet as pq

            schema = pq.read_schema(path)
        else:
            with pa.memory_map(str(path)) as source:
                schema = _opened(source).schema
    except OSError as error:
        raise _error_of(error, path, form) from error
    except pa.ArrowInvalid as error:
        raise InvalidInput(f"not a {form} file: {error}", path=path) from None
    if TOPIC not in schema.names and topic_in_path(path) is not None:
        schema = schema.append(pa.field(TOPIC, pa.string()))
    return schema.remove_metadata()


def topic_in_path(path: Path) -> str | None:
    """The topic that a path names, None for none.

    >>> topic_in_path(Path("/x/topic=%25RETRY%25g/date=2026-01-01/part-0.parquet"))
    '%RETRY%g'
    """
    named = [part for part in path.parent.parts if part.startswith(_IN_PATH)]
    return unquote(named[-1].removeprefix(_IN_PATH)) if named else None


def _with_topic(batch: pa.RecordBatch, path: Path, columns: Sequence[str] | None) -> pa.RecordBatch:
    topic = topic_in_path(path)
    wanted = columns is None or TOPIC in columns
    if topic is None or not wanted or TOPIC in batch.schema.names:
        return batch
    return batch.append_column(TOPIC, pa.repeat(pa.scalar(topic, pa.string()), batch.num_rows))


def _parquet(path: Path, columns: Sequence[str] | None) -> Iterator[tuple[pa.RecordBatch, float]]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        given = file.schema_arrow.names
        wanted = None if columns is None else [name for name in columns if name in given]
        rows = 0
        for batch in file.iter_batches(batch_size=STEP_ROWS, columns=wanted):
            rows += batch.num_rows
            yield batch, rows / file.metadata.num_rows


def _arrow(path: Path, columns: Sequence[str] | None) -> Iterator[tuple[pa.RecordBatch, float]]:
    with pa.memory_map(str(path)) as source:
        for batch, share in _shares(_opened(source), source):
            if columns is not None:
                batch = batch.select([name for name in columns if name in batch.schema.names])
            for begin in range(0, batch.num_rows, STEP_ROWS):
                yield batch.slice(begin, STEP_ROWS), share


def _shares(file: _Reader, source: pa.MemoryMappedFile) -> Iterator[tuple[pa.RecordBatch, float]]:
    if isinstance(file, pa.ipc.RecordBatchFileReader):
        for number in range(file.num_record_batches):
            yield file.get_batch(number), (number + 1) / file.num_record_batches
        return
    for batch in file:
        yield batch, source.tell() / source.size()


def _opened(source: pa.MemoryMappedFile) -> _Reader:
    try:
        return pa.ipc.open_file(source)
    except pa.ArrowInvalid:
        source.seek(0)
        return pa.ipc.open_stream(source)


def _error_of(error: OSError, path: Path, form: str) -> StoreError:
    if error.errno is None:  # what pyarrow says of a file that makes no sense
        return InvalidInput(f"not a {form} file: {error}", path=path)
    return from_os_error(error, path)
