"""Makes every session know `rocketmq-offsets`: Spark looks for modules named `pyspark_…`."""

from __future__ import annotations

from mqstore.pipeline.sources.offsets import OffsetSource as DefaultSource

__all__ = ["DefaultSource"]
