"""The index of a DLedger log with units that name no entry."""

from __future__ import annotations

from pathlib import Path

from mqstore.formats.dledger_index import UNIT

from .told import records, summary


def index(folder: Path, *units: bytes) -> Path:
    """A file with these units and room behind them."""
    path = folder / "dledger-n0" / "index" / f"{0:020}"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"".join(units).ljust(64 * UNIT.sizeof(), b"\0"))
    return path


def unit(number: int, **other: int) -> bytes:
    fields = {"magic": 1, "pos": 100 * number, "size": 100, "index": number, "term": number // 2}
    built: bytes = UNIT.build(fields | other)
    return built


def test_units_that_name_no_entry_are_told_and_in_no_count(tmp_path: Path) -> None:
    path = index(tmp_path, unit(0), unit(1, size=-1), unit(2), b"\xff" * UNIT.sizeof(), unit(4))
    found = records(path, "dledger-index")
    assert [(row["number"], row.get("state")) for row in found] == [
        (0, None),
        (1, "invalid"),
        (2, None),
        (3, "invalid"),
        (4, None),
    ]
    assert summary(path, "dledger-index") == {
        "units": 3,
        "invalid_units": 2,
        "first_index": 0,
        "last_index": 4,
        "first_term": 0,
        "last_term": 2,
        "highest_position": 500,
    }
    assert records(path, "dledger-index", at=3) == found[3:]


def test_an_index_that_names_nothing_has_no_ends(tmp_path: Path) -> None:
    path = index(tmp_path, b"")
    found = summary(path, "dledger-index")
    assert (found.pop("units"), found.pop("invalid_units")) == (0, 0)
    assert set(found.values()) == {None}
    assert records(path, "dledger-index") == []
