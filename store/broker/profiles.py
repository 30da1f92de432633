"""What distinguishes the starts of seven broker generations, as data (spec/07-recovery.md).

One `Profile` per generation. The algorithm is the same for all and is in `broker.load_rules`, in the room `start` (log,
queues, index), and in `recover.predict`; a difference between versions is a field here, never an `if` on a version
there. Each value was measured on the real classes of the release named in `measured`.

One `WriterProfile` per generation: what distinguishes the bytes that it writes. Rules that recovery uses, too (version
2 records, IPv6, tags in the index, LMQs), are in the `Profile`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from ...formats.message_properties import RETRY_PREFIX
from ..disk.broker_conf import FileRules
from ..errors import InvalidInput
from .dispatch_record import LMQ_CLOSED, Dispatching
from .system_topics import (
    CHECKED_TOO_OFTEN,
    DEAD_LETTER_PREFIX,
    HALF_TOPIC,
    LOWER_PREFIX,
    NEW_TOPICS,
    OFFSET_MOVED,
    OP_TOPIC,
    ROCKSDB_HALF_TOPIC,
    ROCKSDB_OP_TOPIC,
    SCHEDULE_TOPIC,
    SELF_TEST,
    TIMER_TOPIC,
)


class OnOddFile(Enum):
    """What a load does with a directory entry that is not a whole file (spec README, load rows)."""

    HIDE = "this entry and all later ones are ignored"
    REFUSE = "the load fails"
    IGNORE = "the entry is skipped"
    DELETE = "the file is deleted"


class NormalStart(Enum):
    """Start file of the recovery after a clean exit (spec 7.3)."""

    LAST_THREE = "the third file from the end"
    QUEUE_END = "newest file that starts at or before the highest position in a queue"
    FIRST_RECORD = "newest file whose first record passes and lies at or before that position"


class AbnormalStart(Enum):
    """Start file of the recovery after a crash (spec 7.3)."""

    TIMES = "first record stored 3 s before the checkpoint's times; only its magic is checked"
    CHECKED_TIMES = "the same, and the first record passes the whole check"
    QUEUE_POSITION = "first record at or before the checkpoint's logicsPhysicalOffset, else times"


class QueueCut(Enum):
    """When the queues are cut at the log end (spec 7.4, step 2)."""

    AFTER_CRASH = "only after a crash"
    AHEAD_BEFORE = "if a queue reached the log end before the scan"
    AHEAD_AFTER = "if a queue reaches the log end after the scan"


class ReputStart(Enum):
    """Where the dispatcher begins after the recovery (spec 7.5)."""

    LOG_END = "the log end: nothing is dispatched again"
    QUEUES_END = "the highest position in a queue; start waits until nothing is behind"


class MinOffset(Enum):
    """How a queue's min offset is found (spec 2.4)."""

    LINEAR = "first unit of the first file at or behind the log start"
    BINARY = "the end, if the last unit is expired; else a binary search in the first file"


class LoadRules(NamedTuple):
    """Treatment of entries in a log or queue directory that are not whole files."""

    wrong_length: OnOddFile
    directory: OnOddFile
    empty_last: OnOddFile
    #: no start with a directory in place of an index file or of `abort` (since 5.0)
    needs_files: bool = False


class RecordRules(NamedTuple):
    """The check of one record (spec 7.2), and what its properties do to a service."""

    #: knows version 2 records (since 5.1.0)
    v2: bool
    #: knows 16-byte hosts (since 4.6.0)
    ipv6: bool
    #: tests total_size against the bytes left (since 5.3.2)
    bounded: bool
    #: knows forceVerifyPropCRC (since 5.2.0)
    property_crc: bool
    #: after a crash, a record whose fields do not add up counts as data (B26)
    unequal_is_data: bool
    #: requires DUP_INFO of two parts in each record (`duplicationEnable`, from its source)
    dup_info: bool = False
    #: reads the batch numbers in properties, and accepts only numbers that Java can read (since 5.0, spec 1.10)
    inner_batches: bool = False
    #: a delay level halts for ever at a message without a valid REAL_TOPIC and REAL_QID (4.9.3 to 4.9.8, spec 9.9.2)
    level_halts: bool = False
    #: refuses a negative total_size before it looks at the magic, even a BLANK's (since 5.5.1, from its class files)
    signed: bool = False


