"""Where a store ends, and what is asked before it is written to: who refuses, why, and that nothing was touched."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mqstore.formats.consume_queue import UNIT
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.files import Files, write_note
from mqstore.store.disk.layout import BARRIER_PREFIX
from mqstore.store.errors import NotAStore, Refused, Unclean, Unreadable, Unsupported
from mqstore.store.put import tail
from mqstore.store.put.message_columns import columns_of
from mqstore.store.put.new_message import NewMessage

from ...stores import NAMES, config, truth
from .writing import assert_refused, messages, put, writer

UNIT_BYTES = UNIT.sizeof()
UNCLEAN = [
    name
    for name in NAMES
    if truth(name)["exit"] == "killed" and not any(word in name for word in ("rocksdb", "dledger", "restarted"))
]


@pytest.mark.few(4)
@pytest.mark.parametrize("name", UNCLEAN)
def test_killed_stores(name: str, store: Callable[[str], Path]) -> None:
    root = store(name)
    options = BrokerConfig(config(name, root))
    assert_refused(root, Unclean, f"abort is there.*mqstore recover {root}", options)
    (root / "lock").unlink()
    assert_refused(root, Unclean, "abort is there", options)


@pytest.mark.parametrize("option", ["brokerRole=SLAVE", "enableControllerMode=true", "an epoch file"])
def test_the_log_of_a_slave_must_stay_a_copy(option: str, store: Callable[[str], Path]) -> None:
    """A real 5.3.3 cuts such a message off, or goes on in the middle of one of its master's."""
    root = store("5.3.3-clean")
    options = BrokerConfig(config("5.3.3-clean", root))
    if "=" in option:
        options = options.with_set([option])
    else:
        options.epoch_file(root).write_text("1\n0\n1-0\n")
    assert_refused(root, Refused, "copy of its master's", options)
    last = options.with_set(["enableControllerMode=false", "brokerRole=ASYNC_MASTER"])
    writer(root, config=last).close()
    new = BrokerConfig({"enableControllerMode": "true", "brokerRole": "SLAVE"})
    writer(root.with_name("new"), config=new).close()  # it copies nobody


@pytest.mark.parametrize("name", [n for n in NAMES if n.endswith("clean-no-queues")])
def test_queues_behind_the_log(name: str, store: Callable[[str], Path]) -> None:
    root = store(name)
    options = BrokerConfig(config(name, root))
    assert_refused(root, Unclean, "queues are behind the log.*mqstore recover", options)


QUEUE = ("T%a|b_c-D", 0)
"""Its last message is in the last file of the log, and not the last one there."""


