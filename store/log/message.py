"""One message, as the library and `--format json` show it.

`Mark` says what a record is worth; its texts for people are here, too. Some records stand for lost messages
(formats.tombstone) and belong to no producer or consumer. A body that the producer compressed (spec/01-commitlog.md,
1.3) is shown decompressed, up to a limit: a small body may decompress to any size.

`read_message` reads the record at one position without construct and numpy, so that `get` of one message ends before
these would be imported (`cli/declared.py` has the budget). `CommitLog.records` reads many; a test compares the two.
"""

from __future__ import annotations

import zlib
from binascii import b2a_base64
from enum import IntEnum
from functools import cache, cached_property, lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from ...formats import message_properties as names
from ...formats import quick
from ...formats.hashing import CRC_MASK, java_string, utf8
from ...formats.host import host_text
from ...formats.quick import message_id
from ...formats.sys_flag import COMPRESSION_MASK, TRANSACTION_MASK, SysFlag
from ...formats.tombstone import FILLER_SYS_FLAG, FILLER_TOPIC, LOST, is_filler, is_mark
from ..counted import counted
from ..disk.file_queue import MappedFileQueue, is_zero
from ..errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import numpy.typing as npt

    from ...formats.derive import Columns
    from ...formats.derive.ragged import Flags


MAX_BODY_BYTES = 64 << 20
_COMPRESSED = int(SysFlag.COMPRESSED)
_COMPRESSIONS = {0: "zlib", int(SysFlag.LZ4): "lz4", int(SysFlag.ZSTD): "zstd", int(SysFlag.ZLIB): "zlib"}


class Body(NamedTuple):
    """A body as shown: `data`, its compression ("" if none), and why decompressing failed ("" if it did not).

    too_large: the body is in order as far as it was decompressed, up to the caller's limit.
    """

    data: bytes
    compression: str = ""
    error: str = ""
    too_large: bool = False


def compression_of(sys_flag: int) -> str:
    """`zlib`, `lz4` or `zstd` by the flag, "" for a plain body, and for a type that clients do not know."""
    return _COMPRESSIONS.get(sys_flag & COMPRESSION_MASK, "") if sys_flag & _COMPRESSED else ""


def unpack(stored: bytes, sys_flag: int, max_bytes: int = MAX_BODY_BYTES) -> Body:
    """Return the body as the producer gave it.

    A body that does not decompress as its flag says, or to more than `max_bytes`, is returned as stored, with an error.
    Raises nothing.
    """
    if not (stored and sys_flag & _COMPRESSED):  # clients decompress no empty body
        return Body(stored)
    try:
        return Body(unpack_whole(stored, sys_flag, max_bytes), compression_of(sys_flag))
    except ValueError as error:
        return Body(stored, "", str(error), isinstance(error, BodyTooLarge))


class BodyTooLarge(ValueError):
    """A body decompresses to more bytes than the caller allows."""


def unpack_whole(stored: bytes, sys_flag: int, max_bytes: int = MAX_BODY_BYTES) -> bytes:
    """Decompress a compressed body. Raises ValueError, `BodyTooLarge` for more than `max_bytes`."""
    compression = compression_of(sys_flag)
    if not compression:
        kind = (sys_flag & COMPRESSION_MASK) // int(SysFlag.LZ4)
        raise ValueError(f"has the compression type {kind}, which clients do not know")
    try:
        return _UNPACKERS[compression](stored, max_bytes)
    except BodyTooLarge:
        raise BodyTooLarge(f"decompresses with {compression} to more than {counted(max_bytes, 'byte')}") from None
    except (ValueError, RuntimeError, zlib.error, EOFError, MemoryError) as error:
        raise ValueError(f"does not decompress with {compression}: {error}") from None


def _unpack_zlib(stored: bytes, max_bytes: int) -> bytes:
    unpacker = zlib.decompressobj()
    data = unpacker.decompress(stored, max_bytes + 1)
    if len(data) > max_bytes:
        raise BodyTooLarge
    if not unpacker.eof:
        raise EOFError("the stream is cut")
    return data


def _unpack_lz4(stored: bytes, max_bytes: int) -> bytes:
    import lz4.frame

    return _unpack_frames(stored, max_bytes, lz4.frame.LZ4FrameDecompressor)