class StartRules(NamedTuple):
    """Where the scan of the log begins."""

    normal: NormalStart
    abnormal: AbnormalStart
    #: most files that are examined, None: all (`commitLogRecoverMaxNum`, B25)
    look_back: int | None
    #: subtracted from the checkpoint's times
    slack_ms: int
    #: dispatches also when it recovers a DLedger log after a crash (since 5.2.0)
    dledger_dispatches: bool = False


class QueueRules(NamedTuple):
    """Recovery of the consume queues (spec 2.2, 2.4, 2.5)."""

    #: a queue reaches to the end of its last record, not to the start (since 4.5.1)
    reaches_end: bool
    cut: QueueCut
    min_offset: MinOffset
    #: the load fails if a queue has files but no unit in the last one (B16)
    empty_last_refuses: bool
    #: deletes the queues' files if there is no log file, after a clean exit, too
    emptied_when_clean: bool
    #: the checkpoint has confirmPhyOffset (since 5.1.1), logicsPhysicalOffset (since 5.5.0)
    has_confirm_offset: bool = False
    has_flushed_position: bool = False
    #: knows batchconsumequeue (since 5.0.0)
    batches: bool = False
    #: a queue without files reaches nowhere, also after the start has cut it to nothing (since 5.5.1)
    fileless_reaches_nowhere: bool = False


class DispatchRules(NamedTuple):
    """What is dispatched during the recovery and after it."""

    #: a recovery after a clean exit dispatches records that the queues lack (since 5.3.2)
    when_clean: bool
    reput: ReputStart
    #: tags are indexed (since 5.4.0)
    index_tags: bool
    #: INNER_MULTI_DISPATCH is known (since 4.9.3)
    multi_dispatch: bool
    #: names with a slash get units, too (B12)
    slash_names: bool = False
    #: prefixes of topics whose messages go to no further queues
    lmq_closed: tuple[str, ...] = LMQ_CLOSED
    #: hashSlotCount of an index counts puts, not slots (up to 4.7.0)
    counts_puts: bool = False
    #: after a crash dispatches only up to the confirmed offset (`duplicationEnable`, from its source)
    confirmed_only: bool = False

    @property
    def any_queue(self) -> bool:
        """Whether a message can get units in a queue of any name, so that its topic may not exist (4.9.3 and later)."""
        return self.multi_dispatch and not self.lmq_closed

    def how(
        self,
        *,
        items: bool = True,
        multi_dispatch: bool = True,
        lmq_zero: bool = True,
        delay_levels: tuple[int, ...] | None = None,
        lite_only: bool = False,
        begins: Callable[[str, int, int], int] | None = None,
    ) -> Dispatching:
        """Dispatch rules of this generation with these options; multi_dispatch: if the generation knows it."""
        multi = self.multi_dispatch and multi_dispatch
        closed = self.lmq_closed
        known = self.index_tags, items, multi, self.slash_names, closed
        return Dispatching(*known, lmq_zero, delay_levels, lite_only, begins)


class TimerRules(NamedTuple):
    """Load of the timer (spec 4.9)."""

    #: moves the next unit to read into the range of the queue (since 5.3.2)
    clamps: bool
    #: accepts any message size in the last entry instead of throwing (B32)
    any_size: bool


class DatabaseRules(NamedTuple):
    """Consume queues in a RocksDB (spec 7.14)."""

    #: can have queues in files and in a RocksDB at once (since 5.4.0)
    hybrid: bool
    #: knows useSeparateStorePathForRocksdbCQ and combineCQUseRocksdbForLmq (since 5.5.0); both have to be used
    #: together with the double write
    lmq: bool
    #: ignores a database without content when it looks for the first file (since 5.5.0)
    skips_new: bool
    #: the first record of a file has to pass the check and to have a store time (since 5.4.0)
    checks_first: bool
    #: a pull fails at the unit before a hole, too, not only at the hole (since 5.5.0)
    looks_ahead: bool = False
    #: enableAcceleratedRecovery also has an effect after a clean stop (5.4.0)
    accelerated_when_clean: bool = False


class Profile(NamedTuple):
    """One generation of brokers."""

    version: str
    #: the release whose classes were run
    measured: str
    #: the first release of the generation
    since: tuple[int, int, int]
    load: LoadRules
    record: RecordRules
    start: StartRules
    queues: QueueRules
    dispatch: DispatchRules
    #: None: no timer (before 5.0)
    timer: TimerRules | None = None
    #: None: no queues in a RocksDB (before 5.2)
    database: DatabaseRules | None = None


