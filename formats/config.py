"""The directory config/: what a broker knows besides its messages, all versions (spec/05-config.md).

Each file has a .bak, one generation older, which a broker reads if the file is missing, empty or
cannot be parsed. 5.3+ may have topics, groups and offsets each in a RocksDB instead.
"""

from __future__ import annotations

BACKUP = ".bak"
"""Ends the name of the older copy of a file."""
