"""`inspect` and `stats`: what a store consists of, what its options seem to be, what its messages mean.

Delays, timers, retries, POP, transactions: only the queues of those topics are read, and where
these cannot be relied on the log is scanned, and the view says so. It may use `plan` and all below
it.
"""
