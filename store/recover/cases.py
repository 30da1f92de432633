"""The decision table: what can be the matter with a store, what a broker does, what the plan does.

Every store falls into exactly one case, the first one that holds. Its label stands here, in the
output of `recover`, in the documentation and in the tests.

What is known of a store when its case is looked for.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

from ..audit.messages import NO_UNIT, UNSERVED, Readability
from ..broker.load_rules import LoadedFile
from ..broker.snapshot import Snapshot
from ..plan.normalize import missing_part
from ..plan.plan import Plan
from ..queues.edits import is_zero_from
from ..queues.units import is_whole_file
from ..start.outcome import POISON, Outcome


class CaseFacts(NamedTuple):
    """What is known when a case is looked for. plan: None where none could be made."""

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
    def missing_files(self) -> bool:
        """Files are missing between those of the log."""
        starts = sorted(file.start for file in self.outcome.log.files)
        size = self.snapshot.log_file_bytes
        return any(later != earlier + size for earlier, later in pairwise(starts))

    @property
    def loaded(self) -> list[LoadedFile]:
        """Log files that the load took, those that the recovery gave up included."""
        return [*self.outcome.log.files, *self.outcome.log_removed]

    @property
    def odd_names(self) -> bool:
        """A file was loaded that no broker has named so."""
        size = self.snapshot.log_file_bytes
        return any(f.entry and not is_whole_file(f.entry, size) for f in self.loaded)

    @property
    def phantom(self) -> bool:
        """A record was taken for data that is none."""
        return self.outcome.walk is not None and self.outcome.walk.phantoms > 0

    @property
    def tail_used(self) -> bool:
        """Something stands behind the log end, or stood there before it was lost."""
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
        """Topics of batches with messages that a pull of a RocksDB does not give."""
        found = {share.queue.topic for share in self.after.invisible if share.reason == NO_UNIT}
        return found & self.outcome.stores.batches

    @property
    def uncompacted(self) -> bool:
        """A compaction log lacks messages."""
        return any(share.reason == UNSERVED for share in self.after.invisible)

    @property
    def rest_is_zeros(self) -> bool:
        """The log ends inside a file, and there is nothing behind."""
        end, size = self.outcome.log_end, self.snapshot.log_file_bytes
        return end % size > 0 and not self.tail_written


__all__ = ["CASES", "Case", "CaseFacts", "case_named", "case_of"]


class Case(NamedTuple):
    """One row. found, broker, plan: what is there, what a start does, what the plan does.

    bugs: of spec 07, 7.12; codes: of the catalogue of invariants. keep: what the plan does under
    that policy, "" for the same.
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


_NOT_MENDED = "none: the file has to be put right first"
_MOVED = "moves it away, then as without it"

