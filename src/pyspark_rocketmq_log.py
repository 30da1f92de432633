"""Makes every session know `rocketmq-log`: Spark looks for modules named `pyspark_…`."""

from __future__ import annotations

from mqstore.pipeline.sources.log import LogSource as DefaultSource

__all__ = ["DefaultSource"]
