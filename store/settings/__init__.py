"""What a store tells about its broker: the files of config/, options that no file names, its generation.

Tables in a RocksDB are read here, too. It may use `timer`, `audit` and all rooms below them.
"""
