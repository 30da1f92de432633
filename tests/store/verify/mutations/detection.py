"""What was found of what was damaged: docs/detection.md, written by the slow tests."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from mqstore.store.findings.catalogue import catalogue

from . import mutations

PAGE = Path(__file__).parents[4] / "docs" / "detection.md"
CODES: dict[str, tuple[int, int]] = {}
"""Code → how many stores were made, in how many of them verify named it."""
FIELDS: dict[str, tuple[int, int]] = {}
"""Field of a record → how many were damaged, how many of them were found."""

_ROW = re.compile(r"^\| (I-\d{3}) \| (\d+) \| (\d+) \|", re.MULTILINE)
_HEAD = """# What `verify` detects

Each invariant of the catalogue ([invariants.md](invariants.md)) is broken on copies of real stores in
seeded ways (`tests/store/verify/mutations`); the store as it was does not have the code. *Made*: so
many damaged stores. *Named*: in so many of them `verify` named that very code.

Written by `pytest tests/store/verify -m slow --rewrite`.

| Invariant | Made | Named | Stores |
|---|---|---|---|
"""
_FIELDS = """
## One byte of a record

One byte of one field of one message of a real store is changed; body and its CRC stay. *Found*: verify
says something that it does not say of the store as it was. Fields that stand nowhere else, and have no
rule that a change would break, cannot be found: only the property CRC of 5.x brokers covers them.

| Field | Damaged | Found |
|---|---|---|
"""


def note_field(field: str, found: Iterable[bool]) -> None:
    """Results of one field."""
    results = list(found)
    FIELDS[field] = len(results), sum(results)


def rows() -> dict[str, tuple[int, int]]:
    """The matrix as the page has it."""
    found = _ROW.findall(PAGE.read_text("utf-8"))
    return {code: (int(made), int(named)) for code, made, named in found}


def write() -> None:
    """Store the page. What was not run keeps its rows, if there are any."""
    text = PAGE.read_text("utf-8") if PAGE.exists() else ""
    head, _, fields = text.partition(_FIELDS)
    matrix = (rows() if head else {}) | CODES
    lines = [_line(code, *matrix[code]) for code in catalogue() if code in matrix]
    if FIELDS:
        fields = "".join(f"| {name} | {n} | {found} |\n" for name, (n, found) in FIELDS.items())
    PAGE.write_text(_HEAD + "".join(lines) + _FIELDS + fields, "utf-8")


def _line(code: str, made: int, named: int) -> str:
    stores = ", ".join(mutations()[code].stores) if code in mutations() else ""
    return f"| {code} | {made} | {named} | {stores} |\n"
