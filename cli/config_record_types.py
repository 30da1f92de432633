"""Record types of configuration files and of RocksDBs, by kind."""

from __future__ import annotations

from collections.abc import Mapping

_DATA_VERSION = "data_version"
_REST = ("config_value", "damage")
_OF_FILE: Mapping[str, tuple[str, ...]] = {
    "topics": ("topic_config", _DATA_VERSION, *_REST),
    "subscription-group": ("subscription_group", "forbidden", _DATA_VERSION, *_REST),
    "consumer-offset": ("consumer_offset", _DATA_VERSION, *_REST),
    "lmq-consumer-offset": ("consumer_offset", _DATA_VERSION, *_REST),
    "delay-offset": ("delay_offset", _DATA_VERSION, *_REST),
    "consumer-filter": ("consumer_filter", *_REST),
    "consumer-order-info": ("consumer_order_info", *_REST),
    "topic-queue-mapping": ("topic_queue_mapping", _DATA_VERSION, *_REST),
    "message-request-mode": ("message_request_mode", *_REST),
    "transaction-metrics": ("transaction_count", _DATA_VERSION, *_REST),
    "timer-metrics": ("timer_count", _DATA_VERSION, *_REST),
    "tiered-store-metadata": ("tiered_topic", "tiered_queue", "tiered_segment", *_REST),
    "broker-properties": ("broker_property", *_REST),
}
_CONFIG = tuple(dict.fromkeys(name for names in _OF_FILE.values() for name in names))
_ELSEWHERE: Mapping[str, tuple[str, ...]] = {
    "position-checkpoint": ("compaction_position", *_REST),
    "epoch-file": ("epoch_file", "epoch", *_REST),
    "broker-identity": ("broker_identity", *_REST),
    "dledger-state": ("dledger_state", *_REST),
}
"""Files of this sort that do not lie in `config/`."""
LAYOUTS: Mapping[str, tuple[str, ...]] = {
    "rocksdb_queue_unit": ("queue unit key", "queue unit"),
    "rocksdb_queue_bound": ("queue bound key", "queue bound"),
    "rocksdb_dispatched": ("queue bound key", "dispatched"),
    "rocksdb_timer": ("timer key", "timer"),
    "rocksdb_transaction": ("transaction key", "transaction"),
    "rocksdb_index": ("index key", "index"),
    "rocksdb_position": ("position",),
    "rocksdb_pop": ("pop key",),
}
"""Record type → layouts of key and value, or of a value alone, of the kind `rocksdb`."""
ENTRY = "rocksdb_entry"
OF_KIND: Mapping[str, tuple[str, ...]] = {
    **_OF_FILE,
    **_ELSEWHERE,
    "config": (*_CONFIG, ENTRY),
    "rocksdb": (
        *(*LAYOUTS, "topic_config", "subscription_group", "consumer_offset", _DATA_VERSION),
        *("config_value", ENTRY),
    ),
}
"""What `dump` prints of each kind."""
