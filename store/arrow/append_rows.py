"""Make a store from files of rows (Parquet, Arrow), appended as a broker would append them.

Columns are named like the JSON fields of a message; some may be given by the path alone (`topic=T/queue_id=0/`), as
Hive and Spark write them.

The rows of all files are read as one stream ordered by time, in bounded memory. Files that are in order one after the
other are read as they are. Others are sorted in pieces, which are written to an unnamed temporary file and merged from
there; nothing of that file is ever left behind.
"""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np
import pyarrow as pa

from ...formats.derive.ragged import Ints
from ..broker.profiles import writer_profile
from ..broker.snapshot import DirectoryEntry, each_directory
from ..counted import listed
from ..disk.broker_conf import BrokerConfig
from ..disk.byte_reader import read, reading_rate
from ..errors import InvalidInput, LimitExceeded, from_os_error
from ..log.message import TOMBSTONE
from ..output.stage import publish_made
from ..put.bulk import AHEAD_ROWS
from ..put.message_columns import columns_of, columns_where
from ..put.message_json import MessageReader, is_message, record_of, stand_in_of
from ..put.new_message import STORE, NewMessage, UniqueKeys, WriterOptions
from ..put.on_damage import CorruptedBodies, OnDamage
from ..put.producer import refused_copies
from ..put.tail import check_new_store
from ..put.writer import StoreWriter
from .log_columns import SCHEMA
from .messages import as_read, columns_of_rows, corrupted_rows, fitted, numbered, schema_as_read, without_dictionary
from .stores import BODY, BODY_CRC_OK, DAY_FOLDERS, one_of, parse_config

FORMS = {".parquet": "parquet", ".arrow": "arrow", ".feather": "arrow"}
"""By the suffix of a file."""
_PATH_SCHEMA = pa.schema(
    [
        pa.field(field.name, pa.string() if pa.types.is_nested(field.type) else field.type)
        for field in SCHEMA
        if not pa.types.is_map(field.type)
    ]
)
"""The columns that a path may give: those that an export writes."""
_Reader: TypeAlias = pa.ipc.RecordBatchFileReader | pa.ipc.RecordBatchStreamReader


def files_of(places: Sequence[Path], tell: Callable[[str], None] = lambda _: None) -> list[Path]:
    """The Parquet and Arrow files among files and directories; those of a directory in the order of their paths.

    A directory may have the suffix of a file, as in Spark's output; then the files in it count. In a directory files of
    another suffix are left out, and what Spark passes over: a killed job leaves rows there. tell: called with a line
    about both. A file that is found twice counts once. Raises InvalidInput for another suffix, and for no file.
    """
    found = [file for place in places for file in (_files_in(place, tell) if place.is_dir() else [place])]
    if not found:
        hint = "put --from reads other files (NDJSON, CSV, Avro) one by one"
        raise InvalidInput("no Parquet or Arrow file there", path=places[0], hint=hint)
    return list({file.resolve(): file for file in found if form_of(file)}.values())


def _files_in(folder: Path, tell: Callable[[str], None]) -> list[Path]:
    left: list[str] = []

    def is_taken(entry: DirectoryEntry) -> bool:
        hidden = entry.name[0] in "_." and not (entry.directory and "=" in entry.name)
        if hidden and (entry.directory or Path(entry.name).suffix in FORMS):
            left.append(os.path.relpath(entry.path, folder))
        return not hidden

    found = sorted(Path(e.path) for _, some in each_directory([folder], is_taken) for e in some if not e.directory)
    if left:
        tell(f"not read in {folder}: {listed(left, 3)} (Spark passes over names that begin with _ or ., too)")
    if others := [os.path.relpath(path, folder) for path in found if path.suffix not in FORMS]:
        tell(f"not read in {folder}: {listed(others, 3)} (the names do not end in {', '.join(FORMS)})")
    return [path for path in found if path.suffix in FORMS]


def form_of(path: Path) -> str:
    """`parquet` or `arrow`, by suffix. Raises InvalidInput for another suffix."""
    try:
        return FORMS[path.suffix]
    except KeyError:
        raise InvalidInput(f"not a file of {', '.join(FORMS)}", path=path) from None


