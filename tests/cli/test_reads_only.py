"""Commands that read write nothing: proven by an audit of system calls and by comparing the store.

Python's audit events name every file that is opened, with its flags, and every call that changes a
directory. Native code that would open files by itself is covered by the comparison.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from .. import stores
from .datadriven import run_here

pytestmark = pytest.mark.long

WRITING_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGING_EVENTS = {
    *("os.mkdir", "os.rmdir", "os.remove", "os.rename", "os.link", "os.symlink", "os.truncate"),
    *("os.chmod", "os.chown", "os.utime", "os.setxattr", "os.removexattr", "os.lockf"),
    *("shutil.rmtree", "shutil.move", "shutil.copyfile", "fcntl.lockf", "fcntl.flock"),
}

STORES = (
    *("5.3.3-killed-page", "5.3.3-timer-clean", "5.3.3-dledger", "5.3.3-rocksdb"),
    *("5.3.3-compaction", "4.9.7-cqext"),
)

_watched: list[tuple[Path, list[str]]] = []


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    """An audit hook stays for the life of the process; it sleeps while nothing is watched."""
    if not _watched:
        return
    for root, seen in _watched:
        if event == "open":
            path, _, flags = arguments
            if isinstance(path, str | bytes) and flags & WRITING_FLAGS and _inside(path, root):
                seen.append(f"open {os.fsdecode(path)} with flags {flags:#o}")
        elif event in CHANGING_EVENTS:
            paths = [a for a in arguments if isinstance(a, str | bytes)]
            paths = paths[1:] if event == "os.symlink" else paths  # the target is not touched
            if not paths or any(_inside(path, root) for path in paths):
                seen.append(f"{event} {paths}")


def _inside(path: str | bytes, root: Path) -> bool:
    return Path(os.path.abspath(os.fsdecode(path))).is_relative_to(root)  # noqa: PTH100


@cache
def _begin_to_audit() -> None:
    """Once, and not when this module is imported: all tests of the process would pay for it."""
    sys.addaudithook(_audit)


@contextmanager
def nothing_is_written(root: Path) -> Iterator[None]:
    """Fail if anything below `root` is changed, or opened so that it could be."""
    _begin_to_audit()
    before = state(root)
    seen: list[str] = []
    _watched.append((root, seen))
    try:
        yield
    finally:
        _watched.pop()
    assert seen == []
    assert state(root) == before


def state(root: Path) -> dict[str, tuple[int, ...]]:
    """Size, mode, owner, times of change and links of everything below `root`."""
    found: dict[str, tuple[int, ...]] = {}
    for path in [root, *root.rglob("*")]:
        s = path.stat()
        times = (s.st_mtime_ns, s.st_ctime_ns)
        found[str(path)] = (s.st_ino, s.st_size, s.st_blocks, s.st_mode, s.st_uid, s.st_nlink, *times)
    return found


def content(root: Path) -> dict[str, str]:
    """Hash of every file below `root`."""
    files = (path for path in root.rglob("*") if path.is_file())
    return {str(path): hashlib.sha1(path.read_bytes()).hexdigest() for path in files}


def _questions(name: str) -> Iterator[tuple[str, ...]]:
    """Command lines that read; {} stands for the store."""
    yield ("inspect", "{}")
    yield ("inspect", "{}", "--delays", "--timers", "--retries", "--pop", "--transactions")
    yield ("dump", "{}")
    yield ("dump", "{}", "--hex", "--count", "5")
    yield ("dump", "{}", "--format", "csv", "--rate", "1G")
    for part in (
        "commitlog",
        "consumequeue",
        "index",
        "checkpoint",
        "lock",
        "timerlog",
        "timerwheel",
        "config",
        "config/topics",
        "config/topics.json",
        "compaction",
        "compaction/compactionCq",
        "compaction/position-checkpoint",
        "consumequeue_ext",
        "dledger-n0/index",
        "dledger-n0/currterm",
    ):
        yield ("dump", f"{{}}/{part}")
        yield ("inspect", f"{{}}/{part}")
    topics = {message["topic"] for message in stores.messages(name)}
    keys = [m["properties"]["KEYS"] for m in stores.messages(name) if "KEYS" in m["properties"]]
    topic = min(topics)
    yield ("get", "{}", "--topic", topic, "--queue", "0", "--offset", "0")
    yield ("get", "{}", "--topic", topic)
    yield ("get", "{}", "--topic", topic, "--queue", "0", "--offset-at", "-1")
    yield ("get", "{}", "--at", "0")
    yield ("get", "{}", "--since", "2020-01-01T00:00:00Z", "--limit", "3")
    for key in keys[:1]:
        yield ("get", "{}", "--key", key.split()[0])
        yield ("trace", "{}", key.split()[0])
    yield ("trace", "{}", "0", "--next-start")
    yield ("trace", "{}", f"{topic}/0/1000000", "--group", "g")
    yield ("verify", "{}")
    yield ("verify", "{}", "--quick", "--format", "json")
    yield ("recover", "{}")
    yield ("recover", "{}", "--format", "json")
    for view in ("messages", "queues", "index_items", "timers", "offsets", "lag", "findings"):
        yield ("sql", f"SELECT * FROM {view}", "{}")
    yield ("stats", "{}", "--by", "topic,tag,host")
    yield ("diff", "{}", "{}")
    yield ("diff", "{}", "{}", "--quick")
    yield ("offsets", "{}", "--by", "queue")
    yield ("offsets", "{}", "--compare", "{}")
    yield ("offsets", "{}", "--merge", "{}", "--take", "min")


@pytest.mark.few(1)
@pytest.mark.parametrize("name", STORES)
def test_commands_that_read_write_nothing(name: str, tmp_path: Path) -> None:
    """Whatever the answer is."""
    store = stores.unpack(name, tmp_path)
    before = content(store)
    for question in _questions(name):
        arguments = [word.replace("{}", str(store)) for word in question]
        with nothing_is_written(tmp_path):
            result = run_here(arguments)
        assert "internal error" not in result.stderr, question
    assert content(store) == before


def test_the_audit_sees_writing(tmp_path: Path) -> None:
    """It would notice."""
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(AssertionError, match="flags"), nothing_is_written(tmp_path):
        (tmp_path / "file").open("r+b").close()
    with pytest.raises(AssertionError, match=r"os\.utime"), nothing_is_written(tmp_path):
        os.utime(tmp_path / "file")
    with pytest.raises(AssertionError, match=r"os\.mkdir"), nothing_is_written(tmp_path):
        (tmp_path / "folder").mkdir()
