"""File formats of exports: Parquet, Arrow, NDJSON, CSV, Avro, written from Arrow batches of messages."""

from __future__ import annotations

import base64
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import InvalidInput, Unsupported

NOTE = b"mqstore_export"
"""The metadata key of the data set's note in Parquet, Arrow and Avro files."""
ZSTD = "zstd"
NO_COMPRESSION = "none"
COMPRESSIONS = {"parquet": (ZSTD, "snappy", "gzip", "lz4"), "arrow": (ZSTD, "lz4")}
"""The compressions of a format besides none; the first is the default."""
_LEVELS = {ZSTD: 1}
"""Level 1 is fast: bodies are a tenth larger than with the default level, in half the time."""
_FORMULA = r"^'*[=+\-@\t\r]"
"""The beginning of a cell that a spreadsheet would run; a quote before it prevents that."""
_FEW = ("store", "magic_code", "topic", "born_host", "store_host", "queue_id", "tags", "sys_flag")
_NOTES = ("raw", "body_compression", "body_error", "flag", "reconsume_times")
_DICTIONARY = [*_FEW, *_NOTES]
"""Columns with few different values; for all others a dictionary only costs time."""


@dataclass(frozen=True)
class ExportFormat:
    """A file format and its options. compression: None for the default of the format."""

    form: str = "parquet"
    compression: str | None = None
    safe_csv: bool = False

    @property
    def codec(self) -> str:
        return self.compression or COMPRESSIONS.get(self.form, (NO_COMPRESSION,))[0]

    def require(self) -> None:
        """Raise Unsupported if a package is missing, InvalidInput for options that do not go together."""
        known = (*COMPRESSIONS.get(self.form, ()), NO_COMPRESSION)
        if self.codec not in known:
            raise InvalidInput(
                f"{self.form} files cannot be compressed with {self.codec}",
                hint=f"--compression takes {', '.join(known)} there",
            )
        if self.safe_csv and self.form != "csv":
            raise InvalidInput(f"--safe-csv works only for CSV files, not for {self.form}")
        if self.form == "avro":
            from importlib.util import find_spec

            if find_spec("fastavro") is None:
                raise Unsupported("Avro files need fastavro", hint="pip install 'mqstore[avro]'")


class ExportSink(ABC):
    """A file that takes tables of one schema. It is complete once `close` has returned."""

    def __init__(self, path: Path, schema: pa.Schema, kind: ExportFormat) -> None:
        self._file = path.open("wb")
        self._schema = schema
        self._kind = kind

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return self._file.tell()

    @abstractmethod
    def write(self, rows: pa.Table) -> None:
        """Add rows. Raises OSError."""

    def close(self) -> None:
        """Complete and close the file. Raises OSError."""
        try:
            self._end()
        finally:
            self._file.close()

    def give_up(self) -> None:
        """Close the file without completing it; it is not readable."""
        self._file.close()

    def _end(self) -> None:  # noqa: B027 - most formats have nothing there
        """Write the end of the file."""


class _Parquet(ExportSink):
    """Each call writes a row group."""

    def __init__(self, path: Path, schema: pa.Schema, kind: ExportFormat) -> None:
        import pyarrow.parquet as pq

        super().__init__(path, schema, kind)
        self._writer = pq.ParquetWriter(
            self._file,
            schema,
            compression=kind.codec,
            compression_level=_LEVELS.get(kind.codec),
            use_dictionary=[name for name in schema.names if name in _DICTIONARY],
        )

    def write(self, rows: pa.Table) -> None:
        self._writer.write_table(rows, row_group_size=max(1, rows.num_rows))

    def give_up(self) -> None:
        self._writer.is_open = False  # else it would write the end of the file when it is deleted
        super().give_up()

    def _end(self) -> None:
        try:
            self._writer.close()
        finally:
            self._writer.is_open = False


class _Arrow(ExportSink):
    def __init__(self, path: Path, schema: pa.Schema, kind: ExportFormat) -> None:
        super().__init__(path, schema, kind)
        codec = None if kind.codec == NO_COMPRESSION else kind.codec
        self._writer = pa.ipc.new_file(self._file, schema, options=pa.ipc.IpcWriteOptions(compression=codec))

    def write(self, rows: pa.Table) -> None:
        self._writer.write_table(rows)

    def _end(self) -> None:
        self._writer.close()


class _Json(ExportSink):
    """One object per line, with the field names of `dump`."""

    def write(self, rows: pa.Table) -> None:
        for record in records_of(rows):
            line = json.dumps(record, ensure_ascii=False, separators=(",", ":"))
            self._file.write(line.encode("utf-8", "surrogatepass") + b"\n")