_HIDING = LoadRules(OnOddFile.HIDE, OnOddFile.HIDE, OnOddFile.HIDE)
_STRICT = LoadRules(OnOddFile.REFUSE, OnOddFile.REFUSE, OnOddFile.REFUSE)
_TOLERANT = LoadRules(OnOddFile.REFUSE, OnOddFile.IGNORE, OnOddFile.DELETE, needs_files=True)

#: For a DLedger log, where the process ends at any entry that is not a whole file.
DLEDGER_LOAD = _STRICT

_SLACK_MS = 3000
_LOOK_BACK = 10
_RENAMED_SINCE, _STRIPS_SINCE = (4, 5, 2), (5, 2, 0)
_SPLITS_SINCE, _IN_ROOT_SINCE = (4, 9, 2), (4, 9, 4)
"""Releases that changed how broker.conf is read: mapedFileSize… renamed to mappedFileSize…, blanks stripped,
storePathCommitLog split, the log looked for in storePathRootDir.
"""
_ANY_4_9 = (4, 9, 0)
"""4.9 without more says of no release whether it is older."""

_HALTS_SINCE = (4, 9, 3)
"""The first release of its generation whose delay levels halt."""

_START_4_3 = Profile(
    "4.3",
    "4.3.1",
    (0, 0, 0),
    _HIDING,
    RecordRules(v2=False, ipv6=False, bounded=False, property_crc=False, unequal_is_data=True),
    StartRules(NormalStart.LAST_THREE, AbnormalStart.TIMES, None, _SLACK_MS),
    QueueRules(False, QueueCut.AFTER_CRASH, MinOffset.LINEAR, False, False),
    DispatchRules(False, ReputStart.LOG_END, index_tags=False, multi_dispatch=False, counts_puts=True),
)
_START_4_9 = _START_4_3._replace(
    version="4.9",
    measured="4.9.7",
    since=(4, 5, 1),
    load=_STRICT,
    record=_START_4_3.record._replace(ipv6=True, unequal_is_data=False, level_halts=True),
    queues=_START_4_3.queues._replace(reaches_end=True, cut=QueueCut.AHEAD_BEFORE, emptied_when_clean=True),
    dispatch=DispatchRules(
        False, ReputStart.QUEUES_END, index_tags=False, multi_dispatch=True, slash_names=True, lmq_closed=()
    ),
)
_BEFORE_HALTS = _START_4_9._replace(record=_START_4_9.record._replace(level_halts=False))
_START_5_1 = _START_4_9._replace(
    version="5.1",
    measured="5.1.4",
    since=(5, 0, 0),
    load=_TOLERANT,
    record=_START_4_9.record._replace(v2=True, inner_batches=True, level_halts=False),
    queues=_START_4_9.queues._replace(
        min_offset=MinOffset.BINARY, empty_last_refuses=True, has_confirm_offset=True, batches=True
    ),
    dispatch=DispatchRules(
        False,
        ReputStart.LOG_END,
        index_tags=False,
        multi_dispatch=True,
        lmq_closed=(RETRY_PREFIX, TIMER_TOPIC, SCHEDULE_TOPIC),
    ),
    timer=TimerRules(clamps=False, any_size=False),
)
_START_5_3 = _START_5_1._replace(
    version="5.3",
    measured="5.3.3",
    since=(5, 3, 2),
    record=_START_5_1.record._replace(bounded=True, property_crc=True),
    start=_START_5_1.start._replace(normal=NormalStart.QUEUE_END, dledger_dispatches=True),
    dispatch=DispatchRules(True, ReputStart.LOG_END, index_tags=False, multi_dispatch=True),
    timer=TimerRules(clamps=True, any_size=False),
    database=DatabaseRules(hybrid=False, lmq=False, skips_new=False, checks_first=False),
)
_START_5_4 = _START_5_3._replace(
    version="5.4",
    measured="5.4.0",
    since=(5, 4, 0),
    start=StartRules(NormalStart.FIRST_RECORD, AbnormalStart.CHECKED_TIMES, _LOOK_BACK, _SLACK_MS, True),
    queues=_START_5_3.queues._replace(cut=QueueCut.AHEAD_AFTER),
    dispatch=_START_5_3.dispatch._replace(index_tags=True),
    timer=TimerRules(clamps=True, any_size=True),
    database=DatabaseRules(hybrid=True, lmq=False, skips_new=False, checks_first=True, accelerated_when_clean=True),
)
_START_5_5 = _START_5_4._replace(
    version="5.5",
    measured="5.5.0",
    since=(5, 5, 0),
    start=_START_5_4.start._replace(abnormal=AbnormalStart.QUEUE_POSITION, slack_ms=0),
    queues=_START_5_4.queues._replace(empty_last_refuses=False, has_flushed_position=True),
    database=DatabaseRules(hybrid=True, lmq=True, skips_new=True, checks_first=True, looks_ahead=True),
)
_START_5_5_1 = _START_5_5._replace(
    version="5.5.1",
    measured="5.5.1",
    since=(5, 5, 1),
    record=_START_5_5.record._replace(signed=True),
    queues=_START_5_5.queues._replace(fileless_reaches_nowhere=True),
)
_STARTS = (_START_4_3, _START_4_9, _START_5_1, _START_5_3, _START_5_4, _START_5_5, _START_5_5_1)
PROFILES = {profile.version: profile for profile in _STARTS}
VERSIONS = tuple(PROFILES)
OLDEST, NEWEST = VERSIONS[0], VERSIONS[-1]


