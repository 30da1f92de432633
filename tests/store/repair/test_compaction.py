"""Sparse queues of compaction topics come back byte for byte from their logs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mqstore.formats.sparse_consume_queue import UNIT_BYTES
from mqstore.store.config import BrokerConfig
from mqstore.store.config_json import dumps, loads
from mqstore.store.repair.parts import Part, chosen

from ... import stores
from ...slices import rng
from .test_repair import examined, repaired, rows

COMPACTION = chosen([Part.COMPACTION], ())
CONFIG = BrokerConfig({})
QUEUES = "compaction/compactionCq"
NAMES = [
    n for n in stores.NAMES if "compaction" in n and stores.truth(n)["expected_verdict"] == "clean"
]


@pytest.fixture(params=NAMES)
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return stores.unpack(request.param, tmp_path)


def test_nothing_to_do(root: Path) -> None:
    assert examined(root, CONFIG, COMPACTION).nothing_to_do


def test_files_that_are_gone(root: Path) -> None:
    """One of each queue: the others tell how long it was."""
    wanted = rows(root, [QUEUES])
    for queue in sorted((root / QUEUES).glob("*/*"))[1:]:
        shutil.rmtree(queue)
    next((root / QUEUES).glob("*/*/0*")).unlink()
    repaired(root, CONFIG, COMPACTION)
    assert rows(root, [QUEUES]) == wanted


def test_any_byte_of_a_unit(root: Path) -> None:
    wanted = rows(root, [QUEUES])
    path = min((root / QUEUES).glob("*/*/0*"))
    generator = rng("sparse units")
    for byte in range(0, UNIT_BYTES, 5):
        data = bytearray(path.read_bytes())
        data[generator.randrange(10) * UNIT_BYTES + byte] ^= generator.randrange(1, 256)
        path.write_bytes(data)
        repaired(root, CONFIG, COMPACTION)
        assert rows(root, [QUEUES]) == wanted, byte


def test_what_a_compaction_left(root: Path) -> None:
    wanted = rows(root, [QUEUES])
    queue = next((root / QUEUES).glob("*/*"))
    (queue / "compacting").mkdir()
    (queue / "compacting" / ("0" * 20)).write_bytes(bytes(100))
    (queue / ("0" * 20 + ".delete")).write_bytes(bytes(100))
    size = min(queue.glob("0*")).stat().st_size
    (queue / f"{5 * size:020d}").write_bytes(bytes(size))
    repaired(root, CONFIG, COMPACTION)
    assert rows(root, [QUEUES]) == wanted


def test_a_position_that_no_queue_has(root: Path) -> None:
    path = root / "compaction" / "position-checkpoint"
    content = loads(path.read_text())
    known = dict(content["queueOffsetMap"])
    name = min(known)
    content["queueOffsetMap"][name] = 10**12
    path.write_text(dumps(content))
    repaired(root, CONFIG, COMPACTION)
    written = loads(path.read_text())["queueOffsetMap"]
    assert known[name] <= written[name] < 10**6
    assert {k: v for k, v in written.items() if k != name} == {
        k: v for k, v in known.items() if k != name
    }
