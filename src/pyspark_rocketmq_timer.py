"""Makes every session know `rocketmq-timer`: Spark looks for modules named `pyspark_…`."""

from __future__ import annotations

from mqstore.pipeline.sources.timer import TimerSource as DefaultSource

__all__ = ["DefaultSource"]