def profile_of(version: str) -> Profile:
    """The profile that a broker version behaves like: `5.3`, `5.3.3`, `4.7`, any number. It says of a release whether
    delay levels halt; else releases of a generation are alike.

    A version without a profile of its own gets that of the newest generation that is not newer. It has to belong to a
    measured major version, 4 or 5, at most one minor release above the newest measured one: 4.0 to 4.10, 5.0 to 5.6.
    Raises InvalidInput for a text that is not a version number, and for other versions.

    >>> profile_of("4.7.1").version, profile_of("v5.3").version, profile_of("5.3.1").version
    ('4.9', '5.3', '5.1')
    """
    if named := PROFILES.get(_plain_number(version)):
        return named
    wanted = _number(version)
    minors = [_number(known)[1] for known in VERSIONS if _number(known)[0] == wanted[0]]
    if not minors or wanted[1] > max(minors) + 1:  # of no measured major version, or two minor releases newer
        known = ", ".join(VERSIONS)
        raise InvalidInput(f"there is no profile near broker version {version}", hint=f"use one of {known}")
    older = [profile for profile in PROFILES.values() if profile.since <= wanted]
    found = older[-1] if older else PROFILES[OLDEST]
    return _BEFORE_HALTS if found is _START_4_9 and wanted < _HALTS_SINCE else found


def file_rules_of(version: str) -> FileRules:
    """How exactly this version reads its broker.conf; generations do not tell that. Raises InvalidInput."""
    number = _number(version)
    splits, log_in_root = (None if number == _ANY_4_9 else number >= since for since in (_SPLITS_SINCE, _IN_ROOT_SINCE))
    return FileRules(number < _RENAMED_SINCE, number >= _STRIPS_SINCE, splits, log_in_root)


def is_exact(version: str) -> bool:
    """Whether a profile was measured for the generation of this version."""
    profile = profile_of(version)
    return _plain_number(version) in PROFILES or _number(version)[:2] == _number(profile.version)[:2]


def _number(version: str) -> tuple[int, int, int]:
    major, minor, patch, *_ = (*map(int, _plain_number(version).split(".")), 0)
    return major, minor, patch


def _plain_number(version: str) -> str:
    """Only the two or three numbers: `v5.3`, `5.3.x` and `5.3-SNAPSHOT` all become `5.3`. Raises InvalidInput."""
    match = re.fullmatch(r"v?(\d{1,4})\.(\d{1,4})(?:\.(\d{1,4}))?(?:\.\w+)*(?:-\w+)?", version.strip())
    if match is None:
        raise InvalidInput(
            f"not a broker version: {version or 'an empty word'}", hint=f"use one of {', '.join(VERSIONS)}"
        )
    return ".".join(str(int(number)) for number in match.groups() if number is not None)


class LmqRules(NamedTuple):
    """How a generation numbers messages in LMQs (spec 2.9; measured).

    options: all have to be on. undecided: PREPARED and ROLLBACK messages get offsets, too; undecided_count: and they
    count. closed_topics: prefixes of topics whose messages get none. twice: a queue that is named twice counts twice.
    other_names: also names without %LMQ%. whole_records: maxMessageSize limits such a record.
    """

    options: tuple[str, ...]
    undecided: bool
    undecided_count: bool
    closed_topics: tuple[str, ...]
    twice: bool
    other_names: bool
    whole_records: bool


