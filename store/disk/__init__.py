"""Directories and files on disk, whatever their content; the one place that changes files.

Layout, broker.conf, directories of equally sized files, compressed files, lock, checkpoint, edits, processes for
parallel work, large arrays in temporary files. It may use `columns`, `counted`, `errors`.
"""