def batches_of(path: Path, form: str, columns: Sequence[str] | None = None) -> Iterator[tuple[pa.RecordBatch, float]]:
    """Yield the batches of a file, with the columns given by its path, and the share of the file that is then read.

    form: `parquet` or `arrow` (file or stream). columns: only these, those that exist. Raises Missing, Unreadable;
    InvalidInput for a file of another format, or a value in the path that does not fit its column.
    """
    beside = {name: value for name, value in _path_values(path).items() if columns is None or name in columns}
    for batch, share in rows_of(path, form, columns):
        for name, value in beside.items():
            if name not in batch.schema.names:
                batch = batch.append_column(name, pa.repeat(value, batch.num_rows))
        yield batch, share


def rows_of(path: Path, form: str, columns: Sequence[str] | None = None) -> Iterator[tuple[pa.RecordBatch, float]]:
    """Like `batches_of`, without the columns of the path."""
    with _read_errors(path, form), _opened(path, form) as source:
        for batch, share in (_parquet if form == "parquet" else _arrow)(source, columns):
            yield as_read(batch, path), share


def schema_of(path: Path, form: str) -> pa.Schema:
    """The columns that `batches_of` yields. Raises what it raises."""
    import pyarrow.parquet as pq

    with _read_errors(path, form), _opened(path, form) as source:
        schema = schema_as_read(pq.read_schema(source) if form == "parquet" else _open_reader(source).schema, path)
    for name, value in _path_values(path).items():
        if name not in schema.names:
            schema = schema.append(pa.field(name, value.type))
    return schema


def _path_values(path: Path) -> dict[str, pa.Scalar]:
    """The columns that a path gives, and their values; if a name occurs twice, the value nearer to the file.

    Raises InvalidInput for a value that does not fit its column.

    >>> found = _path_values(Path("/x/topic=%25RETRY%25g/queue_id=3/part-0.parquet"))
    >>> {name: value.as_py() for name, value in found.items()}
    {'queue_id': 3, 'topic': '%RETRY%g'}
    """
    named = [folder.name for folder in path.parents if folder.name.partition("=")[0] in _PATH_SCHEMA.names]
    if not named:
        return {}
    import pyarrow.dataset as ds

    folders = b"".join(os.fsencode(name) + b"/" for name in named)
    try:
        found = ds.get_partition_keys(ds.partitioning(_PATH_SCHEMA, flavor="hive").parse(folders))
    except pa.ArrowInvalid as error:
        raise InvalidInput(f"its path has no value of a column: {error}", path=path) from None
    return {f.name: pa.scalar(found[f.name], f.type) for f in _PATH_SCHEMA if f.name in found}


def unread_folders(files: Iterable[Path]) -> Iterator[str]:
    """Warnings about folders `NAME=VALUE` above the files whose name is not a column of messages."""
    folders = {folder for path in files for folder in path.parents}
    names = {folder.name.partition("=")[0] for folder in folders if "=" in folder.name}
    for name in sorted(names - {*_PATH_SCHEMA.names, DAY_FOLDERS}):
        yield f"folders {name}=: not a column of messages, ignored"


class _PacedFile(io.FileIO):
    """A file that pyarrow reads at the rate of the enclosing block: it has to ask in this thread."""

    def read(self, size: int | None = -1) -> bytes:
        data = read(self.fileno(), size or 0, self.tell(), os.fspath(self.name))
        self.seek(len(data), os.SEEK_CUR)
        return data


def _opened(path: Path, form: str) -> pa.NativeFile:
    if reading_rate() is not None:
        return pa.PythonFile(_PacedFile(path), "r")
    return (pa.OSFile if form == "parquet" else pa.memory_map)(os.fsencode(path))


def _parquet(source: pa.NativeFile, columns: Sequence[str] | None) -> Iterator[tuple[pa.RecordBatch, float]]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(source) as file:
        given = file.schema_arrow.names
        wanted = None if columns is None else [name for name in columns if name in given]
        rows = 0
        for batch in file.iter_batches(batch_size=AHEAD_ROWS, columns=wanted, use_threads=reading_rate() is None):
            rows += batch.num_rows
            yield batch, rows / file.metadata.num_rows


def _arrow(source: pa.NativeFile, columns: Sequence[str] | None) -> Iterator[tuple[pa.RecordBatch, float]]:
    for batch, share in _shares(_open_reader(source), source):
        if columns is not None:
            batch = batch.select([name for name in columns if name in batch.schema.names])
        for begin in range(0, batch.num_rows, AHEAD_ROWS):
            yield batch.slice(begin, AHEAD_ROWS), share


