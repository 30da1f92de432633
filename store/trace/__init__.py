"""The life of one message, in order, and why a consumer group has not got it: `mqstore trace`.

The rooms below read the facts (`search` finds the records of a message, `inspect` knows transactions, delays, timers,
POP). This room puts them together; each statement has its place and its evidence beside it. Verdicts are a closed list;
without evidence the verdict is `unknown`. It may use `offsets` and all below it.
"""
