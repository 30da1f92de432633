"""Layout: where the parts of a store lie, and what is no store."""

from __future__ import annotations

import os
import pickle
import re
from pathlib import Path

import pytest

from mqstore.store.disk import layout as layout_module
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.file_queue import file_name
from mqstore.store.disk.layout import Layout, queue_directory
from mqstore.store.disk.lock import check_empty
from mqstore.store.errors import InvalidInput, Missing, NotAStore, Unreadable
from mqstore.store.put.writer import StoreWriter
from mqstore.store.tiered.segments import segment_name


def log(directory: Path, *starts: int, size: int = 8) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    for start in starts:
        (directory / file_name(start)).write_bytes(bytes(size))
    return directory


def directories(layout: Layout) -> list[str]:
    return [os.path.relpath(path, layout.root) for path in layout.commit_log_directories]


def test_a_plain_store(tmp_path: Path) -> None:
    log(tmp_path / "commitlog", 0, 8)
    for name in ("config", "consumequeue", "index", "dledger-x", ".mqstore", "odd"):
        (tmp_path / name).mkdir()
    for name in ("abort", "lock", "checkpoint", "timerwheel", "timerwheel.12", "stray"):
        (tmp_path / name).write_bytes(b"")
    layout = Layout.open(tmp_path)
    assert (directories(layout), layout.commit_log_origin) == (["commitlog"], "default")
    assert layout.dledger is None
    assert layout.consume_queue == tmp_path / "consumequeue"
    assert [Path(f.path).name for f in layout.foreign] == ["odd", "stray"]
    assert len(layout.commit_log_files().files) == 2


def test_files_of_a_broker_with_a_controller_are_its_own(tmp_path: Path) -> None:
    log(tmp_path / "commitlog", 0)
    names = ["brokerIdentity", "brokerIdentity-temp", "epochFileCheckpoint", "epochFileCheckpoint.bak"]
    for name in [*names, "epochs", "epochs.bak"]:
        (tmp_path / name).write_bytes(b"")
    for options, foreign in (({}, ["epochs", "epochs.bak"]), ({"storePathEpochFile": "epochs"}, names[2:])):
        layout = Layout.open(tmp_path, BrokerConfig(options))
        assert [Path(f.path).name for f in layout.foreign] == foreign


def test_configured_directories(tmp_path: Path) -> None:
    log(tmp_path / "a", 0)
    log(tmp_path / "b", 8)
    other = log(tmp_path.parent / "c", 16)
    config = BrokerConfig({"storePathCommitLog": f"a,{tmp_path}/b,a", "readOnlyCommitLogStorePaths": str(other)})
    layout = Layout.open(tmp_path, config)
    assert directories(layout) == ["a", "b", "../c"]
    assert layout.commit_log_origin == "configuration"
    assert [f.start for f in layout.commit_log_files().files] == [0, 8, 16]
    assert layout.foreign == []


def test_directories_that_form_one_log_are_found(tmp_path: Path) -> None:
    log(tmp_path / "d2" / "commitlog", 8)
    log(tmp_path / "commitlog-a", 0, 16)
    (tmp_path / "checkpoint").write_bytes(b"")
    layout = Layout.open(tmp_path)
    assert (directories(layout), layout.commit_log_origin) == (["commitlog-a", "d2/commitlog"], "found")
    assert layout.foreign == []


def aside(layout: Layout) -> list[str]:
    return [os.path.relpath(path, layout.root) for path in layout.aside]


def test_a_start_reads_no_directory_that_was_only_found_beside_the_log(tmp_path: Path) -> None:
    log(tmp_path / "commitlog", 0, 8)
    log(tmp_path / "bad", 16)
    layout = Layout.open(tmp_path, BrokerConfig({"fileReservedTime": "48"}))
    assert (directories(layout), aside(layout)) == (["commitlog", "bad"], ["bad"])
    assert "1 file of this log is in" in layout.unread_log and "if named in storePathCommitLog" in layout.unread_log
    layout.journal_place, layout.version_named, layout.log_stop = tmp_path, "5.3.3", 8
    started = layout.as_started()
    assert (started.journal_place, started.version_named, started.log_stop) == (tmp_path, "5.3.3", 8)
    assert (directories(started), started.unread_log) == (["commitlog"], layout.unread_log)
    named = Layout.open(tmp_path, BrokerConfig({"storePathCommitLog": "commitlog,bad"}))
    assert (aside(named), named.unread_log, named.as_started() is named) == ([], "", True)


