"""Directories: what a broker keeps on disk, read, checked and written. No terminal, no Spark."""
