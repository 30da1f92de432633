"""A broker's start, simulated in memory, bug by bug: log, queues, index, configuration.

`simulate` runs it, `outcome` is its result. It shares readers with the other rooms, never judgement. It may use
`settings` and all below it.
"""