@pytest.mark.parametrize(
    ("options", "known"), [({}, []), ({"storePathCommitLog": "log2"}, []), ({"fileReservedTime": "48"}, ["log2"])]
)
def test_a_whole_configuration_says_where_the_log_is_not(
    options: dict[str, str], known: list[str], tmp_path: Path
) -> None:
    """Without one, a log that is whole in another directory is likely the one that brokers read."""
    log(tmp_path / "log2", 0, 8)
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "checkpoint").touch()
    layout = Layout.open(tmp_path, BrokerConfig(options, whole=bool(options)))
    assert (directories(layout), aside(layout)) == (["log2"], known)


def test_a_copy_of_the_log_is_no_part_of_it(tmp_path: Path) -> None:
    log(tmp_path / "commitlog", 0, 8)
    log(tmp_path / "backup", 0, 8)
    log(tmp_path / "far", 80)
    log(tmp_path / "sizes", 16, size=9)
    log(tmp_path / "next", 16)
    layout = Layout.open(tmp_path)
    assert directories(layout) == ["commitlog", "next"]
    assert [Path(f.path).name for f in layout.foreign] == ["backup", "far", "sizes"]


def test_dledger(tmp_path: Path) -> None:
    data = log(tmp_path / "dledger-n0" / "data", 0)
    log(tmp_path / "dledger-n0" / "index", 0)
    layout = Layout.open(tmp_path)
    assert (layout.commit_log_directories, layout.dledger) == ((data,), data)
    (tmp_path / "commitlog").mkdir()
    assert Layout.open(tmp_path).commit_log_directories == (data,)
    old = log(tmp_path / "commitlog", 0)
    assert Layout.open(tmp_path).commit_log_directories == (old, data)
    log(tmp_path / "dledger-n1" / "data", 0)
    with pytest.raises(InvalidInput, match="storePathCommitLog"):
        Layout.open(tmp_path)


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"storePathCommitLog": "dledger-n1/data"}, "dledger-n1/data"),
        ({"storePathCommitLog": "dledger-n1/data", "enableDLegerCommitLog": "true"}, "dledger-n1/data"),
        ({"dLegerSelfId": "n1"}, "dledger-n1/data"),
        ({"dLegerSelfId": "n1", "enableDLegerCommitLog": "true", "storePathCommitLog": "old"}, "old dledger-n1/data"),
        ({"dLegerSelfId": "n1", "storePathCommitLog": "old"}, "old"),
        ({"dLegerSelfId": "n2", "enableDLegerCommitLog": "true"}, "dledger-n2/data"),
        ({"enableDLegerCommitLog": "false"}, "commitlog"),
    ],
)
def test_the_configuration_says_which_member_of_dledger_it_is(
    options: dict[str, str], wanted: str, tmp_path: Path
) -> None:
    """Of a store with several; one that is not there is an empty log, of whoever asks for it."""
    log(tmp_path / "dledger-n0" / "data", 0)
    log(tmp_path / "dledger-n1" / "data", 0)
    (tmp_path / "old" / "not-empty").mkdir(parents=True)
    (tmp_path / "checkpoint").touch()
    layout = Layout.open(tmp_path, BrokerConfig(options))
    found = directories(layout)
    assert " ".join(found) == wanted
    assert layout.dledger == (tmp_path / found[-1] if "dledger" in wanted else None)


def test_what_is_no_store_is_said(tmp_path: Path) -> None:
    with pytest.raises(Missing, match="no such directory"):
        Layout.open(tmp_path / "none")
    with pytest.raises(NotAStore, match="not a message store"):
        Layout.open(tmp_path)
    file = tmp_path / "file"
    file.write_bytes(b"")
    with pytest.raises(NotAStore, match="file"):
        Layout.open(file)
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(Unreadable, match="loop"):
        Layout.open(loop)
    unmounted = tmp_path / "unmounted"
    unmounted.symlink_to("/nowhere/disk")
    for opening in (Layout.open, StoreWriter.open, check_empty):
        with pytest.raises(Missing, match=r"^a link to /nowhere/disk, where nothing is: .*; mount its disk"):
            opening(unmounted)
        with pytest.raises(Missing, match=rf"^a link to /nowhere/disk, where nothing is: {unmounted}; mount its disk"):
            opening(unmounted / "store")
    assert sorted(tmp_path.iterdir()) == [file, loop, unmounted]


