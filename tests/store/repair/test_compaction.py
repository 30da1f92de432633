"""Sparse queues of compaction topics come back byte for byte from their logs."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from mqstore.formats.blank import BLANK
from mqstore.formats.derive import offset_of
from mqstore.formats.message import MESSAGE
from mqstore.formats.sparse_consume_queue import UNIT, UNIT_BYTES
from mqstore.store.broker.snapshot import QueueId
from mqstore.store.broker.topics import dumps, loads
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.file_queue import MappedFileQueue
from mqstore.store.disk.files import Files
from mqstore.store.disk.layout import Layout
from mqstore.store.log.commit_log import Batch, CommitLog
from mqstore.store.plan.observer import Policy, RecoveryOptions
from mqstore.store.recover.recovery import analyze
from mqstore.store.repair.parts import Choice, QueueStoreKind, RepairPart, as_kind, chosen
from mqstore.store.repair.repair import analyze as plan_of_repair
from mqstore.store.repair.repair import replan_with_parts, widened
from mqstore.store.search.queue_search import open_log
from mqstore.store.search.store import StoreReader
from mqstore.store.session.apply import apply

from ... import stores
from ...slices import rng
from ..verify.mutations.edit import overwrite, set_field
from .mended import find_unrepairable
from .test_database import again, carried_out
from .test_repair import examined, repaired, rows

COMPACTION = chosen([RepairPart.COMPACTION], ())
CONFIG = BrokerConfig({})
QUEUES = "compaction/compactionCq"
NAMES = [n for n in stores.NAMES if "compaction" in n and stores.truth(n)["expected_verdict"] == "clean"]


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


@pytest.mark.slow
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


@pytest.mark.few(2)
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


@pytest.mark.few(2)
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
    assert {k: v for k, v in written.items() if k != name} == {k: v for k, v in known.items() if k != name}


@pytest.mark.parametrize("text", ['{"empty":true,"queueOffsetMap":{"a_0":9}}}', "nothing of it"])
def test_positions_that_cannot_be_read_and_have_no_bak(text: str, tmp_path: Path) -> None:
    """What is left of them is kept; the broker takes none of it."""
    root = stores.unpack("5.3.3-clean", tmp_path)
    path = root / "compaction" / "position-checkpoint"
    path.write_text(text)
    repaired(root, CONFIG, COMPACTION)
    known = {"a_0": 9} if "a_0" in text else {}
    assert loads(path.read_text()) == {"empty": not known, "queueOffsetMap": known}


@pytest.mark.few(2)
def test_positions_that_are_cut_are_taken_from_their_bak(root: Path) -> None:
    path = root / "compaction" / "position-checkpoint"
    whole, backup = path.read_bytes(), path.with_name("position-checkpoint.bak").read_bytes()
    path.write_bytes(whole[:20])
    repaired(root, CONFIG, COMPACTION)
    assert loads(path.read_text()) == loads(backup.decode())


@pytest.mark.parametrize("table", ['{"queueOffsetMap":{"state_0":90,"state_1":265}}', '{"queueOffsetMap":{}}', "xx"])
def test_a_position_that_is_older_than_the_compacted_files_hides_nothing(table: str, tmp_path: Path) -> None:
    """A broker writes it behind the files, and does not force it: no message is lost that they leave out."""
    root = stores.unpack("5.3.3-compaction", tmp_path)
    kept = {path: path.read_bytes() for path in (root / "compaction").glob("compaction*/*/*/*")}
    for name in ("position-checkpoint", "position-checkpoint.bak"):
        (root / "compaction" / name).write_text(table)
    for _ in range(2):  # before and after what is made of a table that cannot be read
        assert analyze(Layout.open(root, CONFIG), "5.3").prediction.hidden == 0
        repaired(root, CONFIG, COMPACTION)
        assert {path: path.read_bytes() for path in (root / "compaction").glob("compaction*/*/*/*")} == kept


def test_a_file_behind_the_compacted_ones_that_is_lost_is_not_compacted(tmp_path: Path) -> None:
    """With the right position; the messages are made anew of the commit log."""
    root = stores.unpack("5.3.3-compaction", tmp_path)
    for path in (root / "compaction").glob("compaction*/state/0/*1680"):
        path.unlink()
    assert analyze(Layout.open(root, CONFIG), "5.3").prediction.hidden > 0


SEVERAL = "5.3.3-compaction-killed"
"""A store with files that follow one another."""


def test_zeros_at_the_end_of_a_file_behind_the_compacted_ones_are_damage(tmp_path: Path) -> None:
    """A page that a power loss left unwritten hides messages; compaction wrote the files up to the first gap."""
    root = stores.unpack(SEVERAL, tmp_path)
    name = "state/0/00000000000000131560"
    log, queue = (root / "compaction" / kind / name for kind in ("compactionLog", "compactionCq"))
    units = UNIT[len(queue.read_bytes()) // UNIT_BYTES].parse(queue.read_bytes())
    used = [unit for unit in units if unit.size]
    half = len(used) // 2
    for path, begin in ((log, used[half].physical_offset - int(log.name)), (queue, half * UNIT_BYTES)):
        overwrite(path, begin, bytes(path.stat().st_size - begin))
    assert analyze(Layout.open(root, CONFIG), "5.3").prediction.hidden == len(used) - half == 10


@pytest.mark.parametrize("bytes_", ["20240", "5060"])
def test_an_option_that_was_changed_moves_no_file(bytes_: str, tmp_path: Path) -> None:
    """Files of another length would overlap, or leave gaps; verify tells that they do not fit."""
    root = stores.unpack(SEVERAL, tmp_path)
    config = BrokerConfig({"compactionMappedFileSize": bytes_})
    plan = examined(root, config, COMPACTION).plan
    assert not [edit.to_json() for edit in plan.edits]


@pytest.mark.few(2)
@pytest.mark.parametrize("cut", [1, 20, 90])
def test_a_file_that_is_cut_is_closed_where_it_ended(cut: int, tmp_path: Path) -> None:
    """Files lie behind it: its length and its BLANK are as the broker wrote them."""
    root = stores.unpack(SEVERAL, tmp_path)
    wanted = rows(root, ["compaction"])
    path = sorted((root / "compaction/compactionLog/state/0").iterdir())[1]
    data = path.read_bytes()
    blank_at = len(data.rstrip(b"\0")) - BLANK.sizeof()
    assert blank_at + BLANK.sizeof() <= len(data) - cut, "no record is cut"
    path.write_bytes(data[:blank_at].ljust(len(data) - cut, b"\0"))
    repaired(root, BrokerConfig({}), COMPACTION)
    assert rows(root, ["compaction"]) == wanted


def test_each_directory_is_listed_a_few_times(tmp_path: Path) -> None:
    """With many queues a look at all of them for each one takes for ever."""
    root = stores.unpack(SEVERAL, tmp_path)
    for number in range(2, 12):
        for part in ("compactionLog", "compactionCq"):
            folder = root / "compaction" / part / "state"
            shutil.copytree(folder / "1", folder / f"{number}")
    calls = Counter[str]()

    def counted(directories: Any, *rest: Any, **more: Any) -> Any:
        calls[str(directories)] += 1
        return opened(directories, *rest, **more)

    opened = MappedFileQueue.open
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(MappedFileQueue, "open", counted)
        examined(root, BrokerConfig({}), COMPACTION)
    seen = [count for path, count in calls.items() if "compactionLog/state" in path]
    assert len(seen) == 12 and max(seen) < 8, calls


SIZES = BrokerConfig({"compactionMappedFileSize": "9200", "compactionCqMappedFileSize": "920"})


@pytest.mark.few(1)
def test_queues_that_are_gone_need_their_length(root: Path) -> None:
    """Without it none is made, and no log is changed; the second command would propose itself again."""
    wanted = rows(root, ["compaction"])
    shutil.rmtree(root / QUEUES)
    for config in (CONFIG, BrokerConfig({"compactionCqMappedFileSize": "1048576"})):
        found = examined(root, config, COMPACTION)
        assert [edit.to_json() for edit in found.plan.edits] == []
        (left,) = find_unrepairable(found.layout, "5.3")
        assert (left.code, "--set compactionCqMappedFileSize=" in left.now) == ("I-160", True)
    repaired(root, SIZES, COMPACTION)
    assert rows(root, ["compaction"]) == wanted


@pytest.mark.few(2)
@pytest.mark.parametrize("gone", ["", "compactionLog/state", "compactionCq/state"])
def test_logs_and_queues_that_are_gone_come_from_the_commit_log(gone: str, root: Path) -> None:
    """With what compaction had left out; what it had not seen yet is byte for byte as the broker wrote it."""
    kept = newest(root)
    for place in (gone, gone.replace("Log", "Cq")):
        shutil.rmtree(root / "compaction" / place, ignore_errors=True)
    repaired(root, SIZES, COMPACTION)
    if gone != "compactionCq/state":
        assert len(list((root / QUEUES).glob("*/*/*"))) == 30
        known = root / "compaction/position-checkpoint"
        assert not known.exists() or not loads(known.read_text())["queueOffsetMap"]
    assert {path: path.read_bytes() for path in kept} == kept
    assert not analyze(Layout.open(root, SIZES), "5.3").harmful


def newest(root: Path) -> dict[Path, bytes]:
    """The last file of each log and queue."""
    queues = (root / "compaction").glob("compaction*/*/*")
    return {path: path.read_bytes() for path in (max(queue.iterdir()) for queue in queues)}


@pytest.mark.few(2)
def test_the_last_files_that_are_gone_come_from_the_commit_log(root: Path) -> None:
    kept = newest(root)
    for path in kept:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    hidden = analyze(Layout.open(root, CONFIG), "5.3").prediction.hidden
    assert 0 < hidden < 20
    repaired(root, CONFIG, COMPACTION)
    assert {path: path.read_bytes() for path in kept} == kept


def test_a_log_of_a_topic_that_was_deleted_and_made_again(tmp_path: Path) -> None:
    """No broker deletes it: at the same numbers it has the old messages, and takes no new ones."""
    root = stores.unpack("5.3.3-compaction", tmp_path)
    for path in (root / "compaction/compactionLog/state/0").iterdir():
        with MappedFileQueue.of_file(path, int(path.name)) as files:
            batches = [item for item in CommitLog(files).scan() if isinstance(item, Batch)]
        for batch in batches:
            for at, time in zip(batch.position, batch.columns.ints("store_timestamp"), strict=True):
                set_field(path, int(at) - int(path.name), MESSAGE, "store_timestamp", int(time) - 10**6)
    shutil.rmtree(root / QUEUES / "state/0")
    repaired(root, CONFIG, COMPACTION)
    worst = analyze(Layout.open(root, CONFIG), "5.3").prediction
    assert {(share.queue, share.reason) for share in worst.invisible} == set()
    with open_log(Layout.open(root, CONFIG), "state", 0).queue as files:
        assert len(files.files) == 15


ALONE = "storeType=defaultRocksDB"
BESIDE = ("rocksdbCQDoubleWriteEnable=true", "combineCQUseRocksdbForLmq=true")


@pytest.mark.parametrize(
    ("version", "words", "made"),
    [("5.5.1", [ALONE], 0), ("5.4.0", [ALONE], 0), ("5.5.1", BESIDE, 0), ("5.5.1", [], 30), ("5.3.3", [ALONE], 30)],
)
def test_no_log_is_made_that_would_keep_a_broker_from_its_start(
    version: str, words: list[str], made: int, tmp_path: Path
) -> None:
    """Since 5.4 none loads beside queues in a RocksDB; without one it serves the other topics."""
    root = stores.unpack("5.3.3-compaction", tmp_path)
    shutil.rmtree(root / "compaction")
    layout = Layout.open(root, SIZES.with_set([*words]))
    for choice in (COMPACTION, Choice()):
        found = plan_of_repair(layout, choice, version, 0)
        assert sum("compactionCq/state" in edit.path for edit in found.plan.edits) == made


def test_a_start_dispatches_to_a_log_from_where_the_database_says(tmp_path: Path) -> None:
    """Queues in a RocksDB alone, which 5.3.3 serves compaction topics from."""
    name = "5.3.3-compaction"
    root = stores.unpack(name, tmp_path)
    layout = as_kind(Layout.open(root, BrokerConfig(stores.config(name, root))), QueueStoreKind.ROCKSDB)
    carried_out(layout, QueueStoreKind.ROCKSDB)
    shutil.rmtree(root / "compaction")
    worst = analyze(again(layout), "5.3.3").prediction
    assert (worst.case.label, worst.hidden) == ("compaction-incomplete", 545)
    (root / "abort").touch()
    assert analyze(again(layout), "5.3.3").prediction.hidden == 0


def test_what_a_start_after_a_crash_would_dispatch_a_recovery_makes(tmp_path: Path) -> None:
    """The next start is a clean one, and dispatches nothing."""
    name = "5.3.3-compaction"
    root = stores.unpack(name, tmp_path)
    config = SIZES.with_set([f"{key}={value}" for key, value in stores.config(name, root).items()])
    shutil.rmtree(root / "compaction")
    (root / "abort").touch()
    (root / "checkpoint").unlink()
    layout = Layout.open(root, config)
    found = analyze(layout, "5.3.3", options=RecoveryOptions(Policy.KEEP))
    assert not found.prediction.hidden
    wide = widened(found, [])
    assert wide.plan is not None
    apply(layout, wide.plan, lambda: replan_with_parts(again(layout), wide.main_version, wide.options), Files())
    assert analyze(again(layout), "5.3.3").nothing_to_do
    assert not analyze(again(layout), "5.3.3").harmful


@pytest.mark.parametrize("gone", ["*/*", "*/0/*000", "*/1/*1680"])
def test_units_without_their_log_hide_nothing_of_the_commit_log(gone: str, tmp_path: Path) -> None:
    """A broker does not read them; what the commit log has is made again at once, and is not lost."""
    name = "5.3.3-compaction"
    root = stores.unpack(name, tmp_path)
    for path in (root / "compaction/compactionLog").glob(gone):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    hidden = analyze(Layout.open(root, CONFIG), "5.3").prediction.hidden
    assert hidden > 0
    assert examined(root, CONFIG, COMPACTION).plan.lost.messages == 0
    repaired(root, CONFIG, COMPACTION)
    assert not analyze(Layout.open(root, CONFIG), "5.3").harmful


def test_queue_files_of_a_length_that_no_log_file_allows_tell_nothing(tmp_path: Path) -> None:
    """Each would lie over the next one."""
    root = stores.unpack(SEVERAL, tmp_path)
    wanted = rows(root, ["compaction"])
    for path in (root / QUEUES).glob("*/*/*"):
        os.truncate(path, UNIT_BYTES << 10)
    assert not examined(root, CONFIG, COMPACTION).plan.edits
    repaired(root, SIZES, COMPACTION)
    assert rows(root, ["compaction"]) == wanted


class Place(NamedTuple):
    """A record of a compaction log: the file, the byte, its queue, and where it lies in the commit log."""

    file: Path
    at: int
    queue: QueueId
    queue_offset: int
    in_commit_log: int


def record_of(root: Path, number: int) -> Place:
    """The record with this number in the first compaction log. Raises IndexError."""
    layout = Layout.open(root, CONFIG)
    directory = min((root / "compaction/compactionLog").glob("*/*"))
    queue = QueueId(directory.parent.name, int(directory.name))
    log = open_log(layout, *queue)
    rows = [
        row
        for item in log.scan()
        if isinstance(item, Batch)
        for row in zip(item.position.tolist(), item.columns.ints("queue_offset").tolist(), strict=True)
    ]
    position, offset = rows[number]
    file = log.queue.file_at(position)
    assert file is not None
    with StoreReader(layout) as store, store.queues.open(*queue) as units:
        unit = units.unit(offset)
    assert unit is not None
    return Place(Path(file.path), position - file.start, queue, offset, unit.physical_offset)


def in_commit_log(root: Path, place: Place) -> tuple[Path, int]:
    """File and byte of the message there."""
    file = Layout.open(root, CONFIG).commit_log_files().file_at(place.in_commit_log)
    assert file is not None
    return Path(file.path), place.in_commit_log - file.start


FIELDS = ("total_size", "magic_code", "body_crc", "queue_id", "queue_offset", "physical_offset", "store_timestamp")


@pytest.mark.few(4)
@pytest.mark.parametrize("number", [1, -1])
@pytest.mark.parametrize("field", FIELDS)
def test_a_damaged_record_comes_back_from_the_commit_log(field: str, number: int, tmp_path: Path) -> None:
    """One that no reader finds any more, too: its unit tells which message it was."""
    root = stores.unpack("5.3.3-compaction", tmp_path)
    wanted = rows(root, ["compaction"])
    place = record_of(root, number)
    set_field(place.file, place.at, MESSAGE, field, 367)
    assert rows(root, ["compaction"]) != wanted
    found = examined(root, CONFIG, COMPACTION)
    assert found.plan.lost.messages == 0
    repaired(root, CONFIG, COMPACTION)
    assert rows(root, ["compaction"]) == wanted


def test_the_last_record_of_a_file_that_others_follow_comes_back(tmp_path: Path) -> None:
    """Nothing is written over it as if the file ended before it."""
    root = stores.unpack(SEVERAL, tmp_path)
    wanted = rows(root, ["compaction"])
    path = sorted((root / "compaction/compactionLog/state/0").iterdir())[1]
    with MappedFileQueue.of_file(path, 0) as files:
        last = [item.position.tolist() for item in CommitLog(files).scan() if isinstance(item, Batch)][-1][-1]
    set_field(path, last, MESSAGE, "magic_code", 0)
    repaired(root, CONFIG, COMPACTION)
    assert rows(root, ["compaction"]) == wanted


@pytest.mark.parametrize("field", ["store_timestamp", "body_crc"])
def test_a_message_that_neither_log_has_whole_is_lost(field: str, tmp_path: Path) -> None:
    """It is counted once, where the commit log has lost it as well."""
    root = stores.unpack("5.3.3-compaction", tmp_path)
    place = record_of(root, 1)
    set_field(place.file, place.at, MESSAGE, "total_size", 367)
    set_field(*in_commit_log(root, place), MESSAGE, field, 367)
    for choice in (COMPACTION, Choice()):
        (share,) = examined(root, CONFIG, choice).plan.lost
        assert (share.queue, share.messages, share.first_offset) == (place.queue, 1, place.queue_offset)
    repaired(root, CONFIG, COMPACTION)


def test_a_unit_that_names_the_number_of_another_message_changes_no_record(tmp_path: Path) -> None:
    root = stores.unpack("5.3.3-compaction", tmp_path)
    wanted = rows(root, ["compaction"])
    path = min((root / QUEUES).glob("*/*/0*"))
    data = bytearray(path.read_bytes())
    at = UNIT_BYTES + offset_of(UNIT, "msg_base_offset")
    data[at : at + 8] = (int.from_bytes(data[at : at + 8], "big") + 1).to_bytes(8, "big")
    path.write_bytes(data)
    found = examined(root, CONFIG, COMPACTION).plan
    assert [Path(edit.path) for edit in found.edits] == [path] and not found.lost.messages
    repaired(root, CONFIG, COMPACTION)
    assert rows(root, ["compaction"]) == wanted