CASES: tuple[Case, ...] = (
    Case(
        "interrupted-recovery",
        "a recovery was cut off; its start barrier may be in place",
        "refuses to start while the barrier is there",
        "goes on with the recovery's journal and ends as it would have ended",
        lambda facts: facts.interrupted,
    ),
    Case(
        "no-commit-log",
        "there is no commit log file: a wrong path, a disk that is not mounted, or a new store",
        "starts with an empty log and deletes the files of all queues",
        "none: refused for safety while queues have files; with --force-empty-log moves the"
        " files of queues, index and timer away",
        lambda facts: not facts.snapshot.log,
        codes=("I-002",),
    ),
    Case(
        "log-directory-missing",
        "a part of the log is missing, and one of its several directories is not there or empty: a disk that is"
        " not mounted?",
        "starts with the files that it finds, as if the others had expired or were lost",
        "none: refused for safety while the configuration names that directory",
        lambda facts: facts.plan is None and bool(missing_part(facts.snapshot)),
        codes=("I-002",),
    ),
    _refusal("foreign-name", "a log file's name is not a number", _MOVED, "I-005"),
    _refusal(
        "wrong-length",
        "a log file has a wrong length",
        _NOT_MENDED,
        "I-003",
        keep="gives it the length of the others, closes what is missing in it",
    ),
    _refusal("directory", "a directory among the log files", _MOVED, "I-005"),
    _refusal("empty-last-file", "the last log file is empty", _MOVED, "I-004"),
    _refusal(
        "dledger-hole",
        "a file is missing between those of a DLedger log",
        _NOT_MENDED,
        "I-002",
        keep="a file of entries with tombstones in its place",
    ),
    _refusal(
        "dledger-too-small",
        "the entries of a DLedger log end more than a file before its last one",
        _NOT_MENDED,
        "I-052",
        keep="makes the lost entries again, with tombstones in them",
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
        "a RocksDB of queues lies where the configuration says that none is",
        "none: useSeparateStorePathForRocksdbCQ has to be put right",
        "I-084",
        by_options=True,
    ),
    _refusal(
        "queue-options",
        "options of the queues that a broker does not take together",
        "none: the configuration has to be put right",
        by_options=True,
    ),
    _refusal(
        "queue-database-topics",
        "batch queues, or a compaction log, where queues are in a RocksDB: brokers since 5.4 load them with queues in"
        " files alone",
        "none: the queues have to be in files; with enableCompaction=false no compaction log is loaded",
        by_options=True,
    ),
    _refusal(
        "queue-database-row",
        "a row of the bounds in the RocksDB of queues cannot be read, is too short, or lies beyond the log"
        " (enableAcceleratedRecovery)",
        "puts the row right, or rebuilds the database",
        "I-084",
    ),
    _refusal(
        "queue-database-differs",
        "the queues in the RocksDB, which consumers read, end elsewhere than those in files",
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
        "completes the queues, so that none of them is dispatched again",
        "I-084",
    ),
    _refusal("ext-foreign-name", "a consumequeue_ext file's name is not a number", _MOVED, "I-005"),
    _refusal("ext-wrong-length", "a consumequeue_ext file has a wrong length", _MOVED, "I-003"),
    _refusal("ext-directory", "a directory among consumequeue_ext files", _MOVED, "I-005"),
    _refusal("ext-empty-last-file", "the last consumequeue_ext file is empty", _MOVED, "I-004"),
    Case(
        "ext-unreadable",
        "a unit of consumequeue_ext is longer than what is left of its file",
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
        "throws in load and refuses to start, up to 5.3",
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
        "a record names queues without a number for one of them; its dispatch throws",
        "throws at it in load and refuses to start, or waits for ever",
        "completes all queues, steps over the bad name",
        lambda facts: facts.undispatchable,
        ("B11",),
        ("I-048",),
    ),
    Case(
        "files-hidden",
        "a log file of a wrong length or an odd name",
        "ignores that file and all later ones",
        "moves it away where that is enough",
        lambda facts: bool(facts.outcome.log.hidden),
        ("B18",),
        ("I-001", "I-003"),
        keep="gives it the length of the others, or moves it away",
    ),
    Case(
        "odd-number",
        "a log file whose name is no multiple of the file size",
        "takes it for the last file and loses what it cannot reach",
        _MOVED,
        lambda facts: facts.odd_names,
        ("B18",),
        ("I-001",),
    ),
    Case(
        "dispatch-waits",
        "the dispatcher begins in a file that is missing",
        "start() waits for ever, the port never opens",
        "puts a BLANK file in the place of the missing one",
        lambda facts: bool(facts.outcome.hangs),
        ("B15",),
        ("I-002",),
        keep="a file of tombstones, fillers and a BLANK in its place",
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
        "ends the log at its last own record, zeros or moves away the rest",
        lambda facts: facts.plan is not None and facts.plan.stale,
        ("B14",),
        ("I-054",),
    ),
    Case(
        "ghost-record",
        "a record whose fields do not add up to its size",
        "takes it for data: ghost units, a log end that is off",
        "ends the log before it",
        lambda facts: facts.phantom,
        ("B26",),
        ("I-022",),
        keep="a tombstone in its place, if a queue names it",
    ),
    Case(
        "damage-cuts",
        "a damaged record with good ones behind it, in the range that the recovery scans",
        "cuts the log there, deletes the later files and what queues have of them",
        "the same, with the loss named and everything kept in the session's folder",
        lambda facts: facts.after.lost.messages > 0,
        ("B5",),
        ("I-020", "I-023"),
        keep="a tombstone for each lost message; all others stay where they are",
    ),
    Case(
        "missing-file",
        "a log file is missing, with later ones behind it",
        "does not notice; units of its messages point nowhere",
        "puts a BLANK file in its place",
        lambda facts: facts.missing_files,
        ("B6",),
        ("I-002",),
        keep="a file of tombstones, fillers and a BLANK in its place",
    ),
    Case(
        "dead-tail",
        "records behind the log end that an earlier start has cut off",
        "does not read them, as long as nothing new ends right before one of them",
        "zeros them",
        lambda facts: facts.tail_used and facts.after.dead > 0,
        ("B14", "B21"),
        ("I-043",),
    ),
    Case(
        "last-file-missing",
        "the last log file is missing: queues name the record at its beginning",
        "ends the log before it and cuts the units; their messages are gone",
        "the same, with the loss named: the log goes on at its end",
        lambda facts: facts.plan is not None and bool(facts.plan.gone) and facts.snapshot.layout.dledger is None,
        ("B4", "B21"),
        ("I-067", "I-072"),
    ),
    Case(
        "torn-tail",
        "the last record is torn: not written to its end, and nothing good behind it",
        "ends the log before it; its bytes stay",
        "ends the log before it and zeros its bytes",
        lambda facts: facts.tail_used,
        (),
        ("I-020", "I-043"),
        keep="a tombstone if a queue names it, else the same",
    ),
    Case(
        "log-shorter",
        "the log is shorter than the queues: they name records behind its end, which is zeros",
        "cuts the units, in memory or on disk; their messages are gone",
        "zeros the units, moves whole files of them away",
        lambda facts: facts.plan is not None and facts.plan.beyond > 0,
        ("B4", "B21"),
        ("I-067", "I-072"),
        keep="tombstones where the first of them follow the end of the log",
    ),
    Case(
        "wrong-header",
        "a record's header is wrong, which no checksum covers: a queue names it as another message",
        "does not notice; rebuilt, the queues have it elsewhere and all later ones shifted",
        "leaves it as it is",
        lambda facts: facts.plan is not None and facts.plan.restored > 0,
        (),
        ("I-070",),
        keep="puts the header right, where the rest of the record proves it",
    ),
    Case(
        "queues-incomplete",
        "messages without a unit in their queue, which the broker's start does not make",
        "serves the log without them",
        "completes the queues from the log",
        lambda facts: bool(facts.without_unit),
        ("B1", "B2", "B19", "B25"),
        ("I-070", "I-116"),
    ),
    Case(
        "compaction-incomplete",
        "messages that the log of their compaction topic lacks, or has others at their numbers",
        "answers pulls from that log alone: without them",
        "makes that log again from the commit log",
        lambda facts: facts.uncompacted,
        (),
        ("I-148", "I-182"),
    ),
    Case(
        "compaction-unserved",
        "messages of a compaction topic, where queues are in a RocksDB",
        "answers pulls from a compaction log, which brokers since 5.4 keep beside queues in files alone: with nothing",
        "none: enableCompaction=false serves the topic as any other",
        lambda facts: any(share.queue.topic in facts.outcome.unserved for share in facts.after.invisible),
        (),
        ("I-182",),
        by_options=True,
    ),
    Case(
        "batches-unserved",
        "inner batches of a topic with queue.type=BatchCQ, where queues are in a RocksDB",
        "has a unit for the first message of each: pulls of the others fail, of some versions those of the first, too",
        "none: the topic needs queues in files (repair --queues --as files)",
        lambda facts: bool(facts.in_batches),
        (),
        ("I-083", "I-182"),
        by_options=True,
    ),
    Case(
        "queues-behind",
        "the queues are shorter than the log: its last messages have no unit yet",
        "makes the units",
        "completes the queues from the log",
        lambda facts: facts.plan is not None and facts.plan.completed > 0,
        (),
        ("I-070", "I-075"),
    ),
    Case(
        "queues-ahead",
        "dead units behind the end of a queue",
        "ends the queue before those behind the log's end; the bytes stay. What begins before it is kept and counted",
        "zeros them, moves whole files of them away",
        lambda facts: facts.plan is not None and facts.plan.touches("consumequeue"),
        ("B4", "B21"),
        ("I-067", "I-073"),
    ),
    Case(
        "index-incomplete",
        "index files that are damaged, or leave out messages",
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
        (),
        ("I-020", "I-023"),
        keep="closes it like any other: tombstones, fillers, BLANKs",
    ),
    Case(
        "preallocated-zeros",
        "the broker did not shut down; everything is complete, behind the last record its file is"
        " zeros, allocated in advance",
        "ends the log at the last record, loses nothing",
        "leaves the zeros, writes the checkpoint and removes abort",
        lambda facts: facts.snapshot.abort and facts.rest_is_zeros,
        (),
        ("I-009",),
    ),
    Case(
        "killed",
        "the broker did not shut down, everything is complete",
        "recovers from the place that the checkpoint names, loses nothing",
        "writes the checkpoint and removes abort",
        lambda facts: facts.snapshot.abort,
        (),
        ("I-009",),
    ),
    Case(
        "spare-file",
        "a log file made in advance: all zeros, behind the log end",
        "deletes it",
        "moves it away",
        lambda facts: facts.plan is not None and facts.plan.removes("commitlog"),
        (),
        ("I-007",),
    ),
    Case(
        "beside-the-log",
        "log and queues are in order as far as a start looks at them; files of timer or"
        " consumequeue_ext are not, or tags, index items, checkpoint, configuration",
        "reads what it can of them; may never fire timed messages, may refuse or forget configuration",
        "puts right what a later version would refuse, moves empty files away, rebuilds a lost"
        " timer wheel and lost tables of the configuration",
        lambda facts: facts.plan is not None and bool(facts.plan.edits),
        ("B33",),
        ("I-079", "I-120", "I-126"),
        keep="puts right what `repair --all` would: each of them from the log",
    ),
    Case("in-order", "shut down cleanly, complete", "starts and changes nothing", "nothing to do", lambda _facts: True),
)


def case_of(facts: CaseFacts) -> Case:
    """The first case that holds."""
    return next(case for case in CASES if case.holds(facts))


def case_named(label: str) -> Case:
    """The case of that label."""
    return next(case for case in CASES if case.label == label)
