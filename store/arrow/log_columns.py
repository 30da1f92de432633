"""The columns of `rocketmq-log`: messages with the field names of `dump`, converted in bulk.

Only the columns asked for are made. Bodies and their CRC check must be named: each costs more than all the rest.
Helpers turn decoder columns into Arrow arrays of bytes, of text, and of text with few different values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...formats import message_properties as names
from ...formats.derive import Ragged, columns_of
from ...formats.derive.ragged import Flags, Ints
from ...formats.digest_columns import digest_column, mixed
from ...formats.hashing import java_string
from ...formats.hashing_columns import crc31_column
from ...formats.host import host_text
from ...formats.id_columns import message_id_column
from ...formats.message import MESSAGE
from ...formats.property_columns import PropertyItems, ends_with_crc_item
from ...formats.sys_flag import SysFlag
from ..columns import dictionary
from ..errors import LimitExceeded
from ..log.batch import Batch
from ..log.message import Body, rebuilds, topic_json, unpack
from .stores import BODY, BODY_CRC_OK, RAW

_SURROGATES = re.compile("[\ud800-\udfff]")
_OFFSET_MAX = int(np.iinfo(np.int32).max)
"""Arrow's plain strings have 32-bit offsets."""


def bit_map(flags: Flags) -> pa.Buffer | None:
    """Arrow's validity bitmap; None if all are valid."""
    if flags.all():
        return None
    return pa.py_buffer(np.packbits(flags, bitorder="little").tobytes())


def offsets_of(lengths: Ints) -> npt.NDArray[np.int32]:
    """int32[n + 1]: where each item begins, and the end of the last. Raises LimitExceeded above 2 GiB."""
    ends = np.cumsum(lengths)
    if len(ends) and ends[-1] > _OFFSET_MAX:
        raise LimitExceeded("a column of one batch has more than 2 GiB")
    return np.concatenate([np.zeros(1, np.int64), ends]).astype(np.int32)


def binary_of(strings: Ragged) -> pa.Array:
    """Byte strings as Arrow; a missing one (length -1) is null."""
    return _from_buffers(strings, pa.binary())


def text_of(strings: Ragged) -> pa.Array:
    """UTF-8 strings as Arrow, decoded as Java does: malformed bytes become U+FFFD. A missing one is null."""
    return _text_as_stored(strings)[0]


def _text_as_stored(strings: Ragged) -> tuple[pa.Array, bool]:
    """The result of `text_of`, and whether all strings are well-formed."""
    array = _from_buffers(strings, pa.string())
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        texts = [java_string(value) for value in strings.tolist()]
        present = (strings.length >= 0).tolist()
        shown = (text if there else None for text, there in zip(texts, present, strict=True))
        return pa.array(shown, pa.string()), False
    return array, True


def few_texts(strings: Ragged, text: Callable[[bytes], str | None] = java_string) -> pa.Array:
    """Like `text_of`, for a column with few different values; `text` is called once for each and decodes it."""
    found = dictionary(strings)
    values = pa.array([text(value) for value in found.values], pa.string())
    return values.take(pa.array(found.ids))


def constant(value: Any, count: int, arrow_type: pa.DataType) -> pa.Array:
    """A column with the same value in every row."""
    value = path_text(value) if isinstance(value, str) else value
    return pa.repeat(pa.scalar(value, arrow_type), count)


def path_text(path: str) -> str:
    """A path, or a text of Java, as valid Unicode: lone surrogates become U+FFFD.

    >>> path_text("caf\\udce9"), path_text("half of a \\ud83d")
    ('caf\ufffd', 'half of a \ufffd')
    """
    return path if path.isascii() else _SURROGATES.sub("\N{REPLACEMENT CHARACTER}", path)


def numbers(column: npt.NDArray[Any], arrow_type: pa.DataType) -> pa.Array:
    """Numbers of any byte order as Arrow, copied: a scan reuses its buffer."""
    return pa.array(column.astype(column.dtype.newbyteorder("="))).cast(arrow_type)


def _from_buffers(strings: Ragged, arrow_type: pa.DataType) -> pa.Array:
    offsets = offsets_of(np.maximum(strings.length, 0))
    packed = strings.packed()
    buffers = [bit_map(strings.length >= 0), pa.py_buffer(offsets), pa.py_buffer(packed.buffer)]
    return pa.Array.from_buffers(arrow_type, len(strings), buffers)


