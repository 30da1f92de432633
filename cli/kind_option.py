"""`--as KIND`, an option of commands that take any path of a store."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from .declared import Option


class KindName(StrEnum):
    """The kinds of `formats.kinds`, repeated here so that `--help` does not import the formats."""

    STORE = "store"
    COMMIT_LOG = "commit-log"
    CONSUME_QUEUE = "consume-queue"
    CONSUME_QUEUE_EXT = "consume-queue-ext"
    BATCH_CONSUME_QUEUE = "batch-consume-queue"
    COMPACTION_LOG = "compaction-log"
    SPARSE_CONSUME_QUEUE = "sparse-consume-queue"
    INDEX_FILE = "index-file"
    CHECKPOINT = "checkpoint"
    ABORT = "abort"
    LOCK = "lock"
    TIMER_LOG = "timer-log"
    TIMER_WHEEL = "timer-wheel"
    TIMER_CHECK = "timer-check"
    DLEDGER = "dledger"
    DLEDGER_INDEX = "dledger-index"
    TOPICS = "topics"
    SUBSCRIPTION_GROUP = "subscription-group"
    CONSUMER_OFFSET = "consumer-offset"
    LMQ_CONSUMER_OFFSET = "lmq-consumer-offset"
    DELAY_OFFSET = "delay-offset"
    CONSUMER_FILTER = "consumer-filter"
    CONSUMER_ORDER_INFO = "consumer-order-info"
    TOPIC_QUEUE_MAPPING = "topic-queue-mapping"
    MESSAGE_REQUEST_MODE = "message-request-mode"
    TRANSACTION_METRICS = "transaction-metrics"
    TIMER_METRICS = "timer-metrics"
    TIERED_STORE_METADATA = "tiered-store-metadata"
    BROKER_PROPERTIES = "broker-properties"
    TIERED_COMMIT_LOG = "tiered-commit-log"
    TIERED_CONSUME_QUEUE = "tiered-consume-queue"
    TIERED_INDEX = "tiered-index"
    TIERED_INDEX_FILE = "tiered-index-file"
    POSITION_CHECKPOINT = "position-checkpoint"
    EPOCH_FILE = "epoch-file"
    BROKER_IDENTITY = "broker-identity"
    DLEDGER_STATE = "dledger-state"
    CONFIG = "config"
    ROCKSDB = "rocksdb"


Kind = Annotated[
    KindName | None,
    Option("--as", metavar="KIND", help=f"Kind of PATH, if it is not recognised: {', '.join(KindName)}."),
]
