"""Where a broker's recovery begins, and where the log ends for it (spec 7.3, 7.4); what proves a part of the log.

`duplicationEnable` and `enableControllerMode` were not run: what a start does in these modes is known only from the
source. They change the check of a record and what is dispatched after a crash (spec 7.2 row 5, 7.4, 7.5). Both are
fields of a profile, so that the algorithm knows no mode; predictions that rest on them are marked "by source".
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...formats.commit_log import DLEDGER
from ...formats.derive import Columns, decode
from ...formats.message import MAGIC_V1
from ..audit.prove import Lmq, Proof
from ..audit.verified import VerifiedRun
from ..broker.dispatch_record import Dispatching
from ..broker.load_rules import BodyCheck, LoadedFile, LoadFailure, knows, passes, schema_of, walk
from ..broker.profiles import AbnormalStart, DispatchRules, NormalStart, Profile, RecordRules, profile_of
from ..broker.snapshot import Snapshot, can_have_files
from ..broker.system_topics import LMQ_PREFIX
from ..disk.broker_conf import CONTROLLER_MODE, BrokerConfig
from ..disk.layout import Layout
from ..index.compare import IndexFiles
from ..queues.hybrid import lmq_in_database, selective_double_write
from ..queues.references import QueueBegins, commit_log_of
from ..queues.units import NewQueues, QueueNumbers
from ..settings.generation import generation_of, has_lmq_offsets
from ..settings.options import options_of
from .queue_stores import DatabaseSearch, queue_begins, queue_stores

if TYPE_CHECKING:
    from ..queues.rocksdb_copy import CopiedQueues

_HEAD_BYTES = 4096
KEPT_FILES = 3
"""So many files at the end are looked at by a clean start of the older versions."""
LARGEST_ARRAY_BYTES = (1 << 31) - 3
"""No array in Java is larger, however much heap there is."""
LAST_LOOKED_AT = "the last file that can be the start"


class Switches(NamedTuple):
    """Options of a broker.conf that change where a recovery begins and what it does.

    multi_dispatch: messages also go to further queues that they name. lmq_zero: those queues that are LMQs have the id
    0; lite_only: of LMQs only those of LITE topics are kept. consume_queue_ext: the queues have units in
    consumequeue_ext. delay_levels: ms of levels 1, 2, …; None for the usual ones. begins: where queues begin that a
    broker has deleted and made again.
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
    lite_only: bool = False
    begins: QueueBegins | None = None

    @property
    def body_check(self) -> BodyCheck:
        """What a recovery compares with a record's content."""
        if not self.check_crc:
            return BodyCheck.NONE
        return BodyCheck.PROPERTY_CRC if self.force_property_crc else BodyCheck.BODY_CRC

    def demand_crc(self, rules: RecordRules) -> bool:
        """Whether a recovery rejects a record whose CRC over all its bytes is wrong or missing."""
        return self.body_check is BodyCheck.PROPERTY_CRC and rules.property_crc

    def dispatching(self, rules: DispatchRules) -> Dispatching:
        """How a version with these options makes units from records."""
        return rules.how(
            items=False,
            multi_dispatch=self.multi_dispatch,
            lmq_zero=self.lmq_zero,
            delay_levels=self.delay_levels,
            lite_only=self.lite_only,
            begins=self.begins,
        )

    @classmethod
    def of(cls, config: BrokerConfig) -> Switches:
        """The switches in a broker's configuration. Raises InvalidInput."""
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
    """The file where a recovery begins, as its index in the loaded files, and the reason."""

    number: int
    reason: str


class _FirstRecord(NamedTuple):
    """What the choice of the start file needs of the first record of a file."""

    known: bool
    passed: bool
    store_timestamp: int
    physical_offset: int


class FileRecords(NamedTuple):
    """Good records of one file in log order; their log positions are start of the file + `columns.starts`."""

    file: LoadedFile
    columns: Columns


class PhantomRecord(NamedTuple):
    """A record that 4.3 accepts although its fields do not add up (B26)."""

    size: int