class WriterProfile(NamedTuple):
    """How one generation writes.

    final_separator: 02 behind the last property (spec 1.6). stale_blank: behind the head of a BLANK are bytes of
    earlier records, not of the file itself (spec 1.5). count_every_put: the index counts puts, not slots in use (spec
    3.1). pid_in_abort: `abort` holds the process id (spec 4.2). checkpoint_fields: number of checkpoint fields that it
    knows (spec 4.1). modern_topics: topics.json has attributes and a state version (spec 5.2, 5.3).
    closed_dead_letters: %DLQ% topics are not readable until somebody changes that. rocksdb_store: the store has
    `rocksdbstore`, empty or not (spec 4.10). timer: it has a timer (spec 4.4). batch_properties: properties of a batch
    request go to each of its records (spec 1.9, B13). property_crc: it knows enabledAppendPropCRC (spec 1.7).
    transaction_ids: a half message has __transactionId__. keeps_real_topic: a committed message keeps REAL_TOPIC and
    REAL_QID. op_lists: offsets in an op record end with commas (spec 1.10). closed_topics: topics to which nobody may
    send. long_topics: prefixes of topics that may have 255 characters, not 127. whole_records: maxMessageSize limits
    records, not bodies (spec 1.4). lmq_queues: None in a generation without LMQs.
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
    lmq_queues: LmqRules | None

    @property
    def version(self) -> str:
        """Short name of the generation, such as `5.3`."""
        return self.start.version


_CLOSED = frozenset({SCHEDULE_TOPIC, HALF_TOPIC, OP_TOPIC, CHECKED_TOO_OFTEN, SELF_TEST, OFFSET_MOVED})
_ROCKSDB_TRANSACTIONS = frozenset({ROCKSDB_HALF_TOPIC, ROCKSDB_OP_TOPIC})

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
    closed_topics=frozenset({NEW_TOPICS}),
    long_topics=(),
    whole_records=True,
    lmq_queues=None,
)
_4_9 = _OLDEST._replace(
    start=profile_of("4.9"),
    final_separator=False,
    stale_blank=False,
    count_every_put=False,
    closed_dead_letters=False,
    batch_properties=True,
    closed_topics=_CLOSED,
    whole_records=False,
    lmq_queues=LmqRules(
        options=("enableMultiDispatch",),
        undecided=True,
        undecided_count=False,
        closed_topics=(),
        twice=False,
        other_names=True,
        whole_records=False,
    ),
)
_5_1 = _4_9._replace(
    start=profile_of("5.1"),
    pid_in_abort=True,
    checkpoint_fields=5,
    modern_topics=True,
    timer=True,
    transaction_ids=True,
    op_lists=True,
    lmq_queues=LmqRules(
        options=("enableMultiDispatch", "enableLmq"),
        undecided=False,
        undecided_count=False,
        closed_topics=(RETRY_PREFIX, SCHEDULE_TOPIC),
        twice=True,
        other_names=False,
        whole_records=False,
    ),
)
_5_3 = _5_1._replace(
    start=profile_of("5.3"),
    final_separator=True,
    property_crc=True,
    lmq_queues=LmqRules(
        options=("enableLmq",),
        undecided=True,
        undecided_count=True,
        closed_topics=(RETRY_PREFIX, SCHEDULE_TOPIC, LOWER_PREFIX),
        twice=True,
        other_names=False,
        whole_records=True,
    ),
)
_5_4 = _5_3._replace(
    start=profile_of("5.4"),
    rocksdb_store=True,
    batch_properties=False,
    keeps_real_topic=False,
    closed_topics=_CLOSED | _ROCKSDB_TRANSACTIONS,
    long_topics=(RETRY_PREFIX, DEAD_LETTER_PREFIX),
)
_5_5 = _5_4._replace(start=profile_of("5.5"), checkpoint_fields=6)
_5_5_1 = _5_5._replace(start=profile_of("5.5.1"))

_ALL = (_OLDEST, _4_9, _5_1, _5_3, _5_4, _5_5, _5_5_1)
_WRITERS = {writer.version: writer for writer in _ALL}
_LMQ = [writer.lmq_queues for writer in _WRITERS.values() if writer.lmq_queues]
LMQ_OPTIONS = tuple(sorted({option for rules in _LMQ for option in rules.options}))
"""All options that some generation needs to keep LMQs."""


def writer_profile(version: str) -> WriterProfile:
    """The profile of the generation of a version, as `profile_of`. Raises InvalidInput."""
    start = profile_of(version)
    return _WRITERS[start.version]._replace(start=start)
