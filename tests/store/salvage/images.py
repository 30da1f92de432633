"""Images to salvage: records of real brokers among other bytes, and what is found in them."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from mqstore.cli.record_types import schema_of
from mqstore.formats.message import MESSAGE
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.files import Files
from mqstore.store.salvage.carve import Carved, carve
from mqstore.store.salvage.runs import SalvageRun, SalvageSource, Sources, images_of, mark_odd
from mqstore.store.salvage.salvage import Salvaged, SalvageRequest, look, write
from tests.cli.json_schema import errors
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


def found_in(*images: Path) -> Carved:
    """What carving finds."""
    found = Carved()
    with Sources(images_of(images).files) as sources:
        for number in range(len(sources)):
            source = sources[number]
            assert isinstance(source, SalvageSource)
            carve(source, number, found)
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


def fake(
    position: int,
    body: bytes,
    *,
    crc: int,
    queue_offset: int = 0,
    topic: str = "fake",
    queue_id: int = 0,
    properties: str = "",
) -> bytes:
    """A record of version 1 with a body and any CRC."""
    return bytes(
        MESSAGE.build(
            {
                **dict.fromkeys(("flag", "sys_flag", "reconsume_times"), 0),
                "queue_id": queue_id,
                "prepared_transaction_offset": 0,
                "queue_offset": queue_offset,
                "magic_code": 0xDAA320A7,
                "body_crc": crc,
                "physical_offset": position,
                "born_timestamp": 1795210634829,
                "store_timestamp": 1795210634829,
                "born_host": {"ip": b"\x7f\0\0\1", "port": 1},
                "store_host": {"ip": b"\x7f\0\0\1", "port": 1},
                "body": body,
                "topic": topic.encode(),
                "properties": properties.encode(),
            }
        )
    )


def places(runs: list[SalvageRun]) -> list[tuple[int, int, int]]:
    """(byte of the source, log position, length) of each run."""
    return [(run.at, run.position, run.length) for run in runs]


SMALL = BrokerConfig({"mappedFileSizeConsumeQueue": "2000", "maxHashSlotNum": "100", "maxIndexNum": "4000"})
"""Sizes of queues and index of the shipped stores. Those of the log are found."""


def salvaged(target: Path, *images: Path, **asked: Any) -> Salvaged:
    """A new store at `target` from images; asked: of `SalvageRequest`."""
    wanted = SalvageRequest(**{"config": SMALL, **asked})
    done = look(images, images_of(images).files, wanted, lambda _step, _size: None)
    with done.sources:
        write(done, target, wanted, Files(), lambda _step, _size: None)
    return done


def manifest(target: Path) -> list[dict[str, Any]]:
    """The lines of a manifest; each is what its schema says."""
    found = [json.loads(line) for line in (target / "manifest.ndjson").read_text().splitlines()]
    for record in found:
        assert list(errors(schema_of(record["type"]), record)) == []
    return found
