"""What checks look at: the store, the request (`Scope`), the facts of the pass over the log, and its batches.

Nothing can be said of parts of the log that the pass has not read. What several checks need of a batch is made once.

Some checks have a state that continues along the log. With `--jobs` other processes check parts of the log, each
without the state of the part in front, so their findings may differ from those of one run from the start. A run merges
the state of the part behind it (`Mergeable`) only if that makes no difference: nothing is wrong in the part, and
nothing at the seam in front of it.

Readers skip bytes that the disk does not return (I-015), and note them (`store/disk/byte_reader.py`); a check that
cannot skip them ends there. Noted ranges are reported whichever groups are asked for.
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
    from ..disk.file_queue import MappedFile
    from ..disk.layout import QueueDirectory
    from ..log.commit_log import Batch, Extent
    from ..queues.rocksdb_copy import CopiedQueues
    from ..settings.read import Progress
    from ..start.config import ConfigStart


T = TypeVar("T")


@dataclass
class LogFacts:
    """What the pass over the log found, for the checks after it and for a run that continues.

    end: log position behind the last good record. first_offset, next_offset: of the messages in the log, by queue, LMQ
    included. newest, newest_dead: largest store timestamp, ms, of good records and of records that a start cut off.
    damage: the first damage at which a broker gives up good records behind it; -1 without. stopped_at: where reading
    ended early.
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
    #: Some part was not read, because it was not asked for.
    skipped: bool = False
    #: Log position behind the last message that has a unit in some queue.
    dispatched: int = 0
    #: Log positions of the last good records, and the store timestamp of the very last one.
    last: list[int] = field(default_factory=list)
    last_timestamp: int = 0
    #: By queue, for each run of messages without a unit: queue offset, count, log position, end.
    missing: dict[QueueId, array[int]] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether all of the log was read, so that what was not found is not there."""
        return not self.skipped and self.stopped_at is None

    def going_on(self, start: int) -> LogFacts:
        """Return the facts for a run that continues, in a log that begins at `start` now."""
        return replace(deepcopy(self), start=start, stopped_at=None)

    def merge(self, other: LogFacts) -> None:
        """Add the facts of the pass over the part directly behind."""
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
    """Append runs to `LogFacts.missing` of a queue; join the first one to the last of `gaps` if it continues that."""
    if gaps and more and gaps[-4] + gaps[-3] == more[0]:
        gaps[-3] += more[1]
        gaps[-1] = more[3]
        more = more[4:]
    gaps.extend(more)


class Predicted(NamedTuple):
    """Findings about the next start. why_not: why it, or a part of it, was not predicted, "" if it was.

    facts: what it does, line by line, each with a label. recovered: `recover` has nothing to do; None: not known.
    config: what it makes of config/.
    """

    findings: list[Finding]
    why_not: str = ""
    facts: Sequence[tuple[str, str]] = ()
    recovered: bool | None = None
    config: ConfigStart | None = None


class Scope(NamedTuple):
    """What to check. quick: structure and ends only. topic, queue_id: one topic, one queue. groups: of the catalogue,
    None for all. since_ms: begin at the log file that has messages of that time. sample_percent: read only so much of
    the log.

    start: log position to begin at; earlier: the facts of runs over the log up to there. max_duration_s: end reading
    after it. broker_version: take the store for one of this version. proof: also tell what of the log is in order for a
    start (`Verdict.verified`); anew: and, without queues and index, what they should contain. watch: see
    `Verdict.watched`.
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

    def wants(self, queue: QueueId | QueueDirectory) -> bool:
        return self.topic in (None, queue.topic) and self.queue_id in (None, queue.queue_id)


