"""The Spark data pipeline.

`register(spark)` makes the data sources known to a session of your own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Let a session read and write stores: `spark.read.format("rocketmq-log")`, …

    The session needs no setting. Its Python workers must find this package.
    """
    from .sources import all_sources

    for source in all_sources():
        spark.dataSource.register(source)