def _unpack_zstd(stored: bytes, max_bytes: int) -> bytes:
    import zstandard

    # a stream reader would bound the output, but takes a cut stream for a whole one
    try:
        return _unpack_frames(stored, max_bytes, zstandard.ZstdDecompressor().decompressobj)
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from error


def _unpack_frames(stored: bytes, max_bytes: int, new: Callable[[], Any]) -> bytes:
    """Decompress every frame, as the clients do; those that are to be skipped hold nothing. new: begins a frame."""
    parts, size, frame = [], 0, None
    for at in range(0, len(stored), _STEP_BYTES):
        rest = stored[at : at + _STEP_BYTES]
        while rest:
            frame = frame or new()
            parts.append(frame.decompress(rest))
            size += len(parts[-1])
            if size > max_bytes:
                raise BodyTooLarge
            rest, frame = (frame.unused_data, None) if frame.eof else (b"", frame)
    if frame is not None or not stored:
        raise EOFError("the stream is cut")
    return b"".join(parts)


#: Input bytes per step: with zstd, four bytes can decompress to 128 KiB.
_STEP_BYTES = 512
_UNPACKERS = {"zlib": _unpack_zlib, "lz4": _unpack_lz4, "zstd": _unpack_zstd}


def pack(data: bytes, sys_flag: int) -> bytes:
    """Compress a body as the flag says; return it unchanged if the flag names no compression, or an unknown one.

    Other writers may give other bytes; they decompress to the same body.
    """
    compression = compression_of(sys_flag)
    return _PACKERS[compression](data) if compression else data


_ZLIB_LEVEL = 5
"""The level of the Java client; mostly gives the same bytes."""


def _pack_lz4(data: bytes) -> bytes:
    import lz4.frame

    packed: bytes = lz4.frame.compress(data)
    return packed


def _pack_zstd(data: bytes) -> bytes:
    import zstandard

    return zstandard.ZstdCompressor().compress(data)


_PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "zlib": partial(zlib.compress, level=_ZLIB_LEVEL),
    "lz4": _pack_lz4,
    "zstd": _pack_zstd,
}


class Mark(IntEnum):
    """Where a record lies, as far as that makes a difference; JSON has the names in lower case."""

    NONE = 0
    AFTER_DAMAGE = 1
    DEAD_TAIL = 2
    EARLIER_LIFE = 3
    EMBEDDED = 4


class MarkTexts(NamedTuple):
    """Texts for one mark. label: as in JSON; shown: as in text. next: a command to go on with, or ""."""

    label: str
    shown: str
    found: str
    broker: str
    next: str


@cache
def mark_texts() -> dict[str, MarkTexts]:
    import tomllib
    from pkgutil import get_data

    data = get_data(__package__, "status_texts.toml")
    assert data is not None
    return {name: MarkTexts(name, **row) for name, row in tomllib.loads(data.decode()).items()}


class UndecodableBody(NamedTuple):
    """The body in `row` of some records, and the error of its decompression. put_back: a 4.3.1 broker has put the body
    back decompressed, after a check of its transaction, and left the flag on (B39). too_large: as in `Body`.
    """

    row: int
    error: str
    put_back: bool
    too_large: bool


def undecodable_bodies(columns: Columns) -> Iterator[UndecodableBody]:
    """Yield bodies that do not decompress as their flags say, or to more than MAX_BODY_BYTES."""
    flags, bodies, texts = columns.ints("sys_flag"), columns.ragged("body"), columns.ragged("properties")
    for row in (flags & SysFlag.COMPRESSED).nonzero()[0].tolist():
        if (body := unpack(bodies[row], int(flags[row]))).error:
            put_back = names.TRANSACTION_CHECK_TIMES in names.parse(texts[row])
            yield UndecodableBody(row, body.error, put_back, body.too_large)


def tombstones(columns: Columns) -> Flags:
    """bool[n]: which records of MESSAGE are tombstones. Only those with port 0, which no broker has, are parsed."""
    import numpy as np

    from ...formats.property_columns import find

    found = np.asarray(columns.ints("store_host.port") == 0, np.bool_)
    rows = np.flatnonzero(found)
    if len(rows):
        values = find(columns.ragged("properties")[rows], LOST).tolist()
        found[rows] = [is_mark(value.decode("utf-8", "replace")) for value in values]
    return found


