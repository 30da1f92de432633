"""`rocketmq-log` as a stream: each message once, whatever is written, killed or expires meanwhile."""

from __future__ import annotations

import json
import pickle
import shutil
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes
from pyspark.sql.types import BinaryType, LongType, StructType

from mqstore.pipeline import register
from mqstore.pipeline.sources import log_stream
from mqstore.pipeline.sources.log import LogSource
from mqstore.pipeline.sources.log_stream import LogStream
from mqstore.store.arrow import stores
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.errors import InvalidInput, Missing, Refused
from mqstore.store.log.commit_log import CommitLog
from mqstore.store.put.new_message import NewMessage
from mqstore.store.put.writer import StoreWriter
from mqstore.store.search import follow
from mqstore.store.search.log_search import DamageWarning
from mqstore.store.search.store import StoreReader

from ...stores import unpack

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILE_BYTES = 8192
SIZES = {"mappedFileSizeCommitLog": str(FILE_BYTES), "mappedFileSizeConsumeQueue": "2000"}
ALL = ReadAllAvailable()


def put(root: Path, first: int, count: int) -> None:
    """Append numbered messages and close the store."""
    with StoreWriter.open(root, BrokerConfig(SIZES)) as writer:
        for number in range(first, first + count):
            writer.append(NewMessage(b"T", f"{number}".encode()))


def options(root: Path, **more: str) -> dict[str, str]:
    return {"path": str(root), "fields": "position,body", "body": "stored", "broker_config": json.dumps(SIZES), **more}


def stream(root: Path, **more: str) -> LogStream:
    schema = StructType().add("position", LongType()).add("body", BinaryType())
    return LogSource(options(root, **more)).streamReader(schema)


