"""The RocksDB `rocksdbstore/`: timers, transactions and index items, 5.4+ (spec/04, 4.10).

Every start of a broker makes it; its column families stay empty unless timerRocksDBEnable,
transRocksDBEnable or indexRocksDBEnable is on. No store with any of them on was seen.
"""

from __future__ import annotations

from construct import GreedyBytes, Int32sb, Int64sb, Struct

INDEX, TIMER, TRANSACTION = "default", "timer", "trans"

TIMER_KEY = Struct(
    "delay_time" / Int64sb * "when the message is due, in ms",
    "unique_key" / GreedyBytes * "unique key of the message",
)
TIMER_VALUE = Struct(
    "size" / Int32sb * "total_size of the record",
    "physical_offset" / Int64sb * "position of the record in the commit log",
)
TRANSACTION_KEY = Struct(
    "physical_offset" / Int64sb * "position of the half message in the commit log",
    "name" / GreedyBytes * "@topic@uniqueKey",
)
TRANSACTION_VALUE = Struct(
    "check_times" / Int32sb * "how often the producer was asked",
    "size" / Int32sb * "total_size of the record",
)
INDEX_KEY = Struct(
    "store_hour" / Int64sb * "hour of the store time",
    "name" / GreedyBytes * "@topic@K@key@uniq@, @topic@T@tag@uniq@ or @topic@U@uniq@, "
    "then the position of the record in the commit log, 8 bytes",
)
INDEX_VALUE = Struct("store_timestamp" / Int64sb * "store time of the record in ms")
