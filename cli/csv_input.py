"""Read CSV: rows below a line of field names, as `mqstore dump --format csv` prints them.

A cell that a spreadsheet would run as a formula begins with `'`, which is removed. A text with control characters is
escaped; then the column `NAME_base64` has the exact bytes and takes precedence. An empty cell is an absent field, but
an empty body is an empty body.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from typing import Any

from ..store.counted import counted
from ..store.errors import InvalidInput
from ..store.put.new_message import NUMBER_LIMITS
from ..store.search.selection import LATEST_MS, parse_time
from .ndjson_input import Line, opened
from .output import FORMULA

_ROWS = 1000
_MORE_NUMBERS = ("inner_number", "batch_size", "body_crc")
_OBJECTS = ("properties", "keys", "batch_record")
_TRUTHS = ("raw", "after_damage", "body_crc_ok", "tombstone", "filler")
_TRUTH = {"true": True, "false": False}
_LARGEST_CELL = 256 << 20
_QUOTES = "a cell that begins with a quote ends with one, before the comma; a file that was cut off may lack the end"


def read_portions(source: str, note: Callable[[int], None]) -> Iterator[list[Line]]:
    """Yield the rows of a file, or of stdin for `-`, in portions; the row below the names has number 1.

    note: called with the number of bytes of each line. Raises InvalidInput with the row, Missing, Unreadable.
    """
    csv.field_size_limit(_LARGEST_CELL)
    with opened(source) as descriptor, open(descriptor, encoding="utf-8", newline="", closefd=False) as text:
        rows = csv.reader(_noted(text, note), strict=True)
        number = 0
        names: list[str] = []
        portion: list[Line] = []
        try:
            names = next(rows, [])
            if names and not {"topic"} <= set(names):
                raise InvalidInput("the first line must name the fields: topic, body, …")
            for number, row in enumerate(rows, 1):
                if row:
                    portion.append(Line(number, _record(names, row)))
                if len(portion) == _ROWS:
                    yield portion
                    portion = []
        except (ValueError, csv.Error, InvalidInput) as error:
            if portion:
                yield portion
            if isinstance(error, csv.Error):  # of the row that was read next
                raise InvalidInput(f"row {number + bool(names)}: {error}", hint=_QUOTES) from None
            raise InvalidInput(f"row {number}: {error}") from None
        if portion:
            yield portion


def _noted(lines: Iterator[str], note: Callable[[int], None]) -> Iterator[str]:
    for line in lines:
        note(len(line.encode()))
        yield line


def _record(names: list[str], row: list[str]) -> dict[str, Any]:
    """The JSON object of a row. Raises ValueError, InvalidInput."""
    if len(row) != len(names):
        raise ValueError(f"{counted(len(row), 'cell')} under {counted(len(names), 'name')}")
    cells = zip(names, row, strict=True)
    record = {name: _value(name, cell) for name, cell in cells if cell}
    if {"body", "body_base64"} & set(names) and "body_base64" not in record:
        record.setdefault("body", "")
    if "unique_key" in names:
        record.setdefault("unique_key", None)
    return record


def _value(name: str, cell: str) -> Any:
    if name in _OBJECTS:
        return _object(name, cell)
    if name in _TRUTHS:
        if cell.lower() not in _TRUTH:
            raise ValueError(f"{name}: neither true nor false: {cell!r}")
        return _TRUTH[cell.lower()]
    if name.endswith("_timestamp"):
        return int(cell) if cell.lstrip("-").isdigit() else parse_time(cell, earliest_ms=-LATEST_MS)
    if name in NUMBER_LIMITS or name in _MORE_NUMBERS:
        return int(cell)
    return plain(cell)


def _object(name: str, cell: str) -> Any:
    """The value of a JSON cell; the cell `keys` may also be the plain text of KEYS."""
    if name == "keys" and not cell.startswith("["):
        return plain(cell)
    try:
        return json.loads(cell)
    except RecursionError:
        raise ValueError("JSON nested too deeply") from None


def plain(cell: str) -> str:
    """A text without the `'` that keeps a spreadsheet from running it as a formula."""
    return cell[1:] if cell.startswith("'") and cell.lstrip("'").startswith(FORMULA) else cell