class _Csv(ExportSink):
    """Lists and objects as JSON, bytes as Base64."""

    def __init__(self, path: Path, schema: pa.Schema, kind: ExportFormat) -> None:
        from pyarrow import csv

        super().__init__(path, schema, kind)
        texts = [pa.types.is_nested(field.type) or pa.types.is_binary(field.type) for field in schema]
        names = [f"{field.name}_base64" if pa.types.is_binary(field.type) else field.name for field in schema]
        types = [pa.string() if is_text else field.type for field, is_text in zip(schema, texts, strict=True)]
        self._plain = pa.schema(zip(names, types, strict=True))
        self._writer = csv.CSVWriter(self._file, self._plain)

    def write(self, rows: pa.Table) -> None:
        for batch in rows.to_batches():
            arrays = [_cells(column, self._kind.safe_csv) for column in batch.columns]
            self._writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=self._plain))

    def _end(self) -> None:
        self._writer.close()


class _Avro(ExportSink):
    def __init__(self, path: Path, schema: pa.Schema, kind: ExportFormat) -> None:
        from fastavro.write import Writer

        super().__init__(path, schema, kind)
        fields = [{"name": f.name, "type": ["null", _avro_type(f.type)]} for f in schema]
        metadata = {key.decode(): value.decode() for key, value in (schema.metadata or {}).items()}
        record = {"type": "record", "name": "message", "fields": fields}
        self._writer = Writer(self._file, record, codec="deflate", metadata=metadata)
        self._maps = {field.name for field in schema if pa.types.is_map(field.type)}

    def write(self, rows: pa.Table) -> None:
        for batch in rows.to_batches():
            for row in batch.to_pylist():
                for name in self._maps:
                    row[name] = dict(row[name] or ())
                self._writer.write(row)

    def _end(self) -> None:
        self._writer.flush()


FORMATS: dict[str, Callable[[Path, pa.Schema, ExportFormat], ExportSink]] = {
    "parquet": _Parquet,
    "arrow": _Arrow,
    "json": _Json,
    "csv": _Csv,
    "avro": _Avro,
}


def open_sink(kind: ExportFormat, path: Path, schema: pa.Schema) -> ExportSink:
    """Create a file. Raises OSError."""
    return FORMATS[kind.form](path, schema, kind)


def holds_note(form: str) -> bool:
    """Whether files of a format can hold a note."""
    return form in _NOTE_OF


def note_of(path: Path, form: str) -> str | None:
    """The note in a file, None if there is none. Raises OSError, and ValueError for a file of another format."""
    return _NOTE_OF[form](path)


def _note_of_parquet(path: Path) -> str | None:
    import pyarrow.parquet as pq

    with pa.OSFile(os.fsencode(path)) as source:
        return _note_in(pq.read_schema(source))


def _note_of_arrow(path: Path) -> str | None:
    with pa.memory_map(os.fsencode(path)) as source:
        return _note_in(pa.ipc.open_file(source).schema)


def _note_in(schema: pa.Schema) -> str | None:
    found = (schema.metadata or {}).get(NOTE)
    return None if found is None else found.decode()


def _note_of_avro(path: Path) -> str | None:
    from fastavro import reader

    with path.open("rb") as file:
        found: str | None = reader(file).metadata.get(NOTE.decode())
    return found


_NOTE_OF: dict[str, Callable[[Path], str | None]] = {
    "parquet": _note_of_parquet,
    "arrow": _note_of_arrow,
    "avro": _note_of_avro,
}


def records_of(rows: pa.RecordBatch | pa.Table) -> Iterator[dict[str, Any]]:
    """Rows as JSON objects. Bytes become text; bytes that are not text become `NAME_base64`.

    Inside lists and objects, a float that JSON lacks becomes text, and bytes of a list that are not text become an
    object with `base64`. An interval becomes an ISO 8601 duration, a time outside Python's range the text of NumPy.
    """
    maps = {field.name for field in rows.schema if pa.types.is_map(field.type)}
    odd = {field.name for field in rows.schema if pa.types.is_nested(field.type) and not _is_json(field.type)}
    try:
        found = rows.to_pylist()
    except OverflowError:
        whole = rows if isinstance(rows, pa.Table) else pa.table(rows)
        columns = [_times_as_text(column.combine_chunks()) for column in whole.columns]
        found = pa.table(columns, rows.schema.names).to_pylist()
    for row in found:
        yield {key: value for name in row for key, value in _json_fields(name, row[name], maps, odd)}


