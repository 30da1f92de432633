"""The kinds of files and their layouts, for `--as`, `dump` and mqstore-store(5).

The name of a kind is that of its module with dashes. `record_type` is the `type` of its records in JSON.
"""

from __future__ import annotations

from enum import StrEnum
from importlib import import_module
from typing import Any, NamedTuple, Protocol

from construct import Construct

from . import (
    abort,
    batch_consume_queue,
    blank,
    broker_identity,
    broker_properties,
    checkpoint,
    consume_queue,
    consume_queue_ext,
    consumer_filter,
    consumer_offset,
    consumer_order_info,
    delay_offset,
    dledger,
    dledger_index,
    dledger_state,
    epoch_file,
    index_file,
    lmq_consumer_offset,
    lock,
    message,
    message_request_mode,
    pop,
    position_checkpoint,
    rocksdb_config,
    rocksdb_consume_queue,
    rocksdb_store,
    sparse_consume_queue,
    subscription_group,
    tiered_consume_queue,
    tiered_index,
    tiered_index_file,
    tiered_store_metadata,
    timer_check,
    timer_log,
    timer_metrics,
    timer_wheel,
    topic_queue_mapping,
    topics,
    transaction_metrics,
)
from .json_table import JsonTable


class Syntax(StrEnum):
    """Format of a text file."""

    JSON = "json"
    PROPERTIES = "properties"
    EPOCHS = "epochs"
    IDENTITY = "identity"


class FileKind(NamedTuple):
    """One kind of file. layouts: its byte tables in the order in which they appear in the file."""

    name: str
    record_type: str
    layouts: tuple[tuple[str, Construct[Any, Any]], ...]
    #: Other modules whose description belongs to the kind.
    modules: tuple[str, ...] = ()
    #: For a text file: its name, the directory of the store that has it, and the tables in it.
    file: str = ""
    place: str = "config"
    tables: tuple[JsonTable, ...] = ()
    syntax: Syntax = Syntax.JSON
    #: Whether a broker reads the .bak if it cannot read the file.
    reads_backup: bool = True

    @property
    def description(self) -> str:
        """The docstring of the kind's module: what the file is, who writes it, in which versions."""
        module = import_module(f".{self.name.replace('-', '_')}", __package__)
        return (module.__doc__ or "").strip()


_ALL = (
    FileKind("commit-log", "message", (("message", message.MESSAGE), ("blank", blank.BLANK)), ("message", "blank")),
    FileKind("consume-queue", "consume_queue_unit", (("unit", consume_queue.UNIT),)),
    FileKind(
        "consume-queue-ext",
        "consume_queue_ext_unit",
        (("unit", consume_queue_ext.UNIT), ("end", consume_queue_ext.END)),
    ),
    FileKind("batch-consume-queue", "batch_consume_queue_unit", (("unit", batch_consume_queue.UNIT),)),
    FileKind("compaction-log", "message", (("message", message.MESSAGE), ("blank", blank.BLANK))),
    FileKind("sparse-consume-queue", "sparse_consume_queue_unit", (("unit", sparse_consume_queue.UNIT),)),
    FileKind(
        "index-file",
        "index_item",
        (("header", index_file.HEADER), ("slot", index_file.SLOT), ("item", index_file.ITEM)),
    ),
    FileKind("checkpoint", "checkpoint", (("checkpoint", checkpoint.FIELDS),)),
    FileKind("abort", "abort", (("abort", abort.ABORT),)),
    FileKind("lock", "lock", (("lock", lock.LOCK),)),
    FileKind("timer-log", "timer_log_unit", (("unit", timer_log.UNIT), ("blank", timer_log.BLANK))),
    FileKind("timer-wheel", "timer_wheel_slot", (("slot", timer_wheel.SLOT),)),
    FileKind("timer-check", "timer_check", (("fields", timer_check.FIELDS),)),
    FileKind("dledger", "message", (("entry", dledger.ENTRY), ("blank", dledger.BLANK))),
    FileKind("tiered-commit-log", "message", (("message", message.MESSAGE), ("blank", blank.BLANK))),
    FileKind("tiered-consume-queue", "consume_queue_unit", (("unit", tiered_consume_queue.UNIT),)),
    FileKind(
        "tiered-index",
        "tiered_index_item",
        (("header", tiered_index.HEADER), ("slot", tiered_index.SLOT), ("item", tiered_index.ITEM)),
    ),
    FileKind(
        "tiered-index-file",
        "tiered_index_file_item",
        (("header", tiered_index_file.HEADER), ("slot", tiered_index_file.SLOT), ("item", tiered_index_file.ITEM)),
    ),
    FileKind("dledger-index", "dledger_index_unit", (("unit", dledger_index.UNIT),)),
)


