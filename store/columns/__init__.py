"""Rows kept as columns: the base of such classes, dictionaries of names, values in order, ranges.

Nothing here knows a file or a broker. It may use `formats` and `errors`.
"""
