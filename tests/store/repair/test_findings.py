"""Findings of index, consumequeue_ext, checkpoint, compaction and timer: mended, named no more, undone."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from mqstore.formats.consume_queue import UNIT_BYTES
from mqstore.formats.derive import offset_of
from mqstore.formats.message import MESSAGE
from mqstore.store.broker.snapshot import QueueId
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.layout import Layout
from mqstore.store.log.commit_log import Batch, CommitLog
from mqstore.store.repair import compaction
from mqstore.store.repair.parts import Choice, RepairPart, chosen
from mqstore.store.search.queue_search import open_log
from mqstore.store.search.store import StoreReader

from ... import slices, stores
from ...slices import rng
from .mended import check_mended, find_unrepairable, told
from .test_repair import examined, repaired, rows

CODES = (
    "I-079",
    "I-091",
    "I-093",
    "I-099",
    "I-104",
    "I-110",
    "I-113",
    "I-117",
    "I-125",
    "I-126",
    "I-127",
    "I-128",
    "I-129",
    "I-132",
    "I-137",
    "I-161",
    "I-162",
    "I-164",
    "I-165",
)
FAST = ("I-079", "I-093", "I-110", "I-117", "I-126", "I-129", "I-162")
WAYS = 12


@pytest.mark.few(1)
@pytest.mark.parametrize("code", FAST)
def test_the_finding_is_mended(code: str, tmp_path: Path) -> None:
    check_mended(code, "mend", tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("code", CODES)
def test_each_way_of_breaking_it_is_mended(code: str, tmp_path: Path) -> None:
    for number in range(slices.share(WAYS)):
        check_mended(code, "each way", tmp_path, number)


def test_ext_units_get_their_sizes_again(tmp_path: Path) -> None:
    """What the queue and the records do not tell of a unit, its bit map, stays as it is."""
    from ..verify.mutations import mutations

    name = "5.3.3-cqext"
    root = stores.unpack(name, tmp_path)
    wanted = rows(root, ["consumequeue_ext", "consumequeue"])
    mutations()["I-079"].mutate(root, Random("sizes again"))
    assert rows(root, ["consumequeue_ext", "consumequeue"]) != wanted
    repaired(root, BrokerConfig({}), chosen([RepairPart.EXT], ()))
    assert rows(root, ["consumequeue_ext", "consumequeue"]) == wanted


def tear(root: Path, zeros: int) -> tuple[QueueId, int]:
    """Zeros over the last bytes of a compaction log: its queue, and the last record's queue offset."""
    layout = Layout.open(root, BrokerConfig({}))
    queue = rng(f"torn {zeros}").choice(sorted((root / "compaction/compactionLog").glob("*/*")))
    log = open_log(layout, queue.parent.name, int(queue.name))
    end = log.end().position
    file = log.queue.file_at(end - 1)
    assert file is not None
    last = [item for item in log.scan() if isinstance(item, Batch)][-1]
    offset = int(last.columns.ints("queue_offset")[-1])
    with Path(file.path).open("r+b") as opened:
        opened.seek(end - file.start - zeros)
        opened.write(bytes(zeros))
    return QueueId(queue.parent.name, int(queue.name)), offset


@pytest.mark.few(1)
@pytest.mark.parametrize("zeros", [11, 45])
def test_a_torn_record_of_a_compaction_log_comes_from_the_commit_log(zeros: int, tmp_path: Path) -> None:
    """No size and no CRC tells of zeros over the last bytes of its properties."""
    name = "5.3.3-compaction"
    root = stores.unpack(name, tmp_path)
    wanted = rows(root, ["compaction"])
    tear(root, zeros)
    assert "I-055" in told(name, root)
    repaired(root, BrokerConfig({}), chosen([RepairPart.COMPACTION], ()))
    assert rows(root, ["compaction"]) == wanted


