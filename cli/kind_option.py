"""`--as KIND`, for commands that take any path of a store."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer


class KindName(StrEnum):
    """The kinds of `formats.kinds`, named here so that `--help` need not import the formats."""

    STORE = "store"
    COMMIT_LOG = "commit-log"
    CONSUME_QUEUE = "consume-queue"
    CONSUME_QUEUE_EXT = "consume-queue-ext"
    BATCH_CONSUME_QUEUE = "batch-consume-queue"
    INDEX_FILE = "index-file"
    CHECKPOINT = "checkpoint"
    ABORT = "abort"
    LOCK = "lock"
    TIMER_LOG = "timer-log"
    TIMER_WHEEL = "timer-wheel"
    TIMER_CHECK = "timer-check"
    DLEDGER = "dledger"


Kind = Annotated[
    KindName | None,
    typer.Option(
        "--as",
        metavar="KIND",
        help=f"What PATH is, where it cannot be told: {', '.join(KindName)}.",
    ),
]
