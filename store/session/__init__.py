"""A plan carried out: journal first, then the edits, fsync, and undo, byte for byte.

Nothing is decided here. It may use `plan` and all below it.
"""
