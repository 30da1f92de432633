"""What of two stores differs: each part is changed in a copy, and told as that part and no other."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from mqstore.formats.consume_queue import UNIT_BYTES
from mqstore.store.compare import both
from mqstore.store.compare.both import WHAT, Comparison, compare_stores
from mqstore.store.errors import Unreadable
from mqstore.store.queues.batches import BATCH_UNIT_DTYPE
from mqstore.store.search.store import StoreReader
from mqstore.store.settings.read import ConfigFile, read_config_file

from ... import stores
from ...stores import unpack

pytestmark = pytest.mark.long


def compared(a: Path, b: Path, only: frozenset[str] = WHAT, *, quick: bool = False) -> Comparison:
    with StoreReader(a) as one, StoreReader(b) as other:
        return compare_stores(one, other, only, quick=quick, note=lambda size: None)


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    root = unpack("5.3.3-clean", tmp_path)
    shutil.copytree(root, tmp_path / "copy")
    return root, tmp_path / "copy"


@pytest.mark.few(4)
@pytest.mark.parametrize("name", stores.FEW)
def test_a_store_is_the_same_as_itself(name: str, tmp_path: Path) -> None:
    root = unpack(name, tmp_path)
    shutil.copytree(root, tmp_path / "copy")
    found = compared(root, tmp_path / "copy")
    assert found.same and not found.unread and not found.differs
    assert compared(root, root, quick=True).same


def body(root: Path) -> None:
    """Flip a bit of the body of the first record."""
    patch(root / "commitlog" / f"{0:020d}", 90, b"\xff")


def patch(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def unit(root: Path) -> None:
    """Give the fourth unit of a queue another tags code."""
    patch(root / "consumequeue" / "orders" / "0" / f"{0:020d}", 3 * UNIT_BYTES + 12, b"\x01" * 8)


def no_queue(root: Path) -> None:
    shutil.rmtree(root / "consumequeue" / "orders" / "0")


def no_queues(root: Path) -> None:
    shutil.rmtree(root / "consumequeue")


def index(root: Path) -> None:
    shutil.rmtree(root / "index")


def member(name: str, change: Callable[[dict[str, object]], None]) -> Callable[[Path], None]:
    def apply(root: Path) -> None:
        path = root / "config" / name
        value = json.loads(path.read_bytes())
        change(value)
        path.write_text(json.dumps(value))

    return apply


def moved(root: Path) -> None:
    """Set a group back; no JSON of Python has numbers for keys, as this file has."""
    path = root / "config" / "consumerOffset.json"
    text = path.read_text()
    assert "{0:41,1:44" in text
    path.write_text(text.replace("{0:41,1:44", "{0:40,1:44"))


def perm(value: dict[str, object]) -> None:
    table = value["topicConfigTable"]
    assert isinstance(table, dict)
    table["orders"]["perm"] = 2


def version(value: dict[str, object]) -> None:
    value["dataVersion"] = {"counter": 77}


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        (body, {"log": 1, "record": 2}),
        (unit, {"unit": 1}),
        (no_queue, {"queue": 1}),
        (no_queues, {"queue": 1}),
        (index, {"index": 1}),
        (moved, {"offset": 1}),
        (member("topics.json", perm), {"config": 1}),
        (member("topics.json", version), {}),
        (lambda root: shutil.rmtree(root / "config"), {"config": 1}),
    ],
    ids=["body", "unit", "queue", "queues", "index", "offset", "perm", "version", "no config"],
)
def test_each_part_is_told(change: Callable[[Path], None], wanted: dict[str, int], pair: tuple[Path, Path]) -> None:
    change(pair[1])
    for a, b, how in ((*pair, "only_a"), (pair[1], pair[0], "only_b")):
        found = compared(a, b)
        assert dict(found.counts) == wanted and found.same == (not wanted)
        assert {one.how for one in found.differs} <= {how, "changed"}
    assert compared(*pair, frozenset({"timers"})).same


@pytest.mark.parametrize("field", ["physical_offset", "size", "tags_code", "msg_base_offset"])
def test_units_of_batch_queues(field: str, tmp_path: Path) -> None:
    """A queue that was made anew, from another number on, has the same units."""
    root = unpack("5.3.3-batchcq", tmp_path)
    other = Path(shutil.copytree(root, tmp_path / "copy"))
    queue = other / "batchconsumequeue" / "BatchTopic" / "1"
    for path in sorted(queue.iterdir(), reverse=True):
        path.rename(queue / f"{int(path.name) + 920:020d}")
    assert compared(root, other).same
    path = min(queue.iterdir())
    units = np.fromfile(path, BATCH_UNIT_DTYPE)
    units[field][4] += 1
    units.tofile(path)
    (one,) = compared(root, other).differs
    offset = units["msg_base_offset"][3] + units["batch_size"][3]
    assert (one.part, one.count, one.name) == ("unit", 1, f"BatchTopic/1 @{offset}")


def test_queues_of_two_kinds(tmp_path: Path) -> None:
    root = unpack("5.3.3-batchcq", tmp_path)
    other = Path(shutil.copytree(root, tmp_path / "copy"))
    shutil.rmtree(other / "batchconsumequeue" / "BatchTopic")
    shutil.copytree(other / "consumequeue" / "TopicA", other / "consumequeue" / "BatchTopic")
    kinds = [(one.a, one.b) for one in compared(other, root).differs if one.name == "kind of BatchTopic/0"]
    assert kinds == [("a queue of messages", "a queue of batches")]


def test_fields_of_a_record(pair: tuple[Path, Path]) -> None:
    body(pair[1])
    told = {one.name: (one.a, one.b) for one in compared(*pair).differs if one.part == "record"}
    assert told["0 body_crc_ok"] == (True, False)
    assert told["0 body"] == ("hello #0", "he\\xfflo #0")


def test_a_replica_that_is_behind(tmp_path: Path) -> None:
    """The truth says how far the slave was; everything before is the same."""
    master, slave = (unpack(f"5.3.3-ha-{who}", tmp_path) for who in ("master", "slave"))
    found = compared(master, slave)
    assert found.logs.same and not found.logs.differing and not found.logs.only_b
    assert found.logs.b is not None and found.logs.first == found.logs.b.stop
    ends = {f"{m['topic']}/{m['queue_id']}" for m in stores.messages("5.3.3-ha-master")}
    behind = {one.name: one for one in found.differs if one.part == "queue"}
    assert behind.keys() <= ends and all(one.a > one.b for one in behind.values())
    assert "unit" not in found.counts and "index" not in found.counts


def test_epochs_and_timers(tmp_path: Path) -> None:
    root = unpack("5.1.4-timer-clean", tmp_path)
    shutil.copytree(root, tmp_path / "copy")
    (tmp_path / "copy" / "timerwheel").unlink()
    found = compared(root, tmp_path / "copy")
    assert set(found.counts) == {"timer"}
    assert {one.how for one in found.differs} == {"only_a"}


def test_a_part_that_cannot_be_read_is_told(pair: tuple[Path, Path]) -> None:
    (pair[1] / "config" / "topics.json").unlink()
    (pair[1] / "config" / "topics.json").mkdir()
    found = compared(*pair)
    assert "config" in found.counts or found.unread


def test_a_file_of_config_that_cannot_be_read(pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no difference, whatever its path is; the others are compared."""

    def read(path: Path, kind: str) -> ConfigFile:
        if path.name == "topics.json":
            raise Unreadable("Permission denied", path=path)
        return read_config_file(path, kind)

    monkeypatch.setattr(both, "read_config_file", read)
    assert [reason.partition(" ")[0] for reason in compared(*pair).unread] == ["config:"]
    (pair[1] / "config" / "subscriptionGroup.json").unlink()
    found = compared(*pair)
    assert found.counts == {"config": 1} and "subscriptionGroup.json" in found.differs[0].name
    assert len(found.unread) == 1