class _TextFile(Protocol):
    """A module that describes a text file."""

    FILE: str

    @property
    def TABLES(self) -> tuple[JsonTable, ...]: ...


def _text(name: str, of: _TextFile, **more: Any) -> FileKind:
    return FileKind(name, of.TABLES[0].record_type, (), file=of.FILE, tables=of.TABLES, **more)


_CONFIG = (
    _text("topics", topics),
    _text("subscription-group", subscription_group),
    _text("consumer-offset", consumer_offset),
    _text("lmq-consumer-offset", lmq_consumer_offset),
    _text("delay-offset", delay_offset),
    _text("consumer-filter", consumer_filter),
    _text("consumer-order-info", consumer_order_info),
    _text("topic-queue-mapping", topic_queue_mapping),
    _text("message-request-mode", message_request_mode),
    _text("transaction-metrics", transaction_metrics),
    _text("timer-metrics", timer_metrics),
    _text("tiered-store-metadata", tiered_store_metadata),
    _text("broker-properties", broker_properties, syntax=Syntax.PROPERTIES),
    _text("position-checkpoint", position_checkpoint, place="compaction"),
    _text("epoch-file", epoch_file, place="", syntax=Syntax.EPOCHS),
    _text("broker-identity", broker_identity, place="", syntax=Syntax.IDENTITY, reads_backup=False),
    _text("dledger-state", dledger_state, place="", syntax=Syntax.PROPERTIES),
    FileKind("config", "config_value", ()),
    FileKind(
        "rocksdb",
        "rocksdb_entry",
        (
            ("queue unit key", rocksdb_consume_queue.UNIT_KEY),
            ("queue unit", rocksdb_consume_queue.UNIT),
            ("queue bound key", rocksdb_consume_queue.BOUND_KEY),
            ("queue bound", rocksdb_consume_queue.BOUND),
            ("dispatched", rocksdb_consume_queue.CHECKPOINT),
            ("timer key", rocksdb_store.TIMER_KEY),
            ("timer", rocksdb_store.TIMER_VALUE),
            ("transaction key", rocksdb_store.TRANSACTION_KEY),
            ("transaction", rocksdb_store.TRANSACTION_VALUE),
            ("index key", rocksdb_store.INDEX_KEY),
            ("index", rocksdb_store.INDEX_VALUE),
            ("position", rocksdb_store.POSITION),
            ("table version key", rocksdb_config.VERSION_KEY),
            ("table version", rocksdb_config.VERSION),
            ("consumer offset key", rocksdb_config.OFFSET_KEY),
            ("consumer offset", rocksdb_config.OFFSET),
            ("topic or group key", rocksdb_config.ENTRY_KEY),
            ("topic or group", rocksdb_config.ENTRY),
            ("pop key", pop.KV_KEY),
        ),
        ("rocksdb_consume_queue", "rocksdb_store", "rocksdb_config"),
    ),
)
KINDS: dict[str, FileKind] = {kind.name: kind for kind in (*_ALL, *_CONFIG)}
