"""Reading epochFileCheckpoint as a broker's CheckpointFile does, and what it would not take.

Spec 06, 6.2. Nothing here raises: what is wrong, and where, is told beside what can be read. Of what
is no number a broker does not recover: it does not even look at the .bak then.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

from ...formats.epoch_file import CRC_UNCHECKED, EPOCHS, HEADER, LINE_END, SEPARATOR
from ...formats.hashing import crc31
from ..counted import counted
from .parse import Parsed

_LINE = re.compile(rb"([^\r\n]*)(?:\r\n|\r|\n|\Z)")
_NUMBER = re.compile(r"[+-]?\d{1,19}")
_INT_MOST, _LONG_MOST = (1 << 31) - 1, (1 << 63) - 1


class _Wrong(Exception):
    """A line of which a number cannot be read."""


def parse(data: bytes) -> Parsed:
    """The tables of `formats.epoch_file` by their members."""
    header: dict[str, Any] = {}
    epochs: dict[str, int] = {}
    value = {HEADER: header, EPOCHS: epochs}
    found = [(one.start(), one[1]) for one in _LINE.finditer(data) if one.start() < len(data)]
    try:
        lines = [line.decode("utf-8") for _, line in found]
    except UnicodeDecodeError:
        return Parsed(value, "not UTF-8", 0)
    at, rows = 0, list[tuple[int, tuple[int, int]]]()
    try:
        for name, line in zip(("count", "crc"), lines, strict=False):
            header[name] = _number(line, _INT_MOST, name)
            at = found[min(len(header), len(found) - 1)][0]
        if len(header) < 2:
            raise _Wrong("it ends in its header" if data else "empty")
        for (at, _), line in zip(found[2:], lines[2:], strict=True):
            if (entry := _entry(line)) is not None:
                rows.append((at, entry))
                epochs[str(entry[0])] = entry[1]
    except _Wrong as wrong:
        return Parsed(value, str(wrong), at, gives_up=True)
    if len(rows) != header["count"]:
        strange = {at for at, _ in found[2:]} - {at for at, _ in rows}
        reason = f"{counted(len(rows), 'entry', 'entries')}, not {header['count']} as it says"
        return Parsed(value, reason, min(strange, default=0))
    if header["crc"] != CRC_UNCHECKED:
        crc = crc31(b"".join(line + LINE_END for _, line in found[2:]))
        header["crcOk"] = crc == header["crc"]
        if not header["crcOk"]:
            return Parsed(
                value, f"its CRC is {header['crc']}, that of its lines {crc}", found[1][0]
            )
    return Parsed(value, note=_note([entry for _, entry in rows]))


def _number(text: str, most: int, what: str) -> int:
    if not _NUMBER.fullmatch(text) or not -most - 1 <= int(text) <= most:
        raise _Wrong(f"the {what} is not a number")
    return int(text)


def _entry(line: str) -> tuple[int, int] | None:
    """Epoch and start offset; None for a line that has not two parts, which is passed over."""
    parts = line.rstrip(SEPARATOR).split(SEPARATOR)
    if len(parts) != 2:
        return None
    return _number(parts[0], _INT_MOST, "epoch"), _number(parts[1], _LONG_MOST, "start offset")


def _note(rows: list[tuple[int, int]]) -> str:
    """What is odd but taken: entries that do not follow one another."""
    for (epoch, offset), (later, start) in pairwise(rows):
        if later <= epoch:
            return f"epoch {later} stands behind epoch {epoch}"
        if start < offset:
            return f"epoch {later} begins before the one in front of it"
    return ""
