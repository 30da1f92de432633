"""A plain store of a DLedger store: the same messages at the same offsets, and a start leaves it alone."""

from __future__ import annotations

import hashlib
import random
import shutil
from pathlib import Path

import numpy as np
import pytest

from mqstore.formats import batch_consume_queue, consume_queue, timer_log
from mqstore.formats.dledger import HEADER_BYTES
from mqstore.formats.message import MESSAGE, SysFlag
from mqstore.formats.message_properties import TRANS_OFFSET, crc_item, crc_ok
from mqstore.store.broker.profiles import writer_profile
from mqstore.store.broker.topics import Topics
from mqstore.store.disk.file_queue import file_name
from mqstore.store.disk.files import Files
from mqstore.store.disk.layout import Layout
from mqstore.store.errors import InUse, InvalidInput, Refused, Unsupported
from mqstore.store.library import Store
from mqstore.store.log.batch import Batch, messages
from mqstore.store.log.commit_log import CommitLog
from mqstore.store.log.message import Message
from mqstore.store.log.write import LogWriter
from mqstore.store.plan.observer import Policy, RecoveryOptions
from mqstore.store.queues.batches import batch_summaries
from mqstore.store.recover.recovery import analyze
from mqstore.store.repair.convert import NOWHERE, Converted, Moved, convert, copy_log
from mqstore.store.verify.run import verify
from tests import stores
from tests.store.made_log import MadeLog, log_of, made

NAMES = [name for name in stores.ALL if "dledger" in name]
DATA = "dledger-n0/data"


def contents(root: Path) -> dict[str, tuple[int, str]]:
    """Size and hash of every file below a directory, with its time."""
    found = {}
    for path in sorted(root.rglob("*")):
        if path.is_file():
            status = path.stat()
            small = status.st_size < 1 << 20  # the others are holes
            digest = hashlib.sha256(path.read_bytes()).hexdigest() if small else ""
            found[str(path)] = (status.st_mtime_ns, digest)
    return found


def converted(root: Path, target: Path, name: str) -> Converted:
    """The plain store, made of a store that is not changed by it."""
    before = contents(root)
    done = convert(Layout.open(root), target, stores.truth(name)["broker_version"], Files())
    assert contents(root) == before
    return done


def assert_left_alone(target: Path) -> None:
    found = analyze(Layout.open(target), options=RecoveryOptions(Policy.KEEP))
    assert found.plan is not None
    assert (found.nothing_to_do, found.harmful) == (True, False), found.plan.edits


def queues_of(root: Path) -> dict[str, tuple[int, int]]:
    with Store(root) as store:
        return {f"{q.topic}/{q.queue_id}": (q.min_offset, q.max_offset) for q in store.queue_summaries}


@pytest.mark.parametrize("wrong", [{"queue_id": 77}, {"topic": b"X"}])
def test_a_header_that_a_queue_contradicts_is_put_right(wrong: dict[str, int | bytes], tmp_path: Path) -> None:
    """The new store has no queues that tell: a queue would begin with its second message, twice."""
    name = "5.3.3-dledger"
    root, target = stores.unpack(name, tmp_path), tmp_path / "plain"
    log = root / DATA / file_name(0)
    data = log.read_bytes()
    record = MESSAGE.parse(data[HEADER_BYTES:])
    topic = bytes(wrong.get("topic", b"")) + record.topic[1:] if "topic" in wrong else record.topic
    made_wrong = MESSAGE.build({**record, **wrong, "topic": topic})
    log.write_bytes(data[:HEADER_BYTES] + made_wrong + data[HEADER_BYTES + len(made_wrong) :])
    done = converted(root, target, name)
    assert done.complete and done.copied.restored == 1
    assert queues_of(target) == {
        queue: (ends["min_offset"], ends["max_offset"]) for queue, ends in stores.truth(name)["queues"].items()
    }


