"""A disk that does not give some bytes: named, gone around, never zeros, and never a plan over them."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
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
    root = next(folder for folder in bad.path.parents if (folder / "commitlog").is_dir())
    command = f", then: mqstore salvage {root} --to {root}-salvaged"
    return any(told in line and line.endswith(command) and "ddrescue" in line for line in lines)


@pytest.mark.few(1)
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


def test_what_is_made_of_rows_lacks_it_and_ends_so(store: Path, tmp_path: Path) -> None:
    """As of `dump` the exit code is that of a disk that fails; of an export the rest is there."""
    bad, out = Bad(log_file(store), 2 * PAGE, PAGE), tmp_path / "out"
    export = ["export", str(store), "--to", str(out), "--columns", "position", "--json"]
    query = ["sql", "SELECT count(*) AS n FROM messages", str(store), "--format", "ndjson"]
    commands = [export, query, ["stats", str(store)], ["diff", str(store), str(store)]]
    answers = run(commands, [bad], tmp_path)
    assert {answer.code for answer in answers} == {5}
    assert all(names(answer, bad) for answer in answers)
    report = json.loads(answers[0].out)
    assert [one["position"] for one in report["damage"]] == [7293]
    assert pq.read_table(out).num_rows == report["rows"] > 0


def test_positions_and_counts_of_units_say_so(store: Path, tmp_path: Path) -> None:
    """Positions go on and end with the exit code of a disk that fails, counts end at once."""
    queue = Bad(queue_file(store), 0, 60)
    commands = [
        ["offsets", str(store)],
        ["offsets", str(store), "--compare", str(store)],
        ["stats", str(store), "--quick"],
    ]
    answers = run(commands, [queue], tmp_path)
    assert [answer.code for answer in answers] == [5, 5, 5]
    for answer in answers:  # a queue's ends are read unit by unit
        assert f"bytes (Input/output error): {queue.path} at " in answer.err
        assert "mqstore salvage" in answer.err
    assert answers[0].out and not answers[2].out


def test_a_trace_says_what_it_could_not_read(store: Path, tmp_path: Path) -> None:
    """The place is unreadable for every group; what is told of others ends with the exit code, too."""
    bad = Bad(log_file(store), 2 * PAGE, PAGE)
    (lost, found) = run(
        [
            ["trace", str(store), str(2 * PAGE), "--by", "position", "--format", "ndjson"],
            ["trace", str(store), "nothing-has-this-key"],
        ],
        [bad],
        tmp_path,
    )
    assert (lost.code, found.code) == (5, 5)
    assert names(lost, bad) and names(found, bad)


def test_verify_makes_a_finding_of_it(store: Path, tmp_path: Path) -> None:
    bad = [Bad(log_file(store), 2 * PAGE, PAGE), Bad(queue_file(store), 0, 60)]
    (answer,) = run([["verify", str(store), "--format", "ndjson"]], bad, tmp_path)
    found = [row for row in answer.rows if row.get("code") == "I-015"]
    assert {(row["path"], row["offset"]) for row in found} == {(str(b.path), b.offset) for b in bad}
    assert all(row["severity"] == "fatal" and "mqstore salvage" in row["repair"] for row in found)
    codes = {row["code"] for row in answer.rows if "code" in row and row["severity"] != "info"}
    assert codes <= {"I-015", "I-031", "I-042"}, "nothing is told of units and items nobody has read"
    assert answer.rows[-1]["status"] == "damaged" and answer.code == 1


def test_nothing_is_planned_over_it(store: Path, tmp_path: Path) -> None:
    bad, before = Bad(log_file(store), 2 * PAGE, PAGE), tree(store)
    commands = [["recover"], ["recover", "--apply", "--yes"], ["repair", "--all", "--apply", "--yes"]]
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
    (scanned,) = run([["get", str(store), "--topic", topic, "--grep", ".", "--format", "ndjson"]], [last], tmp_path)
    assert scanned.rows and scanned.code in (0, 5)


def test_a_file_that_shrinks_is_named(store: Path, tmp_path: Path) -> None:
    from mqstore.store.disk.byte_reader import SHORTER, noting
    from mqstore.store.disk.file_queue import MappedFileQueue

    path = tmp_path / "00000000000000000000"
    path.write_bytes(b"x" * 3 * PAGE)
    with noting() as noted, MappedFileQueue.open(tmp_path) as queue:
        os.truncate(path, PAGE)
        room = bytearray(2 * PAGE)
        got, _ = queue.read_around(queue.files[0], 0, memoryview(room))
    assert got == 2 * PAGE and room[:PAGE] == b"x" * PAGE
    assert [(u.offset, u.length, u.reason) for u in noted] == [(PAGE, PAGE, SHORTER)]


@pytest.fixture(scope="module")
def with_timer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real store with a timer; nobody here writes to it."""
    return unpack("5.3.3-timer-clean", tmp_path_factory.mktemp("timer"))


