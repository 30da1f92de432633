"""Carve records out of anything: segments without names, disk images, devices, core dumps.

    sources ▶ carve (search, grade) ▶ runs ▶ arrange ▶ layers ▶ original or compact, manifest

A record is known by its magic code, and proven by its own lengths and checksums; file names and file systems do not
count. Records that follow one another both in a source and in the log are one run, so memory grows with the number of
pieces, not of records. It may use `recover`, `put` and all below them.
"""
