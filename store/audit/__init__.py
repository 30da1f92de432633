"""The log held against queues and index: which messages are in order, and what queues lack.

Proving is one pass, a part on each core; what differs is data. It may use `queues`, `index` and all
below them.
"""
