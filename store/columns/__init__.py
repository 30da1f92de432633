"""Rows kept as columns: dictionaries of names, values in order, ranges.

Nothing here knows a file or a broker. May use `formats` and `errors`.
"""
