"""Databases of queues that recover makes anew: what they say is what the log has."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.files import Files
from mqstore.store.disk.layout import Layout
from mqstore.store.findings.catalogue import Severity
from mqstore.store.plan import database
from mqstore.store.plan.observer import RecoveryOptions
from mqstore.store.recover.recovery import analyze, replan
from mqstore.store.session.apply import apply
from mqstore.store.verify.verdict import Status

from ... import stores
from ...rocks_cases import case_of, damaged
from ...verdict import apply_recovery, said_of

pytestmark = pytest.mark.long


def recovered(root: Path, config: BrokerConfig) -> None:
    layout = Layout.open(root, config)
    found = analyze(layout, None)
    assert found.plan is not None
    layout = Layout.open(root, config)
    apply(layout, found.plan, lambda: replan(layout, found.main_version, found.options), Files())


def errors(root: Path, config: BrokerConfig) -> set[str]:
    found = said_of(root, config, None).verdict.findings
    return {each.code for each in found if each.severity > Severity.WARNING}


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["5.3.3-rocksdb", "5.5.1-combine-lmq"])
def test_queues_end_at_their_last_message_where_the_log_lost_its_tail(name: str, tmp_path: Path) -> None:
    root = stores.unpack(name, tmp_path)
    config = BrokerConfig(stores.config(name, root))
    (root / "abort").touch()
    log = root / "commitlog" / "00000000000000000000"
    data = log.read_bytes()
    log.write_bytes(data[:66000].ljust(len(data), b"\0"))
    for path in root.glob("consumequeue*/*.sst"):
        if path.stat().st_size > 4000:  # the units, not the rows of ends
            path.write_bytes(path.read_bytes()[:100] + bytes(60) + path.read_bytes()[160:])
    recovered(root, config)
    # the record at the end of what is left is torn, and positions of consumers are behind it
    assert errors(root, config) <= {"I-055", "I-144"}


def test_a_killed_store_is_not_damaged(tmp_path: Path) -> None:
    """Its database is empty, for it has no write-ahead log: a start dispatches all of it again."""
    root = stores.unpack("5.5.0-rocksdb-killed", tmp_path)
    said = said_of(root, BrokerConfig(stores.config("5.5.0-rocksdb-killed", root)), None)
    assert said.status is Status.UNCLEAN
    assert "I-070" in {each.code for each in said.verdict.findings}
    assert [f.code for f in said.verdict.findings if f.severity > Severity.INFO] == []


def test_nor_is_it_in_order_without_its_crash(tmp_path: Path) -> None:
    """After a clean stop a start looks for nothing but what is behind the database."""
    root = stores.unpack("5.5.0-rocksdb-killed", tmp_path)
    (root / "abort").unlink()
    said = said_of(root, BrokerConfig(stores.config("5.5.0-rocksdb-killed", root)), None)
    assert said.status is Status.DAMAGED


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["5.5.0-rocksdb-killed", "5.5.1-combine-lmq"])
def test_a_database_that_lost_its_current_is_made_anew(name: str, tmp_path: Path) -> None:
    """What is left of it shows where the queues were, light ones too; no option tells it."""
    root = stores.unpack(name, tmp_path)
    whole = BrokerConfig(stores.config(name, root))
    (current,) = root.glob("consumequeue*/CURRENT")
    current.unlink()
    said = said_of(root, BrokerConfig({}), None)
    assert said.status is Status.DAMAGED
    lost = [each for each in said.verdict.findings if each.code == "I-010"]
    assert [each.repair for each in lost] == ["recover"]
    recovered(root, BrokerConfig({}))
    assert current.is_file()
    for config in (BrokerConfig({}), whole):
        assert said_of(root, config, None).status is Status.CLEAN


def test_light_queues_that_may_be_in_a_lost_database_are_no_all_clear(tmp_path: Path) -> None:
    """Their messages have numbers in them, so a broker made units; nothing tells where. Its options do."""
    name = "5.5.1-combine-lmq"
    root = stores.unpack(name, tmp_path)
    whole = BrokerConfig(stores.config(name, root))
    shutil.rmtree(root / "consumequeue_rocksdb")
    said = said_of(root, BrokerConfig({}), None)
    assert said.status is Status.DAMAGED
    (missing,) = {each.message.split("; ")[-1] for each in said.verdict.serious}
    assert "rocksdbCQDoubleWriteEnable" in missing
    recovered(root, whole)
    assert said_of(root, whole, None).status is Status.CLEAN
    assert said_of(root, BrokerConfig({}), None).status is Status.CLEAN


def test_a_database_with_more_wrong_than_memory_should_hold_is_built_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Units of what the log has lost go."""
    root = stores.unpack("5.5.1-combine-lmq", tmp_path)
    config = BrokerConfig(stores.config("5.5.1-combine-lmq", root))
    log = root / "commitlog" / "00000000000000000000"
    data = log.read_bytes()
    log.write_bytes(data[:66000].ljust(len(data), b"\0"))
    found = analyze(Layout.open(root, config), None)
    assert found.plan is not None and found.plan.database is None
    monkeypatch.setattr(database, "MOST_GONE", 0)
    found = analyze(Layout.open(root, config), None)
    assert found.plan is not None and found.plan.database is not None
    recovered(root, config)
    assert errors(root, config) <= {"I-055", "I-144"}


