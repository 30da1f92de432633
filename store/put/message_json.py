"""A message from its JSON object, which `dump` prints and `put --from` reads (`mqstore put --help`), or from a row."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from ...formats import message_properties as names
from ...formats.hashing import crc31, utf8
from ...formats.host import PORT_MAX, host_of
from ...formats.message import PROPERTIES_BYTES_MAX
from ...formats.sys_flag import COMPRESSION_MASK
from ..broker.system_topics import OP_TOPIC
from ..broker.topics import now_ms
from ..errors import InvalidInput
from ..log.message import FILLER, FORMS, TOMBSTONE, stand_in
from .new_message import (
    COMPRESSED,
    COPIED,
    NO_TIME,
    NUMBER_LIMITS,
    STORE,
    NewBatch,
    NewMessage,
    NoKeys,
    UniqueKeys,
    encoded,
    stored_body_of,
    wrong_crc,
)

NO_PORT = ":0"
"""How the `store_host` of tombstones and fillers ends."""
BATCH = "batch"
"""The field with messages that a client sends together."""
INNER = "inner_messages"
"""The field with the messages inside a batch record; the fields next to it are those of the record."""
_OF_REQUEST: dict[str, int | None] = {
    **dict.fromkeys(("topic", "topic_base64", "born_timestamp", "born_host")),
    **dict.fromkeys(("queue_id", "sys_flag", "reconsume_times", "prepared_transaction_offset"), 0),
}
"""The fields of a batch that its messages do not have for themselves, and their defaults."""
BATCH_BITS = FORMS | COMPRESSION_MASK
"""Flags of a batch record that its messages do not have."""


def is_message(record: Mapping[str, Any]) -> bool:
    """Whether a record of `dump` is a message of the log: no damage, BLANK, stale record, tombstone or filler."""
    return record.get("type", "message") == "message" and "stale" not in record and not stand_in_of(record)


def stand_in_of(record: Mapping[str, Any]) -> str:
    """`stand_in` of a record of `dump`, by its mark, or of a row, which has none, by host and properties. "" also for
    a tombstone of an op record: it still decides transactions, so it is copied.
    """
    host, topic, properties = (record.get(name) for name in ("store_host", "topic", "properties"))
    if topic == OP_TOPIC:
        return ""
    for mark in (TOMBSTONE, FILLER):
        if record.get(mark) is True:
            return mark
    if not (isinstance(host, str) and host.endswith(NO_PORT) and isinstance(properties, Mapping)):
        return ""
    flags = record.get("sys_flag")
    return stand_in(0, utf8(str(topic)), flags if isinstance(flags, int) else 0, properties)


def is_corrupted(record: Mapping[str, Any]) -> bool:
    """Whether the body failed its checksum where it was read. Raises InvalidInput if that is neither true nor false."""
    ok = record.get("body_crc_ok")
    if ok is not None and not isinstance(ok, bool):
        raise InvalidInput(f"body_crc_ok: neither true nor false: {ok!r}")
    return ok is False


def require_checksum(body: bytes, crc: object) -> None:
    """Refuse a text that is not the body which had this checksum: some programs write bytes as a text that stands for
    them. Not for a body that was compressed, which may be compressed in another way here. Raises InvalidInput.
    """
    if body and type(crc) is int and crc31(body) != crc:
        shown = body[:_SHOWN_BYTES].decode("utf-8", "replace") + ("…" if len(body) > _SHOWN_BYTES else "")
        raise InvalidInput(
            f"body: not the body whose body_crc is {crc}: {shown!r}",
            hint="JSON and CSV of other programs may have bytes as Base64, '[47 72]' or '\\xC3': write Parquet, or name"
            " a column of Base64 body_base64; for a body that was changed leave out body_crc",
        )


_SHOWN_BYTES = 40


class MessageReader:
    """Makes messages from JSON objects.

    final_separator: whether properties end with a separator, as in the broker generation. keep_times: take
    store_timestamp. A message that never had a unique key (`"unique_key": null`) gets none, nor does a raw one. A body
    that failed its checksum keeps a checksum that fails.
    """

    def __init__(
        self, keys: UniqueKeys | NoKeys, *, keep_times: bool = False, clock: Callable[[], int] = now_ms
    ) -> None:
        self.final_separator = True
        self.keep_times = keep_times
        #: whether batches of a topic are stored whole; then their requests have their own unique key
        self.is_batch_topic: Callable[[bytes], bool] = lambda topic: False
        self._keys = keys
        self._clock = clock
        self._stores: dict[str, int] = {}

    def message(self, record: Mapping[str, Any]) -> NewMessage:
        """The message. Raises InvalidInput for an invalid field."""
        if INNER in record:
            return self.rejoined(record)
        if "inner_number" in record:
            return self.alone(record)
        message = self._with_compressed(record, _text(record, "body"))
        if record.get("body_base64") is None and not is_corrupted(record) and not message.sys_flag & COMPRESSED:
            require_checksum(message.body, record.get("body_crc"))
        return message

    def with_body(self, record: Mapping[str, Any], body: bytes) -> NewMessage:
        """The message with the given stored body instead of the object's."""
        numbers = ((name, _number(record, name)) for name in NUMBER_LIMITS if name in record)
        given = {name: value for name, value in numbers if value is not None}
        store_timestamp = given.pop("store_timestamp", None)
        given.setdefault("born_timestamp", self._clock())
        host = record.get("born_host")
        return NewMessage(
            topic=_text(record, "topic"),
            body=body,
            properties=self._properties(record),
            born_host=NewMessage.born_host if host is None else parse_host(host, "born_host"),
            store_timestamp=store_timestamp if self.keep_times else None,
            wrong_crc=wrong_crc(body, record.get("body_crc")) if is_corrupted(record) else None,
            store=self.store_number(record.get(STORE)),
            **given,
            **{name: _copied_offset(record.get(name)) for name in COPIED},
        )

    def _with_compressed(self, record: Mapping[str, Any], body: bytes) -> NewMessage:
        """The message with a body that is compressed as the object says."""
        sys_flag = _number(record, "sys_flag")
        body, flags = stored_body_of(record, body, sys_flag)
        given = record if flags == (sys_flag or 0) else {**record, "sys_flag": flags}
        return self.with_body(given, body)

    def batch(self, record: Mapping[str, Any]) -> NewBatch:
        """A request that a client sends: the messages in `batch`, and the fields that apply to all of them.

        Raises InvalidInput for an invalid field.
        """
        found = _objects(record, BATCH)
        if "body" in record or "body_base64" in record:
            raise InvalidInput(f"{BATCH}: its messages have bodies, it has none")
        for name, default in _OF_REQUEST.items():
            for_all = default if record.get(name) is None else record[name]
            if any(each.get(name) not in (None, for_all) for each in found):
                raise InvalidInput(f'{name} is the same for all messages of a {BATCH}: put it beside "{BATCH}"')
        if any(each.get("body_compression") is not None for each in found):
            raise InvalidInput(f"{BATCH}: the bodies of its messages are not compressed one by one")
        given = {"topic": record.get("topic"), "topic_base64": record.get("topic_base64")}
        topic = {name: value for name, value in given.items() if value is not None}
        messages = tuple(self.message({**each, **topic}) for each in found)
        request = {name: value for name, value in record.items() if name not in COPIED}
        if not self.is_batch_topic(_text(record, "topic")):
            request.setdefault("unique_key", None)
        return NewBatch(self.with_body(request, b""), messages)

    def rejoined(self, record: Mapping[str, Any]) -> NewMessage:
        """The batch record whose messages are in `inner_messages`.

        Raises InvalidInput for an invalid field.
        """
        rows = _objects(record, INNER)
        parts = tuple(self.with_body(each, _text(each, "body")) for each in rows)
        if any(len(part.properties) > PROPERTIES_BYTES_MAX for part in parts):
            raise InvalidInput(f"properties of more than {PROPERTIES_BYTES_MAX} bytes")
        body = encoded(NewBatch(NewMessage(b"", b""), parts))
        own = {"unique_key": None, **record}
        found = _property_map(record.get("properties"))
        if found.get(names.INNER_NUM) != str(len(parts)):  # some messages were left out
            own = {n: value for n, value in own.items() if not n.startswith("properties_raw")}
            own["properties"] = found | {names.INNER_NUM: str(len(parts))}
        return self._with_compressed(own, body)

    def alone(self, record: Mapping[str, Any]) -> NewMessage:
        """A message from inside a batch record, as a record of its own. Raises InvalidInput."""
        sys_flag = _number(record, "sys_flag") or 0
        kept = {name: value for name, value in record.items() if name != "body_compression"}
        return self.with_body(kept | {"sys_flag": sys_flag & ~BATCH_BITS}, _text(record, "body"))

    def default(self, name: str) -> int:
        """The default of a number in `NUMBER_LIMITS`."""
        return {"born_timestamp": self._clock(), "store_timestamp": NO_TIME}.get(name, 0)

    def store_number(self, name: object) -> int:
        """A number for the store that a message was read from, -1 if unknown."""
        return -1 if name is None else self._stores.setdefault(str(name), len(self._stores))

    def new_key(self) -> str:
        """A unique key for a message without one."""
        return self._keys.next()

    def _properties(self, record: Mapping[str, Any]) -> bytes:
        for name in ("properties_raw", "properties_raw_base64"):
            if record.get(name) is not None:
                return _text(record, "properties_raw")
        found = _property_map(record.get("properties"))
        raw = record.get("raw") is True
        if not raw:
            self._add_fields(found, record)
        try:
            ended = raw or self.final_separator
            return names.format_properties(found, final_separator=ended)
        except UnicodeEncodeError as error:
            raise InvalidInput(f"properties: half a surrogate pair: {error.object!r}") from None
        except ValueError as error:
            raise InvalidInput(str(error)) from None

    def _add_fields(self, found: dict[str, str], record: Mapping[str, Any]) -> None:
        """Add keys, tags and unique key given as fields, if the properties lack them."""
        keys = record.get("keys")
        if isinstance(keys, list) and all(isinstance(key, str) for key in keys):
            keys = names.KEY_SEPARATOR.join(keys)
        for name, value in ((names.KEYS, keys), (names.TAGS, record.get("tags"))):
            if value is None or value == "":
                continue
            if not isinstance(value, str):
                raise InvalidInput(f"{name.lower()}: not text: {value!r}")
            found.setdefault(name, value)
        if names.UNIQ_KEY not in found and record.get("unique_key", "") is not None:
            found[names.UNIQ_KEY] = str(record.get("unique_key") or self._keys.next())


