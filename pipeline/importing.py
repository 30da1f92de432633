"""`pipeline import`: Parquet files become a store, through the writer that `put` has.

A log has one writer, so Spark reads and sorts, and one process appends.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..store.errors import InvalidInput, Unreadable, from_os_error
from ..store.write.files import Files
from ..store.write.profile import writer_profile
from .failures import failures
from .publishing import publish_job
from .session import spark_session
from .sources.log import LogSource
from .stage import Stage
from .watch import Tell, watched

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STAGES = 3
"""Stages of Spark: read, sort, write."""
_ORDER = ("store_timestamp", "store", "position")
_NEW = "new"
_MAGIC = b"PAR1"
"""How a Parquet file begins and ends."""


def files_of(places: Sequence[Path]) -> list[Path]:
    """The Parquet files that some files and directories are.

    A directory may be called so, too, as what Spark writes is: the files in it count.
    Raises InvalidInput for none, Unreadable for one that is no such file.
    """
    found = [file for place in places for file in (_inside(place) if place.is_dir() else [place])]
    if not found:
        raise InvalidInput("no Parquet file there", path=places[0])
    for file in found:
        _require_parquet(file)
    return found


def _inside(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*.parquet") if not path.is_dir())


def _require_parquet(path: Path) -> None:
    """Spark would tell it in many lines, and only when it has started."""
    try:
        with path.open("rb") as file:
            begin = file.read(len(_MAGIC))
            file.seek(max(0, path.stat().st_size - len(_MAGIC)))
            end = file.read(len(_MAGIC))
    except OSError as error:
        raise from_os_error(error, path) from error
    if begin != _MAGIC or end != _MAGIC:
        raise Unreadable("not a Parquet file, or not all of one", path=path)


def import_store(
    places: Sequence[Path],
    target: Path,
    options: Mapping[str, str],
    master: str,
    settings: Mapping[str, str],
    tell: Tell | None = None,
) -> dict[str, Any]:
    """Make a store of all messages at `target`, a new or empty directory: the manifest.

    options: of the writer of `rocketmq-log`. Raises as `publish_job` and `spark_session`,
    InvalidInput, LimitExceeded for what no broker takes, JobFailed.
    """
    paths = [str(place.absolute()) for place in places]
    same = {"places": paths, "options": dict(options)}

    def job(stage: Stage) -> None:
        with spark_session(master, settings) as spark, watched(spark, tell):
            messages = fill(spark, paths, stage, options)
        stage.seal({"job": same, "messages": messages})

    return publish_job(target, job, lambda found: found.get("job") == same, Files())


def fill(
    spark: SparkSession, places: Sequence[str], stage: Stage, options: Mapping[str, str]
) -> int:
    """Put the messages of Parquet files into the stage's tree, in the order of their times: how many."""
    with failures():
        rows = spark.read.option("recursiveFileLookup", "true").parquet(*places)
        return write_store(spark, rows, stage, options)


def write_store(
    spark: SparkSession,
    rows: DataFrame,
    stage: Stage,
    options: Mapping[str, str],
    folder: str = "",
) -> int:
    """Put messages into a folder of the stage's tree as a store, in the order of their times.

    Returns how many.
    """
    spark.dataSource.register(LogSource)
    new = stage.folder / _NEW
    if "topic" in rows.columns:  # a row without one stands for damage
        rows = rows.where("topic is not null")
    rows = rows.orderBy(*(name for name in _ORDER if name in rows.columns))
    messages = rows.count()
    if messages:
        write = rows.write.format(LogSource.name()).mode("append")
        write.options(**options).save(str(new))
    tree = stage.tree / folder
    stage.files.make_directory(tree)
    for path in sorted(new.iterdir()) if messages else ():
        stage.files.rename(path, tree / path.name)
    if messages:
        stage.files.remove_directory(new)
    stage.files.sync_directory(tree)
    return messages


def options_of(
    config: Mapping[str, str], as_broker: str | None, keep_times: bool
) -> dict[str, str]:
    """Of the writer. Raises InvalidInput for a generation that there is not."""
    if as_broker is not None:
        writer_profile(as_broker)
    options = {"keep_times": str(keep_times).lower()}
    options |= {"as_broker": as_broker} if as_broker is not None else {}
    return options | ({"broker_config": json.dumps(dict(config))} if config else {})
