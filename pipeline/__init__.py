"""The Spark data pipeline.

Sessions find the data sources by themselves (the modules `pyspark_rocketmq_…` beside this package);
`register(spark)` hands them to one that cannot, of Spark Connect.
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