@pytest.mark.parametrize("name", NAMES)
def test_every_message_is_there_at_its_offset(name: str, tmp_path: Path) -> None:
    root, target = stores.unpack(name, tmp_path), tmp_path / "plain"
    done = converted(root, target, name)
    known = list(stores.messages(name))
    assert done.complete
    assert (done.copied.records, done.copied.damaged) == (len(known), 0)
    assert queues_of(target) == {
        queue: (ends["min_offset"], ends["max_offset"]) for queue, ends in stores.truth(name)["queues"].items()
    }
    layout = Layout.open(target)
    assert layout.dledger is None
    assert not layout.abort.exists()
    assert_left_alone(target)
    with Store(target) as store:
        end = 0
        for row in known:
            found = store.message(row["topic"], row["queue_id"], row["queue_offset"])
            assert hashlib.sha1(found.stored_body).hexdigest() == row["body_sha1"]
            assert found.properties == row["properties"]
            assert found.store_timestamp == row["store_timestamp"]
            assert found.physical_offset >= end
            end = found.physical_offset + found.total_size


def test_what_is_damaged_has_a_tombstone_and_is_told(tmp_path: Path) -> None:
    name = "5.3.3-dledger"
    root, target = stores.unpack(name, tmp_path), tmp_path / "plain"
    with (root / DATA / f"{49152:020d}").open("r+b") as file:
        file.seek(20000)
        file.write(bytes(4096))
    done = converted(root, target, name)
    assert not done.complete
    assert (done.copied.damaged, done.changed, done.left) == (1, [], "")
    assert 0 < done.copied.records < len(list(stores.messages(name)))
    assert_left_alone(target)


@pytest.mark.parametrize(("from_end", "left"), [(12, []), (20, ["I-055"])], ids=["at the end", "in the middle"])
def test_torn_properties_are_told(from_end: int, left: list[str], tmp_path: Path) -> None:
    """As a torn write leaves them, in a record whose body is whole: zeros at the end, or in the middle, which no plan
    puts right: the new store has them as the old one.
    """
    name = "5.3.3-dledger"
    root, target = stores.unpack(name, tmp_path), tmp_path / "plain"
    with Store(root) as store:
        record = store.message("TopicA", 0, 20)
    number, end = divmod(record.physical_offset + record.total_size, 49152)
    with (root / DATA / f"{number * 49152:020d}").open("r+b") as file:
        file.seek(end - from_end)
        file.write(bytes(12))
    done = converted(root, target, name)
    assert (done.complete, done.copied.torn) == (False, 1)
    assert [finding.code for finding in verify(target).serious] == left
    if not left:
        assert (done.copied.damaged, done.copied.wrong, done.changed, done.left) == (0, 0, [], "")
        assert_left_alone(target)


def test_a_log_that_is_cut_short_is_told(tmp_path: Path) -> None:
    """The last record is torn, and units name records that are gone."""
    root = stores.unpack("4.9.7-dledger", tmp_path)
    last = max((root / DATA).iterdir())
    with last.open("r+b") as file:
        file.truncate(30_000)
    done = converted(root, tmp_path / "plain", "4.9.7-dledger")
    assert (done.copied.records, done.copied.damaged) == (200, 1)
    assert [(q.topic, q.queue_id, q.after) for q in done.changed] == [("TopicA", 0, (0, 45))]


def test_queues_that_were_lost_are_there_again(tmp_path: Path) -> None:
    name = "5.3.3-dledger"
    root, target = stores.unpack(name, tmp_path), tmp_path / "plain"
    shutil.rmtree(root / "consumequeue")
    done = converted(root, target, name)
    assert done.complete
    assert done.queues == len(stores.truth(name)["queues"])


def test_a_queue_whose_messages_are_expired_keeps_its_end(tmp_path: Path) -> None:
    """No record tells it: a broker would number its next messages from 0 on, behind where its groups are."""
    root, target = stores.unpack("5.3.3-dledger", tmp_path), tmp_path / "plain"
    (root / DATA / file_name(0)).unlink()
    profile, topics = writer_profile("5.3"), Topics.read(root / "config")
    topics.add({"Idle": 0, "Batches": 1}, profile, {"Batches"})
    topics.write(Files(), profile, lambda: 0)
    units = [{"physical_offset": 100 * number, "size": 100, "tags_code": 0} for number in range(5)]
    batches = [
        {"store_time": 1, "msg_base_offset": 4 * number, "batch_size": 4, "compacted_offset": -1, "reserved": 0} | unit
        for number, unit in enumerate(units)
    ]
    for path, schema, rows in (
        ("consumequeue/Idle/0", consume_queue.UNIT, units),
        ("batchconsumequeue/Batches/1", batch_consume_queue.UNIT, batches),
    ):
        (root / path).mkdir(parents=True)
        data = b"".join(schema.build(row) for row in rows)
        (root / path / file_name(0)).write_bytes(data.ljust(schema.sizeof() * 100, b"\0"))
    done = converted(root, target, "5.3.3-dledger")
    assert (done.complete, done.queues) == (True, len(stores.truth("5.3.3-dledger")["queues"]) + 2)
    kept = {each[:2]: each.max_offset for each in batch_summaries(Layout.open(target))}
    assert (queues_of(target)["Idle/0"], kept) == ((5, 5), {("Batches", 1): 20})
    assert_left_alone(target)


