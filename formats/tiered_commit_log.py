"""Segments of a tiered commit log: the records of one queue, 5.1+.

`HASH_CLUSTER/BROKER/TOPIC/QUEUE_ID/COMMIT_LOG/` below tieredStoreFilePath, with the POSIX provider. A
name is eight digits of the MD5 of the base offset, then the base offset. The records are those of
the commit log, physical_offset being the position here. Segments have any size; brokers of 5.1
are said to end a full one with a BLANK of 16 bytes, whose last eight are the latest store time: no
such bytes were seen. The rest is described after what the real classes of 5.3.3 and 5.5.0 write.
"""

from __future__ import annotations
