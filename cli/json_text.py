"""JSON that is safe to print on a terminal: compact, UTF-8, every dangerous character escaped."""

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
"""Pieces of an indented object that are joined at a time; a line has several pieces."""
_DELETE = "\x7f"


def dumps(value: Any) -> str:
    return _safe(_encode(value))


def line_of(record: Any) -> bytes:
    return f"{dumps(record)}\n".encode()


def indented_lines(value: Any) -> Iterator[str]:
    """`value` indented, for people: yields several lines at a time, so that the whole text is never in memory."""
    pieces, rest = _wide(value), ""
    while some := "".join(islice(pieces, _AT_ONCE)):
        lines, newline, rest = f"{rest}{some}".rpartition("\n")
        if newline:
            yield "\n".join(map(_safe, lines.split("\n")))
    yield _safe(rest)


def _safe(text: str) -> str:
    """Escape characters that control a terminal.

    The encoder has escaped C0, so the only such ASCII character is DEL. Python's isprintable is false for all of them,
    and most texts pass this quick test.
    """
    if (text.isascii() and _DELETE not in text) or text.isprintable():
        return text
    return re.sub(DANGEROUS, _as_utf16, text)


def _as_utf16(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x10000:
        return f"\\u{code:04x}"
    return f"\\u{0xD7C0 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"