@dataclass
class LogWalk:
    """The loop of 7.4 over loaded files; its results are complete when `batches` is exhausted.

    end: the log end P. reason: why the walk ended: `blank`, `bad-record`. end_file: index of the file with the end.
    """

    snapshot: Snapshot
    files: list[LoadedFile]
    profile: Profile
    crashed: bool
    body_check: BodyCheck = BodyCheck.BODY_CRC
    end: int = 0
    reason: str = ""
    end_file: int = 0
    phantoms: int = 0
    failure: LoadFailure | None = field(default=None)
    #: Verified runs of good records, by the log position of the first record; set before the walk begins.
    runs: dict[int, VerifiedRun] = field(default_factory=dict)
    #: Says whether the records of a run may be skipped.
    passes: Callable[[VerifiedRun], bool] = lambda _run: False

    def batches(self, start: int, skipped: int = 0) -> Iterator[FileRecords | PhantomRecord]:
        """Walk from file number `start` on, and in that file from byte `skipped` on."""
        index = start
        while True:
            file = self.files[index]
            failure = yield from self._file(file, skipped if index == start else 0)
            self.end_file, self.failure = index, failure
            if not (failure.passed and failure.size == 0):
                self.reason = "bad-record"
                return
            if index + 1 >= len(self.files):
                self.reason = "blank"
                return
            index += 1

    def _file(self, file: LoadedFile, offset: int = 0) -> Generator[FileRecords | PhantomRecord, None, LoadFailure]:
        """Walk one file; return what ended the walk. A phantom record shifts all that follows in the file."""
        assert file.entry is not None
        buffer, rules = self.snapshot.bytes_of(file.entry), self.profile.record
        phantoms_allowed = rules.unequal_is_data and self.crashed
        shift, in_step = 0, True
        while True:
            run = None if shift else self.run_at(file, offset)
            if run is not None:
                offset = run.end - file.start
                continue
            end = self._next_run(file, offset) if in_step and not shift else None
            for item in walk(buffer, offset, rules, self.body_check, file.start, end):
                if isinstance(item, Columns):
                    yield FileRecords(file, item)
                    continue
                if end is not None:  # of the next run; else a record goes beyond it, or this is a failure
                    offset, in_step = item.offset, item.offset == end
                    break
                self.end = file.start + item.offset + shift
                if item.passed or not 0 < item.size <= LARGEST_ARRAY_BYTES or not phantoms_allowed:
                    return item
                self.phantoms += 1
                yield PhantomRecord(item.size)
                offset = item.read_to
                shift += item.size - (item.read_to - item.offset)

    def _next_run(self, file: LoadedFile, offset: int) -> int | None:
        """The byte of the file where the next run behind `offset` begins; None without one."""
        assert file.entry is not None
        at = bisect_right(self._begins, file.start + offset)
        begin = self._begins[at] - file.start if at < len(self._begins) else file.entry.size
        return begin if begin < file.entry.size else None

    @cached_property
    def _begins(self) -> list[int]:
        return sorted(self.runs)

    def run_at(self, file: LoadedFile, offset: int) -> VerifiedRun | None:
        """The run that begins at a byte of the file; None if this version may not take all its records."""
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
    database: DatabaseSearch | None = None,
) -> StartFile:
    """Choose the file where recovery begins. `queues_end`: highest position in a queue (D), -1 if none. database: what
    queues in a RocksDB demand.

    Raises NotReadable.
    """
    if database is not None and database.alone:
        queues_end = database.row
    rule, crashed, last = profile.start.normal, snapshot.abort, len(files) - 1
    if rule is NormalStart.LAST_THREE and not crashed:
        return StartFile(max(0, len(files) - KEPT_FILES), "the third file from the end")
    if rule is NormalStart.QUEUE_END and not crashed:
        for i in range(last, 0, -1):
            if files[i].start <= queues_end:
                return StartFile(i, f"newest file that starts at or before {queues_end}")
        return StartFile(0, "no file starts at or before the end of the queues: the first file")
    waits_for_index = switches.message_index_enable and switches.message_index_safe
    point, rule_after_crash = snapshot.checkpoint, profile.start.abnormal

    def reason(first: _FirstRecord) -> str:
        """Why a recovery may begin at this first record, "" if it may not."""
        time, position = first.store_timestamp, first.physical_offset
        timed = time != 0 and not (waits_for_index and time > point["index_msg_timestamp"])
        if crashed and database is not None and database.alone:
            good = (first.passed and timed) if database.rules.checks_first else first.known
            return f"at or before position {database.row}" if good and position <= database.row else ""
        good = first.known if crashed and rule_after_crash is AbnormalStart.TIMES else first.passed
        by_position = rule_after_crash is AbnormalStart.QUEUE_POSITION
        if not crashed:
            good, why = good and position <= queues_end, f"at or before {queues_end}"
        elif by_position and (flushed := point["logics_physical_offset"]) > 0:
            good, why = good and position <= flushed, f"at or before position {flushed}"
        else:
            latest = point["logics_msg_timestamp"]
            if not by_position:
                latest = max(0, min(point["physic_msg_timestamp"], latest) - profile.start.slack_ms)
            good, why = good and time <= latest, f"stored at or before {latest}, by the checkpoint"
        if good and timed and database is not None and not database.alone:
            good = database.agrees(position)
        return why if good and timed else ""

    most = _files_looked_at(profile, switches, in_entries=snapshot.layout.dledger is not None)
    for looked, i in enumerate(range(last, -1 if crashed else 0, -1), 1):
        if found := reason(_first_record(snapshot, files[i], profile, switches)):
            return StartFile(i, f"newest file whose first record is {found}")
        if looked >= most:
            return StartFile(i, LAST_LOOKED_AT)
    return StartFile(0, "no file has a first record old enough: the first file" if crashed else "the first file")


