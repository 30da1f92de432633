"""Checksums and hashes of the store, one value at a time; without numpy.

`crc31`: spec/README.md "Conventions". `java_hash`: Java's `String.hashCode` over UTF-16 units. Index keys:
spec/03-index.md, 3.2. Tags: spec/02-consumequeue.md, 2.3. Whole columns: `hashing_columns`.
"""

from __future__ import annotations

import re

from isal.isal_zlib import crc32

CRC_MASK = 0x7FFFFFFF
#: A lone surrogate in UTF-8: one malformed sequence to Java, two or three to Python.
_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_REPLACEMENT = "\ufffd".encode()
_INTEGER = re.compile(r"([+-]?)0*([^\D\U00010000-\U0010ffff]{1,19})")
_BLANKS = "".join(map(chr, range(ord(" ") + 1)))


def crc31(data: bytes | memoryview) -> int:
    """CRC-32 with the top bit cleared, as stored for bodies."""
    return crc32(data) & CRC_MASK


def java_string(data: bytes) -> str:
    """The string that Java decodes from UTF-8 bytes: each malformed sequence becomes U+FFFD."""
    if b"\xed" in data:
        data = _SURROGATE.sub(_REPLACEMENT, data)
    return data.decode("utf-8", "replace")


def utf8(text: str) -> bytes:
    """The bytes of a text from a command line or of a name on the disk, which need not be UTF-8."""
    return text.encode("utf-8", "surrogateescape")


def java_trim(text: str) -> str:
    """`String.trim`: remove control characters and spaces at both ends.

    >>> java_trim("\\0 a b\\n"), java_trim("\\u00a0a")
    ('a b', '\\xa0a')
    """
    return text.strip(_BLANKS)


def java_integer(text: str, bits: int) -> int | None:
    """Parse a text as `Integer.parseInt`, or its counterpart for `bits` bits, does; None where that throws.

    >>> java_integer("+07", 32), java_integer("32768", 16), java_integer("7 ", 32)
    (7, None, None)
    """
    match = _INTEGER.fullmatch(text)
    value = int(match[1] + match[2]) if match else 1 << 63
    return value if -(1 << bits - 1) <= value < 1 << bits - 1 else None


def java_hash(text: str) -> int:
    """`String.hashCode`: signed 32 bits, over UTF-16 code units."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def tags_code(tags: str | None) -> int:
    """tags_code of a message with these TAGS; 0 without TAGS (spec 2.3)."""
    return java_hash(tags) if tags else 0


def index_hash(topic: str, key: str) -> int:
    """key_hash of an index item for a key, or for a tag given as `T#tag` (spec 3.2)."""
    value = abs(java_hash(f"{topic}#{key}"))
    return 0 if value == 1 << 31 else value
