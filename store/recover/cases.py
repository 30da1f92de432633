"""The decision table: what can be wrong with a store, what a broker does, what the plan does.

Every store falls into exactly one case, the first one that holds. Its label is used here, in the output of `recover`,
in the documentation and in the tests.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ..audit.messages import NO_UNIT, UNSERVED, Readability
from ..broker.load_rules import LoadedFile
from ..broker.snapshot import Snapshot
from ..plan.normalize import missing_parts
from ..plan.plan import Plan
from ..queues.edits import is_zero_from
from ..queues.references import commit_log_of
from ..queues.units import is_whole_file
from ..start.outcome import POISON, Outcome


class CaseFacts(NamedTuple):
    """The facts that decide on a case. plan: None if none could be made."""

    snapshot: Snapshot
    outcome: Outcome
    after: Readability
    plan: Plan | None
    interrupted: bool = False

    @property
    def refused(self) -> str:
        """Label of the refusal, "" if the load succeeds."""
        return self.outcome.refusal.case if self.outcome.refusal else ""

    @property
    def undispatchable(self) -> bool:
        """A record cannot be dispatched."""
        return self.refused == "poison-record" or POISON in self.outcome.hangs

    @property
    def without_dup_info(self) -> bool:
        """The log ends at a record that lacks nothing but DUP_INFO, which duplicationEnable asks for."""
        if not self.outcome.profile.record.dup_info:
            return False
        with self.snapshot.layout.commit_log_files() as files:
            found = commit_log_of(self.snapshot.layout, files).records(np.array([self.outcome.log_end], np.int64))
        return len(found) > 0 and found.body_crc_ok is not None and bool(found.body_crc_ok[0])

    @property
    def missing_files(self) -> bool:
        starts = sorted(file.start for file in self.outcome.log.files)
        size = self.snapshot.log_file_bytes
        return any(later != earlier + size for earlier, later in pairwise(starts))

    @property
    def loaded(self) -> list[LoadedFile]:
        """Log files that the load took, including those that the recovery gave up."""
        return [*self.outcome.log.files, *self.outcome.log_removed]

    @property
    def lacks_last_file(self) -> bool:
        """Log files at the end are missing: queues, or a replica, show what was in them."""
        if self.plan is None or self.snapshot.layout.dledger is not None:
            return False
        files_end = max((file.start for file in self.loaded), default=0) + self.snapshot.log_file_bytes
        parts = self.plan.brought.parts if self.plan.brought else ()
        behind = any(gap.begin >= files_end for gap in self.plan.gone)
        return behind or any(part.end > files_end for part in parts)

    @property
    def odd_names(self) -> bool:
        """A file was loaded whose name no broker gives."""
        size = self.snapshot.log_file_bytes
        return any(f.entry and not is_whole_file(f.entry, size) for f in self.loaded)

    @property
    def tail_used(self) -> bool:
        """There are bytes behind the log end, or there were before they were lost."""
        if self.plan is None:
            return False
        return self.plan.tail_bytes > 0 or (self.plan.beyond > 0 and self.tail_written)

    @property
    def tail_written(self) -> bool:
        """Behind the broker's log end its file is not all zeros."""
        end, size = self.outcome.log_end, self.snapshot.log_file_bytes
        for file in self.outcome.log.files:
            if file.entry is not None and 0 <= end - file.start < size:
                return not is_zero_from(file.entry, end - file.start)
        return False

    @property
    def without_unit(self) -> set[str]:
        """Topics with messages that no queue has."""
        found = {share.queue.topic for share in self.after.invisible if share.reason != UNSERVED}
        return found - self.outcome.unserved - self.in_batches

    @property
    def in_batches(self) -> set[str]:
        """Topics of batches with messages that a pull from a RocksDB does not return."""
        found = {share.queue.topic for share in self.after.invisible if share.reason == NO_UNIT}
        return found & self.outcome.stores.batches


class Case(NamedTuple):
    """One row. found, broker, plan: what is there, what a start does, what the plan does. bugs: of spec 07, 7.12;
    codes: of the catalogue of invariants. keep: what the plan does under that policy, "" if the same.
    """

    label: str
    found: str
    broker: str
    plan: str
    holds: Callable[[CaseFacts], bool]
    bugs: tuple[str, ...] = ()
    codes: tuple[str, ...] = ()
    keep: str = ""
    #: The broker's options do not suit the files.
    by_options: bool = False


