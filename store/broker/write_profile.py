"""What distinguishes the bytes that broker generations write, as data.

One `WriterProfile` per generation of `store/broker/profiles.py`; rules that recovery shares
(version 2 records, IPv6, tags in the index, light queues) stand there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from .profiles import Profile, profile_of


class LightQueueRules(NamedTuple):
    """How a generation names offsets of light queues (spec 2.9; measured).

    options: all have to be on. undecided: PREPARED and ROLLBACK messages get offsets, too;
    undecided_count: and count. closed_topics: how topics begin whose messages get none. twice: a
    queue that is named twice counts twice. other_names: also for names without %LMQ%.
    whole_records: maxMessageSize limits such a record.
    """

    options: tuple[str, ...]
    undecided: bool
    undecided_count: bool
    closed_topics: tuple[str, ...]
    twice: bool
    other_names: bool
    whole_records: bool


@dataclass(frozen=True)
class WriterProfile:
    """How one generation writes.

    final_separator: 02 behind the last property (spec 1.6). stale_blank: what follows the head of
    a BLANK are bytes of earlier records, not the file's own (spec 1.5). count_every_put: the
    index counts puts, not slots in use (spec 3.1). pid_in_abort: `abort` holds the process id
    (spec 4.2). checkpoint_fields: how many of the checkpoint's fields it knows (spec 4.1).
    modern_topics: topics.json has attributes and a state version (spec 5.2, 5.3).
    closed_dead_letters: %DLQ% topics cannot be read until somebody changes that. rocksdb_store:
    the store has a RocksDB of that name, empty or not (spec 4.10). timer: it has a timer (spec 4.4).
    batch_properties: properties of a batch's request go to each of its records (spec 1.9, B13).
    property_crc: it knows enabledAppendPropCRC (spec 1.7). transaction_ids: a half message has
    __transactionId__; keeps_real_topic: a committed one keeps REAL_TOPIC and REAL_QID; op_lists: an op
    record ends its offsets with commas (spec 1.10). closed_topics: nobody may send to these;
    long_topics: how topics begin that may have 255 characters, not 127.
    whole_records: maxMessageSize limits records, not bodies (spec 1.4). light_queues: None in a
    generation without them.
    """

    start: Profile
    final_separator: bool
    stale_blank: bool
    count_every_put: bool
    pid_in_abort: bool
    checkpoint_fields: int
    modern_topics: bool
    closed_dead_letters: bool
    rocksdb_store: bool
    timer: bool
    batch_properties: bool
    property_crc: bool
    transaction_ids: bool
    keeps_real_topic: bool
    op_lists: bool
    closed_topics: frozenset[str]
    long_topics: tuple[str, ...]
    whole_records: bool
    light_queues: LightQueueRules | None

    @property
    def version(self) -> str:
        """Short name of the generation, such as `5.3`."""
        return self.start.version


_CLOSED = frozenset(
    {
        "SCHEDULE_TOPIC_XXXX",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
    }
)
_ROCKSDB_TRANSACTIONS = frozenset(
    {"RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"}
)

_OLDEST = WriterProfile(
    profile_of("4.3"),
    final_separator=True,
    stale_blank=True,
    count_every_put=True,
    pid_in_abort=False,
    checkpoint_fields=3,
    modern_topics=False,
    closed_dead_letters=True,
    rocksdb_store=False,
    timer=False,
    batch_properties=False,
    property_crc=False,
    transaction_ids=False,
    keeps_real_topic=True,
    op_lists=False,
    closed_topics=frozenset({"TBW102"}),
    long_topics=(),
    whole_records=True,
    light_queues=None,
)
_4_9 = replace(
    _OLDEST,
    start=profile_of("4.9"),
    final_separator=False,
    stale_blank=False,
    count_every_put=False,
    closed_dead_letters=False,
    batch_properties=True,
    closed_topics=_CLOSED,
    whole_records=False,
    light_queues=LightQueueRules(
        options=("enableMultiDispatch",),
        undecided=True,
        undecided_count=False,
        closed_topics=(),
        twice=False,
        other_names=True,
        whole_records=False,
    ),
)
_5_1 = replace(
    _4_9,
    start=profile_of("5.1"),
    pid_in_abort=True,
    checkpoint_fields=5,
    modern_topics=True,
    timer=True,
    transaction_ids=True,
    op_lists=True,
    light_queues=LightQueueRules(
        options=("enableMultiDispatch", "enableLmq"),
        undecided=False,
        undecided_count=False,
        closed_topics=("%RETRY%", "SCHEDULE_TOPIC_XXXX"),
        twice=True,
        other_names=False,
        whole_records=False,
    ),
)
_5_3 = replace(
    _5_1,
    start=profile_of("5.3"),
    final_separator=True,
    property_crc=True,
    light_queues=LightQueueRules(
        options=("enableLmq",),
        undecided=True,
        undecided_count=True,
        closed_topics=("%RETRY%", "SCHEDULE_TOPIC_XXXX", "rmq_sys_"),
        twice=True,
        other_names=False,
        whole_records=True,
    ),
)
_5_4 = replace(
    _5_3,
    start=profile_of("5.4"),
    rocksdb_store=True,
    batch_properties=False,
    keeps_real_topic=False,
    closed_topics=_CLOSED | _ROCKSDB_TRANSACTIONS,
    long_topics=("%RETRY%", "%DLQ%"),
)
_5_5 = replace(_5_4, start=profile_of("5.5"), checkpoint_fields=6)

_WRITERS = {writer.version: writer for writer in (_OLDEST, _4_9, _5_1, _5_3, _5_4, _5_5)}
_LIGHT = [writer.light_queues for writer in _WRITERS.values() if writer.light_queues]
LIGHT_QUEUE_OPTIONS = tuple(sorted({option for rules in _LIGHT for option in rules.options}))
"""All switches without which a broker of some generation keeps no light queues."""


def writer_profile(version: str) -> WriterProfile:
    """The profile for a version number: the nearest generation. Raises InvalidInput."""
    return _WRITERS[profile_of(version).version]
