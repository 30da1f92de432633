"""Jobs over whole logs read the log files near the times asked for, as `get` does, and say which were left out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from mqstore import Store
from mqstore.cli.record_types import schema_of
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.byte_reader import Unread
from mqstore.store.disk.file_queue import MappedFile
from mqstore.store.log.commit_log import CommitLog
from mqstore.store.log.message import Message
from mqstore.store.put.new_message import NewMessage
from mqstore.store.search.log_search import time_bounds
from mqstore.store.search.selection import TimeRange
from mqstore.store.search.store import StoreReader

from ..failing_disk import fail_here
from ..store.put.writing import NOW, TINY, writer
from .datadriven import Result, run_here
from .json_schema import errors

FILE_BYTES = 16384
HOUR_MS = 3_600_000
COUNT, IN_A_FILE = 300, 77
LEFT_OUT = "left out by the store times around them"
DOUBT = "some times step back or cannot be read, so wanted messages may be among them"
STEPS_BACK = "step back by more than an hour: their order does not narrow the search"
QUERY = "SELECT count(*) AS n FROM messages"


@pytest.fixture(autouse=True)
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """The logs count as large."""
    monkeypatch.setattr("mqstore.store.search.log_search.SMALL_LOG_BYTES", 0)
    monkeypatch.setattr("mqstore.store.arrow.log_rows.SMALL_LOG_BYTES", 0)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The positions at which scans have begun to read."""
    read_around, found = CommitLog.read_around, list[int]()

    def reading(log: CommitLog, buffer: memoryview, file: MappedFile, offset: int) -> tuple[int, list[Unread]]:
        found.append(file.start + offset)
        return read_around(log, buffer, file, offset)

    monkeypatch.setattr(CommitLog, "read_around", reading)
    return found


def stored(root: Path, time_of: Callable[[int], int]) -> list[int]:
    """Make a store of messages with these times, and return them."""
    times = [time_of(number) for number in range(COUNT)]
    with writer(root, config=BrokerConfig({**TINY, "mappedFileSizeCommitLog": str(FILE_BYTES)})) as out:
        for time_ms in times:
            out.append(NewMessage(b"T", b"x" * 120, store_timestamp=time_ms))
    return times


def in_order(number: int) -> int:
    return NOW + number * HOUR_MS


def set_back(number: int) -> int:
    """The clock is set back by a minute at the second record of the second file."""
    return in_order(number) if number <= IN_A_FILE else in_order(number) - HOUR_MS - 60_000


def stepped(number: int) -> int:
    """The clock is half a day ahead for a third of the log, so files begin at such times."""
    return NOW + number * 36_000 + (12 * HOUR_MS if 100 <= number < 200 else 0)


def asked(command: str, root: Path, since: int, until: int) -> tuple[Result, int]:
    """What a command says of the messages of these times, and how many they are."""
    out, times = root.parent / "out", ("--since", str(since), "--until", str(until))
    if command == "export":
        done = run_here(["export", str(root), "--to", str(out), *times])
        return done, pq.read_table(out).num_rows
    words = {"stats": ["stats", str(root), "--jobs", "1"], "sql": ["sql", QUERY, str(root)]}[command]
    done = run_here([*words, *times, "--format", "ndjson"])
    (row,) = map(json.loads, done.stdout.splitlines())
    return done, row["n" if command == "sql" else "messages"]


@pytest.mark.parametrize("command", ["export", "stats", "sql"])
def test_a_log_in_order_is_read_near_the_times(command: str, read: list[int], tmp_path: Path) -> None:
    times = stored(tmp_path / "store", in_order)
    files = len([*(tmp_path / "store" / "commitlog").iterdir()])
    read.clear()
    done, count = asked(command, tmp_path / "store", times[-20], times[-1] + 1)
    assert (done.code, count) == (0, 20), done
    assert files > 3 and min(read) >= (files - 2) * FILE_BYTES, read
    assert not done.stderr


@pytest.mark.parametrize("command", ["export", "stats", "sql"])
def test_a_clock_that_was_set_back_leaves_a_doubt(command: str, tmp_path: Path) -> None:
    """By less than what would have all files read."""
    times = stored(tmp_path / "store", set_back)
    files = len([*(tmp_path / "store" / "commitlog").iterdir()])
    done, count = asked(command, tmp_path / "store", times[-20], times[-1] + 1)
    assert (done.code, count) == (0, 20), done
    (note,) = done.stderr.splitlines()
    assert f"{files - 1} of {files} log files {LEFT_OUT}" in note or f"{files - 2} of {files} log files" in note
    assert f"{DOUBT}: `mqstore dump` reads the whole log" in note