def no_manifest(root: Path) -> None:
    """Break the RocksDB of the queues."""
    for path in (root / "consumequeue").glob("MANIFEST-*"):
        path.write_bytes(b"")


def test_queues_that_no_side_can_read_are_not_the_same(tmp_path: Path) -> None:
    root = unpack("5.3.3-rocksdb", tmp_path)
    assert compared(root, root).same
    no_manifest(root)
    found = compared(root, root)
    assert not found.same and not found.counts
    [unread] = found.unread
    assert unread.startswith("queues: the consume queues cannot be read")


def test_an_index_of_another_log_is_not_the_same(pair: tuple[Path, Path], tmp_path: Path) -> None:
    other = unpack("5.5.0-clean", tmp_path)
    found = compared(pair[0], other, frozenset({"index"}))
    assert not found.same and "no records in common" in found.unread[0]
    for root in (pair[0], other):
        index(root)
    assert compared(pair[0], other, frozenset({"index"})).same


def test_positions_do_not_need_the_log(pair: tuple[Path, Path]) -> None:
    """Whether it is one log is told all the same."""
    moved(pair[1])
    told: list[int] = []
    for only in ({"offsets", "config"}, {"log"}):
        with StoreReader(pair[0]) as one, StoreReader(pair[1]) as other:
            found = compare_stores(one, other, frozenset(only), note=told.append)
        assert found.logs.same
        assert bool(told) == (only == {"log"})


def test_a_queue_of_messages_in_a_topic_of_batches(tmp_path: Path) -> None:
    """By mistake (I-083); the other queues are compared nevertheless."""
    one = unpack("5.3.3-batchcq", tmp_path / "a")
    plain = one / "consumequeue" / "BatchTopic" / "9"
    shutil.copytree(next((one / "consumequeue").glob("*/0")), plain)
    two = tmp_path / "b"
    shutil.copytree(one, two)
    assert not [*both.queues(StoreReader(one), StoreReader(two), units=True)]