def test_a_directory_is_left_as_it_was_where_nothing_can_be_made(tmp_path: Path) -> None:
    root, target = stores.unpack("5.3.3-dledger", tmp_path), tmp_path / "plain"
    layout = Layout.open(root)
    for path in (root / DATA).iterdir():
        path.write_bytes(bytes(path.stat().st_size))
    with pytest.raises(Refused, match="no record"):
        convert(layout, target, None, Files())
    assert not target.exists()
    with pytest.raises(Refused, match="in the store"):
        convert(layout, root / "plain", None, Files())
    target.mkdir()
    (target / "something").touch()
    with pytest.raises(InvalidInput, match="not empty"):
        convert(layout, target, None, Files())


def test_a_plain_store_is_refused(tmp_path: Path) -> None:
    root = stores.unpack("5.3.3-v2", tmp_path)
    with pytest.raises(Refused, match="no DLedger log"):
        convert(Layout.open(root), tmp_path / "plain", None, Files())


def test_queues_in_a_rocksdb_go_to_files_first(tmp_path: Path) -> None:
    root = stores.unpack("5.3.3-dledger", tmp_path)
    (root / "consumequeue" / "CURRENT").write_text("MANIFEST-000005\n")
    with pytest.raises(Unsupported, match="queues in RocksDB") as refused:
        convert(Layout.open(root), tmp_path / "plain", None, Files())
    assert refused.value.hint == f"run first: mqstore repair {root} --queues --as files --apply"


def test_a_store_in_use_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = stores.unpack("5.3.3-dledger", tmp_path)
    monkeypatch.setattr("mqstore.store.session.apply.holder", lambda _lock: 4711)
    with pytest.raises(InUse, match="4711"):
        convert(Layout.open(root), tmp_path / "plain", None, Files())


def test_the_timer_log_follows(tmp_path: Path) -> None:
    """Its units name the records where they lie now; one that names none stays as it is."""
    root, target = stores.unpack("5.3.3-dledger", tmp_path), tmp_path / "plain"
    known = list(stores.messages("5.3.3-dledger"))
    named = [row["physical_offset"] for row in known[:5]]
    fields = dict.fromkeys((s.name for s in timer_log.UNIT.subcons), 0)
    units = [
        timer_log.UNIT.build(fields | {"size": timer_log.UNIT_BYTES, "prev_pos": -1, "magic": 1, "offset_py": at})
        for at in (*named, 49)
    ]
    (root / "timerlog").mkdir(exist_ok=True)
    path = root / "timerlog" / f"{0:020d}"
    path.write_bytes(b"".join(units).ljust(timer_log.UNIT_BYTES * 100, b"\0"))
    converted(root, target, "5.3.3-dledger")
    data = (target / "timerlog" / path.name).read_bytes()
    found = [timer_log.UNIT.parse(data[i * timer_log.UNIT_BYTES :]).offset_py for i in range(len(units))]
    with Store(target) as store:
        places = [
            store.message(row["topic"], row["queue_id"], row["queue_offset"]).physical_offset for row in known[:5]
        ]
    assert found == [*places, 49]


def in_dledger(name: str, work: Path) -> Path:
    """A store with its log in DLedger entries instead, and no queues."""
    root, log, places = stores.unpack(name, work), MadeLog(1 << 16, HEADER_BYTES), dict[int, int]()
    with Store(root) as store:
        for each in all_messages(store.log):
            fields = MESSAGE.parse(store.log.read(each.physical_offset, each.total_size))
            for derived in ("total_size", "physical_offset"):
                del fields[derived]
            op = each.properties.get(TRANS_OFFSET, "")
            if op.isdigit():
                old, new = (f"{TRANS_OFFSET}\x01{place}" for place in (op, places[int(op)]))
                fields["properties"] = fields["properties"].replace(old.encode(), new.encode())
            places[each.physical_offset] = log.append(**fields) + HEADER_BYTES
    for gone in ("commitlog", "consumequeue", "index"):
        shutil.rmtree(root / gone)
    log.write(root / DATA)
    return root


