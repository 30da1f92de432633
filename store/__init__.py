"""Directories: what a broker keeps on disk, read, checked and written. No terminal, no Spark.

Its rooms stand on floors (ARCHITECTURE.md), and use those below them. It may use `formats`.
"""
