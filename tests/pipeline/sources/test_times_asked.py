"""Log files that the sources do not read for `since` and `until`, and what they say of them."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from unittest.mock import MagicMock

import pytest
from pyspark.sql.datasource import GreaterThanOrEqual
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import LongType, StringType, StructType

from mqstore.pipeline.sources.damage import DamageSource
from mqstore.pipeline.sources.log import LogSource, LogSourceReader, PushingLogReader
from mqstore.pipeline.sql import lacking
from mqstore.pipeline.sql_plan import Needed, SparkQuery
from mqstore.pipeline.stats import tasks_of
from mqstore.store.arrow.views import VIEWS
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.put.new_message import NewMessage
from mqstore.store.search.log_search import TimeBounds
from mqstore.store.search.selection import TimeRange

from ...store.arrow.rows import ask_of
from ...store.put.writing import NOW, TINY, writer

HOUR_MS = 3_600_000
IN_A_FILE = 77
SINCE = NOW + 279 * HOUR_MS - 60_000
LEFT_OUT = r"\d+ of \d+ log files left out by the store times around them"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store that counts as large, with a message an hour; the clock was set back once, for all to see."""
    monkeypatch.setattr("mqstore.store.search.log_search.SMALL_LOG_BYTES", 0)
    monkeypatch.setattr("mqstore.store.arrow.log_rows.SMALL_LOG_BYTES", 0)
    with writer(tmp_path / "store", config=BrokerConfig({**TINY, "mappedFileSizeCommitLog": "16384"})) as out:
        for number in range(300):
            time_ms = NOW + number * HOUR_MS - (0 if number <= IN_A_FILE else HOUR_MS + 60_000)
            out.append(NewMessage(b"T", b"x" * 120, store_timestamp=time_ms))
    return tmp_path / "store"


def rows_and_start(reader: LogSourceReader) -> tuple[int, int]:
    """How many rows there are, and where reading begins."""
    parts = reader.partitions()
    count = sum(rows.num_rows for part in parts for rows in reader.read(part))
    return count, min(0 if part.part.split is None else part.part.split.start for part in parts)  # type: ignore[attr-defined]


def test_messages_and_damage(root: Path) -> None:
    ask = ask_of(root, fields="position", since=str(SINCE))
    with pytest.warns(UserWarning, match=LEFT_OUT):
        count, start = rows_and_start(LogSourceReader(ask))
    assert count == 20 and start > 0
    damage = DamageSource({"path": str(root), "since": str(SINCE)})
    with pytest.warns(UserWarning, match=LEFT_OUT):
        damage.reader(StructType().add("store", StringType())).partitions()


def test_a_filter_of_a_query_leaves_out_no_file(root: Path) -> None:
    """Its answer is exact, whatever the clock did."""
    reader = PushingLogReader(ask_of(root, fields="position,store_timestamp"))
    reader.pushFilters([GreaterThanOrEqual(("store_timestamp",), SINCE)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert rows_and_start(reader) == (20, 0)


def test_a_stream_begins_near_the_time(root: Path) -> None:
    """A time at which it ends leaves out no file: what is stored later is read, too."""
    schema = StructType().add("position", LongType())
    options = {"path": str(root), "fields": "position", "since": str(SINCE), "until": str(SINCE + HOUR_MS)}
    stream = LogSource(options).streamReader(schema)
    with pytest.warns(UserWarning, match=LEFT_OUT):
        begin = stream.initialOffset()
    assert begin[str(root)]["position"] > 0
    end = stream.latestOffset(begin, ReadAllAvailable())
    parts = stream.partitions(begin, end)
    assert sum(rows.num_rows for part in parts for rows in stream.read(part)) == 1


def test_tasks_that_count(root: Path) -> None:
    bounds: dict[str, TimeBounds] = {}
    ask = replace(ask_of(root), times=TimeRange(SINCE))
    tasks = tasks_of(ask, ["topic"], bounds.__setitem__)
    found = bounds[str(root)]
    assert 0 < found.left_out < found.files and tasks[0]["part"][1][0] == found.start > 0


@pytest.mark.parametrize("view", ["messages", "damage", "queues"])
def test_what_a_query_has_not_read(view: str, root: Path) -> None:
    """Found in this process: what the sources say is lost in Spark's own output."""
    asked = SparkQuery("", {}, (Needed(VIEWS[view], ("store",)),))
    found = lacking(MagicMock(), asked, [str(root)], {"since": str(SINCE)})
    assert [one.left_out > 0 for one in found.bounds.values()] == ([] if view == "queues" else [True])
