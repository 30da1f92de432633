"""What is read with one source and written with the same is the same again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mqstore.pipeline.failures import failure_of
from mqstore.store.errors import InvalidInput

from ..store.arrow.rows import ask_of, rows
from ..stores import unpack

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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


@pytest.mark.slow
def test_a_store_of_messages(spark: SparkSession, root: Path, tmp_path: Path) -> None:
    """Messages in log order make a store with the same messages, dispatched again."""
    messages = spark.read.format("rocketmq-log").option("body", "stored").load(str(root))
    ordered = messages.orderBy("position")
    options = {"broker_config": SIZES, "keep_times": "true", "as_broker": "4.9"}
    new = tmp_path / "new"
    ordered.write.format("rocketmq-log").options(**options).mode("append").save(str(new))
    fields = f"{SAME},position"
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
