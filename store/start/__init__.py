"""A broker's start, simulated in memory, bug by bug: log, queues, index, configuration.

`simulate` plays it, `outcome` is where it ends. It shares readers with the rest, never judgement.
It may use `settings` and all below it.
"""
