"""A broker deletes the oldest files of a log while it is read: the log begins later, and nothing is damaged."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mqstore.formats.message_properties import format_properties
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.byte_reader import noting
from mqstore.store.disk.file_queue import file_name
from mqstore.store.errors import Missing
from mqstore.store.findings.catalogue import Severity
from mqstore.store.log import scan
from mqstore.store.log.batch import Batch, Extent, ExtentKind
from mqstore.store.log.message import Mark
from mqstore.store.put.new_message import NewMessage
from mqstore.store.put.writer import StoreWriter
from mqstore.store.search.store import StoreReader
from mqstore.store.verify.run import verify

from ...cli.datadriven import run_here

FILE_BYTES, QUEUE_BYTES = 8192, 400
CONFIG = BrokerConfig().with_set([f"mappedFileSizeCommitLog={FILE_BYTES}", f"mappedFileSizeConsumeQueue={QUEUE_BYTES}"])
SIZES = ["--set", f"mappedFileSizeCommitLog={FILE_BYTES}", "--set", f"mappedFileSizeConsumeQueue={QUEUE_BYTES}"]
MESSAGES = 400


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store of 400 messages in many files."""
    with StoreWriter.open(tmp_path / "store", CONFIG) as writer:
        for number in range(MESSAGES):
            properties = format_properties({"KEYS": f"k{number}"})
            writer.append(NewMessage(b"T", b"x" * 60, properties=properties))
    return tmp_path / "store"


@pytest.fixture
def in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker holds the lock."""
    monkeypatch.setattr("mqstore.store.disk.lock.holder", lambda _: 1)
    monkeypatch.setattr("mqstore.store.verify.context.holder", lambda _: 1)


def log_file(root: Path, number: int) -> Path:
    return root / "commitlog" / file_name(number * FILE_BYTES)


def expire(root: Path, files: int) -> None:
    """Delete the oldest log files, and the queue files that are before the log then, as a broker does."""
    with StoreReader(root, CONFIG) as store:
        for number in range(files):
            log_file(root, number).unlink()
        with store.queues.open("T", 0) as queue:
            units = QUEUE_BYTES // 20
            for file in queue.files.files[:-1]:
                last = queue.unit(file.start // 20 + units - 1)
                if last is not None and last.physical_offset < files * FILE_BYTES:
                    os.unlink(file.path)  # noqa: PTH108


@contextmanager
def when_file_is_read(number: int, do: Callable[[], None]) -> Iterator[None]:
    """Do something when a scan of a log comes to a file."""
    begin_file, done = scan.LogScan._begin_file, list[int]()

    def beginning(self: scan.LogScan, items: scan.LogItems, at: int) -> None:
        begin_file(self, items, at)
        if items._file.start == number * FILE_BYTES and not done:
            done.append(1)
            do()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scan.LogScan, "_begin_file", beginning)
        yield


def read(root: Path) -> tuple[list[int], list[Extent]]:
    """Positions of all records, and what is no record."""
    positions, extents = list[int](), list[Extent]()
    with StoreReader(root, CONFIG) as store:
        for item in store.log.scan():
            if isinstance(item, Batch):
                assert item.mark is Mark.NONE
                positions += item.position.tolist()
            else:
                extents.append(item)
    return positions, [extent for extent in extents if extent.kind is not ExtentKind.BLANK]


@pytest.mark.usefixtures("in_use")
@pytest.mark.parametrize("reached", [0, 2, 5])
def test_the_log_begins_later(root: Path, reached: int) -> None:
    before, zeros = read(root)
    begin = 4 * FILE_BYTES
    with noting() as noted, when_file_is_read(reached, lambda: expire(root, 4)):
        positions, extents = read(root)
    kept = [at for at in before if at < reached * FILE_BYTES or at >= begin]
    assert (positions == kept and len(kept) < len(before)) or reached == 5
    assert extents == zeros and not list(noted)
    assert list(noted.expired.values()) == ([begin] if reached < 4 else [])


def test_without_a_broker_it_is_an_error(root: Path) -> None:
    with when_file_is_read(1, lambda: expire(root, 4)), pytest.raises(Missing):
        read(root)


@pytest.mark.usefixtures("in_use")
def test_a_file_in_the_middle_is_an_error(root: Path) -> None:
    with when_file_is_read(1, log_file(root, 3).unlink), pytest.raises(Missing):
        read(root)


@pytest.mark.usefixtures("in_use")
@pytest.mark.parametrize("reached", [1, 5])
def test_verify_finds_nothing_missing(root: Path, reached: int) -> None:
    """Records that were read, and whose units went together with them."""
    with StoreReader(root, CONFIG) as store, when_file_is_read(reached, lambda: expire(root, 4)):
        verdict = verify(store)
    assert verdict.live and [f.code for f in verdict.findings if f.severity > Severity.INFO] == []


@pytest.mark.usefixtures("in_use")
def test_verify_leaves_out_damage_of_files_that_are_gone(root: Path) -> None:
    """And names that of files that are there."""
    for number in (1, 6):
        with log_file(root, number).open("r+b") as file:
            file.seek(4000)
            file.write(b"\xff" * 300)
    with StoreReader(root, CONFIG) as store, when_file_is_read(5, lambda: expire(root, 4)):
        found = [f.path for f in verify(store).findings if f.severity > Severity.INFO and "commitlog" in f.path]
    assert set(found) == {str(log_file(root, 6)), str(log_file(root, 7))}, "the damage, and what is behind it"


@pytest.mark.usefixtures("in_use")
@pytest.mark.parametrize(
    "command",
    [
        ["dump"],
        ["dump", "of a directory"],
        ["inspect"],
        ["stats"],
        ["get", "--grep", "x"],
        ["get", "--topic", "T"],
        ["verify"],
    ],
)
def test_commands_go_on_and_say_it_once(root: Path, command: list[str]) -> None:
    path = root / "commitlog" if "of a directory" in command else root
    words = [command[0], str(path), *(word for word in command[1:] if word != "of a directory"), *SIZES]
    whole = run_here(words)
    with when_file_is_read(1, lambda: expire(root, 4)):
        answer = run_here(words)
    assert (whole.code, answer.code) == (0, 0) and answer.stdout
    if command != ["get", "--topic", "T"]:  # it scans nothing
        line = f"mqstore: the broker deleted the files before {4 * FILE_BYTES} during this command"
        assert [one.split(";")[0] for one in answer.stderr.splitlines()] == [line]
