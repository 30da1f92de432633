"""Index files: read, look up, write, compare with the log, and what a start makes of them.

One reader, `read`, says what an item and a slot are and which are valid. It may use `broker` and
all below it.
"""
