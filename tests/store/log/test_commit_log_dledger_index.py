"""The index of a DLedger log: it agrees with the entries of real stores; damage is told."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mqstore.formats.dledger import ENTRY
from mqstore.formats.dledger_index import FILE_BYTES, UNIT, UNIT_BYTES
from mqstore.store.disk.file_queue import MappedFileQueue
from mqstore.store.disk.layout import Layout
from mqstore.store.log.commit_log import Batch, IndexUnits, index_units, is_valid
from mqstore.store.queues.references import commit_log_of
from mqstore.store.settings.read import read_config_file

from ...stores import unpack

STORES = ("4.9.7-dledger", "5.3.3-dledger")


def read(folder: Path, start: int = 0) -> list[IndexUnits]:
    with MappedFileQueue.open(folder) as files:
        return list(index_units(files, start))


@pytest.mark.parametrize("name", STORES)
def test_units_are_the_entries(name: str, tmp_path: Path) -> None:
    """Position, size, number and term of every entry, and the state that the member kept."""
    root = unpack(name, tmp_path)
    log = commit_log_of(Layout.open(root))
    entries = []
    for item in log.scan():
        if isinstance(item, Batch):
            for position in item.position.tolist():
                frame = log.frame_of(log.files[0]).payload
                data = log.read(position - frame, 1 << 20)
                entries.append(ENTRY.parse(data))
    folder = root / "dledger-n0"
    parts = read(folder / "index")
    units = np.concatenate([part.units for part in parts])
    assert all(is_valid(part).all() for part in parts)
    for field in ("magic", "pos", "size", "index", "term"):
        assert units[field].tolist() == [entry[field] for entry in entries], field
    assert (folder / "index" / f"{0:020d}").stat().st_size == FILE_BYTES
    state = {
        record["name"]: record["value"]
        for file in ("checkpoint", "currterm")
        for record in read_config_file(folder / file, "dledger-state").records()
    }
    assert state["endIndex"] == state["committedIndex"] == str(len(entries) - 1)
    assert state["currTerm"] == str(entries[-1].term)


def unit(number: int, **more: int) -> bytes:
    """The unit of an entry."""
    fields = {"magic": 1, "pos": 100 * number, "size": 100, "index": number, "term": 3}
    return UNIT.build(fields | more)


def test_damage(tmp_path: Path) -> None:
    """Units that do not name themselves; zeros between units; a file cut short."""
    data = [unit(0), unit(1, index=7), bytes(UNIT_BYTES), unit(3, magic=9), unit(4, pos=-1)]
    data += [unit(5, size=47), unit(6, term=-1), unit(7, magic=3, size=48), unit(8)[:20]]
    (tmp_path / f"{0:020d}").write_bytes(b"".join(data))
    (part,) = read(tmp_path)
    assert part.number.tolist() == [0, 1, 3, 4, 5, 6, 7]
    assert is_valid(part).tolist() == [True, False, False, False, False, False, True]
    (part,) = read(tmp_path, 6)
    assert part.number.tolist() == [6, 7]
    assert read(tmp_path, 100) == []


def test_holes_and_several_files(tmp_path: Path) -> None:
    """Numbers go on from file to file; what was never written is passed over."""
    size = 4096 * UNIT_BYTES
    for start, rows in ((0, (0, 4000)), (4096, (4096, 8000))):
        with (tmp_path / f"{start * UNIT_BYTES:020d}").open("wb") as file:
            file.truncate(size)
            for number in rows:
                file.seek((number - start) * UNIT_BYTES)
                file.write(unit(number))
    parts = read(tmp_path)
    assert [n for part in parts for n in part.number.tolist()] == [0, 4000, 4096, 8000]
    assert all(is_valid(part).all() for part in parts)
