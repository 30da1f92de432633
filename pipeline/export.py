"""`pipeline export`: the messages of many stores as files, by topic and day."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..store.arrow.export_formats import require_format
from ..store.write.files import Files
from .failures import failures
from .publishing import publish_job
from .session import spark_session
from .stage import Stage
from .watch import Tell, watched

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Ask = Mapping[str, str]
"""Options of a read of `rocketmq-log`."""
Job = Callable[[Ask, str, Stage], Sequence[tuple[str, Mapping[str, Any]]]]
"""Writes the files of an export into a stage; (attempt, what it has to tell) of all that counts."""


def export(
    ask: Ask, form: str, target: Path, job: Job, files: Files | None = None
) -> dict[str, Any]:
    """Write messages as files below `target`, a new or empty directory: its manifest.

    It appears whole or not at all, as in `publish_job`, which also says what is raised besides
    Unsupported for a format whose package is missing.
    """
    require_format(form)
    what = {"ask": dict(ask), "format": form}

    def fill(stage: Stage) -> None:
        notes = job(ask, form, stage)
        written = [(attempt, note["file"]) for attempt, note in notes if "file" in note]
        stage.collect((attempt, file["path"]) for attempt, file in written)
        stage.seal(
            {
                "job": what,
                "files": sorted((file for _, file in written), key=itemgetter("path")),
                "damage": sorted((n["damage"] for _, n in notes if "damage" in n), key=_place),
            }
        )

    return publish_job(target, fill, lambda found: found.get("job") == what, files)


def _place(damage: Mapping[str, Any]) -> tuple[str, int]:
    position = damage["position"]
    return damage["store"], -1 if position is None else position


STAGES = 1
"""Stages of Spark: a task reads and writes."""


def on_spark(master: str, settings: Mapping[str, str], tell: Tell | None = None) -> Job:
    """The job in a Spark session of its own. Raises SparkUnavailable, and as `spark_job`."""

    def job(ask: Ask, form: str, stage: Stage) -> Sequence[tuple[str, Mapping[str, Any]]]:
        with spark_session(master, settings) as spark, watched(spark, tell):
            return spark_job(spark, ask, form, stage)

    return job


def spark_job(
    spark: SparkSession, ask: Ask, form: str, stage: Stage
) -> Sequence[tuple[str, Mapping[str, Any]]]:
    """The job as Spark runs it: a task a split. Raises the error that a worker met, or JobFailed."""
    from .export_source import ExportSource

    spark.dataSource.register(ExportSource)
    options = {"ask": json.dumps(dict(ask)), "stage": str(stage.folder), "format": form}
    with failures():
        rows = spark.read.format(ExportSource.name()).options(**options).load().collect()
    return [(row["attempt"], json.loads(row["note"])) for row in rows]