STORE = "store"
DIGEST = "digest"

_SQL = {"i4": "int", "i8": "bigint", "i2": "int", "i1": "int", "u4": "bigint"}
_ARROW = {"int": pa.int32(), "bigint": pa.int64()}
_ROWS_MAX = 1 << 14
"""Rows per batch for Spark; more are no faster."""
_BODY_BYTES_MAX = 32 << 20
"""Bytes of bodies per batch, unless a single body is larger."""


class PropertyPairs(NamedTuple):
    """Names and values of all properties: row of the message, name, value; whether all texts are as stored; the bytes
    of each item with its separators.
    """

    row: Ints
    name: pa.Array
    value: pa.Array
    as_stored: bool
    length: Ints


@dataclass(frozen=True)
class BatchColumns:
    """A batch of one store, and values derived from it that several columns use.

    bodies: decompressed, None if they are shown as stored. raw: bodies are wanted as stored.
    """

    store: str
    batch: Batch
    bodies: Sequence[Body] | None = None
    raw: bool = False

    def __len__(self) -> int:
        return len(self.batch)

    @cached_property
    def items(self) -> PropertyItems:
        return PropertyItems(self.batch.columns.ragged("properties"))

    @cached_property
    def pairs(self) -> PropertyPairs:
        """Names and values of all properties."""
        row, name, value = self.items.pairs()
        (names_, plain), (values, as_stored) = _text_as_stored(name), _text_as_stored(value)
        length = name.length + value.length + len(names.NAME_VALUE_SEPARATOR + names.ITEM_SEPARATOR)
        return PropertyPairs(row, names_, values, plain and as_stored, length)

    def odd_properties(self) -> Flags:
        """bool[n]: whether the properties text may differ from a text made of its names and values."""
        if not self.pairs.as_stored:
            return np.ones(len(self), np.bool_)
        texts, of_items = self.batch.columns.ragged("properties"), self.pairs.length
        odd = self.items.repeated() | self.items.malformed() | self.items.run_together()
        wanted = np.maximum(texts.length, 0)
        if not self.items.ended:
            some = np.flatnonzero(wanted > 0)
            opened = texts.buffer[texts.start[some] + wanted[some] - 1] != names.ITEM_SEPARATOR[0]
            odd[some[opened]] |= self.raw
            wanted = wanted.copy()
            wanted[some[opened]] += 1
        if int(of_items.sum()) != int(wanted.sum()):  # some item is empty
            odd |= np.bincount(self.pairs.row, of_items, len(self)) != wanted
        return odd


class LogColumn(NamedTuple):
    """Its SQL type, its Arrow type, how it is made, and whether it is there if no columns are named."""

    sql: str
    arrow: pa.DataType
    make: Callable[[BatchColumns], pa.Array]
    usual: bool = True


def _numbers(name: str, sql: str) -> LogColumn:
    arrow = _ARROW[sql]
    return LogColumn(sql, arrow, lambda taken: numbers(taken.batch.columns.ints(name), arrow))


def _text(make: Callable[[BatchColumns], pa.Array], usual: bool = True) -> LogColumn:
    return LogColumn("string", pa.string(), make, usual)


def _host(name: str) -> LogColumn:
    """`ip:port`; a batch has few different ones."""

    def make(taken: BatchColumns) -> pa.Array:
        ids, hosts = taken.batch.hosts(name)
        return pa.array([host_text(*host) for host in hosts], pa.string()).take(pa.array(ids))

    return _text(make)


def _property(name: str) -> LogColumn:
    return _text(lambda taken: text_of(taken.items.find(name)))


def _magic_code(taken: BatchColumns) -> pa.Array:
    codes, ids = np.unique(taken.batch.columns.ints("magic_code"), return_inverse=True)
    return pa.array([f"{code:08x}" for code in codes.tolist()], pa.string()).take(pa.array(ids))