@pytest.mark.parametrize("one_by_one", [0, 10_000])
@pytest.mark.parametrize("lost", ["unit", "file", "queue"])
def test_one_queue_that_is_behind(
    lost: str, one_by_one: int, store: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message would get a queue offset that another one has: nothing tells them apart again."""
    monkeypatch.setattr(tail, "_ONE_BY_ONE", one_by_one)
    root = store("5.3.3-clean")
    options = BrokerConfig(config("5.3.3-clean", root))
    with writer(root, config=options) as opened:
        end = opened.queues.next_offsets[QUEUE]
    folder = root / "consumequeue" / QUEUE[0] / str(QUEUE[1])
    *_, last = sorted(folder.iterdir())
    match lost:
        case "unit":
            data = bytearray(last.read_bytes())
            at = (end - 1) * UNIT_BYTES - int(last.name)
            data[at : at + UNIT_BYTES] = bytes(UNIT_BYTES)
            last.write_bytes(data)
        case "file":
            last.unlink()
        case _:
            shutil.rmtree(folder)
    if lost != "queue":
        assert_refused(root, Unclean, f"the queue {re.escape(QUEUE[0])}/0 is behind the log.*mqstore recover", options)
        return
    with writer(root, config=options) as opened:
        opened.append(NewMessage(b"orders", b"x"))
        for append in (lambda m: opened.append(m), lambda m: opened.append_columns(columns_of([m]))):
            with pytest.raises(Unclean, match=r"the queue is missing.*mqstore recover"):
                append(NewMessage(QUEUE[0].encode(), b"x"))


def test_records_that_the_log_has_lost_at_its_end(store: Callable[[str], Path]) -> None:
    """Queues name them, as `verify` says: a message in their place would hide that they were there."""
    root = store("5.3.3-clean")
    options = BrokerConfig(config("5.3.3-clean", root))
    path = max((root / "commitlog").iterdir())
    with path.open("r+b") as file:
        file.seek(405_997 - int(path.name))
        file.write(bytes(4096))
    assert_refused(root, Unclean, "names a record that is lost in the log.* at 405997.*mqstore recover", options)
    path.unlink()
    assert_refused(root, Unclean, "names a record that is lost in the log.* at 262144.*mqstore recover", options)


@pytest.mark.parametrize(
    ("back", "said"),
    [(200, "the last unit of orders/3 names no message.* at 409401"), (100, "points behind the log's")],
)
def test_a_unit_that_a_start_keeps_behind_the_last_message(back: int, said: str, store: Callable[[str], Path]) -> None:
    """The next message would be counted behind it."""
    root = store("5.3.3-clean")
    options = BrokerConfig(config("5.3.3-clean", root))
    with min((root / "consumequeue" / "orders" / "3").iterdir()).open("r+b") as file:
        file.seek(17 * UNIT_BYTES)
        file.write(UNIT.build({"physical_offset": 409_601 - back, "size": 135, "tags_code": 100}))
    assert_refused(root, Unclean, f"{said}.*mqstore recover", options)


def test_the_last_file_is_read_once_for_all_such_queues(
    store: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two queues end with a unit of what stands for a lost message: a start keeps it, and it has a number."""
    root = store("5.3.3-clean")
    options = BrokerConfig(config("5.3.3-clean", root))
    position, size, port = 409_341, 260, 68
    with max((root / "commitlog").iterdir()).open("r+b") as file:
        file.seek(position - int(Path(file.name).name) + port)
        file.write(bytes(4))
    for queue, units in (("2", 22), ("3", 17)):
        with min((root / "consumequeue" / "orders" / queue).iterdir()).open("r+b") as file:
            file.seek(units * UNIT_BYTES)
            file.write(UNIT.build({"physical_offset": position, "size": size, "tags_code": 0}))
    asked, are_taken = list[list[int]](), tail._are_taken

    def counting(*arguments: Any) -> Any:
        asked.append(arguments[2])
        return are_taken(*arguments)

    monkeypatch.setattr(tail, "_are_taken", counting)
    with writer(root, config=options) as opened:
        opened.append(NewMessage(b"orders", b"x"))
    assert asked == [[position, position]]


def test_a_topic_that_was_deleted_begins_again(store: Callable[[str], Path]) -> None:
    root = store("5.3.3-clean")
    options = BrokerConfig(config("5.3.3-clean", root))
    shutil.rmtree(root / "consumequeue" / QUEUE[0])
    topics = root / "config" / "topics.json"
    found = json.loads(topics.read_text())
    del found["topicConfigTable"][QUEUE[0]]
    topics.write_text(json.dumps(found))
    with writer(root, config=options) as opened:
        assert opened.append(NewMessage(QUEUE[0].encode(), b"x")).queue_offset == 0


def test_a_topic_that_was_deleted_is_the_last_of_the_log(store: Callable[[str], Path]) -> None:
    """Its messages need no unit, if the table of topics is the one that a broker has written."""
    root = store("5.3.3-clean")
    options = BrokerConfig(config("5.3.3-clean", root))
    topics = root / "config" / "topics.json"
    before = topics.read_text()
    with writer(root, config=options) as opened:
        opened.append(NewMessage(b"gone", b"x"))
    shutil.rmtree(root / "consumequeue" / "gone")
    topics.unlink()
    topics.with_name("topics.json.bak").write_text(before)
    assert_refused(root, Unclean, "queues are behind the log.*mqstore recover", options)
    topics.write_text(before)
    with writer(root, config=options) as opened:
        opened.append(NewMessage(b"orders", b"x"))


def test_a_compaction_topic(store: Callable[[str], Path]) -> None:
    """Nobody would get the message: the next start dispatches nothing that has a unit."""
    root = store("5.3.3-compaction")
    options = config("5.3.3-compaction", root)
    with writer(root, config=BrokerConfig(options)) as opened:
        for append in (opened.append, lambda m: opened.append_columns(columns_of([m]))):
            with pytest.raises(Unsupported, match="state is a compaction topic"):
                append(NewMessage(b"state", b"x"))
        opened.append(NewMessage(b"other", b"x"))
    with writer(root, config=BrokerConfig(options | {"enableCompaction": "false"})) as opened:
        opened.append(NewMessage(b"state", b"x"))


def test_a_start_barrier(store: Callable[[str], Path], tmp_path: Path) -> None:
    """No broker loads such a store."""
    root = store("5.3.3-clean")
    options = BrokerConfig(config("5.3.3-clean", root))
    barrier = root / "commitlog" / f"{BARRIER_PREFIX}1-abcdef01"
    barrier.write_bytes(bytes(100))
    assert_refused(root, Unclean, f"a start barrier is left.*mqstore recover {root}", options)
    barrier.unlink()
    journal = tmp_path / "elsewhere" / "store-1" / ".mqstore"
    write_note(Files(), barrier, os.fsencode(journal), 200)
    assert_refused(root, Unclean, f"a start barrier is left.*--journal {tmp_path / 'elsewhere'}", options)


def test_damage_in_the_last_file(store: Callable[[str], Path]) -> None:
    root = store("5.3.3-clean")
    options = BrokerConfig(config("5.3.3-clean", root))
    [*_, last] = sorted((root / "commitlog").iterdir())
    good = last.read_bytes()
    for spoiled, said in (
        (good[:100] + bytes([good[100] ^ 1]) + good[101:], "checksum"),
        (bytes(8) + good[8:], "begins with zeros"),
        (good[:3000] + bytes(3000) + good[6000:], "damage|checksum|torn"),
    ):
        last.write_bytes(spoiled)
        assert_refused(root, Unclean, said, options)
    last.write_bytes(good)
    writer(root, config=options).close()


def test_a_log_file_whose_number_has_other_digits(store: Callable[[str], Path]) -> None:
    """No second file is made for its place."""
    root = store("5.3.3-clean")
    last = max((root / "commitlog").iterdir())
    last.rename(last.with_name(str(int(last.name))))
    said = "wrong name of a log file:.*mqstore recover"
    assert_refused(root, Unclean, said, BrokerConfig(config("5.3.3-clean", root)))


@pytest.mark.parametrize(("name", "said"), [("5.3.3-dledger", "DLedger.*--convert plain --to DIR")])
def test_kinds_that_are_not_appended_to(name: str, said: str, store: Callable[[str], Path]) -> None:
    root = store(name)
    assert_refused(root, Unsupported, said, BrokerConfig(config(name, root)))


def test_no_database_yet(store: Callable[[str], Path]) -> None:
    root = store("5.3.3-clean")
    options = BrokerConfig(config("5.3.3-clean", root) | {"storeType": "defaultRocksDB"})
    then = f"mqstore repair {root} --queues --as rocksdb --apply .*--set storeType=defaultRocksDB"
    assert_refused(
        root, Unsupported, f"there is none yet.*write without these options first, then run `{then}`", options
    )


def test_places_that_are_no_stores(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").write_text("x")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert_refused(tmp_path / "file", NotAStore, "not a directory")
    assert_refused(tmp_path / "other", NotAStore, "not a message store")
    with pytest.raises(Unreadable):
        writer(tmp_path / "loop" / "store")


def test_an_empty_log_beside_full_queues(tmp_path: Path) -> None:
    """A lost log is refused in the words of `recover`; one of zeros can be recovered. `abort` makes no other error."""
    put(tmp_path, messages(9))
    logs = sorted((tmp_path / "commitlog").iterdir())
    for path in logs:
        path.write_bytes(bytes(path.stat().st_size))
    assert_refused(tmp_path, Unclean, "no record, but the queues have units.*mqstore recover")
    (tmp_path / "abort").touch()
    assert_refused(tmp_path, Unclean, "abort is there.*mqstore recover")
    for path in logs:
        path.unlink()
    assert_refused(tmp_path, Refused, "no commit log, but full queues.*a disk not mounted")
    (tmp_path / "abort").unlink()
    assert_refused(tmp_path, Refused, "no commit log, but full queues.*a disk not mounted")
    (tmp_path / "abort").touch()
    for part in ("commitlog", "consumequeue", "index"):
        shutil.rmtree(tmp_path / part)
    assert_refused(tmp_path, Unclean, "abort is there")


def test_files_of_different_sizes(tmp_path: Path) -> None:
    put(tmp_path, messages(60))
    [first, *_] = sorted((tmp_path / "commitlog").iterdir())
    first.write_bytes(first.read_bytes()[:1000])
    assert_refused(tmp_path, Refused, "1000 bytes at 0, all others have 4096")


def test_a_zero_byte_last_file(tmp_path: Path) -> None:
    put(tmp_path, messages(60))
    (tmp_path / "commitlog" / f"{1 << 30:020d}").touch()
    assert_refused(tmp_path, Refused, "a commit log file of 0 bytes")
