"""What is read with one source and written with the same is the same again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mqstore.pipeline.failures import failure_of
from mqstore.store.errors import InvalidInput, Refused

from ..stores import config, unpack
from .test_log_rows import ask_of, rows
from .test_rebuild import tree

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
SIZES = (
    '{"mappedFileSizeCommitLog": "262144", "mappedFileSizeConsumeQueue": "6000",'
    ' "maxHashSlotNum": "1000", "maxIndexNum": "4000"}'
)
SAME = "topic,queue_id,queue_offset,properties,body,born_timestamp,store_timestamp"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack("4.9.7-clean", tmp_path_factory.mktemp("store"))


def failing(write: Any, target: Path) -> Exception:
    """The error of a write, which leaves nothing."""
    with pytest.raises(Exception) as caught:
        write.mode("append").save(str(target))
    assert not target.exists()
    return failure_of(str(caught.value))


def test_queues_are_the_same_files(spark: SparkSession, root: Path, tmp_path: Path) -> None:
    sizes = config("4.9.7-clean", root)["mappedFileSizeConsumeQueue"]
    units = spark.read.format("rocketmq-queue").load(str(root)).filter("problem IS NULL")
    keys = ("topic", "queue_id", "queue_offset")
    ordered = units.repartition(*keys[:2]).sortWithinPartitions(*keys)
    write = ordered.write.format("rocketmq-queue")
    write.option("broker_config", f'{{"mappedFileSizeConsumeQueue": "{sizes}"}}').mode(
        "append"
    ).save(str(tmp_path / "new"))
    assert tree(tmp_path / "new" / "consumequeue") == tree(root / "consumequeue")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["consumequeue"]


@pytest.mark.slow
def test_a_gap_is_refused(spark: SparkSession, root: Path, tmp_path: Path) -> None:
    units = spark.read.format("rocketmq-queue").load(str(root)).coalesce(1)
    gaps = units.filter("problem IS NULL AND queue_offset <> 1").write.format("rocketmq-queue")
    assert isinstance(failing(gaps, tmp_path / "gaps"), Refused)


@pytest.mark.slow
def test_a_store_of_messages(spark: SparkSession, root: Path, tmp_path: Path) -> None:
    """Messages in log order make a store with the same messages, dispatched anew."""
    messages = spark.read.format("rocketmq-log").option("body", "stored").load(str(root))
    ordered = messages.orderBy("position")
    options = {"broker_config": SIZES, "keep_times": "true", "as_broker": "4.9"}
    new = tmp_path / "new"
    ordered.write.format("rocketmq-log").options(**options).mode("append").save(str(new))
    fields = f"{SAME},position,damage"
    wanted, found = (
        [{name: row[name] for name in SAME.split(",")} for row in rows(ask_of(one, fields=fields))]
        for one in (root, new)
    )
    assert [row["topic"] for row in found] == [row["topic"] for row in wanted]
    assert [row["body"] for row in found] == [row["body"] for row in wanted]
    assert {path.name for path in new.iterdir()} >= {"commitlog", "consumequeue", "checkpoint"}
    assert not (new / "abort").exists() and not (new / ".mqstore").exists()
    lacking = messages.select("topic").write.format("rocketmq-log")
    assert isinstance(failing(lacking, tmp_path / "lacking"), InvalidInput)


@pytest.mark.slow
def test_an_index_of_items(spark: SparkSession, root: Path, tmp_path: Path) -> None:
    source = spark.read.format("rocketmq-index").load(str(root)).filter("problem IS NULL")
    items = source.selectExpr(
        "key_hash", "physical_offset", "begin_timestamp + time_diff * 1000L AS store_timestamp"
    )
    write = items.orderBy("physical_offset").coalesce(1).write.format("rocketmq-index")
    write.option("broker_config", SIZES).mode("append").save(str(tmp_path / "new"))
    again = spark.read.format("rocketmq-index").load(str(tmp_path / "new"))
    pairs = ("key_hash", "physical_offset")
    assert sorted(again.select(*pairs).collect()) == sorted(source.select(*pairs).collect())
    wrong = items.orderBy("physical_offset", ascending=False).write.format("rocketmq-index")
    assert isinstance(failing(wrong, tmp_path / "wrong"), InvalidInput)