def _keys(taken: BatchColumns) -> pa.Array:
    """KEYS split at single spaces, without empty parts; an empty list for a message without KEYS."""
    text = text_of(taken.items.find(names.KEYS))
    parts = pc.split_pattern(text.fill_null(""), names.KEY_SEPARATOR)
    flat, lengths = parts.flatten(), parts.value_lengths().to_numpy(zero_copy_only=False)
    given = pc.greater(pc.binary_length(flat), 0).to_numpy(zero_copy_only=False)
    row = np.repeat(np.arange(len(lengths)), lengths)
    kept = np.bincount(row[given], minlength=len(lengths))
    offsets = pa.array(offsets_of(kept), pa.int32())
    return pa.ListArray.from_arrays(offsets, flat.filter(pa.array(given)))


_MAP = pa.map_(pa.string(), pa.string())


def _properties(taken: BatchColumns) -> pa.Array:
    if taken.items.repeated().any():  # rare: of a name that occurs twice one value counts
        texts = taken.batch.columns.ragged("properties").tolist()
        return pa.array([list(names.parse(text).items()) for text in texts], _MAP)
    pairs = taken.pairs
    offsets = offsets_of(np.bincount(pairs.row, minlength=len(taken)))
    return pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), pairs.name, pairs.value)


def _properties_raw(taken: BatchColumns) -> pa.Array:
    """The properties text; null if the map can rebuild it, as in the JSON of a message."""
    rows = np.flatnonzero(taken.odd_properties())
    if not len(rows):
        return pa.nulls(len(taken), pa.binary())
    found: list[bytes | None] = [None] * len(taken)
    for row, text in zip(rows.tolist(), taken.batch.columns.ragged("properties")[rows].tolist(), strict=True):
        if not rebuilds(names.parse(text), text, any_ending=not taken.raw):
            found[row] = text
    return pa.array(found, pa.binary())


def _message_id(taken: BatchColumns) -> pa.Array:
    columns = taken.batch.columns
    ip, port = columns.ragged("store_host.ip"), columns.ints("store_host.port")
    return binary_of(message_id_column(ip, port, columns.ints("physical_offset"))).view(pa.string())


def _topic_base64(taken: BatchColumns) -> pa.Array:
    """The bytes of the topic; null if its text gives them back, as in the JSON of a message."""
    return few_texts(taken.batch.columns.ragged("topic"), lambda topic: topic_json(topic).get("topic_base64"))


def _body_crc_ok(taken: BatchColumns) -> pa.Array:
    checked = taken.batch.body_crc_ok
    return pa.nulls(len(taken), pa.bool_()) if checked is None else pa.array(checked)


def _digest(taken: BatchColumns) -> pa.Array:
    """Digest of what the producer sent; its CRC is that of the stored body."""
    columns = taken.batch.columns
    crc = columns.ints("body_crc").astype(np.int64)
    if (sound := taken.batch.body_crc_ok) is not None and not sound.all():
        wrong = np.flatnonzero(~sound)
        crc[wrong] = crc31_column(columns.ragged("body")[wrong])
    parts = (
        crc,
        *(columns.ints(name) for name in ("body_length", "flag", "born_timestamp", "born_host.port")),
        digest_column(columns.ragged("born_host.ip")),
        digest_column(_sent_properties(columns.ragged("properties"))),
    )
    return pa.array(mixed(parts).view(np.int64))


def _sent_properties(texts: Ragged) -> Ragged:
    """Properties without what a broker appends: its checksum of the record, a last separator."""
    length = np.maximum(texts.length, 0) - names.CRC_ITEM_BYTES * ends_with_crc_item(texts)
    some = np.flatnonzero(length > 0)
    last = texts.buffer[texts.start[some] + length[some] - 1]
    length[some] -= last == names.ITEM_SEPARATOR[0]
    return Ragged(texts.buffer, texts.start, length)


def _body(taken: BatchColumns) -> pa.Array:
    if taken.bodies is None:
        return binary_of(taken.batch.columns.ragged("body"))
    return pa.array([body.data for body in taken.bodies], pa.binary())


def _body_note(field: str) -> LogColumn:
    def make(taken: BatchColumns) -> pa.Array:
        if taken.bodies is None:
            return pa.nulls(len(taken), pa.string())
        return pa.array([getattr(body, field) or None for body in taken.bodies], pa.string())

    return _text(make, usual=False)


