"""The directory config/: what a broker knows beside its messages, all versions (spec/05-config.md).

Each file has a .bak, one generation old, that a broker reads where the file is missing, empty or
cannot be parsed. 5.3+ may keep topics, groups and offsets in a RocksDB each instead.
"""
