"""Segments and indexes of tiered stores, and the index of a DLedger log.

Nothing in them is believed, and they are only read. It may use `broker` and all below it.
"""
