"""Numbers in properties at which a broker's log ends: queue and body tell what they were (spec 7.2, row 7)."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from mqstore.formats.message import MAGIC_V1, MESSAGE
from mqstore.store.audit.messages import UNUSABLE
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.files import Files
from mqstore.store.disk.layout import Layout
from mqstore.store.plan.observer import Policy, RecoveryOptions
from mqstore.store.recover.recovery import analyze, replan
from mqstore.store.session.apply import apply
from mqstore.store.verify.verdict import Status

from ... import stores
from ...verdict import Said, apply_recovery, left_behind, said_of

pytestmark = pytest.mark.long

BATCHES = ("5.1.4-batchcq", "5.3.3-batchcq")


def spoilt(root: Path, name: str, value: str) -> None:
    """Write a value over one of the same length that a record of the log has for this property."""
    length = len(value.encode())
    pattern = re.compile(rb"%b\x01([^\x02\0]{%d})[\x02\0]" % (name.encode(), length))
    for file in sorted((root / "commitlog").iterdir()):
        data = file.read_bytes()
        if place := pattern.search(data):
            file.write_bytes(data[: place.start(1)] + value.encode() + data[place.end(1) :])
            return
    raise AssertionError(f"no {name} of {length} bytes")


def _without_queue_id(root: Path) -> int:
    """Rename REAL_QID of the first delayed message of the first log file; its position."""
    file = min((root / "commitlog").iterdir())
    data = file.read_bytes()
    place = re.search(rb"SCHEDULE_TOPIC_XXXX..(?:[^\x02\0]*\x02)*?(REAL_QID)\x01", data, re.DOTALL)
    assert place is not None
    file.write_bytes(data[: place.start(1)] + b"LEAR" + data[place.start(1) + 4 :])
    return int(file.name) + data.rindex(MAGIC_V1.to_bytes(4), 0, place.start()) - 4


def logs(root: Path) -> bytes:
    return b"".join(file.read_bytes() for file in sorted((root / "commitlog").iterdir()))


def recovered(name: str, root: Path, *, loses: int = 0) -> tuple[Said, Said]:
    """What is said before and after `recover --apply`; nothing is left to do."""
    config = BrokerConfig(stores.config(name, root))
    before = said_of(root, config)
    assert before.found is not None and before.found.plan is not None
    assert before.found.plan.lost.messages == loses
    apply_recovery(before, config)
    after = said_of(root, config)
    assert list(left_behind(after)) == []
    return before, after


@pytest.mark.few(7)
@pytest.mark.parametrize(
    ("name", "of", "value", "code"),
    [
        *((name, "DELAY", "x", "I-045") for name in ("4.3.1-clean", "4.9.7-clean", "5.3.3-clean", "5.5.1-clean")),
        ("5.3.3-rocksdb", "DELAY", " 8", "I-045"),
        *((name, "INNER_NUM", "x", "I-044") for name in BATCHES),
        *((name, "INNER_NUM", "0", "I-044") for name in BATCHES),
        *((name, "INNER_BASE", "x1", "I-044") for name in BATCHES),
    ],
)
def test_a_number_is_as_it_was(name: str, of: str, value: str, code: str, tmp_path: Path) -> None:
    root = stores.unpack(name, tmp_path)
    whole = logs(root)
    spoilt(root, of, value)
    assert logs(root) != whole
    before, after = recovered(name, root)
    assert code in before.codes and after.status is Status.CLEAN, (str(before), str(after))
    assert logs(root) == whole


@pytest.mark.parametrize("name", ["4.9.7-clean", "4.9.7-dledger", "5.3.3-dledger"])
def test_no_message_is_lost_with_a_number_that_was_sent(name: str, tmp_path: Path) -> None:
    """Brokers of 4.x do not read the numbers of batches; those of 5.x get one, in an entry of DLedger, too."""
    root = stores.unpack(name, tmp_path)
    log = next(path for path in (root / "commitlog", root / "dledger-n0" / "data") if path.is_dir())
    file = min(log.iterdir())
    data = file.read_bytes()
    place = data.index(b"\x02UNIQ_KEY\x01") + 1
    end, item = data.index(b"\x02", place), b"INNER_NUM\x01x\x02INNER_BASE\x01"
    file.write_bytes(data[:place] + item.ljust(end - place, b"5") + data[end:])
    before, _ = recovered(name, root)
    assert ("I-044" in before.codes) is name.startswith("5")


@pytest.mark.parametrize("value", ["+5", "05", "\u0665"])
def test_a_number_that_java_reads_counts_like_any_other(value: str, tmp_path: Path) -> None:
    """The numbers of its batch, and of the one behind it, are as they should be."""
    name = "5.3.3-batchcq"
    root = stores.unpack(name, tmp_path)
    file = min((root / "commitlog").iterdir())
    data = file.read_bytes()
    batch = re.search(rb"INNER_NUM\x015\x02", data)
    assert batch is not None
    wide = data[batch.end() :].index(b"\x02")
    item = data[batch.end() : batch.end() + wide]
    shorter = item[: len(item) - len(value.encode()) + 1]
    file.write_bytes(data[: batch.start() + 10] + value.encode() + b"\x02" + shorter + data[batch.end() + wide :])
    found = said_of(root, BrokerConfig(stores.config(name, root)))
    assert not {"I-031", "I-044", "I-082"}.intersection(found.codes), str(found)


def test_a_tombstone_of_a_batch_counts_as_many_as_its_batch(tmp_path: Path) -> None:
    """A body of several messages is damaged: behind it the queue goes on as before."""
    name = "5.3.3-batchcq"
    root = stores.unpack(name, tmp_path)
    file = min((root / "commitlog").iterdir())
    data = file.read_bytes()
    batch = data.index(b"INNER_NUM\x015\x02")
    file.write_bytes(data[: batch - 200] + bytes([data[batch - 200] ^ 1]) + data[batch - 199 :])
    before, after = recovered(name, root, loses=5)
    assert "I-023" in before.codes and after.status is Status.CLEAN, str(after)


def test_a_replica_with_the_same_number_gives_nothing(tmp_path: Path) -> None:
    """Whoever sent it sent it to both: it is put right, and nothing is brought back."""
    root = stores.unpack("5.3.3-clean", tmp_path)
    spoilt(root, "DELAY", "x")
    replica = tmp_path / "replica"
    shutil.copytree(root / "commitlog", replica / "commitlog")
    layout = Layout.open(root)
    options = RecoveryOptions(Policy.KEEP, replica=str(replica))
    found = analyze(layout, options=options)
    assert found.plan is not None and found.plan.brought is not None
    assert not found.plan.brought.parts and not found.plan.lost.messages
    apply(layout, found.plan, lambda: replan(Layout.open(root), found.main_version, options), Files())
    assert analyze(Layout.open(root), options=options).nothing_to_do


def test_a_record_put_right_has_a_number_in_each_light_queue(tmp_path: Path) -> None:
    """Those that the crash left without are numbered in the same recovery, its own among them."""
    name = "5.5.0-lmq-poison"
    root = stores.unpack(name, tmp_path)
    first = min((root / "commitlog").iterdir())
    data = bytearray(first.read_bytes())
    size = MESSAGE.parse(bytes(data)).total_size
    data[:4] = (size + 8).to_bytes(4, "big")
    first.write_bytes(data)
    config = BrokerConfig(stores.config(name, root))
    before = said_of(root, config)
    assert before.found is not None and before.found.plan is not None
    apply_recovery(before, config)
    reasons = [edit.reason for edit in before.found.plan.edits if edit.offset == 0 and edit.path == str(first)]
    assert reasons == ["corrects a record: its queue and its body prove what it was"]
    after = said_of(root, config)
    assert list(left_behind(after)) == [] and after.status is Status.CLEAN, str(after)


def test_a_tombstone_takes_the_place_of_a_message_at_which_a_delay_level_stops(tmp_path: Path) -> None:
    """Without the number of its queue brokers 4.9 deliver neither the message nor any behind it."""
    root = stores.unpack("4.9.7-clean", tmp_path)
    place = _without_queue_id(root)
    for file in (root / "config").glob("delayOffset.json*"):
        file.unlink()  # so nothing was delivered
    before, after = recovered("4.9.7-clean", root, loses=1)
    told = [finding.message for finding in before.verdict.findings if finding.code == "I-045"]
    assert len(told) == 1 and f"record at {place}: scheduled without a valid REAL_TOPIC and REAL_QID" in told[0]
    assert "deliver no later message of delay level " in told[0]
    assert "I-186" not in before.codes, str(before)  # the record is there, and one finding reports it
    assert before.found is not None and before.found.plan is not None
    assert [share.reason for share in before.found.plan.lost] == [UNUSABLE]
    assert after.status is Status.CLEAN, str(after)


@pytest.mark.parametrize(
    ("name", "said"), [("4.3.1-clean", ""), ("4.9.7-clean", ""), ("5.3.3-clean", ": the broker drops the message")]
)
def test_a_delayed_message_at_which_no_level_stops_stays(name: str, said: str, tmp_path: Path) -> None:
    """A broker drops it, or has delivered it before the damage."""
    root = stores.unpack(name, tmp_path)
    place = _without_queue_id(root)
    if said:
        (root / "config/delayOffset.json").unlink()
        (root / "config/delayOffset.json.bak").unlink(missing_ok=True)
    found = said_of(root, BrokerConfig(stores.config(name, root)))
    told = [finding.message for finding in found.verdict.findings if finding.code == "I-045"]
    assert told == [f"record at {place}: scheduled without a valid REAL_TOPIC and REAL_QID{said}"]
    assert found.found is not None and (found.found.plan is None or not found.found.plan.lost.messages)
