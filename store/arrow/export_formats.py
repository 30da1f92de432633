"""The files that `export` writes: Parquet, NDJSON, CSV, Avro, from Arrow batches of messages.

Parquet and NDJSON are what `put --from` reads again.
"""

from __future__ import annotations

import base64
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ..errors import Unsupported

_FORMULA = r"^'*[=+\-@\t\r]"
"""What a spreadsheet runs when a cell begins so; a quote in front of it prevents that."""


class Sink(ABC):
    """A file that takes batches of one schema. `close` ends it; what was written is then whole."""

    @abstractmethod
    def write(self, rows: pa.RecordBatch) -> None:
        """Add rows. Raises OSError."""

    @abstractmethod
    def close(self) -> None:
        """End the file. Raises OSError."""


class _Parquet(Sink):
    def __init__(self, path: Path, schema: pa.Schema) -> None:
        import pyarrow.parquet as pq

        self._writer = pq.ParquetWriter(path, schema)

    def write(self, rows: pa.RecordBatch) -> None:
        self._writer.write_batch(rows)

    def close(self) -> None:
        self._writer.close()


class _Json(Sink):
    """One object a line, with the names of the contract."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._file = path.open("wb")

    def write(self, rows: pa.RecordBatch) -> None:
        for record in records_of(rows):
            line = json.dumps(record, ensure_ascii=False, separators=(",", ":"))
            self._file.write(line.encode("utf-8", "surrogatepass") + b"\n")

    def close(self) -> None:
        self._file.close()


class _Csv(Sink):
    """Lists and objects as JSON, bytes as Base64, and nothing that a spreadsheet would run."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        from pyarrow import csv

        plain = pa.schema([(_csv_name(field), _csv_type(field.type)) for field in schema])
        self._schema = plain
        self._writer = csv.CSVWriter(path, plain)

    def write(self, rows: pa.RecordBatch) -> None:
        arrays = [_cells(column) for column in rows.columns]
        self._writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=self._schema))

    def close(self) -> None:
        self._writer.close()


class _Avro(Sink):
    def __init__(self, path: Path, schema: pa.Schema) -> None:
        from fastavro.write import Writer

        fields = [{"name": f.name, "type": ["null", _avro_type(f.type)]} for f in schema]
        self._file = path.open("wb")
        self._writer = Writer(
            self._file, {"type": "record", "name": "message", "fields": fields}, codec="deflate"
        )
        self._maps = {field.name for field in schema if pa.types.is_map(field.type)}

    def write(self, rows: pa.RecordBatch) -> None:
        for row in rows.to_pylist():
            for name in self._maps:
                row[name] = dict(row[name] or ())
            self._writer.write(row)

    def close(self) -> None:
        self._writer.flush()
        self._file.close()


FORMATS: dict[str, Callable[[Path, pa.Schema], Sink]] = {
    "parquet": _Parquet,
    "json": _Json,
    "csv": _Csv,
    "avro": _Avro,
}


def open_sink(form: str, path: Path, schema: pa.Schema) -> Sink:
    """A new file of a format, one of `FORMATS`. Raises OSError."""
    return FORMATS[form](path, schema)


def require_format(form: str) -> None:
    """Raise Unsupported where the package that writes a format is missing."""
    if form == "avro":
        from importlib.util import find_spec

        if find_spec("fastavro") is None:
            raise Unsupported("Avro files need fastavro", hint="pip install 'mqstore[avro]'")


def records_of(rows: pa.RecordBatch | pa.Table) -> Iterator[dict[str, Any]]:
    """Rows as JSON objects; bytes as text, under `NAME_base64` where they are none."""
    maps = {field.name for field in rows.schema if pa.types.is_map(field.type)}
    for row in rows.to_pylist():
        yield {key: value for name in row for key, value in _shown(name, row[name], maps)}


def _shown(name: str, value: Any, maps: set[str]) -> Iterator[tuple[str, Any]]:
    if isinstance(value, bytes):
        try:
            yield name, value.decode()
        except UnicodeDecodeError:
            yield f"{name}_base64", base64.b64encode(value).decode("ascii")
    elif name in maps and value is not None:
        yield name, dict(value)
    elif value is None or isinstance(value, bool | int | float | str | list | dict):
        yield name, value
    else:
        yield name, str(value)  # dates, decimals


def _csv_name(field: pa.Field) -> str:
    return f"{field.name}_base64" if pa.types.is_binary(field.type) else str(field.name)


def _csv_type(kind: pa.DataType) -> pa.DataType:
    return pa.string() if pa.types.is_nested(kind) or pa.types.is_binary(kind) else kind


def _cells(column: pa.Array) -> pa.Array:
    if pa.types.is_binary(column.type):
        values = (None if v is None else base64.b64encode(v).decode() for v in column.to_pylist())
        return pa.array(values, pa.string())
    if pa.types.is_map(column.type):
        return _json_cells([None if v is None else dict(v) for v in column.to_pylist()])
    if pa.types.is_nested(column.type):
        return _json_cells(column.to_pylist())
    if pa.types.is_string(column.type):
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
    if pa.types.is_binary(kind):
        return "bytes"
    if pa.types.is_boolean(kind):
        return "boolean"
    return "long" if pa.types.is_integer(kind) else "string"
