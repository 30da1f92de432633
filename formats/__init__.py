"""Bytes: construct schemas, one module per file kind, and what is derived from them (`derive`).

Modules that end in `_columns` do with arrays what others do value by value. No I/O; it uses nothing
else of mqstore.
"""
