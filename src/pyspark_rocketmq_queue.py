"""Makes every session know `rocketmq-queue`: Spark looks for modules named `pyspark_…`."""

from __future__ import annotations

try:
    from mqstore.pipeline.sources.tables import QueueSource as DefaultSource
except ImportError:  # without pyarrow, say: then there is no source, and those of others stay
    __all__: list[str] = []
else:
    __all__ = ["DefaultSource"]