def test_a_directory_of_the_store_gets_advice(tmp_path: Path) -> None:
    log(tmp_path / "store" / "commitlog", 0)
    queue = tmp_path / "store" / "consumequeue" / "orders" / "0"
    log(queue, 0)
    logs = tmp_path / "store" / "commitlog"
    for wrong in (logs, queue, *logs.iterdir(), *queue.iterdir()):
        with pytest.raises(NotAStore, match=rf"root directory instead \({re.escape(str(tmp_path / 'store'))}\?\)"):
            Layout.open(wrong)
    with pytest.raises(NotAStore, match=r"did you mean .*/store\?"):
        Layout.open(tmp_path)


def test_no_directory_is_named_that_is_no_store(tmp_path: Path) -> None:
    """A file that is of no store, as a segment of a tiered one, has no root to name."""
    (segment := tmp_path / "COMMIT_LOG" / segment_name(0)).parent.mkdir()
    segment.write_bytes(b"")
    with pytest.raises(NotAStore) as told:
        Layout.open(segment)
    assert told.value.hint == "name the store's root directory instead; mqstore dump and inspect read a single file"


def test_a_store_may_have_only_one_of_its_parts(tmp_path: Path) -> None:
    for part in ("consumequeue", "index", "commitlog", "batchconsumequeue"):
        root = tmp_path / part
        (root / part).mkdir(parents=True)
        assert Layout.open(root).commit_log_files().files == []


def test_the_paths_of_a_store_to_be(tmp_path: Path) -> None:
    layout = Layout.of(tmp_path / "new")
    assert layout.commit_log_directories == (tmp_path / "new" / "commitlog",)
    assert layout.abort == tmp_path / "new" / "abort"
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("topic", ["", ".", "..", "a/../b", "/a", "a/", "a\0b", "x" * 256])
def test_topics_that_can_have_no_directory(tmp_path: Path, topic: str) -> None:
    with pytest.raises(InvalidInput):
        queue_directory(tmp_path, topic, 0)


def test_directories_of_queues(tmp_path: Path) -> None:
    assert queue_directory(tmp_path, "%RETRY%g", 3) == tmp_path / "%RETRY%g" / "3"
    assert queue_directory(tmp_path, "%LMQ%a/b", 0) == tmp_path / "%LMQ%a" / "b" / "0"
    with pytest.raises(InvalidInput):
        queue_directory(tmp_path, "T", -1)


def test_a_slave_follows_a_master(tmp_path: Path) -> None:
    """In DLedger the role says nothing: a node that is alone follows none."""
    slave = BrokerConfig({"brokerRole": "slave"})
    assert Layout.of(tmp_path, slave).follows_master
    assert not Layout.of(tmp_path).follows_master
    (tmp_path / "dledger-n0" / "data").mkdir(parents=True)
    assert not Layout.of(tmp_path, slave).follows_master


@pytest.mark.parametrize(
    ("votes", "peers", "expected"),
    [
        ("currTerm=0\nvoteLeader=n0\n", None, False),
        ("currTerm=0\nvoteLeader=\n", None, False),
        ("currTerm=0\nvoteLeader=n1\n", None, True),
        ("currTerm=3\nvoteLeader=\n", None, True),
        ("currTerm=3\nvoteLeader=n0\n", "n0-127.0.0.1:1;", False),
        ("currTerm=0\nvoteLeader=n0\n", "n0-127.0.0.1:1;n1-127.0.0.1:2", True),
        ("\0", None, False),
        (None, None, False),
    ],
)
def test_a_dledger_log_of_one_of_several_nodes(
    votes: str | None, peers: str | None, expected: bool, tmp_path: Path
) -> None:
    (tmp_path / "dledger-n0" / "data").mkdir(parents=True)
    if votes is not None:
        (tmp_path / "dledger-n0" / "currterm").write_text(votes)
    config = BrokerConfig({"dLegerPeers": peers} if peers else {})
    layout = Layout.of(tmp_path, config)
    assert (layout.has_peers, layout.follows_master, layout.master) == (expected, expected, "the leader")


def test_names_of_topics_are_compared_only_for_a_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where many directories are missing, `verify` meets this error once a queue."""
    asked: list[str] = []

    def similar(topic: str, *_: object) -> str:
        asked.append(topic)
        return "did you mean orders?"

    monkeypatch.setattr(layout_module, "did_you_mean", similar)
    error = pickle.loads(pickle.dumps(layout_module.no_topic(tmp_path, "ordres")))
    assert not asked
    assert str(error).startswith(f"no such topic: ordres: {tmp_path}; did you mean orders?; if the topic was deleted")