def test_the_logs_of_torn_records_are_opened_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each queue, not of each of its records."""
    root = stores.unpack("5.3.3-compaction", tmp_path)
    (queue,) = sorted((root / "compaction/compactionLog").glob("*/0"))[:1]
    log = open_log(Layout.open(root, BrokerConfig({})), queue.parent.name, 0)
    wanted = rows(root, ["compaction"])
    torn = 0
    for item in (item for item in log.scan() if isinstance(item, Batch)):
        for end in (item.position + item.columns.ints("total_size")).tolist()[:5]:
            file = log.queue.file_at(end - 1)
            assert file is not None
            with Path(file.path).open("r+b") as opened:
                opened.seek(end - file.start - 11)
                opened.write(bytes(11))
            torn += 1
    assert torn > 2
    used, from_commit_log = list[CommitLog](), compaction._from_commit_log

    def noted(*of_record: Any) -> bytes | None:
        used.append(of_record[-1])
        return from_commit_log(*of_record)

    monkeypatch.setattr(compaction, "_from_commit_log", noted)
    repaired(root, BrokerConfig({}), chosen([RepairPart.COMPACTION], ()))
    assert rows(root, ["compaction"]) == wanted
    assert len(used) == 2 * torn
    assert len(set(map(id, used))) == 2, "the plan, and the same once more before it is carried out"


def place_of(root: Path, queue: QueueId, offset: int, field: str) -> tuple[str, int]:
    """File and byte of a field of a message in the commit log, or of its `unit`."""
    with StoreReader(root) as store, store.queues.open(queue.topic, queue.queue_id) as units:
        unit = units.unit(offset)
        assert unit is not None
        files, at = store.log_files, unit.physical_offset
        if field == "unit":
            files, at = units.files, offset * UNIT_BYTES
        elif field in ("body", "topic", "properties"):  # or the length before it
            at += int(store.log.record(at).columns.ragged(field).start[0])
        else:
            at += offset_of(MESSAGE, field)
        file = files.file_at(at)
        assert file is not None
        return file.path, at - file.start


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("field", "byte"),
    [
        ("body", 3),
        ("properties", 5),
        ("unit", 7),
        *(
            pytest.param(*row, marks=pytest.mark.slow)
            for row in (
                ("total_size", 2),
                ("body", -4),
                ("topic", 0),
                ("queue_id", 3),
                ("queue_offset", 7),
                ("properties", -1),
            )
        ),
    ],
)
def test_a_damaged_copy_in_the_commit_log_takes_no_place(field: str, byte: int, tmp_path: Path) -> None:
    """Header, body or properties of the message, or the unit that names it: the torn record stays."""
    root = stores.unpack("5.3.3-compaction", tmp_path)
    queue, offset = tear(root, 11)
    torn = rows(root, ["compaction"])
    path, at = place_of(root, queue, offset, field)
    with Path(path).open("r+b") as opened:
        opened.seek(at + byte)
        old = opened.read(1)[0]
        opened.seek(at + byte)
        opened.write(bytes([0 if field == "properties" else old ^ 1]))
    compaction = chosen([RepairPart.COMPACTION], ())
    assert examined(root, BrokerConfig({}), compaction).nothing_to_do
    assert rows(root, ["compaction"]) == torn


def test_a_tombstone_in_the_commit_log_takes_no_place(tmp_path: Path) -> None:
    """Both copies are damaged: the torn one keeps what can be read of it, and is named with a reason."""
    root = stores.unpack("5.3.3-compaction", tmp_path)
    queue, offset = tear(root, 11)
    torn = rows(root, ["compaction"])
    path, at = place_of(root, queue, offset, "body")
    with Path(path).open("r+b") as opened:
        opened.seek(at)
        opened.write(b"\xff\xfe\xfd")
    config = BrokerConfig({})
    assert repaired(root, config, Choice()).session
    assert rows(root, ["compaction"]) == torn
    (left,) = find_unrepairable(Layout.open(root, config), "5.3")
    assert left.code == "I-055" and "no whole copy" in left.why
