"""CompactionLog: the records of one queue of a compaction topic, 5.1+ (spec/06-compaction-ha.md, 6.1).

`compaction/compactionLog/TOPIC/QUEUE_ID/%020d` of topics with cleanup.policy=COMPACTION. The records
are those of the commit log; physical_offset is the position in this log. The last record of each key
stays. After compacted files the names have a gap, and such a file may end in zeros, without BLANK.
"""

from __future__ import annotations
