"""What is read part by part, and the warning of what was passed over."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from mqstore.pipeline.sources.log import LogSourceReader
from mqstore.pipeline.sources.parts import PartsReader, PassedOver
from mqstore.store.arrow.log_rows import Damage
from mqstore.store.arrow.stores import ReadOptions
from mqstore.store.disk.byte_reader import reading_rate
from mqstore.store.search.log_search import DamageWarning

from ...store.arrow.rows import ask_of, damage, rows
from ...stores import unpack


def test_a_task_says_what_it_has_passed_over(tmp_path: Path) -> None:
    """In one warning, which leads to the rows of the damage."""
    ask = ask_of(unpack("4.9.7-killed-page", tmp_path), fields="position")
    (lost,) = damage(ask)
    reader = LogSourceReader(ask)
    with pytest.warns(DamageWarning, match="rocketmq-damage has all of them") as told:
        found = [rows.num_rows for part in reader.partitions() for rows in reader.read(part)]
    (warning,) = told
    assert f"{lost.size} bytes in 1 place passed over, from {lost.position}" in str(warning.message)
    assert sum(found) == len(rows(ask))


def test_where_there_is_nothing_to_read_one_task_reads_nothing() -> None:
    """Without a part Spark would hand None to the reader."""

    def rows(part: object) -> Any:
        raise AssertionError(f"nothing asks for {part}")

    ask = ReadOptions(())
    (part,) = PartsReader(ask, list, rows).partitions()
    assert list(PartsReader(ask, list, rows).read(part)) == []
    one = pa.RecordBatch.from_pylist([{"n": 0}])
    reader = PartsReader(ask, lambda: [0, 1], lambda part: iter([one] * part))
    assert [len(list(reader.read(part))) for part in reader.partitions()] == [0, 1], "0 is a part, too"


def test_the_rate_limits_what_a_task_reads() -> None:
    ask = ReadOptions.of({"path": "/s", "rate": "1024"})
    reader = PartsReader(ask, lambda: [0], lambda _: (reading_rate() for _ in range(1)))
    assert [list(reader.read(part)) for part in reader.partitions()] == [[1024]]
    assert reading_rate() is None


def test_what_was_passed_over_is_told_once_with_the_first_place() -> None:
    passed_over = PassedOver()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        passed_over.tell()
    for one in (Damage("/s", 100, 10, "zeros"), Damage("/s", 50, None, "noise"), Damage("/s", 900, 7, "")):
        passed_over.add(one)
    with pytest.warns(DamageWarning) as told:
        passed_over.tell()
    (warning,) = told
    assert str(warning.message).startswith("/s: 17 bytes in 3 places passed over, from 100 on (zeros)")


def test_a_task_says_that_files_have_expired(tmp_path: Path) -> None:
    """Those of a log that was cut into parts before."""
    root = unpack("5.3.3-clean", tmp_path)
    reader = LogSourceReader(ask_of(root, fields="position", split_bytes="262144"))
    parts = reader.partitions()
    assert len(parts) == 3, "the last one is behind the log"
    min((root / "commitlog").iterdir()).unlink()
    line = f"{root / 'commitlog'}: the broker deleted the files before 262144 during this command"
    with pytest.warns(DamageWarning, match=line):
        assert list(reader.read(parts[0])) == []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert list(reader.read(parts[1]))