def parse_host(text: object, what: str) -> tuple[bytes, int]:
    """(ip, port) of `ip:port`, with a port that consumers accept. Raises InvalidInput."""
    if not isinstance(text, str):
        raise InvalidInput(f"{what}: not ip:port: {text!r}")
    try:
        ip, port = host_of(text)
    except ValueError as error:
        raise InvalidInput(f"{what}: {error}") from None
    if not 0 <= port <= PORT_MAX:
        raise InvalidInput(f"{what}: not a port from 0 to {PORT_MAX}: {text!r}")
    return ip, port


def _objects(record: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    found = record[name]
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise InvalidInput(f"{name}: not a list of objects: {found!r}")
    return found


def _copied_offset(value: object) -> int:
    """An offset of the record that a message was copied from; -1 if the value is not one."""
    return value if type(value) is int and 0 <= value < 1 << 63 else -1


def _number(record: Mapping[str, Any], name: str) -> int | None:
    value = record.get(name)
    if value is None:
        return None
    least, largest = NUMBER_LIMITS[name]
    if type(value) is not int or not least <= value <= largest:
        raise InvalidInput(f"{name}: not a whole number from {least} to {largest}: {value!r}")
    return value


def _text(record: Mapping[str, Any], name: str) -> bytes:
    """A text field as bytes; `NAME_base64` has them instead if they are not valid UTF-8."""
    if record.get(f"{name}_base64") is not None:
        return _decoded(record[f"{name}_base64"], f"{name}_base64")
    value = record.get(name)
    if not isinstance(value, str):
        raise InvalidInput(f"{name}: missing" if value is None else f"{name}: not text: {value!r}")
    try:
        return value.encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidInput(f"{name}: half a surrogate pair: {value!r}") from None


def _decoded(value: object, name: str) -> bytes:
    if not isinstance(value, str):
        raise InvalidInput(f"{name}: not text: {value!r}")
    try:
        return base64.b64decode(value, validate=True)
    except (ValueError, binascii.Error) as error:
        raise InvalidInput(f"{name}: not base64: {error}") from None


def _property_map(value: object) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InvalidInput(f"properties: not an object: {value!r}")
    for name, item in value.items():
        if not isinstance(item, str):
            raise InvalidInput(f"properties: {name}: not text: {item!r}")
    return dict(value)


_EPOCH = datetime.fromtimestamp(0, UTC)


def record_of(row: dict[str, Any], number: int) -> dict[str, Any]:
    """A row as its NDJSON record would be. Raises InvalidInput."""
    record: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, bytes) and name in ("topic", "body", "properties_raw"):
            record[f"{name}_base64"] = base64.b64encode(value).decode()
        elif name.endswith("_timestamp") and hasattr(value, "timestamp"):
            # a time without a zone is in UTC, as in columns
            time = value if value.tzinfo else value.replace(tzinfo=UTC)
            record[name] = (time - _EPOCH) // timedelta(milliseconds=1)
        elif name == "properties" and value is not None:
            record[name] = _properties_of_cell(value, number)
        elif value is not None or name == "unique_key":
            record[name] = value
    return record


def _properties_of_cell(value: Any, number: int) -> Any:
    """Properties given as a map, an object or JSON text. Raises InvalidInput."""
    if isinstance(value, str):
        try:
            return json.loads(value)
        except (ValueError, RecursionError) as error:
            raise InvalidInput(f"row {number}: properties: {error}") from None
    try:
        found = dict(value)
    except (TypeError, ValueError):
        raise InvalidInput(f"row {number}: properties: {type(value).__name__} is not a map") from None
    return {name: item for name, item in found.items() if item is not None}
