"""Where a broker's recovery begins and where the log ends for it (spec 7.3, 7.4).

Modes of a broker that were not run: what a start does in them, by the source alone.

`duplicationEnable` and `enableControllerMode` change the check of a record and what is dispatched
after a crash (spec 7.2 row 5, 7.4, 7.5). Both are fields of a profile, so that the algorithm knows
no mode; all that rests on them is told with the words "by source".
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ...formats.derive import Columns, decode
from ..audit.prove import Light, Proof
from ..audit.verified import VerifiedRun
from ..broker.dispatch_record import Dispatching
from ..broker.load_rules import BodyCheck, Failure, LoadedFile, knows, passes, schema_of, walk
from ..broker.profiles import AbnormalStart, DispatchRules, NormalStart, Profile, profile_of
from ..broker.snapshot import Snapshot
from ..broker.system_topics import LMQ_PREFIX
from ..disk.broker_conf import BrokerConfig
from ..disk.layout import Layout
from ..index.compare import IndexFiles
from ..log.commit_log import CommitLog
from ..queues.units import NewQueues, QueueNumbers
from ..settings.generation import generation_of
from ..settings.options import options_of

_HEAD_BYTES = 4096
KEPT_FILES = 3
"""Files that a clean start of the older generations looks at."""
LAST_LOOKED_AT = "the last file that is looked at"


class Switches(NamedTuple):
    """Options of a broker.conf that change where a recovery begins and what it does.

    multi_dispatch: messages go to the queues that they name besides. light_zero: those of them that
    are light queues have the number 0. consume_queue_ext: the queues have units in consumequeue_ext.
    delay_levels: ms of levels 1, 2, …; None for the usual ones.
    """

    check_crc: bool = True
    force_property_crc: bool = False
    message_index_enable: bool = True
    message_index_safe: bool = False
    recover_max_files: int | None = None
    multi_dispatch: bool = False
    lmq_zero: bool = True
    consume_queue_ext: bool = False
    timer_wheel_enable: bool = True
    delay_levels: tuple[int, ...] | None = None

    @property
    def waits_for_index(self) -> bool:
        """A recovery begins no later than the index is safe."""
        return self.message_index_enable and self.message_index_safe

    @property
    def body_check(self) -> BodyCheck:
        """What a recovery compares with a record's content."""
        if not self.check_crc:
            return BodyCheck.NONE
        return BodyCheck.PROPERTY_CRC if self.force_property_crc else BodyCheck.BODY_CRC

    def dispatching(self, rules: DispatchRules) -> Dispatching:
        """The units that a generation with these options makes of records."""
        return rules.how(
            items=False,
            multi_dispatch=self.multi_dispatch,
            lmq_zero=self.lmq_zero,
            delay_levels=self.delay_levels,
        )

    @classmethod
    def of(cls, config: BrokerConfig) -> Switches:
        """The switches of a broker's configuration. Raises InvalidInput."""
        return cls(
            check_crc=config.get_bool("checkCRCOnRecover", True),
            force_property_crc=config.get_bool("forceVerifyPropCRC"),
            message_index_enable=config.get_bool("messageIndexEnable", True),
            message_index_safe=config.get_bool("messageIndexSafe", False),
            recover_max_files=config.get_int("commitLogRecoverMaxNum"),
            multi_dispatch=config.get_bool("enableMultiDispatch"),
            lmq_zero=config.get_bool("enableLmq"),
            consume_queue_ext=config.get_bool("enableConsumeQueueExt"),
            timer_wheel_enable=config.get_bool("timerWheelEnable", True),
        )


class StartFile(NamedTuple):
    """The file a recovery begins with, by its number among the loaded ones, and why."""

    number: int
    reason: str


class _First(NamedTuple):
    """The first record of a file as the choice of the start file sees it."""

    known: bool
    passed: bool
    store_timestamp: int
    physical_offset: int


class Records(NamedTuple):
    """Good records of one file in log order; `positions` = start of the file + `columns.starts`."""

    file: LoadedFile
    columns: Columns


class PhantomRecord(NamedTuple):
    """A record that 4.3 takes for data although its fields do not add up (B26)."""

    size: int