def _columns() -> dict[str, LogColumn]:
    """In the order of `dump`'s JSON."""
    stored = {column.name: _SQL.get(column.type, "") for column in columns_of(MESSAGE)}
    own: dict[str, LogColumn] = {
        "magic_code": _text(_magic_code),
        "born_host": _host("born_host"),
        "store_host": _host("store_host"),
        "topic": _text(lambda taken: few_texts(taken.batch.columns.ragged("topic"))),
        "properties": LogColumn("map<string, string>", _MAP, _properties),
    }
    found = {
        STORE: _text(lambda taken: constant(taken.store, len(taken), pa.string())),
        "position": LogColumn("bigint", pa.int64(), lambda taken: numbers(taken.batch.position, pa.int64())),
    }
    for name, sql in stored.items():
        field = name.partition(".")[0]
        if field in own:
            found.setdefault(field, own[field])
        elif sql and not name.endswith(("topic_length", "properties_length")):
            found[name] = _numbers(name, sql)
    return found | {
        "topic_base64": _text(_topic_base64, usual=False),
        "properties_raw": LogColumn("binary", pa.binary(), _properties_raw),
        "tags": _property(names.TAGS),
        "keys": LogColumn("array<string>", pa.list_(pa.string()), _keys),
        "unique_key": _property(names.UNIQ_KEY),
        "message_id": _text(_message_id),
        BODY_CRC_OK: LogColumn("boolean", pa.bool_(), _body_crc_ok, usual=False),
        BODY: LogColumn("binary", pa.binary(), _body, usual=False),
        "body_compression": _body_note("compression"),
        "body_error": _body_note("error"),
        DIGEST: LogColumn("bigint", pa.int64(), _digest, usual=False),
        RAW: LogColumn("boolean", pa.bool_(), lambda t: constant(t.raw, len(t), pa.bool_()), usual=False),
    }


COLUMNS: Mapping[str, LogColumn] = _columns()
SCHEMA = pa.schema([(name, column.arrow) for name, column in COLUMNS.items()])
USUAL = tuple(name for name, column in COLUMNS.items() if column.usual)
CHECKED = frozenset({BODY_CRC_OK, DIGEST})
"""Columns for which a scan must check bodies."""
_WITH_BODY = (BODY, "body_compression", "body_error")


def rows_of_batch(store: str, batch: Batch, fields: Sequence[str], *, raw: bool = False) -> Iterator[pa.RecordBatch]:
    """The records of a batch as rows of `fields`, names in `COLUMNS`.

    raw: bodies as stored, otherwise decompressed. Memory: one batch of rows; with bodies some 64 MiB of them, or one
    body.
    """
    with_body = any(name in _WITH_BODY for name in fields)
    schema = pa.schema([SCHEMA.field(name) for name in fields])
    for part, bodies in _with_bodies(batch, raw) if with_body else _split(batch, None):
        taken = BatchColumns(store, part, bodies, raw)
        yield pa.RecordBatch.from_arrays([COLUMNS[name].make(taken) for name in fields], schema=schema)


def _with_bodies(batch: Batch, raw: bool) -> Iterator[tuple[Batch, list[Body] | None]]:
    """Parts of a batch with bounded size of bodies, and the bodies, None if they are shown as stored."""
    flags = batch.columns.ints("sys_flag")
    if raw or not (flags & int(SysFlag.COMPRESSED)).any():
        yield from _split(batch, np.maximum(batch.columns.ragged("body").length, 0))
        return
    first, size, bodies = 0, 0, list[Body]()
    stored = batch.columns.ragged("body")
    for row, flag in enumerate(flags.tolist()):
        body = unpack(stored[row], flag)
        if bodies and (size + len(body.data) > _BODY_BYTES_MAX or len(bodies) >= _ROWS_MAX):
            yield batch.take(slice(first, row)), bodies
            first, size, bodies = row, 0, []
        bodies.append(body)
        size += len(body.data)
    if bodies:
        yield batch.take(slice(first, len(batch))), bodies


def _split(batch: Batch, weight: Ints | None) -> Iterator[tuple[Batch, None]]:
    """Parts of a batch with bounded number of rows, and with `weight`, bytes of each body, bounded size."""
    part = np.arange(len(batch)) // _ROWS_MAX
    if weight is not None:
        part = np.maximum(part, np.cumsum(weight) // _BODY_BYTES_MAX)
    edges = [0, *(np.flatnonzero(np.diff(part)) + 1).tolist(), len(batch)]
    for first, behind in pairwise(edges):
        whole = behind - first == len(batch)
        yield batch if whole else batch.take(slice(first, behind)), None