def _shares(file: _Reader, source: pa.NativeFile) -> Iterator[tuple[pa.RecordBatch, float]]:
    if isinstance(file, pa.ipc.RecordBatchFileReader):
        for number in range(file.num_record_batches):
            yield file.get_batch(number), (number + 1) / file.num_record_batches
        return
    for batch in file:
        yield batch, source.tell() / source.size()


def _open_reader(source: pa.NativeFile) -> _Reader:
    try:
        return pa.ipc.open_file(source)
    except pa.ArrowInvalid:
        source.seek(0)
        return pa.ipc.open_stream(source)


@contextmanager
def _read_errors(path: Path, form: str) -> Iterator[None]:
    """Raise the errors of pyarrow as errors of a file."""
    try:
        yield
    except (OSError, pa.ArrowInvalid) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise from_os_error(error, path) from error
        raise InvalidInput(f"not a {form} file: {error}", path=path) from error  # as pyarrow reports a malformed one


TIME, POSITION = "store_timestamp", "position"
_KEYS = (TIME, STORE, POSITION)
_PIECE_BYTES = 96 << 20
_BLOCK_BYTES_MAX = 1 << 20
_HEADS_BYTES = 128 << 20
"""The memory for the blocks held during a merge, one of each piece."""
_GROWTH = 6
"""By how much rows are larger in memory than in their file; rarely more."""

Key = tuple[int, int, int]
Note = Callable[[int], None]


