"""Index files: read, look up, write, compare with the log, and what a start makes of them.

May use `broker` and all below it.
"""
