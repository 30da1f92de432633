"""What `recover` says of a start with queues in RocksDB: refusals, losses, outcomes that race (spec 7.14)."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mqstore.formats import rocksdb_consume_queue as formats
from mqstore.store.audit.messages import BEHIND_HOLE, NO_UNIT
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.layout import Layout
from mqstore.store.findings.catalogue import Severity
from mqstore.store.log.commit_log import Batch
from mqstore.store.queues.rocksdb import RocksDb, RocksdbConsumeQueue
from mqstore.store.recover.recovery import Recovery, analyze
from mqstore.store.search.store import StoreReader
from mqstore.store.verify.context import Scope
from mqstore.store.verify.run import verify
from mqstore.store.verify.start import findings_of_start

from ... import stores
from ...database_mishaps import put
from ...rocks_cases import case_of, damaged, served_by_itself
from .recovered import recover

REFUSED = {
    "queue-database": "rocks-clean-1/db_manifest_half",
    "queue-database-path": "rocks-clean-1/separate_path",
    "queue-options": "hybrid-clean-1/no_lmq_in_rocks",
    "queue-database-row": "hybrid-clean-1/row_short",
    "queue-database-differs": "hybrid-clean-1/prefer_rocks_cq_missing_tail",
}


def examined(name: str, work: Path, **more: str) -> Recovery:
    case = case_of(f"5.5.1-{name}")
    root, config = damaged(case, work)
    version = more.pop("version", case["version"])
    return analyze(Layout.open(root, config.with_set([f"{k}={v}" for k, v in more.items()])), version)


@pytest.mark.parametrize("label", REFUSED)
def test_refusals_have_a_case(label: str, tmp_path: Path) -> None:
    found = examined(REFUSED[label], tmp_path)
    assert found.prediction.outcome == "refuses"
    assert found.prediction.case.label == label


def test_a_hybrid_of_5_4_that_reads_a_database_far_behind(tmp_path: Path) -> None:
    """It gives up going back in the log, and throws."""
    more = {"version": "5.4.0", "combineCQPreferCQType": "defaultRocksDB"}
    found = examined("hybrid-clean-1/extra_files_0_low", tmp_path, **more)
    assert found.prediction.case.label == "queue-database-behind"


HYBRID = ("rocksdbCQDoubleWriteEnable=true", "combineCQUseRocksdbForLmq=true")


def started(name: str, work: Path, version: str, *words: str, without: str = "") -> Recovery:
    """The start of a store with queues in files as one that has a RocksDB beside them."""
    root = stores.unpack(name, work)
    if without:
        shutil.rmtree(root / without)
    config = BrokerConfig(stores.config(name, root)).with_set([*HYBRID, *words])
    return analyze(Layout.open(root, config), version)


@pytest.mark.parametrize("without", ["", "batchconsumequeue"])
def test_batch_queues_keep_a_hybrid_from_its_start(without: str, tmp_path: Path) -> None:
    """Also where a recovery makes them."""
    found = started("5.3.3-batchcq", tmp_path, "5.5.1", without=without)
    assert found.prediction.case.label == "queue-database-topics"
    assert (found.prediction.reason or "").startswith("ClassCastException: CombineConsumeQueueStore cannot be cast")


@pytest.mark.parametrize("kind", [(), ("rocksdbCQDoubleWriteEnable=false", "storeType=defaultRocksDB")])
def test_a_compaction_log_keeps_a_broker_with_a_rocksdb_from_its_start(kind: tuple[str, ...], tmp_path: Path) -> None:
    found = started("5.3.3-compaction", tmp_path, "5.4.0", *kind)
    assert found.prediction.outcome == "refuses"
    assert found.prediction.case.label == "queue-database-topics"
    said = found.prediction.reason or ""
    assert said.endswith("; with enableCompaction=false it loads no compaction log (compaction/compactionLog/state/0)")
    assert started("5.3.3-compaction", tmp_path / "again", "5.4.0", *kind, "enableCompaction=false").prediction.starts


@pytest.mark.parametrize(
    ("version", "words", "label"),
    [
        ("5.5.1", (), "compaction-unserved"),
        ("5.5.1", ("enableCompaction=false",), ""),
        ("5.3.3", (), "compaction-incomplete"),
    ],
)
def test_a_compaction_topic_beside_a_rocksdb_is_not_served(
    version: str, words: tuple[str, ...], label: str, tmp_path: Path
) -> None:
    """A pull asks for a compaction log, and there is none."""
    worst = started("5.3.3-compaction", tmp_path, version, *words, without="compaction").prediction
    assert worst.starts
    assert {share.queue.topic for share in worst.invisible} == ({"state"} if label else set())
    assert (worst.case.label if worst.case.label.startswith("compaction-") else "") == label
    assert worst.readable + worst.hidden == started("5.3.3-compaction", tmp_path / "all", "5.3.3").prediction.readable


@pytest.mark.parametrize(("version", "hidden", "label"), [("5.5.1", 160, "batches-unserved"), ("5.4.0", 0, "in-order")])
def test_batches_in_a_rocksdb_are_left_alone(version: str, hidden: int, label: str, tmp_path: Path) -> None:
    """A record has one unit, as brokers give it: what they do not serve so no recovery changes."""
    root = stores.unpack("5.3.3-batchcq", tmp_path)
    shutil.rmtree(root / "batchconsumequeue")
    shutil.rmtree(root / "consumequeue")
    config = BrokerConfig(stores.config("5.3.3-batchcq", root)).with_set(["storeType=defaultRocksDB"])
    recover(root, config, version)
    with StoreReader(root, config) as store:
        told = verify(store, Scope(broker_version=version)).findings
        records = [int(at) for item in store.log.scan() if isinstance(item, Batch) for at in item.position]
    with RocksDb.open(root / "consumequeue") as database:
        units = [int(formats.UNIT.parse(value).physical_offset) for _, value in database.items(formats.UNITS)]
    assert sorted(units) == records
    assert not (root / "batchconsumequeue").exists()
    found = analyze(Layout.open(root, config), version)
    assert found.nothing_to_do
    assert (found.prediction.case.label, found.prediction.hidden) == (label, hidden)
    of_queues = ("I-044", "I-062", "I-070", "I-083", "I-084", "I-182")
    severities = {finding.code: finding.severity for finding in told if finding.code in of_queues}
    assert severities == {"I-083": Severity.WARNING} | ({"I-182": Severity.ERROR} if hidden else {})
    assert not any(finding.repair for finding in told if finding.code == "I-182")


@pytest.mark.few(4)
@pytest.mark.parametrize(
    "name",
    [
        *("rocks-clean-1/none", "rocks-clean-1/db_missing", "rocks-clean-1/cq_missing_middle"),
        *("hybrid-clean-1/db_missing", "hybrid-clean-1/file_cq_behind", "same-clean-1/torn_body"),
        "hybrid-halt-1/file_queues_missing",
    ],
)
def test_as_many_can_be_read_as_the_real_classes_gave(name: str, tmp_path: Path) -> None:
    found, case = examined(name, tmp_path), case_of(f"5.5.1-{name}")
    worst = found.prediction
    assert worst.starts
    assert served_by_itself(worst) == case["readable"]
    assert worst.database is not None
    assert worst.database.row == case["state"]["row"]


def test_both_outcomes_of_a_race_are_told_the_worse_one_first(tmp_path: Path) -> None:
    found = examined("rocks-halt-1/flip_body_late", tmp_path)
    races = [each.race for each in found.predictions]
    assert len(set(races)) == len(races) > 1
    hidden = [each.lost.messages + each.invisible.messages for each in found.predictions]
    assert hidden == sorted(hidden, reverse=True)
    rows = [each.database.to_json() for each in found.predictions if each.database is not None]
    assert len(rows) == len(races)


@pytest.mark.parametrize(("version", "before"), [("5.3.3", 1), ("5.5.1", 2)])
def test_what_lies_behind_a_hole_is_not_read(version: str, before: int, tmp_path: Path) -> None:
    """A real consumer got none of it: 5.5.1 failed its pulls, 5.3.3 and 5.4.0 sent it back to 0 each time."""
    root, hole = stores.unpack(f"{version}-rocksdb", tmp_path), 65
    with RocksDb.open(root / "consumequeue") as database:
        end = RocksdbConsumeQueue(database, "TopicB", 0).summary().max_offset
    put(root / "consumequeue", {formats.UNITS: {formats.unit_key(b"TopicB", 0, hole): None}})
    found = analyze(Layout.open(root), version)
    told = {share.reason.partition(" (")[0]: share.messages for share in found.prediction.invisible}
    assert told == {NO_UNIT: before, BEHIND_HOLE: end - hole - 1}
    (said,) = (finding for finding in findings_of_start(found) if finding.code == "I-182")
    assert f"{end - hole - 1} of these are {BEHIND_HOLE}; groups that are past it get them" in said.message
