"""The property text of a message: `name 01 value 02`, repeated (spec/01-commitlog.md, 1.6, 1.7).

There is no escaping: names and values cannot contain these two bytes. Writers of 4.9.1 to 5.1.x leave out the last 02.
Readers since 4.9.1 drop an item without a name or a value, and take the last of duplicates.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from .hashing import crc31, java_string, utf8

NAME_VALUE_SEPARATOR: Final = b"\x01"
ITEM_SEPARATOR: Final = b"\x02"
_NAME_VALUE_SEPARATOR: Final = NAME_VALUE_SEPARATOR.decode()
_ITEM_SEPARATOR: Final = ITEM_SEPARATOR.decode()

KEYS: Final = "KEYS"
TAGS: Final = "TAGS"
UNIQ_KEY: Final = "UNIQ_KEY"
WAIT: Final = "WAIT"
DELAY: Final = "DELAY"
REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QID: Final = "REAL_QID"
TRAN_MSG: Final = "TRAN_MSG"
PGROUP: Final = "PGROUP"
TRANS_OFFSET: Final = "TRANS_OFFSET"
"""In an op record of transactions in a RocksDB: the position of the half message that was decided."""
FIRST_HALF: Final = "TRAN_PREPARED_QUEUE_OFFSET"
"""In a half message that a broker rewrote before a check: the queue offset of the first one, -1 for none."""
INNER_NUM: Final = "INNER_NUM"
INNER_BASE: Final = "INNER_BASE"
NUMBER_BITS: Final = {DELAY: 32, INNER_NUM: 16, INNER_BASE: 64, REAL_QID: 32}
"""Properties that a broker reads as numbers, and their bits: its check of a record all but the last."""
INNER_MULTI_DISPATCH: Final = "INNER_MULTI_DISPATCH"
INNER_MULTI_QUEUE_OFFSET: Final = "INNER_MULTI_QUEUE_OFFSET"
LITE_TOPIC: Final = "__LITE_TOPIC"
TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
TIMER_DELAY_SEC: Final = "TIMER_DELAY_SEC"
TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
TIMER_OUT_MS: Final = "TIMER_OUT_MS"
TIMER_DEL_UNIQKEY: Final = "TIMER_DEL_UNIQKEY"
TIMER_ROLL_TIMES: Final = "TIMER_ROLL_TIMES"
TRANSACTION_CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
DUP_INFO: Final = "DUP_INFO"
RETRY_TOPIC: Final = "RETRY_TOPIC"
DLQ_ORIGIN_TOPIC: Final = "DLQ_ORIGIN_TOPIC"
ORIGIN_GROUP: Final = "ORIGIN_GROUP"
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
"""In a retry message or dead letter: topic, group (POP), and the id that a broker gave to the message before."""
RETRY_PREFIX: Final = "%RETRY%"
"""Prefix of topics with messages that are redelivered to a group."""
CRC32: Final = "__CRC32#"
CRC_ITEM_HEAD: Final = CRC32.encode() + NAME_VALUE_SEPARATOR

#: Separates the keys in KEYS.
KEY_SEPARATOR: Final = " "
#: Bytes of the whole-record CRC item: name, 01, ten digits, 02 (spec 1.7).
CRC_DIGITS: Final = 10
CRC_DIGITS_AT: Final = len(CRC32) + 1
CRC_ITEM_BYTES: Final = CRC_DIGITS_AT + CRC_DIGITS + 1

NUL: Final = b"\0"
_ZERO_BLOCK: Final = bytes(512)
"""A disk loses bytes in blocks of at least this size."""


def parse(text: bytes) -> dict[str, str]:
    """Properties as Java reads them since 4.9.1; invalid UTF-8 becomes U+FFFD."""
    items = java_string(text).split(_ITEM_SEPARATOR)
    if not items[-1]:
        items.pop()
    try:
        found = dict([item.split(_NAME_VALUE_SEPARATOR, 1) for item in items])
    except ValueError:  # an item without a separator
        return _parse_odd(items)
    return _parse_odd(items) if "" in found or "" in found.values() else found


def _parse_odd(items: list[str]) -> dict[str, str]:
    """`parse` for items of which some lack a name, a value or a separator: those are dropped."""
    found: dict[str, str] = {}
    for item in items:
        name, _, value = item.partition(_NAME_VALUE_SEPARATOR)
        if name and value:
            found[name] = value
    return found


def has_item(text: bytes, name: str, value: str) -> bool:
    """Whether an item has this name and value, also if it is not the last one of that name, which readers take."""
    item = ITEM_SEPARATOR + name.encode() + NAME_VALUE_SEPARATOR + utf8(value) + ITEM_SEPARATOR
    return value != "" and item in ITEM_SEPARATOR + text + ITEM_SEPARATOR


def is_torn(text: bytes) -> bool:
    """Whether a property text ends in zeros or contains a block of zeros, as a torn write leaves it (spec 1.6)."""
    return text.endswith(NUL) or _ZERO_BLOCK in text


def has_lost_items(text: bytes) -> bool:
    """Whether a property text is torn, or has a NUL outside of an item; clients may put one into a name or value."""
    return is_torn(text) or any(NUL in item and not is_item(item) for item in text.split(ITEM_SEPARATOR))


def is_item(text: bytes) -> bool:
    """Whether a text is a name and a value in UTF-8, neither only of several zeros, and without a block of zeros."""
    name, _, value = text.partition(NAME_VALUE_SEPARATOR)
    zeros = any(len(part) > 1 and not part.strip(NUL) for part in (name, value))
    if not name or not value or zeros or NAME_VALUE_SEPARATOR in value or _ZERO_BLOCK in text:
        return False
    with suppress(UnicodeDecodeError):
        return bool(text.decode())
    return False


def format_properties(properties: dict[str, str], *, final_separator: bool = True) -> bytes:
    """Property text in the order of the dict.

    Raises ValueError for a name or value that is empty or contains a separator.
    """
    count = len(properties)
    text = _ITEM_SEPARATOR.join([f"{n}{_NAME_VALUE_SEPARATOR}{v}" for n, v in properties.items()])
    counts = (text.count(_NAME_VALUE_SEPARATOR), text.count(_ITEM_SEPARATOR))
    if counts == (count, count - 1) and "" not in properties and "" not in properties.values():
        with suppress(UnicodeEncodeError):
            return f"{text}{_ITEM_SEPARATOR}".encode() if final_separator else text.encode()
    for name, value in properties.items():
        for part, what in ((name, "name"), (value, "value")):
            if not part:
                raise ValueError(f"property {name!r}: empty {what}")
            if "\x01" in part or "\x02" in part:
                raise ValueError(f"property {name!r}: {what} holds a separator (01 or 02)")
        for part in (name, value):
            part.encode()  # raises for a lone surrogate
    return b""


def with_value(text: bytes, name: str, value: str, *, final_separator: bool = True) -> bytes:
    """The text with the old value of a name replaced, or with a new item at the end.

    Other items stay as they are. A new item goes before a `__CRC32#` at the end.
    """
    tail = text[-CRC_ITEM_BYTES:] if ends_with_crc(text) else b""
    head = name.encode() + NAME_VALUE_SEPARATOR
    items = [item for item in text[: len(text) - len(tail)].split(ITEM_SEPARATOR) if item]
    places = [i for i, item in enumerate(items) if item.startswith(head)]
    item = head + value.encode()
    if places:
        items[places[-1]] = item
    else:
        items.append(item)
    joined = ITEM_SEPARATOR.join(items)
    return joined + ITEM_SEPARATOR + tail if final_separator or tail else joined


def crc_item(record_before: bytes) -> bytes:
    """The `__CRC32#` item of a record, from all its bytes before the item (spec 1.7)."""
    digits = f"{crc31(record_before):0{CRC_DIGITS}d}"[::-1]
    return CRC_ITEM_HEAD + digits.encode() + ITEM_SEPARATOR


def with_crc_item(record: bytes) -> bytes:
    """The record with its last bytes replaced by its `__CRC32#` item."""
    return record[:-CRC_ITEM_BYTES] + crc_item(record[:-CRC_ITEM_BYTES])


def without_crc(properties: bytes) -> tuple[bytes, bool]:
    """(property text without a `__CRC32#` at its end, whether it had one)."""
    has = ends_with_crc(properties)
    return (properties[:-CRC_ITEM_BYTES] if has else properties), has


def ends_with_crc(properties: bytes) -> bool:
    """Whether the last item of a property text is a `__CRC32#` (spec 1.7)."""
    return properties[-CRC_ITEM_BYTES:].startswith(CRC_ITEM_HEAD)


def crc_ok(record: bytes) -> bool | None:
    """Whether the CRC of the whole record matches; None if the record has none."""
    item = record[-CRC_ITEM_BYTES:]
    if not item.startswith(CRC_ITEM_HEAD):
        return None
    return item == crc_item(record[:-CRC_ITEM_BYTES])
