"""Stores with queues in files and in a RocksDB, as brokers of today leave them: each message is in its queue."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from rocksdict import Options, Rdict

from mqstore.formats.rocksdb_consume_queue import BOUNDS, UNIT, UNITS, unit_key
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.layout import Layout
from mqstore.store.findings.catalogue import Severity
from mqstore.store.library import Store
from mqstore.store.queues.hybrid import HybridConsumeQueues, selective_double_write
from mqstore.store.queues.rocksdb import RocksdbConsumeQueues
from mqstore.store.queues.rocksdb_write import rewritten
from mqstore.store.search.find import find
from mqstore.store.search.selection import Selection
from mqstore.store.verify.run import verify
from mqstore.store.verify.verdict import Status

from ...cli.datadriven import run_here
from ...stores import FEW_OF_TODAY, OF_TODAY, config, truth, unpack
from ...verdict import said_of
from .test_rocksdb import state

# B40: the record at 0 has no unit in one of the stores, and a search by time says so
pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore:TopicA. queue 1 begins at 1:UserWarning")]

ROCKS = "5.3.3-rocksdb"
SAME, LIGHT = "5.5.1-combine-same", "5.5.1-combine-lmq"
FINISHED, MIGRATED = "5.5.1-combine-finished", "5.5.1-combine-migrated"
_EMPTY = {"min_offset": 0, "max_offset": 0}
"""What a broker says of an LMQ that it has not: of a name with a slash (B12), or not selected."""


def check(name: str, tmp_path: Path) -> None:
    """Queues, what they answer, and verdict are those of the truth, with and without its options."""
    root, told = unpack(name, tmp_path), truth(name)
    before = state(root)
    with Store(root) as store:
        queues = {
            f"{q.topic}/{q.queue_id}": {"min_offset": q.min_offset, "max_offset": q.max_offset}
            for q in store.queues.summaries(store.log.min_offset, store.log_end.position)
        }
    said = said_of(root, BrokerConfig())
    if told["expected_verdict"] == "clean":
        assert {key: queues.get(key, _EMPTY) for key in told["queues"]} == told["queues"]
        _answers(name, root)
        assert said.status is not Status.DAMAGED, said
        configured = said_of(root, BrokerConfig(config(name, root)))
        assert configured.status is not Status.DAMAGED, configured
    elif told["expected_verdict"] == "damaged":
        assert said.status is Status.DAMAGED, said
    assert state(root) == before, "nothing is written"


def _answers(name: str, root: Path) -> None:
    """What a consumer pulls, and offsets by time."""
    with Store(root, BrokerConfig(config(name, root))) as store:
        for query in truth(name)["time_queries"]:
            offset = store.offset_at(query["topic"], query["queue_id"], query["timestamp"])
            assert offset == query["offset"], query
        for query in truth(name)["get_queries"]:
            if query["status"] == "FOUND" and query["queue_offsets"]:
                selection = Selection(topic=query["topic"], queue_id=query["queue_id"])
                numbers = query["queue_offsets"]
                found = find(store, selection, offset=numbers[0], count=len(numbers))
                positions = [one.message.physical_offset for one in found]
                assert positions == query["physical_offsets"], query


@pytest.mark.few(5)
@pytest.mark.parametrize("name", FEW_OF_TODAY)
def test_queues_and_verdict(name: str, tmp_path: Path) -> None:
    check(name, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in OF_TODAY if truth(name).get("queues")])
def test_queues_and_verdict_of_all(name: str, tmp_path: Path) -> None:
    check(name, tmp_path)


def test_light_queues_are_read_from_the_database(tmp_path: Path) -> None:
    with Store(unpack(LIGHT, tmp_path)) as store:
        assert isinstance(store.queues, HybridConsumeQueues)
        found = list(find(store, Selection(topic="%LMQ%a")))
        assert len(found) == truth(LIGHT)["queues"]["%LMQ%a/0"]["max_offset"]
        assert [queue.topic for queue in store.queues.of_topic("%LMQ%a")] == ["%LMQ%a"]
        assert [one[:2] for one in store.queues.summaries()] == [one[:2] for one in store.queues], "each once"


@pytest.mark.parametrize(
    ("name", "words", "in_database"),
    [
        (SAME, [], False),
        (SAME, ["storeType=default"], False),
        (SAME, ["storeType=defaultRocksDB"], True),
        (MIGRATED, [], False),
        (FINISHED, [], True),
        (FINISHED, ["storeType=default"], False),
    ],
)
def test_which_queues_a_broker_reads(name: str, words: list[str], in_database: bool, tmp_path: Path) -> None:
    layout = Layout.open(unpack(name, tmp_path), BrokerConfig().with_set(words))
    assert layout.queue_database is not None
    assert layout.rocksdb_queues is in_database


def test_topics_in_a_file_again(tmp_path: Path) -> None:
    """A broker that went back to files wrote topics.json last."""
    root = unpack(FINISHED, tmp_path)
    os.utime(root / "config" / "topics.json")
    assert not Layout.open(root).rocksdb_queues


def test_a_unit_that_the_two_kinds_tell_differently(tmp_path: Path) -> None:
    root = unpack(SAME, tmp_path)
    with Store(root) as store:
        assert isinstance(store.queues, HybridConsumeQueues)
        assert isinstance(store.queues.in_database, RocksdbConsumeQueues)
    file = next((root / "consumequeue" / "TopicB" / "0").iterdir())
    data = bytearray(file.read_bytes())
    data[0:20], data[20:40] = data[20:40], data[0:20]
    file.write_bytes(data)
    options = BrokerConfig(config(SAME, root))
    with Store(root, options) as store:
        assert "I-084" in {finding.code for finding in verify(store).findings}
    for double in ("false", "true"):
        alone = options.with_set(["storeType=defaultRocksDB", f"rocksdbCQDoubleWriteEnable={double}"])
        with Store(root, alone) as store:  # nobody reads those in files
            found = {finding.code: finding for finding in verify(store).findings}
        assert "I-084" not in found and found["I-010"].severity is Severity.WARNING
        assert found["I-010"].repair == "mv {path} {aside}"
    with Store(root, options.with_set(["storeType=Default"])) as store:  # any other value is that of files
        assert "I-010" not in {finding.code for finding in verify(store).findings}


def test_a_place_in_consumequeue_ext_is_no_difference(tmp_path: Path) -> None:
    """In files it stands for the tags code, in the database never."""
    root = unpack(SAME, tmp_path)
    options = config(SAME, root) | {"enableConsumeQueueExt": "true"}
    words = [word for name, value in options.items() for word in ("--set", f"{name}={value}")]
    assert run_here(["put", str(root), "TopicB", "hello", "--tag", "new", *words]).code == 0
    with Store(root, BrokerConfig(options)) as store:
        assert any((root / "consumequeue_ext" / "TopicB" / "0").iterdir())
        assert "I-084" not in {finding.code for finding in verify(store).findings}


@pytest.mark.parametrize(("name", "missing"), [(MIGRATED, 1), (SAME, 0), (LIGHT, 0)])
def test_the_record_that_a_broker_leaves_out(name: str, missing: int, tmp_path: Path) -> None:
    """B40: `verify` says what `repair --queues` mends, as a warning."""
    with Store(unpack(name, tmp_path)) as store:
        found = [one for one in verify(store).findings if one.code == "I-070"]
    assert [one.severity for one in found] == [Severity.WARNING] * missing
    assert all("B40" in one.message for one in found)


def test_a_record_that_a_broker_has_left_out_is_named_but_no_harm(tmp_path: Path) -> None:
    """B40: a start of 5.5.1 hides nothing that was not hidden before, and the plan brings the message back."""
    root = unpack(FINISHED, tmp_path)
    words = [word for name, value in config(FINISHED, root).items() for word in ("--set", f"{name}={value}")]
    answers = []
    for more in ([], ["--apply", "--yes"], []):
        done = run_here(["recover", str(root), "--broker-version", "5.5.1", *more, *words, "--format", "json"])
        answers.append((done.code, json.loads(done.stdout)["summary"]["invisible_by_broker"]))
    assert answers[0] == (0, 1) and answers[-1] == (0, 0)


def test_a_database_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    root = unpack(SAME, tmp_path)
    for manifest in (root / "consumequeue").glob("MANIFEST-*"):
        manifest.write_bytes(b"")
    with Store(root) as store:
        found = verify(store)
        assert store.queues.has_topic("TopicA"), "those in files are read"
    assert any("cannot be read" in text for text in found.unread), found.unread


def test_a_hole_that_the_log_does_not_fill_is_told(tmp_path: Path) -> None:
    """Units of an LMQ whose records are lost, too: a pull at one of them ends with an exception."""
    root = unpack(LIGHT, tmp_path)
    database = Rdict(
        str(root / "consumequeue_rocksdb"),
        Options(raw_mode=True),
        column_families={name: Options(raw_mode=True) for name in ("default", "offset")},
    )
    del database[unit_key(b"%LMQ%a", 0, 3)]
    database.close()
    (root / "consumequeue_rocksdb" / "rocksdict-config.json").unlink(missing_ok=True)
    with Store(root) as store:
        told = [each for each in verify(store).findings if each.code == "I-084"]
    assert len(told) == 1
    assert "%LMQ%a/0: 1 unit is missing, from 3 on: every pull there fails" in told[0].message


def test_selective_is_nothing_without_double_write(tmp_path: Path) -> None:
    """A broker with queues in files alone does not ask for it: LMQs are in files, too."""
    both, selective = "rocksdbCQDoubleWriteEnable=true", "rocksdbCQSelectiveDoubleWriteEnable=true"
    root, light = unpack("5.3.3-lmq", tmp_path), unpack(LIGHT, tmp_path)

    def is_selective(store: Path, *options: str) -> bool:
        return selective_double_write(Layout.open(store, BrokerConfig().with_set(options)))

    assert is_selective(root, both, selective) and not is_selective(root, selective)
    assert is_selective(light, selective), "the RocksDB shows the double write"
    assert not is_selective(light, selective, "storeType=defaultRocksDB")
    shutil.rmtree(root / "consumequeue" / "%LMQ%a")
    options = BrokerConfig(config("5.3.3-lmq", root))
    assert said_of(root, options.with_set([selective]), "5.5.1").codes == said_of(root, options, "5.5.1").codes != []


def changed_rows(root: Path, family: str, entries: dict[bytes, bytes]) -> None:
    """Entries of the RocksDB of queues, as somebody wrote them."""
    place = root / "consumequeue"
    for name, data in rewritten(place, entries, family).made.items():
        (place / name).write_bytes(data)


def test_units_that_a_cut_of_the_log_left_behind_are_no_damage(tmp_path: Path) -> None:
    """A broker sets the greatest offset anew, and gives their numbers away again (spec 7.14)."""
    root = unpack(ROCKS, tmp_path)
    end = truth(ROCKS)["queues"]["TopicA/0"]["max_offset"]
    unit = {"physical_offset": 1 << 40, "size": 200, "tags_code": 0, "store_timestamp": 0}
    changed_rows(root, UNITS, {unit_key(b"TopicA", 0, end): UNIT.build(unit)})
    assert said_of(root, BrokerConfig()).status is not Status.DAMAGED
    changed_rows(root, UNITS, {unit_key(b"TopicA", 0, end): UNIT.build(unit | {"physical_offset": 0})})
    assert "I-084" in {each.code for each in said_of(root, BrokerConfig()).verdict.findings}


def test_a_row_that_no_broker_can_read_goes_with_a_recovery(tmp_path: Path) -> None:
    root = unpack(ROCKS, tmp_path)
    changed_rows(root, BOUNDS, {b"\1" * 40: b""})
    assert said_of(root, BrokerConfig()).status is Status.DAMAGED
    assert run_here(["recover", str(root), "--apply", "--yes"]).code == 0
    assert said_of(root, BrokerConfig()).status is not Status.DAMAGED
