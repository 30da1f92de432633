"""`diff`: two stores compared, or a store and a copy of parts of it.

`logs` compares logs byte by byte where both have them, and names the fields of records that differ; `both` compares
queues, index, offsets of groups, configuration and timers, and makes one answer of all. Messages are matched by topic
and offset in `store/arrow/differences.py`. It may use `offsets` and all below it.
"""
