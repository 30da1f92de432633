"""Missing units as edits: every byte as it has to be, and no more edits than a file needs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mqstore.formats.consume_queue import UNIT_BYTES
from mqstore.store.broker.snapshot import DirectoryEntry, QueueId
from mqstore.store.disk.file_queue import file_name
from mqstore.store.disk.files import Edit
from mqstore.store.queues import edits as module
from mqstore.store.queues.edits import QueueFix, is_zero_from, last_byte, last_unit_byte, queue_edits
from mqstore.store.queues.units import UNIT_DTYPE, Units

from ...slices import rng

UNITS = 20_000
FILE_BYTES = UNITS * UNIT_BYTES


def _units(count: int) -> Units:
    units = np.zeros(count, UNIT_DTYPE)
    units["physical_offset"] = np.arange(count) * 100
    units["size"] = 100
    units["tags_code"] = -1
    return units


def _applied(edits: list[Edit], path: Path) -> bytes:
    data = bytearray(path.read_bytes()) if path.exists() else bytearray(FILE_BYTES)
    for edit in edits:
        assert edit.path == str(path)
        pieces = edit.pieces if edit.kind == "create" else ((edit.offset, edit.data or b""),)
        for at, piece in pieces:
            data[at : at + len(piece)] = piece
    return bytes(data)


@pytest.mark.parametrize("missing", ["every second", "a few", "at random", "all"])
@pytest.mark.parametrize("there", [True, False])
def test_units_come_to_their_places(missing: str, there: bool, tmp_path: Path) -> None:
    whole, path = _units(UNITS), tmp_path / file_name(0)
    chosen = np.zeros(UNITS, np.bool_)
    if missing == "every second":
        chosen[::2] = True
    elif missing == "a few":
        chosen[[0, 1, 5, UNITS - 1]] = True
    elif missing == "at random":
        chosen[rng("missing units").sample(range(UNITS), UNITS // 7)] = True
    else:
        chosen[:] = True
    entries: tuple[DirectoryEntry, ...] = ()
    expected = whole.copy()
    if there:
        damaged = whole.copy()
        damaged[chosen] = np.zeros(1, UNIT_DTYPE)
        path.write_bytes(damaged.tobytes())
        entries = (DirectoryEntry(path.name, str(path), FILE_BYTES, False),)
    else:
        expected[~chosen] = np.zeros(1, UNIT_DTYPE)
        first = int(np.flatnonzero(chosen)[0])
        assert first == 0 or missing == "at random"
    offsets = np.flatnonzero(chosen).astype(np.int64)
    fix = QueueFix(QueueId("a", 0), offsets, whole[chosen], UNITS, len(offsets), False)
    edits = list(queue_edits(fix, entries, tmp_path, FILE_BYTES))
    begin = int(offsets[0]) * UNIT_BYTES  # before it a new file is pre-filled
    assert _applied(edits, path)[begin:] == expected.tobytes()[begin:]
    assert sum(1 + len(edit.pieces) for edit in edits) <= 1000


@pytest.mark.parametrize("number", range(40))
def test_ends_of_sparse_files(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From either end, in windows of any size: what one look at all bytes tells."""
    chance = rng(f"ends {number}")
    size, begin = chance.randrange(60_000), chance.randrange(60_000)
    path, data = tmp_path / "0", bytearray(size)
    with path.open("wb") as file:
        file.truncate(size)
        for _ in range(chance.randrange(4) if size else 0):
            at = chance.randrange(size)
            data[at] = 1 + chance.randrange(255)
            file.seek(at)
            file.write(data[at : at + 1])
    stop = chance.choice([None, chance.randrange(60_000)])
    entry = DirectoryEntry("0", str(path), size, directory=False, stop=stop)
    window = chance.choice([1 << 20, 4096, 513])
    monkeypatch.setattr(module, "_WINDOW_BYTES", window)
    counting = bytes(data[: entry.counting])
    end = len(counting.rstrip(b"\0"))
    assert last_byte(entry, begin) == max(begin, end)
    assert is_zero_from(entry, begin) == (not any(counting[begin:]))
    assert last_unit_byte(entry, begin) == max(begin, end), "zeros that end the search are more than the file has"
