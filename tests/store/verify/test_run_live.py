"""A store that is written to while it is verified: what moves under the reader is no damage."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mqstore.formats.commit_log import PLAIN
from mqstore.store.disk.file_queue import file_name
from mqstore.store.disk.layout import Layout
from mqstore.store.findings.catalogue import Severity
from mqstore.store.inspect.description import describe
from mqstore.store.search.store import StoreReader
from mqstore.store.verify.run import at_first_sight, verify
from mqstore.store.verify.verdict import Status, first_sentence

pytestmark = pytest.mark.long

ROUNDS = 20
_HOLD = """import fcntl, sys
file = open(sys.argv[1], "r+b")
fcntl.lockf(file, fcntl.LOCK_EX, 1, 0)
print("held", flush=True)
sys.stdin.read()"""
_BODIES = (10, 300, 3000, 40)
_SIZES = ("mappedFileSizeCommitLog=65536", "mappedFileSizeConsumeQueue=2000", "maxIndexNum=500")
_OPTIONS = [word for size in _SIZES for word in ("--set", size)]


def _line(number: int) -> bytes:
    message = {
        "topic": f"topic-{number % 3}",
        "queue_id": number % 4,
        "body": "x" * _BODIES[number % len(_BODIES)],
        "properties": {"KEYS": f"k{number}", "TAGS": f"t{number % 5}"},
    }
    return json.dumps(message).encode() + b"\n"


def _put(root: Path, messages: range, *options: str) -> None:
    words = [sys.executable, "-m", "mqstore", "put", str(root), "--from", "-", *_OPTIONS, *options]
    lines = b"".join(map(_line, messages))
    subprocess.run([*words, "--no-answers"], input=lines, check=True, timeout=120)


@contextmanager
def _held(root: Path) -> Iterator[None]:
    """Another process has the store."""
    words = [sys.executable, "-c", _HOLD, str(root / "lock")]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None and other.stdin is not None
        assert other.stdout.readline() == b"held\n"
        yield
        other.stdin.close()


def _assert_good(root: Path) -> bool:
    """Nothing above info; whether somebody wrote meanwhile."""
    with StoreReader(root) as store:
        verdict = verify(store)
    worse = [f for f in verdict.findings if f.severity > Severity.INFO and f.code != "I-012"]
    assert worse == []
    assert verdict.status is Status.CLEAN or verdict.live
    return verdict.live


@pytest.mark.slow
def test_verify_while_put_writes(tmp_path: Path) -> None:
    """Messages in small portions over many files, and verify again and again meanwhile."""
    root = tmp_path / "store"
    _put(root, range(500))
    words = [sys.executable, "-m", "mqstore", "put", str(root), "--from", "-", *_OPTIONS]
    writer = subprocess.Popen([*words, "--no-answers"], stdin=subprocess.PIPE)
    assert writer.stdin is not None
    live = 0
    try:
        for number in range(ROUNDS):
            first = 500 + 200 * number
            writer.stdin.write(b"".join(map(_line, range(first, first + 200))))
            writer.stdin.flush()
            live += _assert_good(root)
    finally:
        writer.stdin.close()
        assert writer.wait(timeout=120) == 0
    assert live >= ROUNDS // 2
    assert not _assert_good(root)


def test_what_is_behind_the_end_at_the_start_is_left_alone(tmp_path: Path) -> None:
    """Half a record behind the end, as while it is written: no finding while the lock is held."""
    root = tmp_path / "store"
    _put(root, range(40))
    with StoreReader(root) as store:
        end = store.log_end.position
        file = store.log_files.file_at(end)
        assert file is not None
        head = store.log.read(file.start, 60)
    with Path(file.path).open("r+b") as log:
        log.seek(end - file.start)
        log.write(head)
        log.flush()
        with _held(root):
            assert _assert_good(root)
        with StoreReader(root) as store:
            assert any(f.code in ("I-043", "I-054", "I-022") for f in verify(store).findings)
        log.seek(end - file.start + PLAIN.position_offset)
        log.write(end.to_bytes(8, "big"))
    with _held(root):
        assert _assert_good(root)
        assert at_first_sight(describe(Layout.open(root))).status is Status.CLEAN
    with StoreReader(root) as store:
        told, seen = verify(store), at_first_sight(describe(Layout.open(root)))
    assert (seen.status, told.status) == (Status.DAMAGED, Status.DAMAGED)
    assert first_sentence(seen, root) == first_sentence(told, root).partition(";")[0]


@pytest.mark.parametrize("version", ["4.9", "5.3"])
def test_a_log_file_that_is_being_made(version: str, tmp_path: Path) -> None:
    """A broker makes a file, and then gives it its length: nothing is wrong with the store."""
    root = tmp_path / "store"
    _put(root, range(40), "--as-broker", version)
    seen = describe(Layout.open(root))
    with StoreReader(root) as store:
        made = root / "commitlog" / file_name(store.log_files.end)
    with _held(root):
        for size in (0, 3000):
            made.write_bytes(bytes(size))
            assert _assert_good(root)
            now = describe(Layout.open(root))
            assert (now.restart, now.notes) == (seen.restart, seen.notes)
            verdict = at_first_sight(now)
            assert verdict.status is Status.CLEAN and verdict.live
            assert [f.code for f in verdict.findings if f.severity > Severity.INFO] == []
            assert (now.log.end, now.log.end_reason) == (seen.log.end, seen.log.end_reason)
    assert any(made.name in note for note in describe(Layout.open(root)).notes)
