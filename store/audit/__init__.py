"""The log compared with queues and index: which messages are in order, and what queues lack.

The proof is one pass over the log, a part on each core; other modules decide about what differs. It may use `queues`,
`index` and all below them.
"""
