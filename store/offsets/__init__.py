"""How far consumer groups have come in the queues: positions, lags, and plans that move them.

Positions are those of config/, in files or a RocksDB, held against the ends of the queues; a plan
is edits of these files for a session. It may use `put` and all below it.
"""
