"""Carry out a plan: write the journal, apply the edits, fsync; undo byte for byte.

This room decides nothing. It may use `plan` and all below it.
"""