def _refusal(label: str, found: str, plan: str, *codes: str, keep: str = "", by_options: bool = False) -> Case:
    return Case(
        label,
        found,
        "refuses to start, changes nothing",
        plan,
        lambda facts: facts.refused == label,
        codes=codes,
        keep=keep,
        by_options=by_options,
    )


_NOT_MENDED = "none: repair the file first"
_MOVED = "moves it away, then continues without it"

CASES: tuple[Case, ...] = (
    Case(
        "interrupted-recovery",
        "a recovery was interrupted; its start barrier may be in place",
        "refuses to start while the barrier is there",
        "continues from the recovery's journal and finishes that recovery",
        lambda facts: facts.interrupted,
    ),
    Case(
        "no-commit-log",
        "there is no commit log file: is the path wrong, a disk not mounted, or the store new?",
        "starts with an empty log and deletes the files of all queues",
        "none: refused for safety while queues have files; with --force-empty-log moves the"
        " files of queues, index, timer and rocksdbstore away",
        lambda facts: not facts.snapshot.log,
        codes=("I-002",),
    ),
    Case(
        "log-directory-missing",
        "a part of the log is missing, and one of its directories is missing or empty: is a disk not mounted?",
        "starts with the files that it finds, and treats the others as expired or lost",
        "none: refused for safety as long as the configuration names that directory",
        lambda facts: facts.plan is None and any(missing_parts(facts.snapshot)),
        codes=("I-002",),
    ),
    _refusal("foreign-name", "a log file's name is not a number", _MOVED, "I-005"),
    _refusal(
        "wrong-length",
        "a log file has a wrong length",
        _NOT_MENDED,
        "I-003",
        keep="gives it the length of the others, fills the missing part",
    ),
    _refusal(
        "directory",
        "a directory among the log files, or in place of a file that a start opens",
        _MOVED,
        "I-005",
        "I-110",
        "I-091",
    ),
    _refusal("empty-last-file", "the last log file is empty", _MOVED, "I-004"),
    _refusal(
        "dledger-hole",
        "a file is missing in the middle of a DLedger log",
        _NOT_MENDED,
        "I-002",
        keep="a file of entries with tombstones in its place",
    ),
    _refusal(
        "dledger-too-small",
        "the entries of a DLedger log end more than one file before its last file",
        _NOT_MENDED,
        "I-052",
        keep="writes new entries with tombstones for the lost ones",
    ),
    _refusal(
        "dledger-index-length",
        "a file of the index of a DLedger log has a wrong length",
        "rebuilds the index from the log",
        "I-053",
    ),
    _refusal("queue-foreign-name", "a queue file's name is not a number", _MOVED, "I-005"),
    _refusal("queue-wrong-length", "a queue file has a wrong length", "rebuilds it", "I-003"),
    _refusal("queue-directory", "a directory among queue files", _MOVED, "I-005"),
    _refusal("queue-empty-last-file", "the last file of a queue is empty", _MOVED, "I-004"),
    _refusal(
        "queue-type",
        "queues of a topic lie in the directory of the other type: simple or batch",
        "rebuilds the queues from the log in the right directory, unless its records say otherwise",
        "I-083",
    ),
    _refusal(
        "queue-database",
        "the RocksDB of queues cannot be opened: CURRENT, MANIFEST or a table is lost or damaged",
        "rebuilds it from the log",
        "I-084",
    ),
    _refusal(
        "queue-database-path",
        "a RocksDB of queues lies in a directory that the configuration does not use",
        "none: correct useSeparateStorePathForRocksdbCQ",
        "I-084",
        by_options=True,
    ),
    _refusal(
        "queue-options",
        "a broker does not accept these options of the queues together",
        "none: correct the configuration",
        by_options=True,
    ),
    _refusal(
        "queue-database-topics",
        "batch queues or a compaction log, but queues in a RocksDB: brokers since 5.4 load them only with queues in"
        " files",
        "none: put the queues in files; with enableCompaction=false no compaction log is loaded",
        by_options=True,
    ),
    _refusal(
        "queue-database-row",
        "a row of queue bounds in the RocksDB cannot be read, is too short, or lies beyond the log"
        " (enableAcceleratedRecovery)",
        "corrects the row, or rebuilds the database",
        "I-084",
    ),
    _refusal(
        "queue-database-differs",
        "the queues in the RocksDB, which consumers read, do not end where the queues in files end",
        "completes both from the log",
        "I-084",
    ),
    _refusal(
        "queue-database-behind",
        "the RocksDB of queues, which consumers read, lies too far behind the log",
        "completes it from the log",
        "I-084",
    ),
    _refusal(
        "queue-database-light",
        "consumers read the queues of the RocksDB, and the log has messages of LMQs (5.4)",
        "completes the queues, so that no message is dispatched again",
        "I-084",
    ),
    _refusal("ext-foreign-name", "a consumequeue_ext file's name is not a number", _MOVED, "I-005"),
    _refusal("ext-wrong-length", "a consumequeue_ext file has a wrong length", _MOVED, "I-003"),
    _refusal("ext-directory", "a directory among consumequeue_ext files", _MOVED, "I-005"),
    _refusal("ext-empty-last-file", "the last consumequeue_ext file is empty", _MOVED, "I-004"),
    Case(
        "ext-unreadable",
        "a unit of consumequeue_ext is longer than the rest of its file",
        "throws in load and refuses to start",
        "ends the file before that unit",
        lambda facts: facts.refused == "ext-unreadable",
        ("B37",),
        ("I-079",),
    ),
    _refusal("timer-foreign-name", "a timer log file's name is not a number", _MOVED, "I-005"),
    _refusal("timer-wrong-length", "a timer log file has a wrong length", "restores it", "I-003"),
    _refusal("timer-wheel-length", "the timer wheel has a wrong length", "rebuilds it", "I-120"),
    Case(
        "timer-log-end",
        "the last file of the timer log has no entry",
        "up to 5.3: throws in load and refuses to start",
        _MOVED,
        lambda facts: facts.refused == "timer-log-end",
        ("B32",),
        ("I-126",),
    ),
    Case(
        "queue-without-unit",
        "a queue has files but no unit, and nothing is dispatched to it",
        "throws in load and refuses to start",
        "completes the queue from the log, or moves its files away",
        lambda facts: facts.refused == "queue-without-unit",
        ("B16",),
        ("I-086",),
    ),
    Case(
        "poison-record",
        "a record names several queues, but has no queue offset for one of them; its dispatch throws",
        "throws in load and refuses to start, or waits for ever",
        "completes all queues, leaves out the bad name",
        lambda facts: facts.undispatchable,
        ("B11",),
        ("I-048",),
    ),
    Case(
        "record-too-large",
        "a damaged record names a size of 2,147,483,646 bytes or more, and so large is no array in Java",
        "up to 5.3.1: dies in load of OutOfMemoryError",
        "ends the log before it",
        lambda facts: facts.refused == "record-too-large",
        ("B29",),
        ("I-021",),
        keep="corrects its size if a queue proves it, else a tombstone in its place",
    ),
    Case(
        "files-hidden",
        "a log file of a wrong length or an odd name",
        "ignores that file and all later ones",
        "moves it away if that is enough",
        lambda facts: bool(facts.outcome.log.hidden),
        ("B18",),
        ("I-001", "I-003"),
        keep="gives it the length of the others, or moves it away",
    ),
    Case(
        "odd-number",
        "a log file whose name is no multiple of the file size",
        "takes it for the last file and loses everything that it cannot reach",
        _MOVED,
        lambda facts: facts.odd_names,
        ("B18",),
        ("I-001",),
    ),
    Case(
        "dispatch-waits",
        "the dispatcher begins in a missing file",
        "start() waits for ever, the port never opens",
        "replaces the missing file with a BLANK file",
        lambda facts: bool(facts.outcome.hangs),
        ("B15",),
        ("I-002",),
        keep="replaces it with a file of tombstones, fillers and a BLANK",
    ),
    Case(
        "topic-not-a-name",
        "a record whose topic cannot be a directory",
        "tries for 30 s per record, then is not writeable",
        "leaves the record without a unit",
        lambda facts: facts.outcome.delay_seconds > 0,
        ("B24",),
        ("I-035",),
    ),
    Case(
        "stale-records",
        "records of an earlier life behind the log end",
        "takes them for new messages",
        "ends the log at its own last record, zeros the rest or moves it away",
        lambda facts: facts.plan is not None and facts.plan.stale,
        ("B14",),
        ("I-054",),
    ),
    Case(
        "ghost-record",
        "a record whose fields do not add up to its size",
        "takes it for data: makes ghost units, finds a wrong log end",
        "ends the log before it",
        lambda facts: facts.outcome.walk is not None and facts.outcome.walk.phantoms > 0,
        ("B26",),
        ("I-022",),
        keep="a tombstone in its place, if a queue names it",
    ),
    Case(
        "no-dup-info",
        "duplicationEnable, and a record without DUP_INFO of two parts, in the range that the recovery scans",
        "cuts the log there, deletes the later files and their queue units",
        "none: set duplicationEnable=false, as when the store was written",
        lambda facts: facts.after.lost.messages > 0 and facts.without_dup_info,
        codes=("I-050",),
        by_options=True,
    ),
    Case(
        "damage-cuts",
        "a damaged record with good records behind it, in the range that the recovery scans",
        "cuts the log there, deletes the later files and their queue units",
        "the same, but reports the loss and keeps everything in the session's folder",
        lambda facts: facts.after.lost.messages > 0,
        ("B5",),
        ("I-020", "I-023"),
        keep="writes a tombstone for each lost message; all others stay where they are",
    ),
    Case(
        "missing-file",
        "a log file is missing, with later ones behind it",
        "does not notice; units of its messages point nowhere",
        "puts a BLANK file in its place",
        lambda facts: facts.missing_files,
        ("B6",),
        ("I-002",),
        keep="replaces it with a file of tombstones, fillers and a BLANK",
    ),
    Case(
        "dead-tail",
        "behind the log end there are records that an earlier start has cut off",
        "does not read them, unless a new record ends exactly where one of them begins",
        "zeros them",
        lambda facts: facts.tail_used and facts.after.dead > 0,
        ("B14", "B21"),
        ("I-043",),
    ),
    Case(
        "last-file-missing",
        "the last log file is missing: queues name the record at its beginning, or a replica has it",
        "ends the log before it and cuts the units; their messages are gone",
        "the same, but reports the loss: the log continues at its end",
        lambda facts: facts.lacks_last_file,
        ("B4", "B21"),
        ("I-067", "I-072"),
    ),
    Case(
        "torn-tail",
        "the last record is torn (not completely written), and no good record follows",
        "ends the log before it; the bytes stay",
        "ends the log before it and zeros the bytes",
        lambda facts: facts.tail_used,
        codes=("I-020", "I-043"),
        keep="a tombstone if a queue names it (not on a slave, which gets it again), else the same",
    ),
    Case(
        "log-shorter",
        "the log is shorter than the queues: units name records behind the log end, where there are only zeros",
        "cuts the units, in memory or on disk; their messages are gone",
        "zeros these units, moves files that have no others away",
        lambda facts: facts.plan is not None and facts.plan.beyond > 0,
        ("B4", "B21"),
        ("I-067", "I-072"),
        keep="writes tombstones where the first of these units directly follow the log end",
    ),
    Case(
        "wrong-header",
        "a record's header is wrong (no checksum covers it): a queue unit says that it is another message",
        "does not notice; queues that it rebuilds have this message in a wrong place and all later ones shifted",
        "leaves it as it is",
        lambda facts: facts.plan is not None and facts.plan.restored > 0,
        codes=("I-070",),
        keep="corrects the header where the rest of the record proves it",
    ),
    Case(
        "queues-incomplete",
        "messages have no unit in their queue, and the broker's start makes none",
        "serves the log without them",
        "completes the queues from the log",
        lambda facts: bool(facts.without_unit),
        ("B1", "B2", "B19", "B25"),
        ("I-070", "I-116"),
    ),
    Case(
        "compaction-incomplete",
        "the compaction log of a topic lacks messages, or has others at their queue offsets",
        "answers pulls only from the compaction log: consumers do not get these messages",
        "rebuilds the compaction log from the commit log",
        lambda facts: any(share.reason == UNSERVED for share in facts.after.invisible),
        codes=("I-148", "I-182"),
    ),
    Case(
        "compaction-unserved",
        "messages of a compaction topic, but queues are in a RocksDB",
        "answers pulls with nothing: brokers since 5.4 keep a compaction log only with queues in files",
        "none: with enableCompaction=false the topic is served like any other",
        lambda facts: any(share.queue.topic in facts.outcome.unserved for share in facts.after.invisible),
        codes=("I-182",),
        by_options=True,
    ),
    Case(
        "batches-unserved",
        "inner batches of a topic with queue.type=BatchCQ, but queues are in a RocksDB",
        "has one unit for each batch: pulls of all but its first message fail, in some versions all pulls",
        "none: the topic needs queues in files (repair --queues --as files)",
        lambda facts: bool(facts.in_batches),
        codes=("I-083", "I-182"),
        by_options=True,
    ),
    Case(
        "queues-behind",
        "the queues are shorter than the log: its last messages have no unit yet",
        "makes the units",
        "completes the queues from the log",
        lambda facts: facts.plan is not None and facts.plan.completed > 0,
        codes=("I-070", "I-075"),
    ),
    Case(
        "queues-ahead",
        "dead units behind the end of a queue",
        "ends the queue before units behind the log end; the bytes stay. Units that begin before the log end are kept",
        "zeros them, moves files that have no others away",
        lambda facts: facts.plan is not None and facts.plan.touches("consumequeue"),
        ("B4", "B21"),
        ("I-067", "I-073"),
    ),
    Case(
        "index-incomplete",
        "index files are damaged, or lack messages",
        "keeps them after a clean exit; after a crash rebuilds some of them",
        "rebuilds them from the log",
        lambda facts: facts.plan is not None and facts.plan.index is not None,
        ("B10", "B19", "B20", "B30"),
        ("I-101", "I-118"),
    ),
    Case(
        "damage-unseen",
        "damage before the place where the recovery begins",
        "does not notice it; delivers damaged messages or none",
        "leaves it as it is",
        lambda facts: facts.after.damaged > 0 or facts.after.damaged_bytes > 0,
        codes=("I-020", "I-023"),
        keep="closes it like other damage: tombstones, fillers, BLANKs",
    ),
    Case(
        "preallocated-zeros",
        "the broker did not shut down; everything is complete; the rest of the last file is zeros,"
        " allocated in advance",
        "ends the log at the last record, loses nothing",
        "leaves the zeros, writes the checkpoint and removes abort",
        lambda f: f.snapshot.abort and f.outcome.log_end % f.snapshot.log_file_bytes > 0 and not f.tail_written,
        codes=("I-009",),
    ),
    Case(
        "killed",
        "the broker did not shut down; everything is complete",
        "recovers from the place that the checkpoint names, loses nothing",
        "writes the checkpoint and removes abort",
        lambda facts: facts.snapshot.abort,
        codes=("I-009",),
    ),
    Case(
        "spare-file",
        "a log file made in advance: all zeros, behind the log end",
        "deletes it",
        "moves it away",
        lambda facts: facts.plan is not None and facts.plan.removes("commitlog"),
        codes=("I-007",),
    ),
    Case(
        "beside-the-log",
        "log and queues are in order as far as a start looks at them, but not one of these: timer files,"
        " consumequeue_ext, tags, index items, checkpoint, configuration",
        "reads what it can of them; may never fire timed messages, may refuse or forget configuration",
        "corrects what a later version would refuse, moves empty files away, rebuilds a lost"
        " timer wheel and lost tables of the configuration",
        lambda facts: facts.plan is not None and bool(facts.plan.edits),
        ("B33",),
        ("I-079", "I-120", "I-126"),
        keep="does what `repair --all` does: rebuilds each of them from the log",
    ),
    Case("in-order", "shut down cleanly, complete", "starts and changes nothing", "nothing to do", lambda _facts: True),
)


def case_of(facts: CaseFacts) -> Case:
    """Return the first case that holds."""
    return next(case for case in CASES if case.holds(facts))


def case_named(label: str) -> Case:
    return next(case for case in CASES if case.label == label)
