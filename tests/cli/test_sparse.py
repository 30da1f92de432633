"""Huge sparse files: what is read is bounded by the data in them, never by their length.

The bytes that each command reads are counted, not its time.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.failing_disk import counted, run
from tests.stores import unpack

STORE = "5.3.3-clean"
MOST_BYTES = 384 << 20
"""Of all commands together. A scan reads its window of 8 MiB even where data is short, and recover and
verify scan several times; the files are 250 times as long at the least.
"""
GIB = 1 << 30
TIB = 1 << 40
KEY, TOPIC = "C000020269B54E0E2F2A667C7E2C0000", "T%a|b_c-D"
"""Of the message at the beginning of the log."""

Damage = Callable[[Path], Path]


def log_of_holes(store: Path) -> Path:
    log = min((store / "commitlog").iterdir())
    os.truncate(log, TIB)
    return log


def log_files_of_holes(store: Path) -> Path:
    """Three files of one size: the records in the first, nothing in the others."""
    log, *others = sorted((store / "commitlog").iterdir())
    for other in others:
        other.unlink()
    size = 300 * GIB
    os.truncate(log, size)
    for number in (1, 2):
        other = store / f"commitlog/{number * size:020d}"
        other.touch()
        os.truncate(other, size)
    return log


def log_between_holes(store: Path) -> Path:
    """What there is lies in the middle of a hole."""
    log = min((store / "commitlog").iterdir())
    content = log.read_bytes()
    with log.open("r+b") as file:
        file.truncate(0)
        file.seek(TIB // 2)
        file.write(content)
        file.truncate(TIB)
    return log


def index_file(store: Path) -> Path:
    index = max((store / "index").iterdir())
    os.truncate(index, 100 * GIB)
    return index


def queue_file(store: Path) -> Path:
    files = (path for path in (store / "consumequeue").rglob("*") if path.is_file())
    queue = max(files, key=lambda path: len(path.read_bytes().rstrip(b"\0")))
    os.truncate(queue, TIB)
    return queue


def timer_wheel(store: Path) -> Path:
    os.truncate(store / "timerwheel", TIB)
    return store / "timerwheel"


def topics(store: Path) -> Path:
    os.truncate(store / "config/topics.json", TIB)
    return store / "config/topics.json"


def timer_metrics(store: Path) -> Path:
    os.truncate(store / "config/timermetrics", TIB)
    return store / "config/timermetrics"


FAST: list[Damage] = [log_files_of_holes, index_file]
SLOW: list[Damage] = [log_of_holes, log_between_holes, queue_file, timer_wheel, topics, timer_metrics]
HARMLESS = [topics, timer_metrics]
"""Measured: a broker takes such a file for empty, and reads the .bak."""
DAMAGE = [*FAST, *(pytest.param(damage, marks=pytest.mark.slow) for damage in SLOW)]


def tree(store: Path) -> dict[str, tuple[int, int]]:
    statuses = ((path, path.stat()) for path in store.rglob("*"))
    return {str(path): (status.st_size, status.st_mtime_ns) for path, status in statuses}


@pytest.mark.few(1)
@pytest.mark.parametrize("damage", DAMAGE, ids=lambda damage: damage.__name__)
def test_a_huge_sparse_file_is_read_where_it_has_data(damage: Damage, tmp_path: Path) -> None:
    store = unpack(STORE, tmp_path / "disk")
    records = 245 if damage is log_files_of_holes else 377  # it has lost its second log file
    huge, name, before = damage(store), str(store), tree(store)
    told = ["--format", "ndjson"]
    commands = {
        "inspect": ["inspect", name],
        "dump": ["dump", name, *told],
        "dump FILE": ["dump", str(huge), *told],
        "verify": ["verify", name],
        "recover": ["recover", name],
        "--key": ["get", name, "--topic", TOPIC, "--unique-key", KEY, *told],
        "--at 0": ["get", name, "--at", "0", *told],
        "--at a hole": ["get", name, "--at", str(TIB // 4), *told],
        "salvage": ["salvage", name, "--to", str(tmp_path / "salvaged")],
    }
    answers = dict(zip(commands, run(commands.values(), [], tmp_path, below=store), strict=True))
    assert counted(tmp_path) <= MOST_BYTES
    assert {each: a for each, a in answers.items() if "internal error" in a.err} == {}
    assert {answer.code for answer in answers.values()} <= {0, 1}, answers
    code = 0 if damage in HARMLESS else 1
    assert (answers["verify"].code, answers["recover"].code) == (code, code)
    in_order = answers["inspect"].out.startswith("In order")
    assert in_order == (not code), answers["inspect"].out[:200]
    hole = answers["--at a hole"].err
    if damage is log_files_of_holes:
        assert f"no record begins here: zeros, nothing was written: {huge} at {TIB // 4}" in hole
    elif damage is log_of_holes:
        assert f"bytes of a file behind its first 262144 bytes do not count: {huge} at {TIB // 4}" in hole
    assert answers["salvage"].out.startswith(f"{records} records"), answers["salvage"]
    assert tree(store) == before