class VerifyContext:
    """One run over one store. unread: what was not checked, and why.

    asked_to_stop: returns whether somebody wants the run to end with what it has. changing: an earlier run has seen the
    store change. behind: log position where this run begins, if another run reads the log in front of it and merges the
    state of this one (see the module); None otherwise.
    """

    def __init__(
        self,
        store: StoreReader,
        scope: Scope,
        now_ms: int | None = None,
        asked_to_stop: Callable[[], bool] | None = None,
        *,
        changing: bool = False,
        behind: int | None = None,
    ) -> None:
        self.store = store
        self.behind = behind
        self.scope = scope
        self.unread: list[str] = []
        #: Log positions of bytes that cannot be read: a record may begin there.
        self.gone = Ranges()
        self._asked_to_stop = asked_to_stop
        self._changing = changing
        limit = scope.max_duration_s
        self._end_s = None if limit is None else time.monotonic() + limit
        self.findings = Findings()
        #: Files of the log when the run began.
        self.files = store.log_files.files
        begin = store.log_files.start
        self.log = (scope.earlier or LogFacts(end=begin)).going_on(begin)
        self.now_ms = clock_ms() if now_ms is None else now_ms
        #: Predicts what the next start would do, when it is called.
        self.start: Callable[[], Predicted] = lambda: Predicted([])
        #: What `start` predicted.
        self.predicted = Predicted([])
        #: The queues of a store that has all of them in a RocksDB, read once.
        self.copied: CopiedQueues | None = None
        self._kept: dict[Any, Any] = {}

    @cached_property
    def profile(self) -> Profile:
        """The behaviour of the brokers that wrote the store."""
        from ..broker.profiles import profile_of

        return profile_of(self.scope.broker_version or self.store.generation.version)

    @cached_property
    def progress(self) -> Progress:
        """The offsets that consumer groups have reached."""
        from ..settings.read import read_progress

        return read_progress(self.store.layout.config, self.store.config)

    @cached_property
    def crashed(self) -> bool:
        """Whether `abort` is there: a broker runs, or was not shut down cleanly."""
        return self.store.layout.abort.exists()

    @cached_property
    def uncommitted(self) -> int | None:
        """`uncommitted_from` this store: where records begin that a DLedger group has not committed; None without a
        group of several nodes.
        """
        if not self.store.layout.has_peers:
            return None
        from ..plan.observer import uncommitted_from  # few stores need it

        return uncommitted_from(self.store)

    def waits(self, position: int) -> bool:
        """Whether the record at a log position is not committed yet."""
        return self.uncommitted is not None and position >= self.uncommitted

    @property
    def not_dispatched(self) -> Details:
        """Severity and unclean flag for findings about what is not dispatched yet."""
        return {"severity": Severity.INFO, "unclean": self.crashed and not self.live}

    @cached_property
    def groups(self) -> frozenset[str]:
        """The groups of checks to run: those asked for, and those that they depend on.

        The checks of queues find out which messages have units; the checks of the checkpoint need that, and so does the
        check of an index that is missing after a crash.
        """
        asked = self.scope.groups or frozenset(GROUPS)
        if "checkpoint" in asked or ("index" in asked and self.crashed):
            return asked | {"consume_queue"}
        return asked

    @cached_property
    def again(self) -> str:
        """Text for findings about bytes behind the last good record of a slave, where a start cuts the log and the
        master sends the bytes again; "" if no master does.
        """
        if not self.store.layout.follows_master:
            return ""
        # a slave that takes the bytes for data (B26) asks the master for what follows them
        taken = self.crashed and self.profile.record.unequal_is_data
        return "" if taken else f"; it comes again from {self.store.layout.master}, if still there"

    @property
    def behind_the_end(self) -> Details:
        """Severity and unclean flag for findings about these bytes; {} if no master sends them again."""
        return {"severity": Severity.INFO, "unclean": not self.live} if self.again else {}

    @property
    def read_at_once(self) -> bool:
        """Whether this run has read the whole log, so that what it has kept of records is complete, too."""
        return self.log.complete and self.scope.earlier is None

    @cached_property
    def live(self) -> bool:
        """Whether somebody writes: what is behind the log end now may be records a moment later."""
        return self._changing or holder(self.store.layout.lock) not in (None, os.getpid())

    def begin_now(self) -> int:
        """Return where the log begins now, and let `log.start` follow: a running broker deletes the oldest files, and
        the files of queues, whose records were read before.
        """
        files = self.store.log_files
        if self.live and files.files and not os.path.exists(files.files[0].path):  # noqa: PTH110
            files.has_expired(files.files[0])
        self.log.start = max(self.log.start, files.gone_before)
        return self.log.start

    def begin_reading(self) -> None:
        """Give the pass over the log at least half of the time limit, now that the checks before it are done."""
        if self._end_s is not None and self.scope.max_duration_s is not None:
            self._end_s = max(self._end_s, time.monotonic() + self.scope.max_duration_s / 2)

    def stopped(self) -> str:
        """Return why the run has to end now, "" if it goes on."""
        if self._asked_to_stop is not None and self._asked_to_stop():
            return "interrupted"
        if self._end_s is not None and time.monotonic() >= self._end_s:
            return "--max-duration is over"
        return ""

    def kept(self, key: Any, make: Callable[[], T]) -> T:
        """Return what `make` returned at the first call with this key."""
        if key not in self._kept:
            self._kept[key] = make()
        found: T = self._kept[key]
        return found

    def states(self) -> dict[Any, Any]:
        """Return all kept values by key."""
        return dict(self._kept)

    def place(self, position: int) -> tuple[str, int]:
        """Return the file of a log position and the byte in it; without a file the log's directory and the position."""
        file = self.store.log_files.file_at(position)
        if file is None:
            return os.fspath(self.store.layout.commit_log_directories[0]), position
        return file.path, position - file.start

    def queue_finding(self, code: str, queue: QueueId, path: str | os.PathLike[str], text: str, **more: Any) -> None:
        """Add a finding about one queue, which the message names first. more: as in `Findings.add`."""
        self.findings.add(code, path, f"{queue}: {text}", **queue._asdict(), **more)

    def log_finding(self, code: str, position: int, size: int, message: Message, **more: Any) -> None:
        """Add a finding about bytes of the log. more: as in `Findings.add`."""
        path, offset = self.place(position)
        self.findings.add(code, path, message, offset=offset, length=size, **more)

    def log_rows(
        self, code: str, wrong: Flags, position: Ints, ends: Ints, message: Callable[[int], str], **more: Any
    ) -> None:
        """Add findings about consecutive records of one file of the log, as in `Findings.add_rows`."""
        if not wrong.any():
            return
        path, offset = self.place(int(position[0]))
        start = int(position[0]) - offset
        self.findings.add_rows(code, path, wrong, position - start, ends - start, message, **more)

    def file_rows(
        self,
        code: str,
        files: Iterable[MappedFile],
        wrong: Flags,
        begins: Ints,
        ends: Ints,
        message: Callable[[int], str],
        **more: Any,
    ) -> None:
        """Add findings about items of several files, as in `Findings.add_rows`. begins, ends: in the stream."""
        for file in files if wrong.any() else ():
            mine = wrong & (begins >= file.start) & (begins < file.end)
            self.findings.add_rows(code, file.path, mine, begins - file.start, ends - file.start, message, **more)


