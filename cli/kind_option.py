"""`--as KIND`, an option of commands that take any path of a store."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from .declared import Option

KindName = StrEnum(
    "KindName",
    "store commit-log consume-queue consume-queue-ext batch-consume-queue compaction-log sparse-consume-queue "
    "index-file checkpoint abort lock timer-log timer-wheel timer-check dledger dledger-index topics "
    "subscription-group consumer-offset lmq-consumer-offset delay-offset consumer-filter consumer-order-info "
    "topic-queue-mapping message-request-mode transaction-metrics timer-metrics tiered-store-metadata "
    "broker-properties tiered-commit-log tiered-consume-queue tiered-index tiered-index-file "
    "position-checkpoint epoch-file broker-identity dledger-state config rocksdb",
)
"""The kinds of `formats.kinds`, repeated here so that `--help` does not import the formats."""

Kind = Annotated[
    KindName | None,
    Option("--as", metavar="KIND", help=f"Kind of PATH, if it is not recognised: {', '.join(KindName)}."),
]
