"""JSON as it may reach a terminal: compact, UTF-8, every dangerous character escaped."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

from ..store.output.escaped import DANGEROUS

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode
_wide = json.JSONEncoder(ensure_ascii=False, indent=2, check_circular=False).iterencode
_AT_ONCE = 1 << 14
"""Pieces of an indented object, some to a line, that are put together."""
_DELETE = "\x7f"


def dumps(value: Any) -> str:
    """`value` on one line."""
    return _safe(_encode(value))


def line_of(record: Any) -> bytes:
    """The same as NDJSON."""
    return f"{dumps(record)}\n".encode()


def lines_wide(value: Any) -> Iterator[str]:
    """`value` indented, for an object that people may look at: some lines at a time, so that it never is in
    memory as a whole.
    """
    pieces, rest = _wide(value), ""
    while some := "".join(islice(pieces, _AT_ONCE)):
        lines, newline, rest = f"{rest}{some}".rpartition("\n")
        if newline:
            yield _safe_lines(lines)
    yield _safe(rest)


def _safe_lines(text: str) -> str:
    """What no line has none of them has; else they are looked at one by one."""
    if text.isascii() and _DELETE not in text:
        return text
    return "\n".join(map(_safe, text.split("\n")))


def _safe(text: str) -> str:
    """The encoder has escaped C0 already, so of ASCII only DEL is left.

    What steers a terminal is not printable to Python; most text is, and that is told fast.
    """
    if (text.isascii() and _DELETE not in text) or text.isprintable():
        return text
    return re.sub(DANGEROUS, _as_utf16, text)


def _as_utf16(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x10000:
        return f"\\u{code:04x}"
    return f"\\u{0xD7C0 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"
