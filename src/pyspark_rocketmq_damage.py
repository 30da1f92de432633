"""Makes every session know `rocketmq-damage`: Spark looks for modules named `pyspark_…`."""

from __future__ import annotations

try:
    from mqstore.pipeline.sources.damage import DamageSource as DefaultSource
except ImportError:  # without pyarrow, say: then there is no source, and those of others stay
    __all__: list[str] = []
else:
    __all__ = ["DefaultSource"]