class Mergeable(ABC):
    """State of a check between batches (`VerifyContext.kept`), which can take in the state of a part behind it."""

    @classmethod
    def fresh(cls, context: VerifyContext) -> Self:
        """Return the state of a run that has seen nothing yet."""
        return cls()

    def export(self) -> Any:
        """Return what the run in front needs of this state, to be pickled; None if it cannot be merged."""
        return self

    def can_merge(self, exported: Any) -> bool:
        """Return whether nothing would be found at the seam. exported: what `export` returned of the part behind."""
        return True

    @abstractmethod
    def merge(self, context: VerifyContext, exported: Any) -> None:
        """Continue as if this run had seen that part, too."""


@dataclass
class Collected(Mergeable):
    """What a check has collected, in the order of the log."""

    items: list[Any] = field(default_factory=list)

    def merge(self, context: VerifyContext, exported: Collected) -> None:
        self.items += exported.items


def collected(context: VerifyContext, what: str) -> list[Any]:
    """Return the list in which a check collects something; `what` names it."""
    return context.kept(what, Collected).items


class LogWatcher(Mergeable):
    """Looks at the log in the pass of the checks, without adding findings.

    `Scope.watch` names the class, `Verdict.watched` has the instance.
    """

    @abstractmethod
    def records(self, records: Records) -> None:
        """Take good records of this log, in order."""

    @abstractmethod
    def stale(self, records: Records) -> None:
        """Take whole records that do not belong to this log, or no longer."""

    @abstractmethod
    def extent(self, extent: Extent) -> None:
        """Take a range that is not a record."""


CACHES = frozenset({"index files", "ext files"})
"""Keys of kept values that do not depend on what was read of the log so far."""


