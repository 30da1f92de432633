"""Directories and files as they lie on disk, whatever is in them; the one place that changes files.

Layout, broker.conf, equally sized files and their sizes, compressed ones, lock, checkpoint, edits,
work for other cores, large arrays in temporary files. It may use `columns`, `counted`, `errors`.
"""
