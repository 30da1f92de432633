"""Arrow rows with the field names of a message's JSON: with plain types, as columns of MESSAGE, or row by row.

Rows that are not plain (JSON in a cell, records other than messages, refused values) are converted one by one, as JSON.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...formats.derive import Ragged
from ...formats.derive.ragged import Ints
from ...formats.hashing_columns import crc31_column
from ...formats.message_properties import ITEM_SEPARATOR, KEYS, NAME_VALUE_SEPARATOR, TAGS, UNIQ_KEY
from ...formats.property_columns import PropertyItems, item_texts, with_items
from ..columns import dictionary
from ..errors import InvalidInput
from ..put.message_columns import NO_CRC
from ..put.message_json import NO_PORT, MessageReader, parse_host
from ..put.new_message import COMPRESSED, COPIED, NUMBER_LIMITS, STORE, stored_body, wrong_crc

_ROW_BY_ROW = ("body_base64", "topic_base64", "properties_raw_base64", "stale")
"""If one of these columns has a value, rows are converted row by row."""
_SEPARATORS = NAME_VALUE_SEPARATOR + ITEM_SEPARATOR


def as_read(batch: pa.RecordBatch, path: Path) -> pa.RecordBatch:
    """The rows with the types of `_type_as_read`. Raises InvalidInput."""
    schema, arrays = schema_as_read(batch.schema, path), list[pa.Array]()
    if schema.equals(batch.schema):  # which keeps the rows of a batch without a column, too
        return batch
    for column, array in zip(batch.schema, batch.columns, strict=True):
        kind = schema.field(len(arrays)).type
        if kind.equals(column.type):
            arrays.append(array)
            continue
        try:
            if pa.types.is_timestamp(kind):  # without its zone a time is the same moment
                array = pc.floor_temporal(array.view(pa.timestamp(column.type.unit)), unit="millisecond")
                array = array.cast(pa.timestamp("ms"))
            arrays.append(array.cast(kind))
        except pa.ArrowException as error:
            raise InvalidInput(f"column {column.name} cannot be read ({error})", path=path) from None
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def schema_as_read(schema: pa.Schema, path: Path) -> pa.Schema:
    """The columns of `as_read`. Raises InvalidInput for two of one name."""
    for name in schema.names:
        if len(schema.get_all_field_indices(name)) > 1:
            raise InvalidInput(f"two columns have the name {name}", path=path, hint="rename or drop one of them")
    return pa.schema([column.with_type(_type_as_read(column)) for column in schema])


def _type_as_read(column: pa.Field) -> pa.DataType:
    """Times of messages are whole milliseconds (finer ones lose the rest); views, which Arrow cannot sort, are texts.

    >>> import pyarrow as pa
    >>> _type_as_read(pa.field("born_timestamp", pa.timestamp("us", "Asia/Shanghai")))
    TimestampType(timestamp[ms, tz=UTC])
    >>> _type_as_read(pa.field("keys", pa.large_list(pa.string_view())))
    LargeListType(large_list<item: large_string>)
    """
    if pa.types.is_timestamp(column.type) and column.name.endswith("_timestamp"):
        return pa.timestamp("ms", "UTC")
    return _without_views(column.type)


def _without_views(kind: pa.DataType) -> pa.DataType:
    """The same type, of texts and bytes that Arrow can sort."""
    if pa.types.is_string_view(kind):
        return pa.large_string()
    if pa.types.is_binary_view(kind):
        return pa.large_binary()
    if pa.types.is_struct(kind):
        return pa.struct([inner.with_type(_without_views(inner.type)) for inner in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner = kind.value_field.with_type(_without_views(kind.value_type))
        return pa.list_(inner) if pa.types.is_list(kind) else pa.large_list(inner)
    if pa.types.is_map(kind):
        return pa.map_(_without_views(kind.key_type), _without_views(kind.item_type))
    return kind


def without_dictionary(column: pa.Field) -> pa.Field:
    """A dictionary column as its value type: each file may have another dictionary."""
    of_values = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    return pa.field(column.name, of_values)


def fitted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The rows with the columns of a schema; null where they lack one."""
    if batch.schema.equals(schema):
        return batch
    names = set(batch.schema.names)
    arrays = [
        batch.column(column.name).cast(column.type) if column.name in names else pa.nulls(batch.num_rows, column.type)
        for column in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def columns_of_rows(batch: pa.RecordBatch, reader: MessageReader) -> dict[str, Any] | None:
    """The columns of MESSAGE that a producer sends; None if the rows are not plain."""
    table = {name: batch.column(name) for name in batch.schema.names}
    if not {"topic", "body"} <= table.keys() or any(_has_values(table, name) for name in _ROW_BY_ROW):
        return None
    if "store_host" in table and any(str(host).endswith(NO_PORT) for host in table["store_host"].unique().to_pylist()):
        return None  # perhaps tombstones
    try:
        if (raw := _all_raw(table)) is None:
            return None
        if "type" in table and not set(table["type"].unique().to_pylist()) <= {"message", None}:
            return None
        columns: dict[str, Any] = {name: _strings(table[name]) for name in ("topic", "body")}
        if any((column.length < 0).any() for column in columns.values()):
            return None
        for name, (least, largest) in NUMBER_LIMITS.items():
            if name == "store_timestamp" and not reader.keep_times:
                continue
            if name in table:
                numbers = _numbers(table[name], reader.default(name))
                if numbers.min(initial=0) < least or numbers.max(initial=0) > largest:
                    return None
                columns[name] = numbers
        columns |= {name: _numbers(table[name], -1) for name in COPIED if name in table}
        if STORE in table:
            columns[STORE] = numbered(table[STORE], reader.store_number)
        columns.setdefault("born_timestamp", reader.default("born_timestamp"))
        _pack_bodies(columns, table, raw=raw)
        _keep_wrong_crcs(columns, table)
        if not _have_their_crcs(columns, table):
            return None
        properties = _property_texts(table, batch.num_rows, reader)
        if _has_values(table, "born_host"):
            columns["born_host.ip"], columns["born_host.port"] = _hosts(table["born_host"])
    except (pa.ArrowException, InvalidInput, UnicodeError):
        return None  # converting row by row will name the row
    return None if properties is None else columns | {"properties": properties}


def _all_raw(table: dict[str, Any]) -> bool | None:
    """Whether all bodies are as stored; None if only some are."""
    values = set(table["raw"].unique().to_pylist()) if "raw" in table else {None}
    if values <= {False, None}:
        return False
    return True if values == {True} else None


def _pack_bodies(columns: dict[str, Any], table: dict[str, Any], *, raw: bool) -> None:
    """Replace bodies by what is to be stored, see `stored_body`. Raises InvalidInput."""
    if raw:
        return
    count = len(columns["body"])
    flags = columns.get("sys_flag")
    asked = np.zeros(count, np.bool_) if flags is None else flags & COMPRESSED != 0
    given = _optional_texts(table, "body_compression", count)
    rows = np.flatnonzero(asked | np.array([text is not None for text in given], np.bool_))
    if not len(rows):
        return
    errors = _optional_texts(table, "body_error", count)
    bodies, flags_of = columns["body"], [None] * count if flags is None else flags.tolist()
    packed = [stored_body(bodies[row], flags_of[row], given[row], as_stored=bool(errors[row])) for row in rows.tolist()]
    columns["body"] = _with_rows(bodies, rows, [body for body, _ in packed])
    columns["sys_flag"] = np.zeros(count, np.int64) if flags is None else flags.copy()
    columns["sys_flag"][rows] = [flag for _, flag in packed]


def _optional_texts(table: dict[str, Any], name: str, count: int) -> list[str | None]:
    found: list[str | None] = table[name].to_pylist() if name in table else [None] * count
    return found


def _with_rows(strings: Ragged, rows: Any, others: list[bytes]) -> Ragged:
    """The strings with others in some rows."""
    behind = Ragged.of(others)
    start, length = strings.start.copy(), strings.length.copy()
    start[rows], length[rows] = behind.start + len(strings.buffer), behind.length
    return Ragged(np.concatenate([strings.buffer, behind.buffer]), start, length)


def _keep_wrong_crcs(columns: dict[str, Any], table: dict[str, Any]) -> None:
    """Give bodies that failed their checksum where they were read a checksum that fails again."""
    rows = corrupted_rows(table.get("body_crc_ok"))
    if not len(rows):
        return
    known = table["body_crc"].to_pylist() if "body_crc" in table else [None] * len(columns["body"])
    wrong = np.full(len(columns["body"]), NO_CRC, np.int64)
    wrong[rows] = [wrong_crc(columns["body"][row], known[row]) for row in rows.tolist()]
    columns["wrong_crc"] = wrong


def _have_their_crcs(columns: dict[str, Any], table: dict[str, Any]) -> bool:
    """Whether bodies that are texts have the checksums beside them, see `require_checksum`."""
    kind, bodies = table["body"].type, columns["body"]
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if "body_crc" not in table or not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        return True
    flags, wrong = columns.get("sys_flag", np.int64(0)), columns.get("wrong_crc", np.int64(NO_CRC))
    known = _numbers(table["body_crc"], NO_CRC)
    told = (known != NO_CRC) & (bodies.length > 0) & (flags & COMPRESSED == 0) & (wrong == NO_CRC)
    return bool((crc31_column(bodies) == known)[told].all())


def corrupted_rows(body_crc_ok: Any) -> Ints:
    """The rows whose body failed its checksum, by the column `body_crc_ok`; none if there is no such column.

    Raises InvalidInput for values that are neither true nor false.
    """
    if body_crc_ok is None or body_crc_ok.null_count == len(body_crc_ok):
        return np.zeros(0, np.int64)
    if not pa.types.is_boolean(body_crc_ok.type):
        value = body_crc_ok.drop_null()[0].as_py()
        raise InvalidInput(f"column body_crc_ok: neither true nor false: {value!r}, of type {body_crc_ok.type}")
    return np.flatnonzero(~body_crc_ok.fill_null(True).to_numpy(zero_copy_only=False))


def _has_values(table: dict[str, Any], name: str) -> bool:
    return name in table and table[name].null_count < len(table[name])


def _strings(array: Any) -> Ragged:
    """A column of texts or bytes without copying it. Raises ArrowInvalid for another type."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if not (pa.types.is_large_binary(array.type) or pa.types.is_large_string(array.type)):
        array = array.cast(pa.large_binary())
    _, ends, data = array.buffers()
    count = len(array)
    if not count:
        return Ragged.of([])
    places = np.frombuffer(ends, np.int64)[array.offset : array.offset + count + 1]
    length = np.diff(places)
    if array.null_count:
        length = np.where(array.is_valid().to_numpy(zero_copy_only=False), length, -1)
    buffer = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return Ragged(buffer, places[:-1], length)


def _numbers(array: Any, missing: int) -> Any:
    """A column of integers or times (ms since 1970) as int64[n]. Raises ArrowInvalid for another type."""
    if pa.types.is_timestamp(array.type):
        array = array.cast(pa.timestamp("ms", array.type.tz))
    elif not pa.types.is_integer(array.type) and not pa.types.is_null(array.type):
        raise pa.ArrowInvalid("not whole numbers")
    return array.cast(pa.int64()).fill_null(missing).to_numpy(zero_copy_only=False)


def numbered(array: Any, number_of: Callable[[Any], int]) -> Ints:
    """int64[n]: `number_of` the value in each row; called once for each different value."""
    values = array.unique().to_pylist()
    numbers = np.array([number_of(value) for value in values], np.int64)
    if len(values) == 1:
        return np.full(len(array), numbers[0], np.int64)
    places = pc.index_in(array, value_set=pa.array(values, array.type))
    found: Ints = numbers[places.to_numpy(zero_copy_only=False)]
    return found


def _hosts(array: Any) -> tuple[Ragged, Any]:
    """The addresses and ports of `ip:port`. Raises InvalidInput, UnicodeError."""
    known = dictionary(_strings(array))
    hosts = [parse_host(text.decode(), "born_host") for text in known.values]
    return Ragged.of([ip for ip, _ in hosts])[known.ids], np.array([p for _, p in hosts])[known.ids]


def _property_texts(table: dict[str, Any], count: int, reader: MessageReader) -> Ragged | None:
    """The properties as texts, as `MessageReader` makes them; None if rows are not plain."""
    if _has_values(table, "properties_raw"):
        raw = _strings(table["properties_raw"])
        rows = np.flatnonzero(raw.length >= 0)
        if len(rows) == count:
            return raw
        others = {name: column for name, column in table.items() if name != "properties_raw"}
        texts = _property_texts(others, count, reader)
        return None if texts is None else _with_rows(texts, rows, raw[rows].tolist())
    texts = _map_texts(table.get("properties"), count)
    if texts is None:
        return None
    items = {}
    for field, name in (("keys", KEYS), ("tags", TAGS)):
        if not _has_values(table, field):
            continue
        if not hasattr(table[field], "flatten"):
            items[name] = _strings(table[field])
        elif not _lists_are_known(table, field, texts):
            return None
    items[UNIQ_KEY] = _unique_keys(table, texts, reader)
    if not all(map(_plain, items.values())):
        return None
    texts = with_items(texts, items)
    if not reader.final_separator:
        texts.length = (texts.length - len(ITEM_SEPARATOR)).clip(0)
    return texts


def _plain(strings: Ragged) -> bool:
    """Whether no separator is in the strings, nor in their buffer between them."""
    length = np.maximum(strings.length, 0)
    if not length.any():
        return True
    begin, end = int(strings.start.min()), int((strings.start + length).max())
    return not any((strings.buffer[begin:end] == mark).any() for mark in _SEPARATORS)


def _lists_are_known(table: dict[str, Any], field: str, texts: Ragged) -> bool:
    """Whether each row with a list of keys also has KEYS among its properties. Lists of tags are never known."""
    sizes = table[field].value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    return field == "keys" and bool((PropertyItems(texts).find(KEYS).length[sizes > 0] > 0).all())


def _map_texts(array: Any, count: int) -> Ragged | None:
    """The texts of a column of maps or structs; None if it is not plain."""
    nothing = Ragged.repeat(b"", count)
    if array is None or array.null_count == len(array):
        return nothing
    if pa.types.is_struct(array.type):
        fields = zip((field.name for field in array.type), array.flatten(), strict=True)
        values = {name: _strings(column) for name, column in fields}
        plain = all(_plain(v) and not (v.length == 0).any() for v in values.values())
        return with_items(nothing, values) if plain and all(values) else None
    if not pa.types.is_map(array.type) or array.null_count:
        return None
    places = np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + count + 1]
    some = slice(int(places[0]), int(places[-1]))
    names, values_ = _strings(array.keys[some]), _strings(array.items[some])
    if not (_plain(names) and _plain(values_)):
        return None
    if (names.length <= 0).any() or (values_.length <= 0).any():
        return None
    items = item_texts(names, values_)
    ends = np.append(items.start, len(items.buffer))
    places = places - places[0]
    start, stop = ends[places[:-1]], ends[places[1:]]
    return Ragged(items.buffer, start, stop - start)


def _unique_keys(table: dict[str, Any], texts: Ragged, reader: MessageReader) -> Ragged:
    """The column of unique keys, or else a new one for each row that lacks one."""
    if "unique_key" in table:
        return _strings(table["unique_key"])
    lacks = PropertyItems(texts).find(UNIQ_KEY).length < 0
    if not lacks.any():
        return Ragged.repeat(b"", len(lacks))
    return Ragged.of([reader.new_key().encode() if lack else None for lack in lacks.tolist()])
