"""Makes every session know `rocketmq-findings`: Spark looks for modules named `pyspark_…`."""

from __future__ import annotations

from mqstore.pipeline.sources.findings import FindingSource as DefaultSource

__all__ = ["DefaultSource"]
