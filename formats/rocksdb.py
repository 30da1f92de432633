"""A RocksDB of a broker: consume queues, rocksdbstore/, topics, groups, offsets, 5.2+ (spec 02, 05).

With storeType=defaultRocksDB. `dump` shows the entries of all column families; those that it knows as
what they are, all others as the bytes of key and value.
"""