@pytest.mark.parametrize("command", ["export", "stats", "sql"])
def test_a_clock_that_was_ahead_hides_nothing(command: str, tmp_path: Path) -> None:
    times = stored(tmp_path / "store", stepped)
    done, count = asked(command, tmp_path / "store", times[100], times[199] + 1)
    assert (done.code, count) == (0, 100), done
    assert STEPS_BACK in done.stderr and LEFT_OUT not in done.stderr


def test_the_answer_of_an_export_says_what_was_left_out(tmp_path: Path) -> None:
    for name in ("a", "b"):
        times = stored(tmp_path / name, set_back)
    words = ["export", str(tmp_path / "a"), str(tmp_path / "b"), "--since", str(times[-20])]
    done = run_here([*words, "--to", str(tmp_path / "text")])
    files = 2 * len([*(tmp_path / "a" / "commitlog").iterdir()])
    said = done.stdout.strip().rpartition(", complete; ")[2]
    assert said.endswith(f" of {files} log files left out by time"), done
    left = int(said.split()[0])
    assert f"{left} of {files} log files of 2 stores {LEFT_OUT}" in done.stderr
    done = run_here([*words, "--to", str(tmp_path / "json"), "--json"])
    report = json.loads(done.stdout)
    assert [*errors(schema_of("export"), report)] == []
    ranges = [(one["log_files"], one["left_out"], one["steps_back"], one["doubtful"]) for one in report["ranges"]]
    assert ranges == [(files // 2, left // 2, False, True)] * 2
    whole = run_here([*words[:3], "--to", str(tmp_path / "whole")])
    assert whole.stdout.endswith("complete\n") and not whole.stderr


def test_the_size_of_a_log_is_that_of_its_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of a young log are larger than its data, and it is read whole."""
    stored(tmp_path / "store", in_order)
    with StoreReader(tmp_path / "store") as reader:
        data, files = reader.log_end.position, reader.log_files
        assert data < files.size
        for limit, whole in ((data, True), (data - 1, False)):
            monkeypatch.setattr("mqstore.store.search.log_search.SMALL_LOG_BYTES", limit)
            assert (time_bounds(reader, TimeRange(in_order(COUNT - 1))).left_out == 0) == whole


def test_the_first_records_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored(tmp_path / "store", in_order)
    message_at, found = StoreReader.message_at, list[int]()

    def reading(reader: StoreReader, position: int) -> Message:
        found.append(position)
        return message_at(reader, position)

    monkeypatch.setattr(StoreReader, "message_at", reading)
    with StoreReader(tmp_path / "store") as reader:
        assert reader.log_end.position
        found.clear()
        time_bounds(reader, TimeRange(NOW))
        assert len(found) == len(set(found)) == 2 * len(reader.log_files.files)


def test_the_library(read: list[int], tmp_path: Path) -> None:
    times = stored(tmp_path / "store", set_back)
    with Store(tmp_path / "store") as store:
        read.clear()
        with pytest.warns(UserWarning, match=LEFT_OUT):
            assert len([*store.messages(since=times[-20])]) == 20
        assert min(read) > FILE_BYTES
        with pytest.warns(UserWarning, match=LEFT_OUT):
            assert store.to_arrow("topic", until=times[20]).read_all().num_rows == 20
        assert len([*store.messages()]) == COUNT


def test_a_condition_of_a_query_reads_all(tmp_path: Path) -> None:
    """It is one on rows, and exact."""
    times = stored(tmp_path / "store", in_order)
    done = run_here(["sql", f"{QUERY} WHERE store_timestamp >= {times[-20]}", str(tmp_path / "store")])
    assert (done.code, done.stderr) == (0, "") and "20" in done.stdout


@pytest.mark.parametrize("command", ["export", "stats", "sql"])
def test_a_file_whose_first_record_cannot_be_read(command: str, tmp_path: Path) -> None:
    """Its times are not known; it is left out like its neighbours, or read around."""
    times = stored(tmp_path / "store", in_order)
    second = sorted((tmp_path / "store" / "commitlog").iterdir())[1]
    fail_here(second, 0, 4096)
    done, count = asked(command, tmp_path / "store", times[-20], times[-1] + 1)
    assert count == 20 and LEFT_OUT in done.stderr, done
