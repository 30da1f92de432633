"""Consume queues: plain, batch, sparse, RocksDB, with extensions; read, look up, write.

`units` is the one reader of units as arrays, and says which are valid; what a broker's start makes of a queue is here,
too, with its own judgement. It may use `broker` and all below it.
"""
