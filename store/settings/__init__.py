"""The files of config/, as a broker keeps them: read, parse, sum up; in RocksDB, too.

May use `broker` and all below it.
"""
