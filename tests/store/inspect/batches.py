"""The records of a whole log, as a scan finds them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from mqstore.store.disk.layout import Layout
from mqstore.store.log.commit_log import Batch
from mqstore.store.log.message import Mark
from mqstore.store.queues.references import commit_log_of


def batches(root: Path) -> list[Batch]:
    """Copies of the batches of a log, those behind damage too."""
    log = commit_log_of(Layout.open(root))
    with log.queue:
        items = [item for item in log.scan() if isinstance(item, Batch)]
        return [item.take(np.arange(len(item))) for item in items if item.mark <= Mark.AFTER_DAMAGE]
