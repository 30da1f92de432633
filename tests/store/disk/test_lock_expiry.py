"""A running broker deletes the oldest file of a queue, of its ext units or of the timer log after it was listed: the
rest is read.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from mqstore.cli.file_kinds.index_file import chunks
from mqstore.cli.options import Common
from mqstore.store.disk import file_queue, lock
from mqstore.store.disk.byte_reader import noting
from mqstore.store.disk.file_queue import MappedFile
from mqstore.store.inspect.recognise import recognise
from mqstore.store.verify import context

from ... import stores
from ...cli.datadriven import run_here

BATCHES, EXT, TIMERS = "batchconsumequeue/BatchTopic/0", "consumequeue_ext/sql/0", "timerlog"
QUEUE = EXT.replace("_ext", "")


@pytest.fixture(autouse=True)
def in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker holds the lock."""
    for module in (lock, context):
        monkeypatch.setattr(module, "holder", lambda _: 1)


@pytest.mark.parametrize(
    ("name", "directory", "command"),
    [
        ("5.3.3-batchcq", BATCHES, ["verify"]),
        ("5.3.3-batchcq", BATCHES, ["stats", "--quick"]),
        ("5.3.3-batchcq", BATCHES, ["inspect"]),
        ("5.3.3-cqext", EXT, ["verify"]),
        ("5.3.3-timer-roll", TIMERS, ["verify"]),
        ("5.3.3-timer-roll", TIMERS, ["inspect", "--timers", "--now", "2026-11-21T00:00:00Z"]),
        ("5.3.3-timer-roll", TIMERS, ["sql", "SELECT count(*) FROM timers"]),
        ("5.3.3-batchcq", BATCHES, ["dump"]),
        ("5.3.3-cqext", EXT, ["dump"]),
        ("5.3.3-cqext", QUEUE, ["dump"]),
        ("5.3.3-timer-roll", TIMERS, ["dump"]),
    ],
)
def test_what_is_left_is_read(
    name: str, directory: str, command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = stores.unpack(name, tmp_path)
    first = min((root / directory).iterdir())
    sizes = [
        word for option in stores.config_set(name, root) if option[:3] in ("map", "max") for word in ("--set", option)
    ]
    dumps = command == ["dump"]
    words = [*command, str(root / directory if dumps else root), *sizes]
    open_file, opened = file_queue._open, list[str]()

    def opening(file: MappedFile) -> int:
        if file.path == str(first):
            opened.append(file.path)
            first.unlink(missing_ok=True)
        return open_file(file)

    with monkeypatch.context() as patch:
        patch.setattr(file_queue, "_open", opening)
        meanwhile = run_here(words)
    assert opened and not first.exists()
    after = run_here(words)
    assert meanwhile.stdout and meanwhile.code in (0, after.code)
    if command[0] == "verify" and directory != EXT:  # the messages of the ext units are still there
        assert (meanwhile.code, meanwhile.stdout) == (after.code, after.stdout)
    gone = [line for line in meanwhile.stderr.splitlines() if line not in after.stderr.splitlines()]
    assert all("the broker deleted the files before " in line and (dumps or TIMERS in line) for line in gone)
    assert not dumps or len(gone) == 1


def test_an_index_file_that_is_deleted_before_it_is_dumped(tmp_path: Path) -> None:
    place = stores.unpack("5.3.3-clean", tmp_path) / "index"
    first, second, last = sorted(place.iterdir())
    dumped = chunks(recognise(place), None, False, Common())
    names = [next(next(dumped).records())["file"]]
    first.unlink()
    second.unlink()
    with noting() as noted:
        names += [record["file"] for chunk in dumped for record in chunk.records() if record["type"] == "index_header"]
    assert names == [first.name, last.name] and noted.expired == {str(place): int(last.name)}
