"""What the messages of a broker's own topics mean: delays, timers, retries, POP, transactions.

Only the queues of those topics are read. Where these cannot be relied on (the store was not shut
down cleanly, they are missing or not files) the log is scanned, and the view says so.
"""
