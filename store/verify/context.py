"""What checks look at: a store, what is asked of it (`Scope`), what the pass over its log has shown, and its batches.

Of what that pass has not looked at nothing can be said. What several checks need of a batch is made once.

Some checks have a state that goes on along the log. `--jobs` has parts of the log looked at in processes of their
own. Each begins with no state, so what it has seen tells less than a run that comes from the start of the log would
know. A run takes on the state of the part behind it only where that makes no difference: nothing is wrong in the part,
and nothing at the seam in front of it.

Readers go around bytes that the disk does not give (I-015), and note them (`store/disk/byte_reader.py`); a
check that cannot go around ends there. Whichever groups are asked for, what was met is told.
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

import numpy as np

from ...formats.derive import Columns
from ...formats.derive.ragged import Flags, Ints
from ...formats.hashing import java_string
from ...formats.message import TRANSACTION_MASK
from ...formats.property_columns import PropertyItems
from ..columns import Dictionary, Ranges, dictionary
from ..counted import counted
from ..disk.byte_reader import note, noted, noted_of, unread_of
from ..disk.lock import holder
from ..errors import UnreadableRange
from ..findings.catalogue import GROUPS, Severity
from ..findings.findings import Details, Finding, Findings, Message
from ..log.batch import last_of
from ..search.store import StoreReader, clock_ms

if TYPE_CHECKING:
    from ..broker.dispatch import Dispatched
    from ..broker.profiles import Profile
    from ..broker.snapshot import QueueId
    from ..log.commit_log import Batch, Extent
    from ..queues.rocksdb_copy import CopiedQueues
    from ..settings.read import Progress
    from ..start.config import ConfigStart


T = TypeVar("T")
SENT_AGAIN = "; it comes again from the master, if still there"


@dataclass
class LogFacts:
    """What the pass over the log has shown, for the checks behind it and for a run that goes on.

    end: log position behind the last good record. first_offset, next_offset: by queue, LMQ among
    them, of its messages in the log. newest, newest_dead: largest store timestamp, ms,
    of these and of those that a start has cut off. damage: where the first one begins, behind which a broker gives up
    what is good; -1 without. stopped_at: where reading ended before its time.
    """

    start: int = 0
    end: int = 0
    records: int = 0
    newest: int = 0
    newest_dead: int = 0
    damage: int = -1
    first_offset: dict[QueueId, int] = field(default_factory=dict)
    next_offset: dict[QueueId, int] = field(default_factory=dict)
    #: Bytes that the pass has read.
    bytes: int = 0
    stopped_at: int | None = None
    #: Some part was not looked at, because it was not asked for.
    skipped: bool = False
    #: Log position behind the last message that has a unit in some queue.
    dispatched: int = 0
    #: Where the last good records begin, and when the very last one was stored.
    last: list[int] = field(default_factory=list)
    last_timestamp: int = 0
    #: By queue, of messages in a row without a unit: queue offset, count, log position, end.
    missing: dict[QueueId, array[int]] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """All of the log was read: what it has not shown is not there."""
        return not self.skipped and self.stopped_at is None

    def going_on(self, start: int) -> LogFacts:
        """The same for a run that goes on, in a log that begins at `start` now."""
        own = {name: deepcopy(getattr(self, name)) for name in _OWN}
        return replace(self, start=start, stopped_at=None, **own)

    def merge(self, other: LogFacts) -> None:
        """What the pass over the part right behind has shown."""
        self.end, self.dispatched = other.end, max(self.dispatched, other.dispatched)
        self.records += other.records
        self.bytes += other.bytes
        self.newest = max(self.newest, other.newest)
        self.first_offset = other.first_offset | self.first_offset
        for queue, offset in other.next_offset.items():
            self.next_offset[queue] = max(self.next_offset.get(queue, 0), offset)
        if other.last:
            before, behind = (np.array(last, np.int64) for last in (self.last, other.last))
            self.last = last_of(before, behind).tolist()
            self.last_timestamp = other.last_timestamp
        for queue, gaps in other.missing.items():
            note_gaps(self.missing.setdefault(queue, array("q")), gaps)


def note_gaps(gaps: array[int], more: Sequence[int]) -> None:
    """Add to `LogFacts.missing` of a queue what comes next; a run that goes on is no other one."""
    if gaps and more and gaps[-4] + gaps[-3] == more[0]:
        gaps[-3] += more[1]
        gaps[-1] = more[3]
        more = more[4:]
    gaps.extend(more)


_OWN = ("first_offset", "next_offset", "missing")


class Predicted(NamedTuple):
    """Findings about the next start, and why there are none: "" where it was predicted.

    facts: what it does, line by line, each with a label. recovered: `recover` has nothing to do; None: not known.
    config: what it makes of config/.
    """

    findings: list[Finding]
    why_not: str = ""
    facts: Sequence[tuple[str, str]] = ()
    recovered: bool | None = None
    config: ConfigStart | None = None


class Scope(NamedTuple):
    """What is asked for. quick: structure and ends only. topic, queue_id: one topic, one queue.

    groups: of the catalogue, None for all. since_ms: the log from the file on that has messages of that time.
    sample_percent: so much of the log. start: log position to begin at; earlier: what the runs before it have shown of
    the log up to there. max_duration_s: reading ends after it. broker_version: take the store for one of it. proof:
    tell what of the log is in order for a start, too (`Verdict.verified`); anew: and of a log without queues and index
    what these are to hold. watch: what else looks at the log in the same pass (`Verdict.watched`).
    """

    quick: bool = False
    topic: str | None = None
    queue_id: int | None = None
    groups: frozenset[str] | None = None
    since_ms: int | None = None
    sample_percent: float | None = None
    start: int | None = None
    earlier: LogFacts | None = None
    max_duration_s: float | None = None
    broker_version: str | None = None
    proof: bool = False
    anew: bool = False
    watch: type[LogWatcher] | None = None


def never() -> bool:
    """Nobody asks to stop."""
    return False


class VerifyContext:
    """One run over one store. unread: what was not looked at, and why.

    asked_to_stop: whether somebody wants what there is so far. changing: a run before this one has
    seen the store change. behind: log position where this run begins, for another one that looks at
    what is in front of it and takes on what this one has seen (`context.py`).
    """

    def __init__(
        self,
        store: StoreReader,
        scope: Scope,
        now_ms: int | None = None,
        asked_to_stop: Callable[[], bool] = never,
        *,
        changing: bool = False,
        behind: int | None = None,
    ) -> None:
        self.store = store
        self.behind = behind
        self.scope = scope
        self.unread: list[str] = []
        #: Log positions [begin, end) of ranges with bytes that cannot be read.
        self.gone: list[tuple[int, int]] = []
        self._asked_to_stop = asked_to_stop
        self._changing = changing
        limit = scope.max_duration_s
        self._end_s = None if limit is None else time.monotonic() + limit
        self.findings = Findings()
        begin = store.log_files.start
        self.log = (scope.earlier or LogFacts(end=begin)).going_on(begin)
        self.now_ms = clock_ms() if now_ms is None else now_ms
        #: What the next start would do, once it is asked.
        self.start: Callable[[], Predicted] = lambda: Predicted([])
        #: What it was told to do.
        self.predicted = Predicted([])
        #: The queues of a store that has all of them in a RocksDB, read once.
        self.copied: CopiedQueues | None = None
        self._kept: dict[Any, Any] = {}

    @cached_property
    def profile(self) -> Profile:
        """How the brokers that wrote the store behave."""
        from ..broker.profiles import profile_of

        return profile_of(self.scope.broker_version or self.store.generation.version)

    @cached_property
    def progress(self) -> Progress:
        """How far groups have come."""
        from ..settings.read import read_progress

        return read_progress(self.store.layout.config, self.store.config)

    @cached_property
    def crashed(self) -> bool:
        """`abort` is there: a broker runs, or did not stop in order."""
        return self.store.layout.abort.exists()

    @cached_property
    def groups(self) -> frozenset[str]:
        """The groups of checks that are run: those asked for, and what these go by.

        Which messages have units is found out by the checks of queues; those of the checkpoint ask for it, and so does
        an index that is missing after a crash.
        """
        asked = self.scope.groups or frozenset(GROUPS)
        if "checkpoint" in asked or ("index" in asked and self.crashed):
            return asked | {"consume_queue"}
        return asked

    @cached_property
    def again(self) -> str:
        """What a finding says of the bytes behind the last good record, where a start ends the log in front of them and
        a master sends them again; "" where none does.
        """
        layout = self.store.layout
        if not layout.broker_config.is_slave or layout.dledger is not None:
            return ""
        taken = self.crashed and self.profile.record.unequal_is_data  # for data (B26): then the slave asks behind them
        return "" if taken else SENT_AGAIN

    @property
    def behind_the_end(self) -> Details:
        """How a finding about these bytes differs from others."""
        return {"severity": Severity.INFO, "unclean": not self.live} if self.again else {}

    @property
    def read_at_once(self) -> bool:
        """This run has read the whole log: what it has kept of records is complete, too."""
        return self.log.complete and self.scope.earlier is None

    @cached_property
    def live(self) -> bool:
        """Somebody writes: what is behind the log end now may be there a moment later."""
        return self._changing or holder(self.store.layout.lock) not in (None, os.getpid())

    def begin_reading(self) -> None:
        """The checks before the log are done: half of the time at least is for the log."""
        if self._end_s is not None and self.scope.max_duration_s is not None:
            self._end_s = max(self._end_s, time.monotonic() + self.scope.max_duration_s / 2)

    def stopped(self) -> str:
        """Why the run is to end now, "" if it is not."""
        if self._asked_to_stop():
            return "interrupted"
        if self._end_s is not None and time.monotonic() >= self._end_s:
            return "--max-duration is over"
        return ""

    def kept(self, key: Any, make: Callable[[], T]) -> T:
        """What a check keeps from one call to the next; made at the first."""
        if key not in self._kept:
            self._kept[key] = make()
        found: T = self._kept[key]
        return found

    def states(self) -> dict[Any, Any]:
        """All that checks have kept, by key."""
        return dict(self._kept)

    def place(self, position: int) -> tuple[str, int]:
        """File of a log position and the byte in it; the log's directory where no file has it."""
        file = self.store.log_files.file_at(position)
        if file is None:
            return os.fspath(self.store.layout.commit_log_directories[0]), position
        return file.path, position - file.start

    def log_finding(self, code: str, position: int, size: int, message: Message, **more: Any) -> None:
        """A finding about bytes of the log. more: as in `Findings.add`."""
        path, offset = self.place(position)
        self.findings.add(code, path, message, offset=offset, length=size, **more)

    def log_rows(
        self, code: str, wrong: Flags, position: Ints, ends: Ints, message: Callable[[int], str], **more: Any
    ) -> None:
        """Rows of consecutive records of one file of the log, as in `Findings.add_rows`."""
        if not wrong.any():
            return
        path, offset = self.place(int(position[0]))
        start = int(position[0]) - offset
        self.findings.add_rows(code, path, wrong, position - start, ends - start, message, **more)