def numbers(made: LogStream, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[int]:
    """What the messages between two offsets say; read where nobody follows the log."""
    there: LogStream = pickle.loads(pickle.dumps(made))
    return [
        int(row["body"])
        for part in made.partitions(start, end)
        for batch in there.read(part)
        for row in batch.to_pylist()
    ]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    put(tmp_path / "store", 0, 100)
    return tmp_path / "store"


def test_each_message_once_over_many_files(root: Path) -> None:
    made = stream(root)
    seen: list[int] = []
    at = made.initialOffset()
    for step in range(6):
        end = made.latestOffset(at, ALL)
        seen += numbers(made, at, end)
        assert numbers(made, at, end) == seen[-len(numbers(made, at, end)) :], "and again the same"
        at = end
        put(root, 100 + 50 * step, 50)
    assert seen == list(range(350))
    end = made.latestOffset(at, ALL)
    assert numbers(made, at, end) == list(range(350, 400))
    assert made.latestOffset(end, ALL) == end == made.reportLatestOffset()
    assert made.partitions(end, end) == []


def test_where_it_begins(root: Path) -> None:
    end = stream(root).latestOffset({}, ALL)
    assert stream(root, starting_offset="latest").initialOffset() == end
    at = FILE_BYTES + 100
    made = stream(root, starting_offset=str(at))
    found = numbers(made, made.initialOffset(), end)
    assert found == list(range(found[0], 100)) and found[0] > 0
    with StoreReader(root, BrokerConfig(SIZES)) as store:
        last = store.log_end.position
    assert end[str(root)]["position"] == last
    late = stream(root, since="4000000000000")
    assert numbers(late, late.initialOffset(), end) == []


def test_a_log_that_does_not_reach_the_start_yet(root: Path) -> None:
    """Nobody has cut it: the query waits, and has what stands from there on."""
    end = stream(root).latestOffset({}, ALL)[str(root)]["position"]
    made = stream(root, starting_offset=str(end + 300))
    with pytest.warns(UserWarning, match=f"the log ends at {end}, before starting_offset {end + 300}"):
        at = made.initialOffset()
    assert made.latestOffset(at, ALL) == at and made.partitions(at, at) == []
    put(root, 100, 50)
    found = numbers(made, at, made.latestOffset(at, ALL))
    assert found == list(range(found[0], 150)) and found[0] > 100


def test_so_many_bytes_at_once(root: Path) -> None:
    made = stream(root, max_bytes_per_trigger="1000")
    limit = made.getDefaultReadLimit()
    assert limit == ReadMaxBytes(1000)
    made.prepareForTriggerAvailableNow()
    put(root, 100, 5)
    at, seen, steps = made.initialOffset(), list[int](), 0
    while (end := made.latestOffset(at, limit)) != at:
        assert end[str(root)]["position"] - at[str(root)]["position"] <= 1000
        seen += numbers(made, at, end)
        at, steps = end, steps + 1
    assert seen == list(range(100)), "what came later is for the next query"
    assert steps > 5


def test_a_log_is_opened_once_for_each_question(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = stream(root, max_bytes_per_trigger="1000")
    at, limit, opened, open_log = made.initialOffset(), made.getDefaultReadLimit(), list[str](), stores.open_log

    def noting(root: str, config: BrokerConfig) -> CommitLog:
        opened.append(root)
        return open_log(root, config)

    monkeypatch.setattr(log_stream, "open_log", noting)
    end = made.latestOffset(made.latestOffset(at, limit), limit)
    made.partitions(at, end)
    assert len(opened) == 3
    put(root, 100, 1)
    last = made.latestOffset(end, ALL)
    assert len(opened) == 4 and made.latestOffset(last, limit) == last and len(opened) == 4, "nothing to read"


def test_expired_files_are_named(root: Path) -> None:
    made = stream(root)
    at, end = made.initialOffset(), made.latestOffset({}, ALL)
    (first,) = made.partitions(at, {str(root): FILE_BYTES})
    (root / "commitlog" / f"{0:020}").unlink()
    words = f"expired before they were read: positions 0 to {FILE_BYTES}, 8192 bytes"
    with pytest.raises(Refused, match=words):
        made.partitions(at, end)
    with pytest.raises(Missing, match=f"log files before {FILE_BYTES} expired while"):
        list(made.read(first))
    lax = stream(root, fail_on_data_loss="false")
    with pytest.warns(DamageWarning, match=words):
        found = numbers(lax, at, end)
    assert found == list(range(found[0], 100)) and found[0] > 0


def test_a_log_that_was_cut_is_told(root: Path) -> None:
    """Shorter than it was read, or grown again past that place: what was written between would be missing."""
    cut = root.with_name("cut")
    shutil.copytree(root, cut)
    put(root, 100, 10)
    read = stream(root).latestOffset({}, ALL)
    shutil.rmtree(root)
    cut.rename(root)
    with pytest.raises(Refused, match=r"the log ends at .*, but was read up to .*: a broker start"):
        stream(root).latestOffset(read, ALL)
    put(root, 200, 30)
    words = f"the bytes before {read[str(root)]['position']}, up to which the log was read, have changed"
    with pytest.raises(Refused, match=words):
        stream(root).latestOffset(read, ALL)
    with pytest.raises(Refused, match=words):
        stream(root).partitions({}, read)
    lax = stream(root, fail_on_data_loss="false")
    with pytest.warns(DamageWarning, match=words):
        end = lax.latestOffset(read, ALL)
    found = numbers(lax, read, end)
    assert found == list(range(found[0], 230)) and found[0] > 200
    put(root, 230, 5)
    assert numbers(lax, end, lax.latestOffset(end, ALL)) == list(range(230, 235)), "it is told once"


def test_a_checkpoint_of_positions_alone(root: Path) -> None:
    """As earlier versions wrote them: the same rows, and nothing tells of a log that was cut and has grown."""
    end = stream(root).latestOffset({}, ALL)
    position = {name: read["position"] for name, read in end.items()}
    put(root, 100, 5)
    made = stream(root)
    assert numbers(made, position, made.latestOffset(position, ALL)) == list(range(100, 105))


@pytest.fixture
def pattern(tmp_path: Path) -> Path:
    """Two stores: a with 0 to 4, b with 100 to 106."""
    put(tmp_path / "f" / "a", 0, 5)
    put(tmp_path / "f" / "b", 100, 7)
    return tmp_path / "f" / "*"


def next_batch(pattern: Path, at: Mapping[str, Any], **more: str) -> tuple[Any, list[int]]:
    """Where a query that starts again and goes on from `at` gets, and what it has then."""
    made = stream(pattern, **more)
    start = at or made.initialOffset()
    end = json.loads(json.dumps(made.latestOffset(start, ALL)))  # as a checkpoint keeps it
    return end, numbers(made, start, end)


def test_a_store_that_gets_another_name_continues(pattern: Path) -> None:
    at, found = next_batch(pattern, {})
    assert found == [*range(5), *range(100, 107)]
    link = pattern.with_name("1-first")
    link.symlink_to("a")
    assert next_batch(pattern, at) == (at, [])
    link.unlink()
    assert next_batch(pattern, at) == (at, [])
    pattern.with_name("a").rename(pattern.with_name("c"))
    put(pattern.with_name("c"), 5, 1)
    at, found = next_batch(pattern, at)
    assert found == [5]
    pattern.with_name("c").rename(pattern.with_name("a"))
    assert next_batch(pattern, at)[1] == []


def test_a_store_that_was_away_continues(pattern: Path, tmp_path: Path) -> None:
    at, _ = next_batch(pattern, {})
    pattern.with_name("b").rename(tmp_path / "away")
    put(pattern.with_name("a"), 5, 1)
    at, found = next_batch(pattern, at)
    assert found == [5] and next_batch(pattern, at) == (at, [])
    (tmp_path / "away").rename(pattern.with_name("b"))
    put(pattern.with_name("b"), 107, 1)
    at, found = next_batch(pattern, at)
    assert found == [107]


def test_a_copy_that_is_behind_another_misses_nothing_while_the_other_is_away(pattern: Path, tmp_path: Path) -> None:
    """As a slave and its master in one query."""
    shutil.copytree(pattern.with_name("a"), pattern.with_name("slave"))
    put(pattern.with_name("a"), 5, 1)
    at, _ = next_batch(pattern, {})
    pattern.with_name("a").rename(tmp_path / "away")
    shutil.rmtree(pattern.with_name("slave"))
    shutil.copytree(tmp_path / "away", pattern.with_name("slave"))
    at, found = next_batch(pattern, at)
    assert found == [5]
    (tmp_path / "away").rename(pattern.with_name("a"))
    assert next_batch(pattern, at) == (at, [])


@pytest.mark.parametrize("begin", ["latest", "200"])
def test_a_store_that_is_new_to_a_query_is_read_from_its_start(begin: str, pattern: Path) -> None:
    """`starting_offset` is for the stores that a new query finds."""
    at, _ = next_batch(pattern, {}, starting_offset=begin)
    put(pattern.with_name("c"), 200, 3)
    at, found = next_batch(pattern, at, starting_offset=begin)
    assert found == [200, 201, 202]
    put(pattern.with_name("c"), 203, 1)
    assert next_batch(pattern, at, starting_offset=begin)[1] == [203]


def test_a_link_to_another_copy_of_the_log_continues(root: Path) -> None:
    link = root.with_name("current")
    link.symlink_to(root)
    at, _ = next_batch(link, {})
    shutil.copytree(root, root.with_name("copy"))
    link.unlink()
    link.symlink_to("copy")
    put(root.with_name("copy"), 100, 3)
    assert next_batch(link, at)[1] == [100, 101, 102]


def test_a_checkpoint_with_names_of_links(root: Path) -> None:
    """As earlier versions wrote them, with the link there or not."""
    read = stream(root).latestOffset({}, ALL)[str(root)]
    link = root.with_name("current")
    link.symlink_to(root)
    put(root, 100, 2)
    assert next_batch(root, {str(link): read})[1] == [100, 101]
    link.unlink()
    assert next_batch(root, {str(link): read})[1] == [100, 101]


def test_behind_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is there now is read to its end, around what is damaged: a spoiled body, a page of zeros."""
    monkeypatch.setattr(follow, "_BROKEN_SECONDS", 0.0)
    monkeypatch.setattr(follow, "_PATIENCE_S", 0.0)
    found = unpack("4.9.7-killed-page", tmp_path)
    made = stream(found, broker_config="{}")
    made.prepareForTriggerAvailableNow()
    with StoreReader(found) as store:
        last = store.log_end.position
    end = made.latestOffset({}, ALL)
    assert end[str(found)]["position"] == last
    schema = StructType().add("position", LongType())
    rows: Any = LogSource({"path": str(found), "fields": "position"}).reader(schema)
    parts = made.partitions(made.initialOffset(), end)
    with pytest.warns(DamageWarning):
        whole = [row for part in rows.partitions() for b in rows.read(part) for row in b.to_pylist()]
    with pytest.warns(DamageWarning):
        seen = [row for part in parts for b in made.read(part) for row in b.to_pylist()]
    assert [row["position"] for row in seen] == [row["position"] for row in whole]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("starting_offset", "yesterday"),
        ("max_bytes_per_trigger", "0"),
        ("fail_on_data_loss", "no"),
        ("startingOffsets", "latest"),
    ],
)
def test_options_are_checked(name: str, value: str, root: Path) -> None:
    with pytest.raises(InvalidInput, match=name.lower()):
        stream(root, **{name: value})


def test_a_batch_takes_no_option_of_a_stream(root: Path) -> None:
    with pytest.raises(InvalidInput, match="no option 'starting_offset' here"):
        LogSource(options(root, starting_offset="latest")).reader(StructType())


def test_object_storage_is_refused(root: Path) -> None:
    with pytest.raises(InvalidInput, match="only directories can be followed"):
        stream(root, path="s3://bucket/store")


def test_exactly_once_while_a_broker_writes(spark: SparkSession, tmp_path: Path) -> None:
    """A query that is stopped and goes on from its checkpoint, again and again."""
    register(spark)
    root, out = tmp_path / "store", str(tmp_path / "out")
    put(root, 0, 200)

    def query(**more: Any) -> None:
        rows = spark.readStream.format("rocketmq-log").options(**options(root, **more)).load()
        started = (
            rows.selectExpr("cast(cast(body AS string) AS int) AS number", "position")
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(out)
        )
        started.awaitTermination()

    def write() -> None:
        for step in range(10):
            put(root, 200 + 40 * step, 40)

    writing = threading.Thread(target=write)
    query(max_bytes_per_trigger="20000")
    writing.start()
    query(split_bytes="10000")
    writing.join()
    query()
    found = spark.read.parquet(out).orderBy("position").collect()
    assert [row["number"] for row in found] == list(range(600))
