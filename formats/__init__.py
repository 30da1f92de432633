"""Bytes: construct schemas, one module per kind of file, and what is derived from them (`derive`).

Modules that end in `_columns` do for arrays what the others do value by value. No I/O; it uses nothing else of mqstore.
"""