class Mergeable(ABC):
    """What a check keeps from batch to batch (`VerifyContext.kept`), and can take on from a part behind."""

    @classmethod
    def fresh(cls, context: VerifyContext) -> Self:
        """The state of a run that has kept nothing yet."""
        return cls()

    def export(self) -> Any:
        """What the run in front needs of it, to be pickled: None where it cannot be taken on."""
        return self

    def can_merge(self, left: Any) -> bool:
        """Nothing would be found at the seam to what `export` gave of the part behind it."""
        return True

    @abstractmethod
    def merge(self, context: VerifyContext, left: Any) -> None:
        """Go on as if this run had seen that part, too."""


class LogWatcher(Mergeable):
    """Looks at the log in the pass of the checks and finds nothing: for who wants to know what is in it.

    `Scope.watch` names the class, `Verdict.watched` has what was made of it.
    """

    @abstractmethod
    def records(self, records: Records) -> None:
        """Good records of this log, in order."""

    @abstractmethod
    def stale(self, records: Records) -> None:
        """Whole records that are none of this log, or no longer."""

    @abstractmethod
    def extent(self, extent: Extent) -> None:
        """What is no record."""


CACHES = frozenset({"index files", "ext files", "queue begins"})
"""What else may be kept while the log is read: it says nothing of what was read so far."""


