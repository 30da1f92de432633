"""A running broker deletes the oldest file of a queue, of its ext units or of the timer log after it was listed: the
rest is read.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from mqstore.store.disk import file_queue, lock
from mqstore.store.disk.file_queue import MappedFile
from mqstore.store.verify import context

from ... import stores
from ...cli.datadriven import run_here

BATCHES, EXT, TIMERS = "batchconsumequeue/BatchTopic/0", "consumequeue_ext/sql/0", "timerlog"


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
    words = [*command, str(root), *sizes]
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
    assert all("the broker deleted the log files before 1024" in line and TIMERS in line for line in gone)
