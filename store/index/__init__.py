"""Index files: read, look up, write, compare with the log, and what a broker's start makes of them.

`read` is the one reader: it says what an item and a slot are, and which are valid. It may use `broker` and all below
it.
"""