class Covered(Mergeable):
    """Log positions, good records and all else."""

    def __init__(self) -> None:
        self._ranges, self._records = Ranges(), Ranges()

    def add(self, begin: int, end: int) -> None:
        """The pass is over these bytes."""
        self._ranges.add_range(begin, end)

    def add_records(self, batch: Batch) -> None:
        """It is over these good records."""
        self.add(int(batch.position[0]), batch.end)
        for begin, end in batch.taken:
            self._records.add_range(begin, end)

    def has(self, positions: Ints) -> Flags:
        """bool[n]: which of the log positions, int64[n], it has been at."""
        return self._ranges.has(positions)

    def in_records(self, positions: Ints) -> Flags:
        """bool[n]: which of the log positions, int64[n], good records take up (`Batch.taken`)."""
        return self._records.has(positions)

    def merge(self, context: VerifyContext, left: Covered) -> None:
        """That of the part, too."""
        self._ranges.add_all(left._ranges)
        self._records.add_all(left._records)


def covered_of(context: VerifyContext) -> Covered:
    """That of a run."""
    return context.kept(Covered, Covered)


LOOK = "mqstore get {store} --at {position} --format json"
"""The next command where none mends a record: who knows the message can judge it."""


class Records:
    """n records in log order. dispatched: what they add to queues and index, None for stale ones."""

    def __init__(self, batch: Batch, dispatched: Dispatched | None = None) -> None:
        self.batch = batch
        self.dispatched = dispatched

    def __len__(self) -> int:
        return len(self.batch)

    @property
    def columns(self) -> Columns:
        """Of MESSAGE."""
        return self.batch.columns

    @property
    def position(self) -> Ints:
        """int64[n]: where each record begins in the log."""
        return self.batch.position

    @cached_property
    def ends(self) -> Ints:
        """int64[n]: log position behind each record."""
        return self.position + self.ints("total_size")

    def ints(self, name: str) -> Ints:
        """int64[n]: a number of MESSAGE."""
        return self.columns.ints(name).astype(np.int64, copy=False)

    @cached_property
    def properties(self) -> PropertyItems:
        """The items of all properties."""
        if self.dispatched is not None:
            return self.dispatched.properties
        return PropertyItems(self.columns.ragged("properties"))

    @cached_property
    def topics(self) -> Dictionary:
        """Topics as stored, each once, and which one each record has."""
        if self.dispatched is not None:
            return self.dispatched.stored_topics
        return dictionary(self.columns.ragged("topic"))

    @cached_property
    def topic_texts(self) -> list[str]:
        """The topics as Java reads them, in the order of `topics.values`."""
        return [java_string(value) for value in self.topics.values]

    def of_topic(self, topic: str) -> Ints:
        """Rows of one topic."""
        if topic not in self.topic_texts:
            return np.zeros(0, np.int64)
        return np.flatnonzero(self.topics.ids == self.topic_texts.index(topic))

    @cached_property
    def transaction(self) -> Ints:
        """int64[n]: the transaction bits of sys_flag."""
        bits: Ints = self.ints("sys_flag") & TRANSACTION_MASK
        return bits


