"""Offsets of consumer groups: positions, lags, and plans that move positions.

Positions come from config/, from files or RocksDB, and are compared with the ends of the queues; a plan is edits of
these files for a session. It may use `put` and all below it.
"""