def _files_looked_at(profile: Profile, switches: Switches, *, in_entries: bool = False) -> int:
    """How many files are looked at; no limit for a DLedger log."""
    limit = profile.start.look_back
    if limit is None or in_entries:
        return 1 << 62
    asked = switches.recover_max_files
    return limit if asked is None or asked <= 0 else asked


def _first_record(snapshot: Snapshot, file: LoadedFile, profile: Profile, switches: Switches) -> _FirstRecord:
    assert file.entry is not None
    content, rules = snapshot.bytes_of(file.entry), profile.record
    in_entries = snapshot.layout.dledger is not None
    start = np.full(1, DLEDGER.payload if in_entries else 0, np.int64)
    columns = decode(schema_of(rules), content[:_HEAD_BYTES], start)
    magic = columns.ints("magic_code")
    known = bool((magic == MAGIC_V1 if in_entries else knows(rules, magic))[0])
    if not known:
        return _FirstRecord(False, False, 0, 0)
    return _FirstRecord(
        known,
        in_entries or passes(content, rules, switches.body_check),
        int(columns.ints("store_timestamp")[0]),
        int(columns.ints("physical_offset")[0]),
    )


_DUPLICATION = "duplicationEnable"


def as_configured(profile: Profile, config: BrokerConfig) -> Profile:
    """The profile changed by the modes of a configuration. Raises InvalidInput."""
    if not (config.get_bool(_DUPLICATION) and profile.queues.has_confirm_offset):
        return profile
    return profile._replace(
        record=profile.record._replace(dup_info=True), dispatch=profile.dispatch._replace(confirmed_only=True)
    )


def confirmed(snapshot: Snapshot, profile: Profile, columns: Columns) -> Columns:
    """The records of `columns` that a crash recovery dispatches."""
    if not profile.dispatch.confirmed_only:
        return columns
    ends = columns.ints("physical_offset") + columns.ints("total_size")
    return columns.take(ends <= snapshot.checkpoint["confirm_phy_offset"])


def by_source(layout: Layout, version: str) -> Iterator[str]:
    """Yield texts for what a prediction knows only from the source. Raises InvalidInput."""
    config, rules = layout.broker_config, profile_of(version)
    knows_confirmed = rules.queues.has_confirm_offset
    if config.get_bool(_DUPLICATION) and knows_confirmed:
        yield (
            f"{_DUPLICATION}: a record without DUP_INFO of two parts ends the log; after a crash"
            " only messages up to the checkpoint's confirmPhyOffset get units"
        )
    elif config.get_bool(_DUPLICATION):
        yield (
            f"{_DUPLICATION}: nothing is dispatched behind the confirmed offset; no file of this"
            " version has it, so its effect is not predicted"
        )
    if config.get_bool(CONTROLLER_MODE) and knows_confirmed:
        yield (
            f"{CONTROLLER_MODE}: after a crash messages behind confirmPhyOffset get units when"
            " the controller confirms them; the prediction assumes that it does"
        )


