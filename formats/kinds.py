"""The kinds of files and their layouts, for `--as`, `dump` and mqstore-store(5).

The name of a kind is that of its module with dashes. `record_type` is the `type` of its records in JSON.
"""

from __future__ import annotations

from enum import StrEnum
from importlib import import_module
from typing import Any, NamedTuple

from construct import Construct

from . import blank, checkpoint, message, pop, rocksdb_config, rocksdb_consume_queue, rocksdb_store
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
        return (_module(self.name).__doc__ or "").strip()


def _module(name: str) -> Any:
    return import_module(f".{name.replace('-', '_')}", __package__)


def _binary(name: str, record_type: str, *layouts: str) -> FileKind:
    """A kind whose layouts its module has, under their names in upper case."""
    return FileKind(name, record_type, tuple((each, getattr(_module(name), each.upper())) for each in layouts))


def _text(name: str, **more: Any) -> FileKind:
    """A text file, with the FILE and the TABLES of its module."""
    of = _module(name)
    return FileKind(name, of.TABLES[0].record_type, (), file=of.FILE, tables=of.TABLES, **more)


_LOG = (("message", message.MESSAGE), ("blank", blank.BLANK))
_ALL = (
    FileKind("commit-log", "message", _LOG, ("message", "blank")),
    _binary("consume-queue", "consume_queue_unit", "unit"),
    _binary("consume-queue-ext", "consume_queue_ext_unit", "unit", "end"),
    _binary("batch-consume-queue", "batch_consume_queue_unit", "unit"),
    FileKind("compaction-log", "message", _LOG),
    _binary("sparse-consume-queue", "sparse_consume_queue_unit", "unit"),
    _binary("index-file", "index_item", "header", "slot", "item"),
    FileKind("checkpoint", "checkpoint", (("checkpoint", checkpoint.FIELDS),)),
    _binary("abort", "abort", "abort"),
    _binary("lock", "lock", "lock"),
    _binary("timer-log", "timer_log_unit", "unit", "blank"),
    _binary("timer-wheel", "timer_wheel_slot", "slot"),
    _binary("timer-check", "timer_check", "fields"),
    _binary("dledger", "message", "entry", "blank"),
    FileKind("tiered-commit-log", "message", _LOG),
    _binary("tiered-consume-queue", "consume_queue_unit", "unit"),
    _binary("tiered-index", "tiered_index_item", "header", "slot", "item"),
    _binary("tiered-index-file", "tiered_index_file_item", "header", "slot", "item"),
    _binary("dledger-index", "dledger_index_unit", "unit"),
)
_CONFIG = (
    _text("topics"),
    _text("subscription-group"),
    _text("consumer-offset"),
    _text("lmq-consumer-offset"),
    _text("delay-offset"),
    _text("consumer-filter"),
    _text("consumer-order-info"),
    _text("topic-queue-mapping"),
    _text("message-request-mode"),
    _text("transaction-metrics"),
    _text("timer-metrics"),
    _text("tiered-store-metadata"),
    _text("broker-properties", syntax=Syntax.PROPERTIES),
    _text("position-checkpoint", place="compaction"),
    _text("epoch-file", place="", syntax=Syntax.EPOCHS),
    _text("broker-identity", place="", syntax=Syntax.IDENTITY, reads_backup=False),
    _text("dledger-state", place="", syntax=Syntax.PROPERTIES),
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