@dataclass
class LogWalk:
    """The loop of 7.4 over loaded files; complete once `batches` is exhausted.

    end: the log end P. last_valid: position of the last good record, -1 without one. reason: why
    the walk ended: `blank`, `bad-record`. end_file: index of the file with the end.
    """

    snapshot: Snapshot
    files: list[LoadedFile]
    profile: Profile
    crashed: bool
    body_check: BodyCheck = BodyCheck.BODY_CRC
    end: int = 0
    last_valid: int = -1
    reason: str = ""
    end_file: int = 0
    ghosts: int = 0
    failure: Failure | None = field(default=None)
    #: Records that are known to be good, by the log position of the first.
    runs: dict[int, VerifiedRun] = field(default_factory=dict)
    #: Whether nobody need see the records of a run.
    passes: Callable[[VerifiedRun], bool] = lambda _run: False

    def batches(self, start: int) -> Iterator[Records | PhantomRecord]:
        """Walk from the file number `start` on."""
        index = start
        while True:
            file = self.files[index]
            failure = yield from self._file(file)
            self.end_file, self.failure = index, failure
            if not (failure.passed and failure.size == 0):
                self.reason = "bad-record"
                return
            if index + 1 >= len(self.files):
                self.reason = "blank"
                return
            index += 1

    def _file(self, file: LoadedFile) -> Generator[Records | PhantomRecord, None, Failure]:
        """Walk one file; returns what ended it. A ghost shifts all that follows in the file."""
        assert file.entry is not None
        buffer = self.snapshot.bytes_of(file.entry)
        ghosts_allowed = self.profile.record.unequal_is_data and self.crashed
        offset, shift = 0, 0
        while True:
            run = self._run_at(file, offset)
            if run is not None and not shift:
                self.last_valid = run.last
                offset = run.end - file.start
                continue
            for item in walk(buffer, offset, self.profile.record, self.body_check, file.start):
                if isinstance(item, Columns):
                    self.last_valid = file.start + int(item.starts[-1]) + shift
                    yield Records(file, item)
                    continue
                self.end = file.start + item.offset + shift
                if item.passed or item.size <= 0 or not ghosts_allowed:
                    return item
                self.ghosts += 1
                yield PhantomRecord(item.size)
                offset = item.read_to
                shift += item.size - (item.read_to - item.offset)

    def _run_at(self, file: LoadedFile, offset: int) -> VerifiedRun | None:
        """The run that begins there, if this generation takes all its records for good."""
        run, rules = self.runs.get(file.start + offset), self.profile.record
        if run is None or file.entry is None or run.path != file.entry.path:
            return None
        if not run.plain and not (rules.v2 and rules.ipv6):
            return None
        if rules.property_crc and self.body_check is BodyCheck.PROPERTY_CRC:
            return None
        return run if self.passes(run) else None


def start_file(
    snapshot: Snapshot,
    files: list[LoadedFile],
    profile: Profile,
    queues_end: int,
    switches: Switches,
) -> StartFile:
    """The file where recovery begins. `queues_end`: highest position in a queue (D), -1 if none."""
    choose = _abnormal if snapshot.abort else _normal
    return choose(snapshot, files, profile, queues_end, switches)


def _normal(
    snapshot: Snapshot,
    files: list[LoadedFile],
    profile: Profile,
    queues_end: int,
    switches: Switches,
) -> StartFile:
    count = len(files)
    rule = profile.start.normal
    if rule is NormalStart.LAST_THREE:
        return StartFile(max(0, count - KEPT_FILES), "the third file from the end")
    if rule is NormalStart.QUEUE_END:
        for i in range(count - 1, 0, -1):
            if files[i].start <= queues_end:
                return StartFile(i, f"newest file that starts at or before {queues_end}")
        return StartFile(0, "no file starts at or before the end of the queues: the first file")
    index_time = snapshot.checkpoint["index_msg_timestamp"]
    for looked, i in enumerate(range(count - 1, 0, -1), 1):
        first = _first(snapshot, files[i], profile, switches)
        good = first.passed and first.store_timestamp != 0
        if switches.waits_for_index:
            good = good and first.store_timestamp <= index_time
        if good and first.physical_offset <= queues_end:
            return StartFile(i, f"newest file whose first record is at or before {queues_end}")
        if looked >= _look_back(profile, switches):
            return StartFile(i, LAST_LOOKED_AT)
    return StartFile(0, "the first file")


def _abnormal(
    snapshot: Snapshot,
    files: list[LoadedFile],
    profile: Profile,
    queues_end: int,
    switches: Switches,
) -> StartFile:
    for looked, i in enumerate(range(len(files) - 1, -1, -1), 1):
        first = _first(snapshot, files[i], profile, switches)
        reason = _matches(first, snapshot, profile, switches)
        if reason:
            return StartFile(i, reason)
        if looked >= _look_back(profile, switches):
            return StartFile(i, LAST_LOOKED_AT)
    return StartFile(0, "no file has a first record old enough: the first file")


def _matches(first: _First, snapshot: Snapshot, profile: Profile, switches: Switches) -> str:
    """Why a recovery after a crash may begin at this first record, "" if it may not."""
    rule = profile.start.abnormal
    good = first.known if rule is AbnormalStart.TIMES else first.passed
    if not good or first.store_timestamp == 0:
        return ""
    point = snapshot.checkpoint
    time = first.store_timestamp
    if switches.waits_for_index and time > point["index_msg_timestamp"]:
        return ""
    if rule is AbnormalStart.QUEUE_POSITION:
        flushed = point["logics_physical_offset"]
        if flushed > 0:
            return _reason(first.physical_offset <= flushed, f"at or before position {flushed}")
        latest = point["logics_msg_timestamp"]
    else:
        latest = min(point["physic_msg_timestamp"], point["logics_msg_timestamp"])
        latest = max(0, latest - profile.start.slack_ms)
    return _reason(time <= latest, f"stored at or before {latest}, by the checkpoint")


def _reason(holds: bool, text: str) -> str:
    return f"newest file whose first record is {text}" if holds else ""


