"""The two files that a broker with a controller keeps: its identity and its epochs.

Reading brokerIdentity as a broker's BrokerMetadata does (spec 06, 6.3). Nothing here raises.

Reading epochFileCheckpoint as a broker's CheckpointFile does, and what it would not take.

Spec 06, 6.2. Nothing here raises: what is wrong, and where, is told beside what can be read. Of what
is no number a broker does not recover: it does not even look at the .bak then.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

from ...formats.broker_identity import FIELDS, IDENTITY, SEPARATOR
from ...formats.epoch_file import CRC_UNCHECKED, EPOCHS, HEADER, LINE_END
from ...formats.epoch_file import SEPARATOR as EPOCH_SEPARATOR
from ...formats.hashing import crc31
from ..counted import counted
from .parse import Parsed

_NUMBER = re.compile(r"[+-]?\d{1,19}")
_LONG_MOST = (1 << 63) - 1


def parse_identity(data: bytes) -> Parsed:
    """The table of `formats.broker_identity` by its member."""
    # as Java splits: empty parts at the end are none
    parts = data.decode("utf-8", "surrogateescape").rstrip(SEPARATOR).split(SEPARATOR)
    found: dict[str, Any] = {}
    value = {IDENTITY: found}
    if not data:
        return Parsed(value, "empty")
    at = 0
    for field, part in zip(FIELDS, parts, strict=False):
        name = field.column.replace("_", " ")
        if not part:
            return Parsed(value, f"the {name} is empty", at)
        if field.type == "integer" and not _is_number(part):
            return Parsed(value, f"the {name} is not a number", at)
        found[field.name] = int(part) if field.type == "integer" else part
        at += len(part.encode("utf-8", "surrogateescape")) + len(SEPARATOR)
    if len(parts) < len(FIELDS) - 1:
        reason = f"{counted(len(parts), 'part')}, not the {len(FIELDS) - 1} of an identity"
        return Parsed(value, reason, len(data))
    return Parsed(value)


def _is_number(text: str) -> bool:
    return bool(_NUMBER.fullmatch(text)) and -_LONG_MOST - 1 <= int(text) <= _LONG_MOST


_LINE = re.compile(rb"([^\r\n]*)(?:\r\n|\r|\n|\Z)")
_INT_MOST, _EPOCH_MOST = (1 << 31) - 1, (1 << 63) - 1


class _Wrong(Exception):
    """A line of which a number cannot be read."""


def parse_epochs(data: bytes) -> Parsed:
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
    parts = line.rstrip(EPOCH_SEPARATOR).split(EPOCH_SEPARATOR)
    if len(parts) != 2:
        return None
    return _number(parts[0], _INT_MOST, "epoch"), _number(parts[1], _EPOCH_MOST, "start offset")


def _note(rows: list[tuple[int, int]]) -> str:
    """What is odd but taken: entries that do not follow one another."""
    for (epoch, offset), (later, start) in pairwise(rows):
        if later <= epoch:
            return f"epoch {later} stands behind epoch {epoch}"
        if start < offset:
            return f"epoch {later} begins before the one in front of it"
    return ""