@pytest.mark.parametrize("there", [True, False])
def test_open_transactions_that_only_a_rocksdb_names_are_told(there: bool, tmp_path: Path) -> None:
    """A real 5.5.1 asks for none of them on the new store."""
    name = "5.5.1-rocks-trans-open"
    root, target = in_dledger(name, tmp_path), tmp_path / "plain"
    if not there:
        shutil.rmtree(root / "rocksdbstore")
    done = converted(root, target, name)
    waits = sum(row.get("transaction_state") == "UNKNOW" for row in stores.sent(name))
    assert done.open_transactions == waits > 0 and not done.complete
    assert (done.copied.damaged, done.copied.wrong, done.copied.torn, done.changed) == (0, 0, 0, [])


def test_timed_messages_that_are_delivered_again_are_told(tmp_path: Path) -> None:
    """They are no loss: 13 had waited until they were delivered, 5 were cancelled (tests/stores, 5.5.1-rocks-timer)."""
    pytest.importorskip("rocksdict")
    name = "5.5.1-rocks-timer"
    done = converted(in_dledger(name, tmp_path), tmp_path / "plain", name)
    assert done.delivered_again == 18 and done.complete


# -- logs made record by record ----------------------------------------------------------------------


def all_messages(log: CommitLog) -> list[Message]:
    with log.queue:
        return [m for item in log.scan() if isinstance(item, Batch) for m in messages(item)]


def copy(log: MadeLog, tmp_path: Path, moved: Moved) -> list[Message]:
    """The messages of a plain log made of `log`; moved: hears where they went."""
    target, file_bytes = tmp_path / "plain", 4096
    target.mkdir()
    writer = LogWriter(Files(), [target], file_bytes, 0)
    old = log.log(tmp_path / "data")
    with old.queue:
        copy_log(old, writer, moved, lambda _: None)
    writer.sync()
    writer.close()
    return all_messages(log_of(target))


@pytest.mark.parametrize("seed", range(4))
def test_any_log_has_its_records_in_order(seed: int, tmp_path: Path) -> None:
    log = made(random.Random(seed), count=60, file_size=8192, around=48)
    assert_moved(log, tmp_path, Moved())


def assert_moved(log: MadeLog, tmp_path: Path, moved: Moved) -> None:
    found = copy(log, tmp_path, moved)
    before = all_messages(log_of(tmp_path / "data", dledger=True))
    assert [m.stored_body for m in found] == [m.stored_body for m in before]
    assert [m.queue_offset for m in found] == [m.queue_offset for m in before]
    old = np.array([m.physical_offset for m in before], np.int64)
    assert moved.places(old).tolist() == [m.physical_offset for m in found]
    assert moved.places(old + 1).tolist() == [NOWHERE] * len(old)
    assert all(m.body_crc_ok for m in found)


def test_ends_of_transactions_name_their_halves(tmp_path: Path) -> None:
    log = MadeLog(4096, 48)
    for number in range(20):
        half = log.append(b"x" * number) + 48
        log.append(
            b"y" * number,
            sys_flag=SysFlag.COMMIT | (SysFlag.BORN_V6 if number % 2 else 0),
            prepared_transaction_offset=half,
        )
    found = copy(log, tmp_path, Moved())
    assert len(found) == 40
    for half_message, end in zip(found[::2], found[1::2], strict=True):
        assert end.prepared_transaction_offset == half_message.physical_offset


def test_a_checksum_over_the_record_is_made_anew(tmp_path: Path) -> None:
    log = MadeLog(4096, 48)
    for number in range(20):
        log.append(b"body" * number, properties=b"a\x01b\x02" + crc_item(b""))
    found = copy(log, tmp_path, Moved())
    assert len(found) == 20
    plain = log_of(tmp_path / "plain")
    with plain.queue:
        for each in found:
            assert crc_ok(plain.read(each.physical_offset, each.total_size)) is True
