"""Consume queues: plain, batch, sparse, RocksDB, with extensions; read, look up, write.

What a start of a broker makes of a queue's files is here, too. May use `broker` and all below it.
"""