def add_rows(
    context: VerifyContext,
    records: Records,
    code: str,
    wrong: Flags,
    text: str,
    values: Ints | None = None,
    *,
    severity: Severity | None = None,
    repair: str | None = None,
) -> None:
    """A finding of each run of wrong records; values: a number of each, told behind the text."""
    if not wrong.any():
        return

    def told(row: int) -> str:
        value = "" if values is None else f" {values[row]}"
        return f"record at {records.position[row]}: {text}{value}"

    context.log_rows(code, wrong, records.position, records.ends, told, severity=severity, repair=repair)


NOT_CHECKED = "not checked to the end"


def of_unread() -> Iterator[Finding]:
    """What was met so far and could not be read."""
    for unread in noted():
        size = counted(unread.length, "byte")
        text = f"cannot read {size} at {unread.offset}: {unread.reason}"
        found = Finding.of("I-015", unread.path, text)
        yield replace(found, offset=unread.offset, length=unread.length)


def ended(context: VerifyContext) -> dict[str, set[str]]:
    """Codes of checks that could not go on, by the place where they ended."""
    return context.kept(NOT_CHECKED, dict[str, set[str]])


@contextmanager
def going_on(context: VerifyContext, codes: Iterable[str]) -> Iterator[None]:
    """A check in this block ends at bytes that cannot be read, the run does not. codes: its own."""
    try:
        yield
    except UnreadableRange as error:
        note(unread_of(error))
        ended(context).setdefault(f"cannot read {error.path}", set()).update(codes)


def need_whole(paths: Iterable[str]) -> None:
    """Raises UnreadableRange where something of these files could not be read: a check of what is
    between their entries has nothing to go by.
    """
    for path in paths:
        for unread in noted_of(path):
            raise unread.error()


def is_gone(context: VerifyContext, positions: Ints) -> Flags:
    """bool[n]: log positions, int64[n], at which nobody can tell whether a record begins."""
    gone = np.zeros(len(positions), np.bool_)
    for begin, end in context.gone:
        gone |= (positions >= begin) & (positions < end)
    return gone


class RepeatedChecks:
    """Checks that are called again and again: one that has met bytes that cannot be read is left out."""

    def __init__(self, context: VerifyContext, moment: dict[str, Any], checks: list[Callable[..., None]]) -> None:
        self._context = context
        self._moment = moment
        self._checks = checks

    def __call__(self, item: Any) -> None:
        """Hand an item to all of them."""
        for check in self._checks:
            try:
                check(self._context, item)
            except UnreadableRange as error:
                self._leave_out(check, error)

    def _leave_out(self, check: Callable[..., None], error: UnreadableRange) -> None:
        codes = [code for code, registered in self._moment.items() if registered is check]
        with going_on(self._context, codes):
            raise error
        self._checks = [other for other in self._checks if other is not check]
