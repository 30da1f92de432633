"""One Spark session for all tests of the pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from mqstore.pipeline import register
from mqstore.pipeline.spark import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.python.filterPushdown.enabled": "true",
}
"""Starts faster, works slower."""


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Two cores, and three attempts at a task; the sources are registered."""
    with spark_session("local[2,3]", SETTINGS) as session:
        register(session)
        yield session
