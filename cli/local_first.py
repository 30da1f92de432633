"""Warn when a job on Spark would be quicker in this process."""

from __future__ import annotations

from collections.abc import Sequence

from .options import Common
from .pipeline_options import Spark

_QUICKER_BYTES = 8 << 30
"""Size of a log from which Spark may be quicker; not for a cluster or for many stores. See docs/spark.md."""


def tell_local(command: str, roots: Sequence[str], spark: Spark, common: Common) -> None:
    """Warn if Spark would run on this machine for one store with a small log."""
    from ..store.arrow.stores import log_sizes
    from ..store.counted import bytes_text
    from ..store.disk.layout import is_uri

    if spark.master is not None or len(roots) != 1 or is_uri(roots[0]):
        return
    sizes, _ = log_sizes(roots, common.config())
    size = sum(sizes.values())
    if size < _QUICKER_BYTES:
        common.warn(f"mqstore {command} is quicker for one log of {bytes_text(size)}, and needs no JVM")