def switches_of(snapshot: Snapshot) -> Switches:
    """The broker's switches. What the store has files of counts as enabled, unless it is configured otherwise."""
    config = snapshot.layout.broker_config
    switches, options = Switches.of(config), options_of(snapshot.layout)
    multi_dispatch = options.multi_dispatch.value
    if snapshot.layout.uses_queue_database:
        shown = lmq_in_database(snapshot.layout)
        shown = has_lmq_offsets(snapshot.layout) if shown is None else shown
        multi_dispatch = config.get_bool("enableLmq", shown)
    lmq = [name for name in snapshot.queues if name.topic.startswith(LMQ_PREFIX)]
    at_zero = all(name.queue_id == 0 for name in lmq)
    ext = "enableConsumeQueueExt" not in config and any(snapshot.ext.values())
    return switches._replace(
        multi_dispatch=multi_dispatch,
        lmq_zero=True
        if snapshot.layout.uses_queue_database
        else at_zero
        if lmq and "enableLmq" not in config
        else switches.lmq_zero,
        consume_queue_ext=switches.consume_queue_ext or ext,
        delay_levels=options.delay_waits(),
        lite_only=selective_double_write(snapshot.layout),
        begins=queue_begins(snapshot.layout),
    )


def proof_of(
    layout: Layout, version: str | None, copied: CopiedQueues | None = None, *, anew: bool = False
) -> Proof | None:
    """What proves a part of the log, as `analyze` needs it; None if a proof would be of no use.

    version: the broker's, None for a guess. copied: as for `proof_in`. anew: prefer the proof of `proof_for_rebuild`.
    Raises Unreadable, Unsupported.
    """
    profile = as_configured(profile_of(version or generation_of(layout).version), layout.broker_config)
    snapshot = Snapshot.of(layout)
    switches = switches_of(snapshot)
    making = proof_for_rebuild(snapshot, profile, switches) if anew else None
    return making or proof_in(snapshot, profile, switches, copied)


def proof_for_rebuild(snapshot: Snapshot, profile: Profile, switches: Switches) -> Proof | None:
    """A proof that also makes units and index items; None if queues or index have files. Raises Unreadable."""
    proof = None if snapshot.index else proof_in(snapshot, profile, switches)
    if proof is None or proof.making is None:
        return None
    return replace(proof, making=proof.making._replace(items=True))


def proof_in(
    snapshot: Snapshot, profile: Profile, switches: Switches, copied: CopiedQueues | None = None
) -> Proof | None:
    """What proves a part of the log of a store; None if a proof would be of no use. Raises Unreadable.

    copied: the queues of a store that has all of them in a RocksDB.
    """
    if not snapshot.log or profile.record.dup_info or snapshot.layout.dledger is not None:
        return None
    layout, in_database = snapshot.layout, snapshot.layout.rocksdb_queues
    if switches.multi_dispatch and layout.uses_queue_database and not in_database:
        return None
    stores = queue_stores(layout, profile)
    if in_database:
        if copied is None or stores.files or stores.database != layout.queue_database:
            return None
        named = {name: each for name, each in copied.entries.items() if can_have_files(name)}
        snapshot = replace(snapshot, queues=named)
    lmq = None
    if switches.multi_dispatch:
        rules = profile.dispatch
        lmq_rules = rules.how(items=False, lmq_zero=switches.lmq_zero, delay_levels=switches.delay_levels)
        if in_database:  # a database takes any name
            lmq_rules = lmq_rules._replace(slash_names=True)
        lmq = Lmq(profile.version, lmq_rules if rules.multi_dispatch else None)
    log, index = commit_log_of(snapshot.layout), IndexFiles.of(snapshot)
    bare = not (in_database or any(snapshot.queues.values()) or snapshot.batch_topics)
    queues = NewQueues() if bare else QueueNumbers.of(snapshot)
    making = stores.making(switches.dispatching(profile.dispatch)) if bare else None
    copied = copied if in_database else None
    # after a clean end, a start gives the record at 0 no unit in a new RocksDB: its run is another one
    first_apart = bare and not stores.files
    return Proof(log, queues, index, profile.dispatch.index_tags, lmq, making, copied, first_apart)
