"""`diff`: two stores held against each other, or a store and a copy of parts of one.

`logs` compares logs byte by byte where both have them, and names the fields of records that differ,
`both` holds queues, index, positions, configuration and timers against each other, and makes one
answer of all. Messages are matched by topic and offset in `store/arrow/differences.py`. It may use
`offsets` and all below it.
"""
