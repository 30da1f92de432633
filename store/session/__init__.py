"""A plan carried out: journal first, then the edits, fsync, and undo, byte for byte.

May use `plan` and all below it.
"""
