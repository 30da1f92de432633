"""Timer log and timer wheel: read, write, and what a start makes of them.

May use `broker` and all below it.
"""
