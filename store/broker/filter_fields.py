"""The fields of a record that an expression can name with `@`, beside the properties.

Names are those of the message as JSON. Whole numbers are numbers, the rest is text as shown there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ...formats import message_properties as names
from ...formats.derive import columns_of
from ...formats.host import host_text
from ...formats.message import MESSAGE
from .filter_values import Value, Whole

if TYPE_CHECKING:
    from ..log.message import Message

#: Shown as text, or about the frame only.
_NO_NUMBERS = ("magic_code", "topic_length", "properties_length")
NUMBERS: Final = (
    "position",
    *(
        column.name
        for column in columns_of(MESSAGE)
        if column.type != "bytes" and "." not in column.name and column.name not in _NO_NUMBERS
    ),
)
CRC_OK: Final = "body_crc_ok"
FIELDS: Final = (
    *NUMBERS,
    CRC_OK,
    "topic",
    "born_host",
    "store_host",
    "message_id",
    "magic_code",
)
#: Fields that are properties under another name.
PROPERTIES: Final = {"tags": names.TAGS, "keys": names.KEYS, "unique_key": names.UNIQ_KEY}


def value_of(message: Message, field: str) -> Value:
    """The field of one message."""
    if field == "body_length":
        return Whole(len(message.stored_body))
    if field == "magic_code":
        return magic_text(message.magic_code)
    value = getattr(message, field)
    if field in NUMBERS:
        return Whole(value)
    if field.endswith("_host"):
        return host_text(*value)
    found: Value = value
    return found


def magic_text(code: int) -> str:
    """A magic code as in JSON."""
    return f"{code:08x}"