def stand_ins(columns: Columns) -> Flags:
    """bool[n]: of which records of MESSAGE `stand_in` says something: tombstones and fillers."""
    fillers: Flags = columns.ragged("topic").equals(FILLER_TOPIC) & (columns.ints("store_host.port") == 0)
    fillers &= columns.ints("sys_flag") & TRANSACTION_MASK == FILLER_SYS_FLAG
    return fillers | tombstones(columns)


TOMBSTONE, FILLER = "tombstone", "filler"
"""What a record is that `recover` wrote in place of a lost one; its mark in JSON."""


def stand_in(store_port: int, topic: bytes, sys_flag: int, properties: Mapping[str, str]) -> str:
    """TOMBSTONE or FILLER, "" for a record that a broker stored: no broker has port 0."""
    if store_port:
        return ""
    if is_filler(topic, sys_flag):
        return FILLER
    return TOMBSTONE if is_mark(properties.get(LOST, "")) else ""


_BATCH_BITS = int(SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP)
FORMS = _BATCH_BITS | int(SysFlag.COMPRESSED)
"""Flags of bodies that are not shown as stored."""

#: Members that a mark adds to the JSON of a message.
MARKS: dict[Mark, dict[str, Any]] = {
    Mark.NONE: {},
    Mark.AFTER_DAMAGE: {"after_damage": True},
    Mark.DEAD_TAIL: {"stale": "dead_tail"},
    Mark.EARLIER_LIFE: {"stale": "earlier_life"},
    Mark.EMBEDDED: {"stale": "embedded"},
}


class _Fields(NamedTuple):
    """Fields of a message: a tuple, since a scan makes many of them."""

    position: int
    total_size: int
    magic_code: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_timestamp: int
    born_host: tuple[bytes, int]
    store_timestamp: int
    store_host: tuple[bytes, int]
    reconsume_times: int
    prepared_transaction_offset: int
    stored_body: bytes
    raw_topic: bytes
    raw_properties: bytes
    body_crc_ok: bool | None = None
    mark: Mark = Mark.NONE
    inner: InnerMessage | None = None


class InnerMessage(NamedTuple):
    """Place of a message in a batch record. number: from 0 on."""

    record: Message
    number: int
    batch_size: int