def sorted_batches(files: Sequence[Path], note: Note = lambda _: None) -> Iterator[pa.RecordBatch]:
    """Yield the rows of all files in the order of `store_timestamp`, `store`, `position`.

    Rows that are equal in these columns, or lack them, keep the order of the files. note: called with the number of
    bytes read. Raises Missing, Unreadable, NoSpace; InvalidInput for a malformed file, or columns whose types do not
    fit together.
    """
    order = _SortColumns()
    schema = _schema_of(files)
    in_order = _in_order(files, order)
    rows = _aligned(in_order or files, schema, note)
    if in_order:
        yield from rows
        return
    total_bytes = sum(path.stat().st_size for path in files)
    heads = max(1, total_bytes * _GROWTH // _PIECE_BYTES)
    pieces = _Pieces(order, schema, min(_BLOCK_BYTES_MAX, _HEADS_BYTES // heads))
    try:
        yield from pieces.sorted(rows)
    except OSError as error:
        raise from_os_error(error, tempfile.gettempdir(), "cannot keep pieces") from error
    except pa.ArrowException as error:
        raise InvalidInput(f"the rows cannot be sorted ({error})") from None


class _SortColumns:
    """Makes the columns to sort by: time, number of the store, position."""

    def __init__(self) -> None:
        self._stores: dict[str | None, int] = {}

    def keys(self, rows: pa.RecordBatch | pa.Table, path: Path | None = None) -> tuple[Ints, Ints, Ints]:
        """int64[n] each; stores are numbered in order of appearance. Raises InvalidInput, which names the path."""
        found = []
        for name in _KEYS:
            try:
                found.append(self._numbered(rows) if name == STORE else _numbers(rows, name))
            except pa.ArrowException as error:
                raise InvalidInput(f"rows cannot be sorted by the column {name} ({error})", path=path) from None
        time, store, position = found
        return time, store, position

    def _numbered(self, rows: pa.RecordBatch | pa.Table) -> Ints:
        if STORE not in rows.schema.names:
            return np.zeros(rows.num_rows, np.int64)
        return numbered(rows.column(STORE), lambda text: self._stores.setdefault(text, len(self._stores)))


def _numbers(rows: pa.RecordBatch | pa.Table, name: str) -> Ints:
    """A column of numbers or times (ms); 0 for a null and for a missing column."""
    if name not in rows.schema.names:
        return np.zeros(rows.num_rows, np.int64)
    column = rows.column(name)
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    found: Ints = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    return found


def _schema_of(files: Sequence[Path]) -> pa.Schema:
    """The common schema of all files. Raises InvalidInput."""
    schemas = [schema_of(path, form_of(path)) for path in files]
    plain = [pa.schema([without_dictionary(f) for f in schema]) for schema in dict.fromkeys(schemas)]
    try:
        return pa.unify_schemas(plain, promote_options="permissive")
    except pa.ArrowException as error:
        raise InvalidInput(f"columns of the files do not fit together: {error}") from None


def _in_order(files: Sequence[Path], order: _SortColumns) -> list[Path]:
    """The files in the order that puts all rows in order, or [] if there is none. Reads only the sort columns."""
    ranges: list[tuple[Key, Key, Path]] = []
    for path in files:
        ends: tuple[Key, Key] | None = None
        for batch, _ in batches_of(path, form_of(path), _KEYS):
            if not batch.num_rows:
                continue
            keys = order.keys(batch, path)
            if not _is_sorted(keys) or (ends is not None and _key(keys, 0) < ends[1]):
                return []
            ends = (_key(keys, 0) if ends is None else ends[0], _key(keys, -1))
        if ends is not None:
            ranges.append((*ends, path))
    ranges.sort(key=lambda found: found[:2])
    in_order = all(before[1] <= after[0] for before, after in pairwise(ranges))
    return [path for _, _, path in ranges] if in_order else []


def _key(keys: tuple[Ints, Ints, Ints], row: int) -> Key:
    time, store, position = (int(column[row]) for column in keys)
    return time, store, position


def _is_sorted(keys: tuple[Ints, Ints, Ints]) -> bool:
    time, store, position = (np.diff(column) for column in keys)
    later = (store > 0) | ((store == 0) & (position >= 0))
    return bool(((time > 0) | ((time == 0) & later)).all())


def _aligned(files: Sequence[Path], schema: pa.Schema, note: Note) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the files, all with the same columns. Raises InvalidInput."""
    for path in files:
        size, seen = path.stat().st_size, 0
        for batch, share in batches_of(path, form_of(path)):
            try:
                yield fitted(batch, schema)
            except pa.ArrowException as error:
                raise InvalidInput(f"a column does not fit: {error}", path=path) from None
            note(int(size * share) - seen)
            seen = int(size * share)


@dataclass
class _Head:
    """The current block of a piece, from row `at` on. blocks: (offset, size) of the blocks that follow it."""

    blocks: list[tuple[int, int]]
    rows: pa.RecordBatch
    keys: tuple[Ints, Ints, Ints]
    at: int = 0

    @property
    def last(self) -> Key:
        return _key(self.keys, -1)

    def taken(self, limit: Key, *, equal: bool) -> pa.RecordBatch:
        """Take the rows before a key, and if `equal` those with that key."""
        begin, end = self.at, len(self.keys[0])
        for column, value in zip(self.keys, limit, strict=True):
            first, behind = np.searchsorted(column[begin:end], [value, value + 1])
            begin, end = begin + int(first), begin + int(behind)
        end = end if equal else begin
        rows, self.at = self.rows.slice(self.at, end - self.at), end
        return rows


@dataclass
class _Pieces:
    """Sorted pieces in a temporary file, each a list of blocks (offset, size)."""

    order: _SortColumns
    schema: pa.Schema
    block_bytes: int
    file: IO[bytes] = field(default_factory=lambda: tempfile.TemporaryFile(buffering=0))  # noqa: SIM115
    pieces: list[list[tuple[int, int]]] = field(default_factory=list)

    def sorted(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield all rows in order. Raises OSError."""
        with self.file:
            piece: list[pa.RecordBatch] = []
            size = 0
            for batch in batches:
                piece.append(batch)
                size += batch.nbytes
                if size >= _PIECE_BYTES:
                    self._keep(piece)
                    piece, size = [], 0
            if not self.pieces:
                yield from self._ordered(piece).to_batches()
                return
            if piece:
                self._keep(piece)
            del piece
            yield from self._merged()

    def _ordered(self, batches: Sequence[pa.RecordBatch]) -> pa.Table:
        table = pa.Table.from_batches(batches, self.schema).combine_chunks()
        time, store, position = self.order.keys(table)
        return table.take(pa.array(np.lexsort((position, store, time))))

    def _keep(self, batches: Sequence[pa.RecordBatch]) -> None:
        table = self._ordered(batches)
        rows = max(1, self.block_bytes * table.num_rows // max(1, table.nbytes))
        blocks = []
        for batch in table.to_batches(max_chunksize=rows):
            data = batch.serialize()
            blocks.append((self.file.tell(), data.size))
            self.file.write(data)
        self.pieces.append(blocks)

    def _merged(self) -> Iterator[pa.RecordBatch]:
        heads = [self._next(blocks) for blocks in self.pieces if blocks]
        taken: list[pa.RecordBatch] = []
        while heads:
            limit, first = min((head.last, number) for number, head in enumerate(heads))
            # equal rows keep the order of the pieces; the next block of this piece may begin with more of them
            taken += [head.taken(limit, equal=n <= first) for n, head in enumerate(heads)]
            heads = [
                head if head.at < head.rows.num_rows else self._next(head.blocks)
                for head in heads
                if head.at < head.rows.num_rows or head.blocks
            ]
            if sum(rows.num_rows for rows in taken) >= AHEAD_ROWS:
                yield from self._ordered(taken).to_batches()
                taken = []
        yield from self._ordered(taken).to_batches()

    def _next(self, blocks: list[tuple[int, int]]) -> _Head:
        at, size = blocks[0]
        self.file.seek(at)
        rows = pa.ipc.read_record_batch(pa.py_buffer(self.file.read(size)), self.schema)
        return _Head(blocks[1:], rows, self.order.keys(rows))


NEEDED = ("topic", BODY)
OPTIONS = frozenset({"as_broker", "keep_times", "on_damage", "broker_config"})
REFUSED_NAMED = 20
"""Messages that are left out and named; the others are only counted."""


@dataclass(frozen=True)
class NewStore:
    """How a store is made from rows.

    config: the broker's configuration, as in broker.conf. as_broker: its version, None for the newest. keep_times: take
    `store_timestamp` from the rows. on_damage: what to do with bodies that failed their checksum.
    """

    config: Mapping[str, str] = field(default_factory=dict)
    as_broker: str | None = None
    keep_times: bool = False
    on_damage: OnDamage = OnDamage.FAIL

    @classmethod
    def of(cls, given: Mapping[str, str]) -> NewStore:
        """From the options of a writer, by name. Raises InvalidInput."""
        if unknown := sorted(given.keys() - OPTIONS):
            raise InvalidInput(f"no option {unknown[0]!r} here")
        if (version := given.get("as_broker")) is not None:
            writer_profile(version)
        keep_times = one_of(given, "keep_times", ("false", "true")) == "true"
        on_damage = OnDamage(one_of(given, "on_damage", tuple(OnDamage)))
        return cls(parse_config(given), version, keep_times, on_damage)

    @property
    def broker_config(self) -> BrokerConfig:
        return BrokerConfig(self.config).for_new_store()

    def check(self, target: Path) -> None:
        """Raise Unsupported for options with which no store is made at `target`; `make_store` knows its folder only."""
        check_new_store(target, self.broker_config, self.as_broker)


Finish = Callable[[Path], str]
"""Called with the folder of a new store that has all its messages; returns what is left to do, "" for nothing."""


@dataclass
class AppendedRows:
    """Counts of rows by what became of them. left_out: rows without a topic, which stand for damage. tombstones: also
    left out. op_records, pop_records: also left out (`CopiedNumbers`). refused: also left out (`refused_copies`);
    named_refused: the first `REFUSED_NAMED` of these, and why. times_replaced: as of `message_columns`. left: what the
    new store still needs.
    """

    corrupted: CorruptedBodies
    messages: int = 0
    left_out: int = 0
    tombstones: int = 0
    op_records: int = 0
    pop_records: int = 0
    refused: int = 0
    named_refused: list[str] = field(default_factory=list)
    times_replaced: int = 0
    left: str = ""

    def for_manifest(self) -> dict[str, Any]:
        """What a manifest says of the store."""
        counts = {name: value for name, value in vars(self).items() if name != "corrupted"}
        return {**counts, "skipped": self.corrupted.skipped, "marked": self.corrupted.marked}


def make_store(
    folder: Path, how: NewStore, batches: Iterable[pa.RecordBatch], finish: Finish = lambda _: ""
) -> AppendedRows:
    """Append rows in their order to a store in a folder; on disk when this returns. finish: is then called.

    Raises InvalidInput, LimitExceeded, Corrupted with the number of the row, from 1 on; and what the writer raises.
    """
    made = AppendedRows(CorruptedBodies(how.on_damage))
    reader = MessageReader(UniqueKeys(NewMessage.born_host[0]), keep_times=how.keep_times)
    options = WriterOptions(as_broker=how.as_broker, numbers_anew=True)
    with StoreWriter.open(folder, how.broker_config, options) as writer:
        reader.final_separator = writer.profile.final_separator
        first = 1
        for batch in batches:
            for begin in range(0, batch.num_rows, AHEAD_ROWS):
                _append(writer, reader, batch.slice(begin, AHEAD_ROWS), first + begin, made)
            first += batch.num_rows
        writer.sync()
        made.op_records, made.pop_records = writer.copies.op_records, writer.copies.pop_records
        made.times_replaced = writer.times_replaced
    made.left = finish(folder)
    return made


def import_store(
    files: Sequence[Path], target: Path, how: NewStore, note: Callable[[int], None], finish: Finish = lambda _: ""
) -> dict[str, Any]:
    """Make a store at `target`, a new or empty directory, of the messages in files. Return the manifest.

    Messages are in the order of `sorted_batches`. note: passed to it. finish: passed to `make_store`. Raises what both
    raise, `publish_made` and the check of `how`.
    """
    how.check(target)

    def make(tree: Path) -> dict[str, Any]:
        return make_store(tree, how, sorted_batches(files, note), finish).for_manifest()

    return publish_made(target, {"files": [str(path.absolute()) for path in files], "how": asdict(how)}, make)


def _append(writer: StoreWriter, reader: MessageReader, rows: pa.RecordBatch, first: int, made: AppendedRows) -> None:
    if "topic" not in rows.schema.names:
        raise InvalidInput("no column 'topic'", hint=f"needed: {', '.join(NEEDED)}")
    numbers = pa.array(range(first, first + rows.num_rows))
    has_topic = rows.column("topic").is_valid()
    made.left_out += rows.num_rows - has_topic.true_count
    rows, numbers = rows.filter(has_topic), numbers.filter(has_topic)
    if BODY_CRC_OK in rows.schema.names:
        bad = corrupted_rows(rows.column(BODY_CRC_OK))
        first_bad = _row_text(rows, numbers, int(bad[0])) if len(bad) else ""
        if not made.corrupted.take(len(bad), first_bad) and len(bad):
            sound = rows.column(BODY_CRC_OK).fill_null(True)
            rows, numbers = rows.filter(sound), numbers.filter(sound)
    if not rows.num_rows:
        return
    columns = columns_of_rows(rows, reader)
    if columns is None:
        kept = list[tuple[int, NewMessage]]()
        for at, (number, row) in enumerate(zip(numbers.to_pylist(), rows.to_pylist(), strict=True)):
            record = record_of(row, number)
            if is_message(record):
                kept.append((at, _message(reader, record, number)))
            else:
                made.tombstones += stand_in_of(record) == TOMBSTONE
        columns = columns_of([message for _, message in kept])
        rows, numbers = (each.take(pa.array([at for at, _ in kept], pa.int64())) for each in (rows, numbers))
    if refused := refused_copies(columns, writer.profile.start.record):
        named = list(refused.items())[: REFUSED_NAMED - len(made.named_refused)]
        made.named_refused += [f"{_row_text(rows, numbers, row)}: {why}" for row, why in named]
        made.refused += len(refused)
        columns = columns_where(columns, np.isin(np.arange(rows.num_rows), list(refused), invert=True))
    if len(refused) == rows.num_rows:
        return
    try:
        made.messages += len(writer.append_ahead(columns).topic_id)
    except (InvalidInput, LimitExceeded) as error:
        raise type(error)(f"rows {numbers[0]} to {numbers[-1]}: {error}") from None


def _row_text(rows: pa.RecordBatch, numbers: pa.Array, index: int) -> str:
    """How to name a row in a message: with the store and position it was read from, if those are known."""
    if not {STORE, POSITION}.issubset(rows.schema.names):
        return f"row {numbers[index]}"
    return f"row {numbers[index]}, at {rows.column(POSITION)[index]} of {rows.column(STORE)[index]}"


def _message(reader: MessageReader, record: Mapping[str, object], number: int) -> NewMessage:
    try:
        return reader.message(record)
    except InvalidInput as error:
        raise InvalidInput(f"row {number}: {error}") from None
