"""Files and directories of queues: lengths, files of zeros, numbers, names, types."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from mqstore.formats.consume_queue import UNIT_BYTES
from mqstore.formats.rocksdb_consume_queue import UNIT, UNITS, unit_key
from mqstore.store.broker.system_topics import LMQ_PREFIX
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.findings.catalogue import Severity
from mqstore.store.findings.findings import Finding
from mqstore.store.library import Store
from mqstore.store.queues.rocksdb_write import rewritten
from mqstore.store.search.store import StoreReader
from mqstore.store.verify.context import Scope
from mqstore.store.verify.run import verify

from ...archives import extract
from ...stores import unpack

_OF_FILES = {"I-060", "I-073", "I-074", "I-076", "I-077", "I-078", "I-083"}


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sound store; each queue has several files."""
    return unpack("5.3.3-clean", tmp_path_factory.mktemp("queue files"))


@pytest.fixture
def root(original: Path, tmp_path: Path) -> Path:
    """A copy, to be changed."""
    return Path(shutil.copytree(original, tmp_path / "store"))


def said(root: Path, **scope: str) -> list[Finding]:
    with StoreReader(root) as store:
        found = verify(store, Scope(groups=frozenset({"consume_queue"}), quick=True, **scope)).findings  # type: ignore[arg-type]
    return [finding for finding in found if finding.code in _OF_FILES]


def files_of(root: Path, topic: str = "logs", queue_id: int = 0) -> list[Path]:
    return sorted((root / "consumequeue" / topic / str(queue_id)).iterdir())


def test_a_length_that_is_no_multiple_of_a_unit(root: Path) -> None:
    """Told of the queues that are asked for."""
    assert said(root) == []
    last = files_of(root)[-1]
    os.truncate(last, last.stat().st_size - 1)
    (finding,) = said(root)
    assert (finding.code, finding.path, finding.topic, finding.queue_id) == ("I-060", str(last), "logs", 0)
    assert f"no multiple of {UNIT_BYTES}" in finding.message
    assert said(root, topic="orders") == []


def test_files_of_zeros(root: Path) -> None:
    """Between others units were lost; behind a full one a start adds a unit, behind one with room nobody gets there."""
    files = files_of(root)
    assert len(files) > 1
    size = files[0].stat().st_size
    last = files[-1].with_name(f"{int(files[-1].name) + size:020}")
    last.write_bytes(bytes(size))
    assert [(f.code, f.path, f.severity) for f in said(root)] == [("I-073", str(last), Severity.INFO)]
    files[-1].write_bytes(bytes(size))
    assert {f.code for f in said(root) if f.path == str(files[-1])} == {"I-074"}
    last.unlink()
    full = said(root)
    assert [(f.code, f.path) for f in full] == [("I-073", str(files[-1]))]
    assert full[0].severity > Severity.INFO


def test_more_queues_than_the_configuration_has_room_for(root: Path) -> None:
    path = root / "config" / "topics.json"
    table = json.loads(path.read_text("utf-8"))
    served = table["topicConfigTable"]["orders"]
    queues = sorted(int(each.name) for each in (root / "consumequeue" / "orders").iterdir())
    served["readQueueNums"] = served["writeQueueNums"] = queues[-1]
    path.write_text(json.dumps(table), "utf-8")
    assert queues[-1] > 0
    assert [(f.code, f.topic, f.queue_id) for f in said(root)] == [("I-076", "orders", queues[-1])]


def test_light_queues(root: Path) -> None:
    """A number other than 0, and a name with a slash."""
    from_file = files_of(root)[0]
    for name in (f"{LMQ_PREFIX}a/1", f"{LMQ_PREFIX}b/0", "x/y/0"):
        target = root / "consumequeue" / name
        target.mkdir(parents=True)
        shutil.copy(from_file, target)
    found = {Path(f.path).relative_to(root / "consumequeue").as_posix(): f for f in said(root) if f.code == "I-078"}
    assert found.keys() == {f"{LMQ_PREFIX}a/1", "x/y"}
    assert "no broker finds it after a start" in found["x/y"].message


def test_a_topic_with_queues_of_both_types(tmp_path: Path) -> None:
    root = unpack("5.3.3-batchcq", tmp_path)
    assert said(root) == []
    topic = min(path.name for path in (root / "batchconsumequeue").iterdir())
    shutil.copytree(root / "batchconsumequeue" / topic, root / "consumequeue" / topic)
    assert "I-083" in {f.code for f in said(root) if f.topic == topic}


@pytest.mark.parametrize("name", ["delayOffset.json", "delayOffset.json.bak"])
def test_delay_levels_are_compared_as_a_start_reads_them(name: str, root: Path) -> None:
    """Also from a file with a byte that is no UTF-8, or from the .bak."""
    path = root / "config" / name
    (root / "config" / "delayOffset.json").unlink(missing_ok=True)
    path.write_bytes(b'{"offsetTable":{4:99},"x":"\xff"}')
    with StoreReader(root) as store:
        found = verify(store, Scope(groups=frozenset({"commit_log", "consume_queue"}))).findings
    (finding,) = (each for each in found if each.code == "I-077")
    assert finding.path == str(path) and "level 4 goes on at offset 99" in finding.message


@pytest.mark.parametrize(("named", "is_damage"), [(2, False), (1, True)])
def test_units_of_a_deleted_topic_behind_those_of_the_new_one_are_no_damage(
    named: int, is_damage: bool, tmp_path: Path
) -> None:
    """As a start of 5.5.1 leaves them after a kill; but not where that is no message of this queue offset."""
    extract(Path(__file__).parents[2] / "made_again" / "5.5.1-rocksdb.tar.gz", tmp_path)
    options = BrokerConfig({"storeType": "defaultRocksDB"})
    with Store(tmp_path, options) as store:
        old = list(store.messages("TT", where="@queue_id = 0"))[named]
    unit = {"physical_offset": old.position, "size": old.total_size, "tags_code": 0, "store_timestamp": 0}
    database = tmp_path / "consumequeue"
    for name, data in rewritten(database, {unit_key(b"TT", 0, 2): UNIT.build(unit)}, UNITS).made.items():
        (database / name).write_bytes(data)
    with Store(tmp_path, options) as store:
        assert ("I-084" in {each.code for each in verify(store).findings}) is is_damage