def _look_back(profile: Profile, switches: Switches) -> int:
    """How many files are looked at."""
    limit = profile.start.look_back
    if limit is None:
        return 1 << 62
    asked = switches.recover_max_files
    return limit if asked is None or asked <= 0 else asked


def _first(snapshot: Snapshot, file: LoadedFile, profile: Profile, switches: Switches) -> _First:
    """The first record of a file."""
    assert file.entry is not None
    content, rules = snapshot.bytes_of(file.entry), profile.record
    start = np.zeros(1, np.int64)
    columns = decode(schema_of(rules), content[:_HEAD_BYTES], start)
    known = bool(knows(rules, columns.ints("magic_code"))[0])
    if not known:
        return _First(False, False, 0, 0)
    return _First(
        known,
        passes(content, rules, switches.body_check),
        int(columns.ints("store_timestamp")[0]),
        int(columns.ints("physical_offset")[0]),
    )


_DUPLICATION, _CONTROLLER = "duplicationEnable", "enableControllerMode"


def as_configured(profile: Profile, config: BrokerConfig) -> Profile:
    """The generation as it starts in the modes of a configuration. Raises InvalidInput."""
    if not (config.get_bool(_DUPLICATION) and profile.queues.has_confirm_offset):
        return profile
    return profile._replace(
        record=profile.record._replace(dup_info=True),
        dispatch=profile.dispatch._replace(confirmed_only=True),
    )


def confirmed(snapshot: Snapshot, profile: Profile, batch: Records) -> Records:
    """The records of a batch that a recovery after a crash dispatches."""
    if not profile.dispatch.confirmed_only:
        return batch
    columns = batch.columns
    ends = columns.ints("physical_offset") + columns.ints("total_size")
    held = ends <= snapshot.checkpoint["confirm_phy_offset"]
    return batch._replace(columns=columns.take(held))


def by_source(layout: Layout, version: str) -> Iterator[str]:
    """What a prediction for a generation rests on besides what was measured. Raises InvalidInput."""
    config, rules = layout.broker_config, profile_of(version)
    knows_confirmed = rules.queues.has_confirm_offset
    if config.get_bool(_DUPLICATION) and knows_confirmed:
        yield (
            f"{_DUPLICATION}: a record without DUP_INFO of two parts ends the log, and"
            " after a crash only what the checkpoint's confirmPhyOffset covers gets units"
        )
    elif config.get_bool(_DUPLICATION):
        yield (
            f"{_DUPLICATION}: nothing is dispatched behind the confirmed offset, which no"
            " file of this version has: what it hides is not predicted"
        )
    if config.get_bool(_CONTROLLER) and knows_confirmed:
        yield (
            f"{_CONTROLLER}: after a crash what lies behind confirmPhyOffset gets its"
            " units once the controller has confirmed it; predicted as if it had"
        )


def switches_of(snapshot: Snapshot) -> Switches:
    """The broker's switches; what it has files of counts as enabled unless configured otherwise."""
    config = snapshot.layout.broker_config
    switches, options = Switches.of(config), options_of(snapshot.layout)
    light = [name for name in snapshot.queues if name.topic.startswith(LMQ_PREFIX)]
    at_zero = all(name.queue_id == 0 for name in light)
    ext = "enableConsumeQueueExt" not in config and any(snapshot.ext.values())
    return switches._replace(
        # light queues of a store with a RocksDB of queues are there alone: no file is made (spec 2.10)
        multi_dispatch=options.multi_dispatch.value and snapshot.layout.queue_database is None,
        lmq_zero=at_zero if light and "enableLmq" not in config else switches.lmq_zero,
        consume_queue_ext=switches.consume_queue_ext or ext,
        delay_levels=options.delay_waits(),
    )


def proof_of(layout: Layout, version: str | None) -> Proof | None:
    """What proves a part of the log, as `analyze` wants it proved; None where that would be of no use.

    version: the broker's, None: the guess. Raises Unreadable, Unsupported.
    """
    profile = profile_of(version or generation_of(layout).version)
    snapshot = Snapshot.of(layout)
    return proof_in(snapshot, as_configured(profile, layout.broker_config), switches_of(snapshot))


def proof_in(snapshot: Snapshot, profile: Profile, switches: Switches) -> Proof | None:
    """What proves a part of the log of a store; None where that would be of no use. Raises Unreadable."""
    if not snapshot.log or profile.record.dup_info:
        return None
    light = None
    if switches.multi_dispatch:
        rules = profile.dispatch
        levels = switches.delay_levels
        further = rules.how(items=False, lmq_zero=switches.lmq_zero, delay_levels=levels)
        light = Light(profile.version, further if rules.multi_dispatch else None)
    log, index = CommitLog.open(snapshot.layout), IndexFiles.of(snapshot)
    bare = not any(snapshot.queues.values()) and not snapshot.batch_topics
    queues = NewQueues() if bare else QueueNumbers.of(snapshot)
    making = switches.dispatching(profile.dispatch) if bare else None
    return Proof(log, queues, index, profile.dispatch.index_tags, light, making)
