"""One record, unit or id at a time, without construct and numpy.

A command that shows one message takes less time than importing these. The tables are derived from the schemas
(`derive.steps`); tests compare all results with construct.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import Any

from . import quick_tables

UNIT_BYTES: int = quick_tables.UNIT_BYTES
PRE_FILL: tuple[int, ...] = quick_tables.PRE_FILL
EXT_ADDRESS_MAX: int = quick_tables.EXT_ADDRESS_MAX
MAGICS: tuple[int, ...] = quick_tables.MAGICS
SMALLEST: int = quick_tables.SMALLEST
IPV4_BYTES: int = quick_tables.IPV4_BYTES
IPV6_BYTES: int = quick_tables.IPV6_BYTES
Steps = tuple[Any, ...]

_struct = lru_cache(maxsize=64)(Struct)


def fixed(steps: Steps) -> Struct:
    """The struct of a table that has only fields of constant size."""
    ((_, form, _),) = steps
    return _struct(form)


UNIT = fixed(quick_tables.UNIT)
_MESSAGE_IDS = {IPV4_BYTES: fixed(quick_tables.MESSAGE_ID_V4), IPV6_BYTES: fixed(quick_tables.MESSAGE_ID_V6)}
OFFSET_DIGITS = 2 * quick_tables.OFFSET_BYTES
_OFFSET_MASK = (1 << 4 * OFFSET_DIGITS) - 1
_TOTAL_SIZE = _struct(quick_tables.MESSAGE[0][1][:2])
"""The first field, from byte order and code of the table."""


def total_size(data: bytes) -> int:
    """The first field of a record, which is its size. Raises ValueError."""
    if len(data) < _TOTAL_SIZE.size:
        raise ValueError("the data ends inside total_size")
    size: int = _TOTAL_SIZE.unpack_from(data)[0]
    return size


def message(data: bytes) -> dict[str, Any] | None:
    """Fields of the record that is exactly `data`, by their dotted names; None for other data."""
    found: dict[str, Any] = {}
    try:
        end = _read(quick_tables.MESSAGE, data, 0, found)
    except ValueError:
        return None
    return found if end == len(data) and found["magic_code"] in MAGICS else None


def _read(steps: Steps, data: bytes, at: int, found: dict[str, Any]) -> int:
    """Read fields into `found`; return the byte behind them. Raises ValueError if the data ends before."""
    for step in steps:
        kind = step[0]
        if kind == "fields":
            form = _struct(step[1])
            end = at + form.size
            if end > len(data):
                raise ValueError("the data ends inside a field")
            found.update(zip(step[2], form.unpack_from(data, at), strict=True))
        elif kind == "bytes":
            length = found[step[2]]
            end = at + length
            if length < 0 or end > len(data):
                raise ValueError("an impossible length")
            found[step[1]] = data[at:end]
        else:
            _, field, operator, number, yes, no = step
            value = found[field]
            holds = value & number if operator == "&" else value == number
            end = _read(yes if holds else no, data, at, found)
        at = end
    return at


def message_id(ip: bytes, port: int, physical_offset: int) -> str:
    """The id that a producer gets: upper-case hex of broker address, port and position."""
    return f"{broker_digits(ip, port)}{physical_offset & _OFFSET_MASK:0{OFFSET_DIGITS}X}"


@lru_cache(maxsize=1024)
def broker_digits(ip: bytes, port: int) -> str:
    """The digits before the position, equal in all ids of a broker."""
    return _MESSAGE_IDS[len(ip)].pack(ip, port, 0).hex().upper()[:-OFFSET_DIGITS]


def parse_message_id(text: str) -> tuple[bytes, int, int]:
    """(ip, port, physical_offset) of an id. Raises ValueError for anything else."""
    data = bytes.fromhex(text)
    for form in _MESSAGE_IDS.values():
        if form.size == len(data):
            ip, port, physical_offset = form.unpack(data)
            return ip, port, physical_offset
    raise ValueError(f"not a message id (32 or 56 hex digits): {text!r}")
