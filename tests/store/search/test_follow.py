"""Following a log that grows: every message once, whatever happens to the files."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from mqstore.formats.message_properties import format_properties
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.file_queue import MappedFileQueue
from mqstore.store.disk.layout import Layout
from mqstore.store.errors import Unreadable
from mqstore.store.log.batch import messages
from mqstore.store.log.commit_log import CommitLog
from mqstore.store.put.new_message import NewMessage
from mqstore.store.put.writer import StoreWriter
from mqstore.store.queues.references import commit_log_of
from mqstore.store.search import follow as follow_module
from mqstore.store.search.follow import LONGEST_SECONDS, SHORTEST_SECONDS, Follower, Watch

FILE_BYTES = 8192
CONFIG = BrokerConfig().with_set([f"mappedFileSizeCommitLog={FILE_BYTES}", "mappedFileSizeConsumeQueue=2000"])


Grown = list[tuple[bytes, list[bytes]]]


def bodies(follower: Follower) -> list[bytes]:
    """Everything that there is to read now."""
    found = []
    while (batch := follower.poll()) is not None:
        found += [message.stored_body for message in messages(batch)]
    return found


def put(root: Path, *texts: str) -> None:
    """Append messages and close the store."""
    with StoreWriter.open(root, CONFIG) as writer:
        for text in texts:
            properties = format_properties({"KEYS": text})
            writer.append(NewMessage(b"T", text.encode(), properties=properties))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    put(tmp_path / "store", "first")
    return tmp_path / "store"


@pytest.fixture
def notes() -> list[str]:
    return []


@pytest.fixture
def follower(root: Path, notes: list[str]) -> Follower:
    return Follower(Layout.open(root, CONFIG), 0, notes.append)


def log_file(root: Path, number: int) -> Path:
    """One file of the log."""
    return root / "commitlog" / f"{number * FILE_BYTES:020d}"


def test_over_many_files(root: Path, follower: Follower, notes: list[str]) -> None:
    assert bodies(follower) == [b"first"]
    expected = []
    for step in range(20):
        texts = [f"{step} {n} " + "x" * (n * 37 % 700) for n in range(25)]
        put(root, *texts)
        expected += [text.encode() for text in texts]
        if step % 3 == 2:
            assert bodies(follower) == expected
            expected = []
    assert bodies(follower) == expected
    assert len(list((root / "commitlog").iterdir())) > 10
    assert notes == []


def test_while_a_writer_is_at_work(root: Path, follower: Follower) -> None:
    """Each message is there as soon as it is written, before anything is flushed or closed."""
    assert bodies(follower) == [b"first"]
    with StoreWriter.open(root, CONFIG) as writer:
        for number in range(300):
            writer.append(NewMessage(b"T", b"%d" % number, properties=b"a\x01b\x02"))
            assert bodies(follower) == [b"%d" % number]


def test_a_file_that_was_made_ahead(root: Path, follower: Follower) -> None:
    log_file(root, 1).write_bytes(bytes(FILE_BYTES))
    assert bodies(follower) == [b"first"]
    put(root, *("x" * 500 + str(n) for n in range(40)))
    assert len(bodies(follower)) == 40


@pytest.fixture
def grown(root: Path) -> Grown:
    """Two files of a log, each its bytes and the texts in it; the first is that of `root`."""
    texts = [f"{number:02}".ljust(500, "x") for number in range(12)]
    put(root, *texts)
    files = [log_file(root, number).read_bytes() for number in (0, 1)]
    log_file(root, 1).unlink()
    return [(data, [t.encode() for t in ["first", *texts] if t.encode() in data]) for data in files]


@pytest.mark.parametrize("size", [0, 7, 3000])
def test_a_file_that_is_being_made(root: Path, grown: Grown, notes: list[str], size: int) -> None:
    """A broker makes a file, and then gives it its length."""
    follower = Follower(Layout.open(root, CONFIG), 0, notes.append)
    (_, first), (data, second) = grown
    path = log_file(root, 1)
    path.write_bytes(bytes(size))
    assert bodies(follower) == first
    os.truncate(path, FILE_BYTES)
    assert bodies(follower) == []
    with path.open("r+b") as file:
        file.write(data)
    assert bodies(follower) == second
    assert notes == []


@pytest.mark.parametrize("opened", [False, True])
def test_a_file_made_ahead_is_made_anew(root: Path, grown: Grown, notes: list[str], opened: bool) -> None:
    """A broker that starts deletes the files that it had made ahead, and makes them when it needs them."""
    (_, first), (data, second) = grown
    path = log_file(root, 1)
    path.write_bytes(bytes(FILE_BYTES))
    follower = Follower(Layout.open(root, CONFIG), 0, notes.append)
    found = bodies(follower) if opened else []
    path.unlink()
    path.touch()
    assert found + bodies(follower) == first
    path.write_bytes(data)
    assert bodies(follower) == second
    assert notes == []


@pytest.mark.parametrize("step", [1, 7])
def test_a_record_that_is_being_written(root: Path, follower: Follower, notes: list[str], step: int) -> None:
    """Byte by byte, as a broker copies it: it comes once, when it is whole."""
    assert bodies(follower) == [b"first"]
    begin = follower.position
    put(root, "second")
    path = log_file(root, 0)
    whole = path.read_bytes()
    end = begin + int.from_bytes(whole[begin : begin + 4], "big")
    path.write_bytes(whole[:begin] + bytes(FILE_BYTES - begin))
    with path.open("r+b") as file:
        for at in range(begin, end, step):
            assert bodies(follower) == []
            file.seek(at)
            file.write(whole[at : at + step][: end - at])
            file.flush()
    assert bodies(follower) == [b"second"]
    assert notes == []


def test_a_file_that_grows(root: Path, grown: Grown, notes: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """As a copy of a log does: each time that it was listed it is longer already."""
    data, texts = grown[0]
    path = log_file(root, 0)
    written = 100
    path.write_bytes(data[:written])
    listed = commit_log_of

    def grow(layout: Layout, files: MappedFileQueue) -> CommitLog:
        nonlocal written
        found, written = listed(layout, files), written + 123
        path.write_bytes(data[:written])
        return found

    monkeypatch.setattr(follow_module, "commit_log_of", grow)
    follower = Follower(Layout.open(root, CONFIG), 0, notes.append)
    found = []
    for _ in range(FILE_BYTES // 50):
        found += bodies(follower)
    assert found == texts
    assert notes == []


def test_a_broker_that_starts_and_cuts(root: Path, follower: Follower, notes: list[str]) -> None:
    """What it cut is not taken back, what it writes there comes as new."""
    put(root, "lost 1", "lost 2")
    assert bodies(follower) == [b"first", b"lost 1", b"lost 2"]
    path = log_file(root, 0)
    data = path.read_bytes()
    begin = int.from_bytes(data[:4], "big")
    for name in ("checkpoint", "consumequeue/T/0/00000000000000000000"):
        (root / name).unlink()
    path.write_bytes(data[:begin] + bytes(FILE_BYTES - begin))
    (root / "consumequeue" / "T" / "0").rmdir()
    (root / "consumequeue" / "T").rmdir()
    assert bodies(follower) == []
    assert notes == [f"the log was cut: continuing at {begin}"]
    other = root.parent / "other"
    put(other, "first", "new 1", "new 2")
    changed = log_file(other, 0).read_bytes()
    path.write_bytes(data[:begin] + changed[begin:])
    assert bodies(follower) == [b"new 1", b"new 2"]


def test_files_that_expire(root: Path, follower: Follower, notes: list[str]) -> None:
    put(root, *("x" * 900 + str(n) for n in range(40)))
    assert follower.poll() is not None  # it stands in the first file
    kept = sorted((root / "commitlog").iterdir())[-2:]
    for path in (root / "commitlog").iterdir():
        if path not in kept:
            path.unlink()
    rest = bodies(follower)
    assert 5 < len(rest) < 25
    put(root, "last")
    assert bodies(follower) == [b"last"]
    assert len(notes) <= 1


def test_a_log_that_is_away_for_a_while(root: Path, follower: Follower, notes: list[str]) -> None:
    """No message comes a second time because its disk was not there."""
    put(root, "second")
    assert bodies(follower) == [b"first", b"second"]
    away = root / "away"
    (root / "commitlog").rename(away)
    follower._reopen()  # as it does while it waits for the next file
    for _ in range(3):
        assert bodies(follower) == []
    away.rename(root / "commitlog")
    put(root, "third")
    assert bodies(follower) == [b"third"]
    assert notes == []


def test_a_log_that_is_taken_away_and_comes_back(root: Path, follower: Follower, notes: list[str]) -> None:
    """It is told once; a directory made anew, as of a disk that is mounted again, has the same log."""
    directory, away = root / "commitlog", root / "away"
    found, calls = list[bytes](), list[int]()

    def idle() -> None:
        calls.append(len(calls))
        if len(calls) == 1:
            directory.rename(away)
        if len(calls) == 4:
            shutil.copytree(away, directory)
            put(root, "second")
        if len(calls) == 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        for batch in follower.batches(idle):
            found += [message.stored_body for message in messages(batch)]
    assert found == [b"first", b"second"]
    assert notes == [f"{directory} has disappeared: waiting for it"]


@pytest.mark.parametrize("delivered", [True, False])
@pytest.mark.parametrize("moved", [True, False], ids=["moved", "removed"])
def test_another_log_in_its_place_ends_it(root: Path, notes: list[str], delivered: bool, moved: bool) -> None:
    end = 0 if delivered else follow_module.end_of(Layout.open(root, CONFIG))
    follower, other = Follower(Layout.open(root, CONFIG), end, notes.append), root.parent / "other"
    put(other, "another")

    def idle() -> None:
        root.rename(root.parent / "old") if moved else shutil.rmtree(root)
        shutil.copytree(other, root)

    found = []
    with pytest.raises(Unreadable, match=r"was replaced: .*commitlog; run the command again"):
        for batch in follower.batches(idle):
            found += [message.stored_body for message in messages(batch)]
    assert found == [b"first"] * delivered
    assert notes == []


def test_a_copy_in_its_place_ends_it_before_a_message_came(root: Path, notes: list[str]) -> None:
    """Nothing was delivered that would tell that it is the same log."""
    layout = Layout.open(root, CONFIG)

    def idle() -> None:
        away = root.rename(root.parent / "away")
        shutil.copytree(away, root)

    with pytest.raises(Unreadable, match="was replaced"):
        list(Follower(layout, follow_module.end_of(layout), notes.append).batches(idle))
    assert notes == []


def test_damage_is_told_and_passed_over(
    root: Path, follower: Follower, notes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow_module, "_BROKEN_SECONDS", 0.0)
    assert bodies(follower) == [b"first"]
    begin = follower.position
    put(root, "bad", "good", "better")
    with log_file(root, 0).open("r+b") as file:
        file.seek(begin)
        file.write(b"\xff" * 40)
    assert bodies(follower) == []  # it may still be written
    assert bodies(follower) == [b"good", b"better"]
    assert len(notes) == 1 and f"at {begin} are damaged: skipped" in notes[0]


def _with_zeros(root: Path, text: str, begin: int, count: int) -> tuple[bytes, bytes]:
    """The first log file, and the same with zeros from byte `begin` of the properties of a message on."""
    whole = log_file(root, 0).read_bytes()
    at = whole.index(f"KEYS\1{text}".encode()) + begin
    return whole, whole[:at] + bytes(count) + whole[at + count :]


@pytest.mark.parametrize("begin", [0, 3])
def test_properties_that_are_half_written(root: Path, follower: Follower, notes: list[str], begin: int) -> None:
    """The read got the page before the write, and the next page, with the last byte, after it."""
    put(root, "second", "third")
    whole, torn = _with_zeros(root, "second", begin, 4)
    second = int.from_bytes(whole[:4], "big")
    third = second + int.from_bytes(whole[second : second + 4], "big")
    log_file(root, 0).write_bytes(torn[:third] + bytes(FILE_BYTES - third))
    assert bodies(follower) == [b"first"]
    log_file(root, 0).write_bytes(whole)
    found = [each for batch in iter(follower.poll, None) for each in messages(batch)]
    assert [(each.stored_body, each.properties["KEYS"]) for each in found] == [
        (text, text.decode()) for text in (b"second", b"third")
    ]
    assert notes == []


def test_zeros_in_properties_of_a_producer(
    root: Path, follower: Follower, notes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They come as soon as they are read with a record behind them, or have stayed as they are."""
    put(root, *(f"{number:02}" for number in range(8)), "last")
    for text in ("00", "03", "04", "last"):
        log_file(root, 0).write_bytes(_with_zeros(root, text, 5, 1)[1])
    for _ in range(3):
        found = bodies(follower)
        if found[-1:] == [b"07"]:
            break
    assert follower.poll() is None and notes == []
    monkeypatch.setattr(follow_module, "_BROKEN_SECONDS", 0.0)
    follower._broken = None
    assert bodies(follower) == [] and bodies(follower) == [b"last"]
    assert len(notes) == 1


