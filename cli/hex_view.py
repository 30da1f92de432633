"""Annotated hex: the bytes of a record beside the names and values of its fields."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Any

from ..formats.derive import Span, spans
from ..store.counted import counted
from .file_kinds.chunks import RecordPiece
from .terminal import paint, time_text

ROW_BYTES = 16
_HEX_WIDTH = 3 * ROW_BYTES + 1
_SHOWN_CHARS = 60


class HexView:
    """Makes the lines of the hex view, with or without colours, times in UTC or local time."""

    def __init__(self, colour: bool, utc: bool) -> None:
        self._colour = colour
        self._utc = utc

    def lines(self, piece: RecordPiece) -> Iterator[str]:
        """The lines of one record: a title, then bytes, name, value and meaning of each field."""
        yield paint(f"-- {piece.title}, {counted(len(piece.data), 'byte')}", "bold", self._colour)
        if piece.schema is None:
            yield from self._rows(piece.position, piece.data, "", "")
            return
        covered = 0
        for span in spans(piece.schema, piece.data):
            yield from self._field(piece, span)
            covered = span.offset + span.length
        if covered < len(piece.data):
            rest = piece.data[covered:]
            yield from self._rows(piece.position + covered, rest, "(rest)", "not part of the record")

    def _field(self, piece: RecordPiece, span: Span) -> Iterator[str]:
        data = piece.data[span.offset : span.offset + span.length]
        value = self._value(span)
        name = paint(f"{span.path or '(padding)':<28}", "cyan", self._colour)
        doc = paint(f"  ({span.doc})", "dim", self._colour) if span.doc else ""
        shown = paint(value, "green", self._colour) + doc
        yield from self._rows(piece.position + span.offset, data, name, shown)

    def _rows(self, position: int, data: bytes, name: str, value: str) -> Iterator[str]:
        """Rows of 16 bytes. The first row has name and value, the others the bytes as letters."""
        for at in range(0, max(len(data), 1), ROW_BYTES):
            row = data[at : at + ROW_BYTES]
            place = paint(f"{position + at:>16}", "dim", self._colour)
            text = f"{name} {value}" if at == 0 else paint(_letters(row), "dim", self._colour)
            yield f"{place}  {row.hex(' '):<{_HEX_WIDTH}} {text}".rstrip()

    def _value(self, span: Span) -> str:
        value: Any = span.value
        if isinstance(value, bytes):
            if span.path.endswith(".ip") and len(value) in (4, 16):
                return str(ipaddress.ip_address(value))
            text = value.decode("utf-8", "backslashreplace")
            return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"
        if isinstance(value, int):
            if span.path.endswith("_timestamp") and value > 0:
                return f"{value} {time_text(value, self._utc)}"
            if span.path.startswith("magic") or span.path.endswith("flag"):
                return f"{value} {value & 0xFFFFFFFF:#x}"
            return str(value)
        return ""


def _letters(row: bytes) -> str:
    return "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in row)