class Message(_Fields):
    """One record of the commit log, or a message inside of a batch record; names and units as in `formats.message`.

    `position` is where the record was found, `physical_offset` the position that the record itself names.
    `stored_body`, `raw_topic` and `raw_properties` are the bytes on disk. Hosts are (ip, port). `body_crc_ok` is None
    if the CRC was not computed. A message inside of a batch record (`inner`) has its own flag, queue_offset,
    stored_body and raw_properties; everything else is the record's.
    """

    def __repr__(self) -> str:
        place = f"{self.topic}/{self.queue_id} at {self.queue_offset}"
        return f"Message({place!a}, position {self.position}, {counted(self.total_size, 'byte')})"

    @property
    def topic(self) -> str:
        """Topic as text; invalid UTF-8 becomes U+FFFD."""
        return java_string(self.raw_topic)

    @cached_property
    def properties(self) -> dict[str, str]:
        """Properties as Java reads them: the last of duplicates, items without a value dropped."""
        return names.parse(self.raw_properties)

    @property
    def tags(self) -> str | None:
        """TAGS, None if there are none."""
        return self.properties.get(names.TAGS)

    @property
    def keys(self) -> list[str]:
        """The parts of KEYS."""
        text = self.properties.get(names.KEYS, "")
        return [key for key in text.split(names.KEY_SEPARATOR) if key]

    @property
    def unique_key(self) -> str | None:
        """UNIQ_KEY, the id that the client gave; None if there is none."""
        return self.properties.get(names.UNIQ_KEY)

    def has_unique_key(self, key: str) -> bool:
        """Whether the client gave this id to the message, or to the batch that it was sent with: brokers 5.1 and 5.3
        add the batch's UNIQ_KEY behind the message's own (B13).
        """
        return self.unique_key == key or names.has_item(self.raw_properties, names.UNIQ_KEY, key)

    @property
    def message_id(self) -> str:
        """The id that the broker gave: its address and the position, in upper-case hex."""
        ip, port = self.store_host
        return message_id(ip, port, self.physical_offset)

    @property
    def stand_in(self) -> str:
        """What it is if `recover` wrote it in place of a lost one, see the function of this name."""
        return stand_in(self.store_host[1], self.raw_topic, self.sys_flag, self.properties)

    def is_of(self, topic: str) -> bool:
        """Whether the message was stored under the topic, or dispatched to it besides (spec 2.9)."""
        if self.raw_topic == utf8(topic):
            return True
        return topic in self.properties.get(names.INNER_MULTI_DISPATCH, "").split(",")

    def body(self, max_bytes: int = MAX_BODY_BYTES) -> Body:
        """The body as the producer gave it, see `unpack`."""
        if self.inner is not None:  # the batch was compressed, and has been taken apart
            return Body(self.stored_body, compression_of(self.sys_flag))
        return unpack(self.stored_body, self.sys_flag, max_bytes)

    def to_json(self, *, raw: bool = False, max_body: int = MAX_BODY_BYTES) -> dict[str, Any]:
        """The message as a JSON object. `raw`: the body as stored. `max_body`: limit of a decompressed body (bytes)."""
        properties = self.properties
        record: dict[str, Any] = {"type": "message", "physical_offset": self.physical_offset}
        if self.position != self.physical_offset:
            record["position"] = self.position
        record |= {
            "total_size": self.total_size,
            "magic_code": f"{self.magic_code:08x}",
            "body_crc": self.body_crc,
            "body_crc_ok": self.body_crc_ok,
            "queue_id": self.queue_id,
            "flag": self.flag,
            "queue_offset": self.queue_offset,
            "sys_flag": self.sys_flag,
            "born_timestamp": self.born_timestamp,
            "born_host": host_text(*self.born_host),
            "store_timestamp": self.store_timestamp,
            "store_host": host_text(*self.store_host),
            "reconsume_times": self.reconsume_times,
            "prepared_transaction_offset": self.prepared_transaction_offset,
            **topic_json(self.raw_topic),
            "properties": properties,
            **self._raw_properties(raw),
            "tags": properties.get(names.TAGS),
            "keys": self.keys,
            "unique_key": properties.get(names.UNIQ_KEY),
            "message_id": self.message_id,
            **({"body_base64": _base64(self.stored_body), "raw": True} if raw else self._shown_body(max_body)),
            **MARKS[self.mark],
            **({mark: True} if (mark := self.stand_in) else {}),
            **self._in_batch(),
        }
        return record

    def _in_batch(self) -> dict[str, Any]:
        """JSON members of a message inside of a batch record: its number, and the record's flag and properties."""
        if self.inner is None:
            return {}
        record, number, count = self.inner
        own = {"flag": record.flag, "properties": record.properties}
        return {"inner_number": number, "batch_size": count, "batch_record": own | record._raw_properties(raw=False)}

    def _raw_properties(self, raw: bool) -> dict[str, Any]:
        """`properties_raw`, or its Base64, where the stored text cannot be rebuilt from `properties`."""
        if rebuilds(self.properties, self.raw_properties, any_ending=not raw):
            return {}
        return _text_or_base64("properties_raw", self.raw_properties)

    def _shown_body(self, max_body: int) -> dict[str, Any]:
        if not self.sys_flag & FORMS:
            return _text_or_base64("body", self.stored_body)
        body = self.body(max_body)
        shown = _text_or_base64("body", body.data)
        if body.compression:
            shown["body_compression"] = body.compression
        if error := body.error or self._batch_error(body.data):
            shown["body_error"] = f"{error} (--max-body)" if body.too_large else error
        return shown

    def _batch_error(self, body: bytes) -> str:
        """Why a batch record is shown instead of its messages; "" if it can be taken apart, or is no batch record."""
        if self.inner is not None or not is_batch_record(self.sys_flag):
            return ""
        from ...formats.client_batch import starts_of

        try:
            starts_of(body)
        except ValueError as error:
            return f"is not a batch of messages: {error}"
        return ""