def test_idle_is_told_and_ends_it(follower: Follower) -> None:
    calls: list[int] = []

    def idle() -> None:
        calls.append(len(calls))
        if len(calls) == 3:
            raise KeyboardInterrupt

    found = []
    with pytest.raises(KeyboardInterrupt):
        for batch in follower.batches(idle):
            found.append(len(batch))
    assert found == [1] and len(calls) == 3


def test_waits_grow_and_a_change_ends_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []

    def select(read: list[int], write: list[int], odd: list[int], seconds: float) -> object:
        waited.append(seconds)
        return [], [], []

    with Watch([tmp_path]) as watch:
        monkeypatch.setattr("select.select", select)
        for _ in range(8):
            watch.wait()
    assert waited[0] == SHORTEST_SECONDS and waited[-1] == LONGEST_SECONDS
    assert waited == sorted(waited)
    monkeypatch.undo()
    with Watch([tmp_path]) as watch:
        (tmp_path / "new").write_bytes(b"x")
        watch.wait()


@pytest.mark.parametrize("why", [OSError(errno.ENOSYS, "no"), AttributeError("no")])
def test_without_inotify(why: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def library(*_: object, **__: object) -> object:
        raise why

    slept: list[float] = []
    monkeypatch.setattr("ctypes.CDLL", library)
    monkeypatch.setattr("time.sleep", slept.append)
    with Watch([tmp_path]) as watch:
        watch.wait()
        watch.wait()
    assert slept == [SHORTEST_SECONDS, 2 * SHORTEST_SECONDS]


def test_nothing_is_written(root: Path, follower: Follower) -> None:
    before = {p: (p.stat().st_mtime_ns, p.stat().st_size) for p in root.rglob("*")}
    assert bodies(follower) == [b"first"]
    assert {p: (p.stat().st_mtime_ns, p.stat().st_size) for p in root.rglob("*")} == before


def test_a_record_with_a_spoiled_body_holds_nothing_up(
    root: Path, follower: Follower, notes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Good records follow, so nobody writes it any more; the last record may be one that is written."""
    monkeypatch.setattr(follow_module, "_BROKEN_SECONDS", 0.0)
    put(root, "second", "third", "last")
    path = log_file(root, 0)
    data = path.read_bytes()
    path.write_bytes(data.replace(b"second", b"sEcond", 1).replace(b"last", b"lAst", 1))
    found = [body for _ in range(4) for body in bodies(follower)]
    assert found == [b"first", b"sEcond", b"third"]
    assert len(notes) == 1 and notes[0].endswith("has a damaged body or properties")
    path.write_bytes(data)
    assert bodies(follower) == [b"last"]


def test_zeros_in_the_middle_are_passed_over_when_asked(root: Path, follower: Follower, notes: list[str]) -> None:
    assert bodies(follower) == [b"first"]
    begin = follower.position
    put(root, "second")
    assert bodies(follower) == [b"second"]
    size = follower.position - begin
    put(root, "third")
    assert bodies(follower) == [b"third"]
    end, again = follower.position, Follower(Layout.open(root, CONFIG), 0, notes.append)
    path = log_file(root, 0)
    data = path.read_bytes()
    path.write_bytes(data[:begin] + bytes(size) + data[begin + size :])
    assert bodies(again) == [b"first"]
    assert again.skip()
    assert bodies(again) == [b"third"]
    assert again.position == end and "are damaged: skipped" in notes[-1]
    assert not again.skip() and again.position == end
