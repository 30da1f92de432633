"""The life of one message, in order, and why a consumer group has not got it: `mqstore trace`.

What is told is read by the rooms below (`search` finds the records of a message, `inspect` knows
transactions, delays, timers, POP); here they are put together, and each statement has its place and
its evidence beside it. Verdicts are a closed list, and where evidence is missing the verdict is
`unknown`. It may use `offsets` and all below it.
"""
