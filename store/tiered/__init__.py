"""Segments and indexes of tiered stores. Nothing in them is believed, and they are only read.

It may use `disk` and all below it.
"""
