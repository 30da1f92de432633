"""A disk that does not give some bytes: named, gone around, never zeros, and never a plan over them."""

from __future__ import annotations

import errno
import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

from tests.failing_disk import Answer, Bad, run
from tests.stores import unpack

STORE = "5.3.3-clean"
PAGE = 4096


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real store; nobody here writes to it."""
    return unpack(STORE, tmp_path_factory.mktemp("store"))


def log_file(store: Path) -> Path:
    return min((store / "commitlog").iterdir())


def queue_file(store: Path) -> Path:
    """The queue file with the most content."""
    files = (path for path in (store / "consumequeue").rglob("*") if path.is_file())
    return max(files, key=lambda path: len(path.read_bytes().rstrip(b"\0")))


def tree(store: Path) -> dict[str, str]:
    files = (path for path in store.rglob("*") if path.is_file())
    return {str(p): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def place(row: dict[str, Any]) -> int:
    return int(row.get("position", row.get("physical_offset", -1)))


def without_mark(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "after_damage"}


def names(answer: Answer, bad: Bad) -> bool:
    """One line says path, offset and length, and what to do."""
    lines = answer.err.splitlines()
    told = f"cannot read {bad.length} bytes (Input/output error): {bad.path} at {bad.offset}"
    return any(told in line and "mqstore salvage" in line and "ddrescue" in line for line in lines)


@pytest.mark.parametrize("error", [errno.EIO, errno.ESTALE])
def test_dump_names_the_range_and_goes_on(store: Path, tmp_path: Path, error: int) -> None:
    log = log_file(store)
    dump = ["dump", str(store), "--format", "ndjson"]
    (whole,) = run([dump], [], tmp_path)
    (answer,) = run([dump], [Bad(log, 2 * PAGE, PAGE, error)], tmp_path)
    damage = [row for row in answer.rows if row["type"] == "damage"]
    assert [(row["position"], row["reason"]) for row in damage] == [
        (7293, {errno.EIO: "unreadable: Input/output error"}.get(error, damage[0]["reason"]))
    ]
    end = damage[0]["position"] + damage[0]["size"]
    there = [without_mark(row) for row in answer.rows if row["type"] != "damage"]
    outside = [row for row in whole.rows if not 7293 <= place(row) < end]
    assert there == outside
    assert end < 7293 + 2 * PAGE, "no more than the records that reach into the page are lost"
    assert answer.code == 5


def test_verify_makes_a_finding_of_it(store: Path, tmp_path: Path) -> None:
    bad = [Bad(log_file(store), 2 * PAGE, PAGE), Bad(queue_file(store), 0, 60)]
    (answer,) = run([["verify", str(store), "--format", "ndjson"]], bad, tmp_path)
    found = [row for row in answer.rows if row.get("code") == "I-015"]
    assert {(row["path"], row["offset"]) for row in found} == {(str(b.path), b.offset) for b in bad}
    assert all(row["severity"] == "fatal" and "mqstore salvage" in row["repair"] for row in found)
    codes = {row["code"] for row in answer.rows if "code" in row and row["severity"] != "info"}
    assert codes <= {"I-015", "I-031", "I-042"}, (
        "nothing is told of units and items nobody has read"
    )
    assert answer.rows[-1]["status"] == "damaged" and answer.code == 1


def test_nothing_is_planned_over_it(store: Path, tmp_path: Path) -> None:
    bad, before = Bad(log_file(store), 2 * PAGE, PAGE), tree(store)
    commands = [
        ["recover"],
        ["recover", "--apply", "--yes"],
        ["repair", "--all", "--apply", "--yes"],
    ]
    answers = run([[c[0], str(store), *c[1:]] for c in commands], [bad], tmp_path)
    for answer in answers:
        assert (answer.code, answer.out) == (5, "")
        assert names(answer, bad) and len(answer.err.splitlines()) == 1
    assert tree(store) == before


def test_reading_goes_on_behind_it_and_says_so(store: Path, tmp_path: Path) -> None:
    log, queue = log_file(store), queue_file(store)
    topic, number = queue.parent.parent.name, queue.parent.name
    asked = ["get", str(store), "--topic", topic, "--queue", number, "--format", "ndjson"]
    commands = [asked, ["inspect", str(store)], ["dump", str(queue), "--format", "ndjson"]]
    whole = run(commands, [], tmp_path)
    bad = Bad(queue, 0, 60)
    got, seen, units = run(commands, [bad], tmp_path)
    # the page of the file that has them is lost: a disk fails in blocks
    assert got.code == seen.code == units.code == 5
    assert all("cannot read" in answer.err and str(queue) in answer.err for answer in (got, seen))
    assert {row["type"] for row in units.rows} <= {"damage", "consume_queue_unit"}
    assert units.rows[-1]["reason"] == "unreadable: Input/output error"
    assert all(row in whole[0].rows for row in got.rows)
    last = Bad(log, log.stat().st_size - 1, 1)
    (scanned,) = run(
        [["get", str(store), "--topic", topic, "--grep", ".", "--format", "ndjson"]],
        [last],
        tmp_path,
    )
    assert scanned.rows and scanned.code in (0, 5)


def test_a_file_that_shrinks_is_named(store: Path, tmp_path: Path) -> None:
    from mqstore.store.byte_reader import SHORTER, noting
    from mqstore.store.mapped_file_queue import MappedFileQueue

    path = tmp_path / "00000000000000000000"
    path.write_bytes(b"x" * 3 * PAGE)
    with noting() as noted, MappedFileQueue.open(tmp_path) as queue:
        os.truncate(path, PAGE)
        room = bytearray(2 * PAGE)
        got, _ = queue.read_around(queue.files[0], 0, memoryview(room))
    assert got == 2 * PAGE and room[:PAGE] == b"x" * PAGE
    assert [(u.offset, u.length, u.reason) for u in noted] == [(PAGE, PAGE, SHORTER)]


@pytest.mark.slow
@pytest.mark.parametrize("part", ["log", "queue", "index", "checkpoint", "topics", "last log page"])
def test_every_command_on_every_part(store: Path, tmp_path: Path, part: str) -> None:
    index = max((store / "index").iterdir())
    path, offset = {
        "log": (log_file(store), 2 * PAGE),
        "queue": (queue_file(store), 0),
        "index": (index, 0),
        "checkpoint": (store / "checkpoint", 0),
        "topics": (store / "config/topics.json", 0),
        "last log page": (max((store / "commitlog").iterdir()), 140 * 1024),
    }[part]
    before, name = tree(store), str(store)
    commands = {
        "verify": ["verify", name],
        "recover": ["recover", name],
        "repair": ["repair", name],
        "apply": ["recover", name, "--apply", "--yes"],
        "inspect": ["inspect", name],
        "dump": ["dump", str(path)],
        "salvage": ["salvage", name, "--to", str(tmp_path / "out")],
    }
    wanted = {"verify": 1, "salvage": 1}
    answers = run(commands.values(), [Bad(path, offset, PAGE)], tmp_path)
    for command, answer in zip(commands, answers, strict=True):
        assert "internal error" not in answer.err, command
        assert answer.code == wanted.get(command, 5), (command, answer.code, answer.err)
        if command == "verify":
            assert "I-015" in answer.out
        elif command != "salvage":
            assert "cannot read" in answer.err and str(path) in answer.err, (command, answer.err)
    assert tree(store) == before
