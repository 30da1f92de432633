"""Directories and files as they lie on disk, whatever is in them; the one place that changes files.

Layout, broker.conf, equally sized files, compressed ones, snapshot, lock, checkpoint, edits, work for
other cores. May use `formats`, `errors`, `columns`.
"""
