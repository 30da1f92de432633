"""The log held against queues and index: which messages are in order, and what queues lack.

Proving is one pass, a part on each core; what differs is data. May use the parts (`queues`, `index`,
`timer`, `settings`) and all below them.
"""
