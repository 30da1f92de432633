"""A broker's start, simulated in memory, bug by bug: log, queues, index, configuration.

`simulate` plays it, `outcome` is where it ends. Shares readers with the rest, never judgement. May use `audit` and all below it.
"""
