"""Images to salvage: records of real brokers among other bytes, and what is found in them."""

from __future__ import annotations

import random
from pathlib import Path

from mqstore.formats.message import MESSAGE
from mqstore.store.salvage.carve import Found, carve
from mqstore.store.salvage.runs import Run, mark_odd
from mqstore.store.salvage.source import Sources, paths_of
from tests.stores import messages


def records_of(name: str, root: Path) -> list[tuple[int, bytes]]:
    """(position, bytes) of all records of a shipped store that lies at `root`."""
    starts = sorted(int(path.name) for path in (root / "commitlog").iterdir())
    contents = {s: (root / "commitlog" / f"{s:020d}").read_bytes() for s in starts}
    found = []
    for row in messages(name):
        start = max(s for s in starts if s <= row["physical_offset"])
        at = row["physical_offset"] - start
        found.append((row["physical_offset"], contents[start][at : at + row["total_size"]]))
    return found


def found_in(*images: Path) -> Found:
    """What carving finds."""
    found = Found()
    with Sources(paths_of(images)) as sources:
        for number in range(len(sources)):
            carve(sources[number], number, found)
    mark_odd(found.runs)
    return found


def image(folder: Path, data: bytes, name: str = "image") -> Path:
    """A file with these bytes."""
    path = folder / name
    path.write_bytes(data)
    return path


def noise(rng: random.Random, size: int) -> bytes:
    """Bytes in which no record begins."""
    return rng.randbytes(size).replace(b"\xda\xa3", b"\xda\xa4")


def fake(position: int, body: bytes, *, crc: int) -> bytes:
    """A record of version 1 with a body and any CRC."""
    return bytes(
        MESSAGE.build(
            {
                **dict.fromkeys(("flag", "sys_flag", "reconsume_times", "queue_id"), 0),
                **dict.fromkeys(("prepared_transaction_offset", "queue_offset"), 0),
                "magic_code": 0xDAA320A7,
                "body_crc": crc,
                "physical_offset": position,
                "born_timestamp": 1795210634829,
                "store_timestamp": 1795210634829,
                "born_host": {"ip": b"\x7f\0\0\1", "port": 1},
                "store_host": {"ip": b"\x7f\0\0\1", "port": 1},
                "body": body,
                "topic": b"fake",
                "properties": b"",
            }
        )
    )


def places(runs: list[Run]) -> list[tuple[int, int, int]]:
    """(byte of the source, log position, length) of each run."""
    return [(run.at, run.position, run.length) for run in runs]
