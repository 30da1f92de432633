"""Makes every session know `rocketmq-queue`: Spark looks for modules named `pyspark_…`."""

from __future__ import annotations

from mqstore.pipeline.sources.queue import QueueSource as DefaultSource

__all__ = ["DefaultSource"]