def test_a_blank_that_a_recovery_put_is_no_warning(tmp_path: Path) -> None:
    """What was lost behind the last tombstone of a file has no place that anything names."""
    root, config = damaged(case_of("5.5.1-rocks-halt-1/file_missing_middle"), tmp_path)
    recovered(root, config)
    found = said_of(root, config, "5.5.1").verdict.findings
    assert [each.severity for each in found if each.code == "I-041"] == [Severity.INFO]


def test_the_unit_of_a_record_that_lost_its_tag_says_so_in_the_database_as_in_files(tmp_path: Path) -> None:
    name = "5.5.1-combine-same"
    root = stores.unpack(name, tmp_path)
    config = BrokerConfig(stores.config(name, root))
    log = root / "commitlog" / "00000000000000000000"
    data = bytearray(log.read_bytes())
    data[5 * 4096 : 6 * 4096] = bytes(4096)
    log.write_bytes(data)
    apply_recovery(said_of(root, config, None), config)
    found = said_of(root, config, None).verdict
    assert found.status is Status.CLEAN and [f for f in found.findings if f.severity > Severity.INFO] == []


@pytest.mark.parametrize(
    ("name", "lost", "indexed"), [("5.3.3-rocksdb", 207, 207), ("5.5.1-combine-finished", 179, 180)]
)
def test_a_database_beside_a_log_that_is_gone(name: str, lost: int, indexed: int, tmp_path: Path) -> None:
    """It is put away, not the copies of its queues, and with it files that no broker has read since it was there."""
    root = stores.unpack(name, tmp_path)
    config = BrokerConfig(stores.config(name, root))
    for file in (root / "commitlog").iterdir():
        file.unlink()
    layout, options = Layout.open(root, config), RecoveryOptions(force_empty_log=True)
    database = layout.queue_database
    plan = analyze(layout, None, options=options).plan
    assert plan is not None and plan.lost_messages == lost and database is not None
    gone = {Path(edit.path) for edit in plan.edits if edit.kind == "move"}
    assert all(path.is_relative_to(root) for path in gone)
    assert {path for place in {layout.consume_queue, database} for path in place.iterdir()} <= gone
    for place in {layout.consume_queue, database}:
        shutil.rmtree(place)
    plan = analyze(Layout.open(root, config), None, options=options).plan
    assert plan is not None and plan.lost_messages == indexed


def test_a_database_without_rows_is_in_order_beside_a_log_without_messages(tmp_path: Path) -> None:
    """A start takes the row of the dispatch progress, where it is missing, for 0."""
    root = stores.unpack("5.5.0-rocksdb-killed", tmp_path)
    config = BrokerConfig(stores.config("5.5.0-rocksdb-killed", root))
    first, *later = sorted((root / "commitlog").iterdir())
    first.unlink()
    for path in later:
        path.write_bytes(bytes(path.stat().st_size))
    os.utime(root / "checkpoint")  # the messages may have expired
    layout = Layout.open(root, config)
    found = analyze(layout, None)
    assert found.plan is not None
    assert [edit for edit in found.plan.edits if str(layout.queue_database) in edit.path] == []