def _times_as_text(column: pa.Array) -> pa.Array:
    """Turn times into text, and times inside lists and objects into numbers: Python has only the years 1 to 9999."""
    kind, whole = column.type, pa.types.is_timestamp(column.type)
    if whole or pa.types.is_date(kind):
        unit = kind.unit if whole else "D" if pa.types.is_date32(kind) else "ms"
        zone = "Z" if whole and kind.tz else ""
        ticks = column.view(pa.int32() if unit == "D" else pa.int64()).to_pylist()
        return pa.array(None if tick is None else f"{np.int64(tick).view(f'M8[{unit}]')}{zone}" for tick in ticks)
    return column.cast(_number_type(kind)) if pa.types.is_nested(kind) else column


def _number_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind) or pa.types.is_date64(kind):
        return pa.int64()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_number_type(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_number_type(kind.key_type), _number_type(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(_number_type(kind.value_type))
    return pa.int32() if pa.types.is_date32(kind) else kind


def _duration(value: pa.MonthDayNano) -> str:
    """
    >>> _duration(pa.MonthDayNano([14, 0, -1_500_000_000]))
    'P14MT-1.5S'
    >>> _duration(pa.MonthDayNano([0, 3, 0]))
    'P3D'
    """
    whole, part = divmod(abs(value.nanoseconds), 1_000_000_000)
    seconds = f"{'-' * (value.nanoseconds < 0)}{whole}.{part:09}".rstrip("0").rstrip(".")
    days = f"{value.months}M" * bool(value.months) + f"{value.days}D" * bool(value.days)
    return f"P{days}T{seconds}S" if value.nanoseconds or not days else f"P{days}"


def _json_fields(name: str, value: Any, maps: set[str], odd: set[str]) -> Iterator[tuple[str, Any]]:
    if name in maps and value is not None:
        value = dict(value)
    yield _json_field(name, value) if name in odd or not isinstance(value, list | dict) else (name, value)


def _json_field(name: str, value: Any) -> tuple[str, Any]:
    """A field with a JSON value; non-finite floats at the top level are left to the printer."""
    if isinstance(value, bytes):
        try:
            return name, value.decode()
        except UnicodeDecodeError:
            return f"{name}_base64", base64.b64encode(value).decode("ascii")
    if isinstance(value, dict):
        return name, dict(_json_field(_key_text(key), _nested_value(one)) for key, one in value.items())
    if isinstance(value, pa.MonthDayNano):  # a tuple too, so before lists
        return name, _duration(value)
    if isinstance(value, list | tuple):
        return name, [_list_item(_nested_value(one)) for one in value]
    if isinstance(value, datetime):
        return name, value.isoformat(timespec="milliseconds")
    if value is None or isinstance(value, bool | int | float | str):
        return name, value
    return name, str(value)  # dates, decimals


def _nested_value(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not isfinite(value) else value


def _list_item(value: Any) -> Any:
    """A value of a list, which has no name."""
    name, shown = _json_field("", value)
    return {"base64": shown} if name else shown


def _key_text(key: Any) -> str:
    return key.decode("utf-8", "backslashreplace") if isinstance(key, bytes) else str(key)


def _is_json(kind: pa.DataType) -> bool:
    """Whether JSON can represent every value of a type."""
    if pa.types.is_nested(kind):
        return all(_is_json(kind.field(number).type) for number in range(kind.num_fields))
    known = (pa.types.is_string, pa.types.is_large_string, pa.types.is_integer, pa.types.is_boolean, pa.types.is_null)
    return any(is_known(kind) for is_known in known)


def _cells(column: pa.Array, safe: bool) -> pa.Array:
    """A column as CSV values. safe: quote what a spreadsheet would run."""
    if pa.types.is_binary(column.type):
        values = (None if v is None else base64.b64encode(v).decode() for v in column.to_pylist())
        return pa.array(values, pa.string())
    if pa.types.is_map(column.type):
        return _json_cells([None if v is None else dict(v) for v in column.to_pylist()])
    if pa.types.is_nested(column.type):
        return _json_cells(column.to_pylist())
    if safe and pa.types.is_string(column.type):
        runs = pc.match_substring_regex(column, _FORMULA)
        return pc.if_else(runs, pc.binary_join_element_wise("'", column, ""), column)
    return column


def _json_cells(values: list[Any]) -> pa.Array:
    texts = (None if v is None else json.dumps(v, ensure_ascii=False) for v in values)
    return pa.array(texts, pa.string())


def _avro_type(kind: pa.DataType) -> Any:
    if pa.types.is_map(kind):
        return {"type": "map", "values": "string"}
    if pa.types.is_list(kind):
        return {"type": "array", "items": "string"}
    if pa.types.is_timestamp(kind):
        return {"type": "long", "logicalType": "timestamp-millis"}
    if pa.types.is_binary(kind):
        return "bytes"
    if pa.types.is_boolean(kind):
        return "boolean"
    return "long" if pa.types.is_integer(kind) else "string"