def test_slots_of_the_wheel_behind_it_are_read(with_timer: Path, tmp_path: Path) -> None:
    wheel = with_timer / "timerwheel"
    dump = ["dump", str(wheel), "--format", "ndjson"]
    (whole,) = run([dump], [], tmp_path)
    offset = whole.rows[0]["slot"] * 32 // PAGE * PAGE
    bad = Bad(wheel, offset, PAGE)
    commands = [dump, ["inspect", str(with_timer)], ["inspect", str(with_timer), "--timers"]]
    commands += [["verify", str(with_timer)], ["recover", str(with_timer)]]
    answer, seen, timers, checked, planned = run(commands, [bad], tmp_path)
    slots = [row for row in answer.rows if row["type"] != "damage"]
    assert slots and slots == [row for row in whole.rows if row["slot"] * 32 >= offset + PAGE]
    assert answer.rows[-1]["reason"] == "unreadable: Input/output error"
    assert [each.code for each in (answer, seen, timers, planned)] == [5] * 4
    assert all(names(each, bad) for each in (answer, seen, timers, planned))
    assert seen.out.startswith(f"Damaged: timerwheel @{offset}: cannot read 4096 bytes")
    assert timers.out.startswith("timers: "), "and what the other slots lead to"
    codes = set(re.findall(r"\[(I-\d+)\]", checked.out.partition("Info:")[0]))
    assert (checked.code, codes) == (1, {"I-015"})


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["topics.json", "timermetrics", "timercheck"])
def test_a_file_of_config_is_named_and_the_store_described(with_timer: Path, tmp_path: Path, name: str) -> None:
    path, root = with_timer / "config" / name, str(with_timer)
    commands = [["inspect", root], ["verify", root], ["recover", root], ["repair", root, "--all"]]
    seen, checked, *planned = run(commands, [Bad(path, 0, PAGE)], tmp_path)
    assert [each.code for each in (seen, checked, *planned)] == [5, 1, 5, 5]
    assert seen.out.startswith(f"Damaged: config/{name} @0: cannot read")
    assert "queues      " in seen.out
    codes = set(re.findall(r"\[(I-\d+)\]", checked.out.partition("Info:")[0]))
    assert codes == {"I-015"}
    assert all(str(path) in each.err and "mqstore salvage " in each.err for each in planned)


@pytest.mark.few(1)
@pytest.mark.parametrize("offset", [0, PAGE], ids=["a block of rows", "its index"])
def test_rows_of_a_rocksdb_are_never_fewer_without_a_word(tmp_path: Path, offset: int) -> None:
    """The library ends an iteration where it cannot read on, and says so only when it is asked."""
    root = unpack("5.3.3-rocksdb", tmp_path / "disk")
    files = sorted((root / "consumequeue").glob("*.sst"))
    bad = Bad(max(files, key=lambda path: path.stat().st_size), offset, PAGE)
    length = min(PAGE, bad.path.stat().st_size - offset)
    asked = ["get", str(root), "--topic", "TopicA", "--queue", "0", "--format", "ndjson"]
    commands = [asked, ["verify", str(root)], ["inspect", str(root)]]
    commands += [["dump", str(root / "consumequeue"), "--format", "ndjson"]]
    (whole,) = run([asked], [], tmp_path)
    got, checked, seen, units = run(commands, [bad], tmp_path)
    assert got.rows == whole.rows and got.rows, "the log is scanned instead"
    assert (got.code, checked.code, seen.code, units.code) == (5, 1, 5, 5)
    assert all(names(answer, bad._replace(length=length)) for answer in (got, seen, units))
    codes = set(re.findall(r"\[(I-\d+)\]", checked.out.partition("Info:")[0]))
    assert codes == {"I-015"} and seen.out.startswith("Damaged: consumequeue/")


def test_one_that_cannot_be_read_of_the_broker(store: Path, tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("brokerName=a\n")
    commands = [[each, str(store), "--broker-config", str(path)] for each in ("inspect", "verify")]
    for answer in run(commands, [Bad(path, 0, PAGE)], tmp_path):
        assert (answer.code, answer.out) == (5, "")
        told = f"cannot read 13 bytes (Input/output error): {path} at 0; restore it"
        assert told in answer.err and len(answer.err.splitlines()) == 1


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
        elif part == "topics":
            assert "makes files of them): config/topics.json\n" in answer.out, answer.out
    assert tree(store) == before