class Covered(Mergeable):
    """Log positions that the pass has read: those of good records, and all."""

    def __init__(self) -> None:
        self._ranges, self._records = Ranges(), Ranges()

    def add(self, begin: int, end: int) -> None:
        self._ranges.add_range(begin, end)

    def add_records(self, batch: Batch) -> None:
        self.add(int(batch.position[0]), batch.end)
        for begin, end in batch.taken:
            self._records.add_range(begin, end)

    def has(self, positions: Ints) -> Flags:
        """Return which of the log positions, int64[n], the pass has read: bool[n]."""
        return self._ranges.has(positions)

    def in_records(self, positions: Ints) -> Flags:
        """Return which of the log positions, int64[n], lie in good records (`Batch.taken`): bool[n]."""
        return self._records.has(positions)

    def merge(self, context: VerifyContext, exported: Covered) -> None:
        self._ranges.add_all(exported._ranges)
        self._records.add_all(exported._records)


def covered_of(context: VerifyContext) -> Covered:
    return context.kept(Covered, Covered)


LOOK = "mqstore get {store} --at {position} --format json"
"""Next command for a record that nothing repairs: whoever knows the message can judge it."""


class Records:
    """n records in log order. dispatched: what they add to queues and index, None for stale records."""

    def __init__(self, batch: Batch, dispatched: Dispatched | None = None) -> None:
        self.batch = batch
        self.dispatched = dispatched

    def __len__(self) -> int:
        return len(self.batch)

    @property
    def columns(self) -> Columns:
        return self.batch.columns

    @property
    def position(self) -> Ints:
        """int64[n]: log position of each record."""
        return self.batch.position

    @cached_property
    def ends(self) -> Ints:
        """int64[n]: log position behind each record."""
        return self.position + self.ints("total_size")

    def ints(self, name: str) -> Ints:
        """Return a number of MESSAGE as int64[n]."""
        return self.columns.ints(name).astype(np.int64, copy=False)

    @cached_property
    def properties(self) -> PropertyItems:
        if self.dispatched is not None:
            return self.dispatched.properties
        return PropertyItems(self.columns.ragged("properties"))

    @cached_property
    def topics(self) -> Dictionary:
        """The stored topics, each once, and the number of each record's topic among them."""
        if self.dispatched is not None:
            return self.dispatched.stored_topics
        return dictionary(self.columns.ragged("topic"))

    @cached_property
    def topic_texts(self) -> list[str]:
        """The topics as Java reads them, in the order of `topics.values`."""
        return [java_string(value) for value in self.topics.values]

    def of_topic(self, topic: str) -> Ints:
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
    **more: Any,
) -> None:
    """Add a finding for each run of wrong records. values: a number for each record, put behind the text."""
    if wrong.any():
        message = of_record(records.position, text, values)
        context.log_rows(code, wrong, records.position, records.ends, message, **more)


def of_record(position: Ints, text: str, values: Ints | None = None, what: str = "record") -> Callable[[int], str]:
    """Return a function of a row: the text about its record, with the number of the row behind it."""
    return lambda row: f"{what} at {position[row]}: {text}{'' if values is None else f' {values[row]}'}"


NOT_CHECKED = "not checked to the end"


def of_unread() -> Iterator[Finding]:
    """Yield a finding for each range noted so far that could not be read."""
    for unread in noted():
        size = counted(unread.length, "byte")
        text = f"cannot read {size} at {unread.offset}: {unread.reason}"
        yield Finding.of("I-015", unread.path, text, offset=unread.offset, length=unread.length)


def ended(context: VerifyContext) -> dict[str, set[str]]:
    """Return the codes of checks that could not continue, by the reason."""
    return context.kept(NOT_CHECKED, dict[str, set[str]])


@contextmanager
def going_on(context: VerifyContext, codes: Iterable[str]) -> Iterator[None]:
    """Let a check in this block, but not the run, end at bytes that cannot be read. codes: of the check."""
    try:
        yield
    except UnreadableRange as error:
        note(unread_of(error))
        ended(context).setdefault(f"cannot read {error.path}", set()).update(codes)


def need_whole(paths: Iterable[str]) -> None:
    """Raise UnreadableRange if a part of these files could not be read: a check of gaps between entries needs all."""
    for path in paths:
        for unread in noted_of(path):
            raise unread.error()


class RepeatedChecks:
    """Checks, with their codes, called for each batch; one that meets unreadable bytes is left out from then on."""

    def __init__(self, context: VerifyContext, checks: dict[Callable[..., None], list[str]]) -> None:
        self._context = context
        self._checks = checks

    def __call__(self, item: Any) -> None:
        for check, codes in list(self._checks.items()):
            try:
                check(self._context, item)
            except UnreadableRange:
                del self._checks[check]
                with going_on(self._context, codes):
                    raise
