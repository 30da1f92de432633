"""`pipeline compact`: a store of the newest message of each key, as a broker's compaction keeps it.

The rule is that of spec 06, 6.1, step 3, over all messages of a queue: of those with the same text
of KEYS the last one stays, unless its body is empty, which deletes the key. Messages without KEYS
go. A broker leaves its newest file out, so it keeps more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..formats import message_properties as names
from ..store.arrow.log_columns import DAMAGE
from ..store.write.files import Files
from .failures import failures
from .importing import write_store
from .publishing import publish_job
from .session import spark_session
from .sources.log import LogSource
from .watch import Tell, watched

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import Any

    from pyspark.sql import DataFrame, SparkSession

    from .stage import Stage

STAGES = 6
"""Stages of Spark for a store: two reads, the newest, the join, the sort, the write."""
_QUEUE = ("topic", "queue_id")
_MESSAGE = (*_QUEUE, "position", "store_timestamp", "born_timestamp", "born_host", "flag")


def compact_stores(
    folders: Mapping[str, str],
    ask: Mapping[str, str],
    target: Path,
    options: Mapping[str, str],
    master: str,
    settings: Mapping[str, str],
    tell: Tell | None = None,
) -> dict[str, Any]:
    """Make a store of each store, at `target`, a new or empty directory: the manifest.

    folders: by store its folder in it (`plan.folders_of`). ask: options of `rocketmq-log`, with the
    topics. options: of its writer. Raises as `importing.import_store`.
    """
    same = {"folders": dict(folders), "ask": dict(ask), "options": dict(options)}

    def job(stage: Stage) -> None:
        found = []
        with spark_session(master, settings) as spark, watched(spark, tell):
            for root, folder in folders.items():
                counts = fill(spark, {**ask, "path": root}, stage, options, folder)
                found.append({"store": root, "folder": folder, **counts})
        stage.seal({"job": same, "stores": found})

    return publish_job(target, job, lambda found: found.get("job") == same, Files())


def fill(
    spark: SparkSession,
    ask: Mapping[str, str],
    stage: Stage,
    options: Mapping[str, str],
    folder: str = "",
) -> dict[str, Any]:
    """Put what stays of a store into a folder of the stage's tree.

    Returns how many messages there were, how many stay, and what of the log could not be read.
    """
    spark.dataSource.register(LogSource)
    with failures():
        heads = _read(spark, ask, (*_QUEUE, "queue_offset", "position", "body_length", DAMAGE))
        whole = _read(spark, {**ask, "body": "stored"}, (*_MESSAGE, "properties", "body"))
        rows = whole.join(newest(heads).select("position"), "position", "leftsemi")
        seen = {row[DAMAGE]: row["count"] for row in heads.groupBy(DAMAGE).count().collect()}
        kept = write_store(spark, rows, stage, options, folder)
    messages = seen.pop(None, 0)
    damage = sorted((row.asDict() for row in seen), key=lambda row: row["position"] or 0)
    return {"messages": messages, "kept": kept, "damage": damage}


def newest(messages: DataFrame) -> DataFrame:
    """Those of some messages that stay. Needs their key, queue, queue offset and body length."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    same_key = Window.partitionBy(*_QUEUE, "key")
    last = f.max("queue_offset").over(same_key)
    with_key = messages.where("topic IS NOT NULL AND trim(key) <> ''").withColumn("last", last)
    return with_key.where("queue_offset >= last AND body_length > 0").drop("last")


def _read(spark: SparkSession, ask: Mapping[str, str], fields: Sequence[str]) -> DataFrame:
    wanted = dict.fromkeys((*fields, "properties"))
    reader = spark.read.format(LogSource.name()).options(**ask)
    rows = reader.option("fields", ",".join(wanted)).load()
    if "body" in fields:
        return rows
    from pyspark.sql import functions as f

    return rows.select(*fields, f.col("properties")[names.KEYS].alias("key"))
