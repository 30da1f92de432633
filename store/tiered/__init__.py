"""Segments and indexes of tiered stores, and the index of a DLedger log. Only read.

May use `broker` and all below it.
"""