@overload
def is_batch_record(sys_flag: int) -> bool: ...
@overload
def is_batch_record(sys_flag: npt.NDArray[Any]) -> Flags: ...
def is_batch_record(sys_flag: Any) -> Any:
    """Whether clients take a record apart, which they do if both bits are set; for columns bool[n]."""
    return sys_flag & _BATCH_BITS == _BATCH_BITS


def _text_or_base64(name: str, data: bytes) -> dict[str, Any]:
    try:
        return {name: data.decode("utf-8")}
    except UnicodeDecodeError:
        return {f"{name}_base64": _base64(data)}


def _base64(data: bytes) -> str:
    return b2a_base64(data, newline=False).decode("ascii")


@lru_cache(maxsize=4096)
def topic_json(stored: bytes) -> dict[str, str]:
    """JSON members of a topic: text, with Base64 if it is not UTF-8. The result is cached: do not change it."""
    try:
        return {"topic": stored.decode("utf-8")}
    except UnicodeDecodeError:
        return {"topic": java_string(stored), "topic_base64": _base64(stored)}


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def rebuilds(properties: dict[str, str], stored: bytes, *, any_ending: bool) -> bool:
    """Whether `stored` can be rebuilt from `properties` (`any_ending`: except for a last separator)."""
    ended = stored.endswith(names.ITEM_SEPARATOR) or not stored
    items = stored.count(names.ITEM_SEPARATOR) + (not ended)
    plain = items == stored.count(names.NAME_VALUE_SEPARATOR) == len(properties)
    if plain and (ended or any_ending) and _is_utf8(stored):
        return True  # no item was dropped, no name is there twice
    try:
        text = names.format_properties(properties)
    except ValueError:
        return False
    return stored == text or (any_ending and stored == text[: -len(names.ITEM_SEPARATOR)])


_PEEK_BYTES = 4096
"""Size of the first read; only a larger record takes a second read."""


def read_message(log: MappedFileQueue, position: int) -> Message:
    """Read the whole record that begins at a position of the log.

    A record with a wrong body CRC is returned: see `Message.body_crc_ok`. Raises NotFound if no whole record begins
    there, Unreadable.
    """
    file = log.file_at(position)
    if file is None:
        raise _in_no_file(log, position)
    at = position - file.start
    data = log.readable(file, at, _PEEK_BYTES, quick.SMALLEST)
    if len(data) >= quick.SMALLEST:
        size = quick.total_size(data)
        if len(data) < size <= file.size - at:
            data = log.readable(file, at, size, size)
        if quick.SMALLEST <= size <= len(data):
            message = _message(data[:size], position)
            if message is not None:
                return message
    never = ": zeros, nothing was written" if is_zero(data) else ""
    raise NotFound(f"no record begins here{never}", path=file.path, offset=at)


def _in_no_file(log: MappedFileQueue, position: int) -> NotFound:
    """The error that says why no log file has a position."""
    if not log.files:
        return NotFound("no log file holds this position: there are no log files", offset=position)
    why, path = f"the log has {log.start} to {log.end}", None
    before = [file for file in log.files if file.start <= position]
    if position < log.end and before:
        why = "a file is missing"
    for file in before:
        if position < file.end:  # longer than the others: the next file begins before this one's end
            why, path = (f"bytes of a file behind its first {counted(log.file_size, 'byte')} do not count", file.path)
    return NotFound(f"no log file holds this position: {why}", path=path, offset=position)


def _message(data: bytes, position: int) -> Message | None:
    """The message in `data`; None if its fields do not add up to exactly these bytes."""
    found = quick.message(data)
    if found is None:
        return None
    body = found["body"]
    return Message(
        position=position,
        born_host=(found["born_host.ip"], found["born_host.port"]),
        store_host=(found["store_host.ip"], found["store_host.port"]),
        stored_body=body,
        raw_topic=found["topic"],
        raw_properties=found["properties"],
        body_crc_ok=not body or zlib.crc32(body) & CRC_MASK == found["body_crc"],
        **{name: found[name] for name in _COPIED_FIELDS},
    )


_BEFORE_BODY: tuple[str, ...] = Message._fields[1 : Message._fields.index("stored_body")]
_COPIED_FIELDS = tuple(name for name in _BEFORE_BODY if not name.endswith("_host"))
"""Fields that `Message` has under the same names and with the same values as `quick.message`."""
