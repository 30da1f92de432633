"""Makes every session know `rocketmq-index`: Spark looks for modules named `pyspark_…`."""

from __future__ import annotations

from mqstore.pipeline.sources.index import IndexSource as DefaultSource

__all__ = ["DefaultSource"]
